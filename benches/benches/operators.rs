//! Fused operators against Burn's compositions of them, forward and backward, in the same run; sizes are those of a
//! batch of 8 texts of 256 tokens in a small model.
#![allow(missing_docs, reason = "a bench")]

use burn::tensor::{DType, Device, Tensor};
use criterion::{Criterion, criterion_group, criterion_main};
use lrvd_burn::ops::causal_attention::causal_attention_composite;
use lrvd_burn::ops::gated_silu::gated_silu_composite;
use lrvd_burn::ops::gelu::gelu_composite;
use lrvd_burn::ops::layer_norm::layer_norm_composite;
use lrvd_burn::ops::rms_norm::rms_norm_composite;
use lrvd_burn::ops::{causal_attention, gated_silu, gelu, layer_norm, rms_norm, standard_normal};
use lrvd_core::noise::NoiseKey;

/// Numbers that take part in the graph.
fn leaf<const D: usize>(shape: [usize; D]) -> Tensor<D> {
    let like = Tensor::<1>::zeros([1], (&Device::flex().autodiff(), DType::F32));
    standard_normal(&like, shape, NoiseKey::new(1)).require_grad()
}

/// Times both forms of an operator, each with its backward pass.
fn pair<const D: usize>(
    c: &mut Criterion,
    name: &str,
    fused: impl Fn() -> Tensor<D>,
    composite: impl Fn() -> Tensor<D>,
) {
    let mut group = c.benchmark_group(name);
    group.sample_size(20);
    group.bench_function("fused", |b| b.iter(|| fused().sum().backward()));
    group.bench_function("composite", |b| b.iter(|| composite().sum().backward()));
    group.finish();
}

fn operators(c: &mut Criterion) {
    let rows = leaf([8, 256, 768]);
    let other = leaf([8, 256, 768]);
    let [gain, shift] = [leaf([768]).detach(), leaf([768]).detach()];
    pair(c, "gelu", || gelu(rows.clone()), || gelu_composite(rows.clone()));
    pair(
        c,
        "gated_silu",
        || gated_silu(rows.clone(), other.clone()),
        || gated_silu_composite(rows.clone(), other.clone()),
    );
    pair(
        c,
        "layer_norm",
        || layer_norm(rows.clone(), gain.clone(), shift.clone(), 1e-7),
        || layer_norm_composite(rows.clone(), gain.clone(), shift.clone(), 1e-7),
    );
    pair(
        c,
        "rms_norm",
        || rms_norm(rows.clone(), gain.clone(), 1e-5),
        || rms_norm_composite(rows.clone(), gain.clone(), 1e-5),
    );
    for (heads, width) in [(8, 8), (12, 64)] {
        let [query, key, value] = [(); 3].map(|()| leaf([8, 256, heads, width]));
        let mask = Tensor::<2>::ones([8, 256], (&Device::flex().autodiff(), DType::F32));
        let scale = 1.0 / (width as f64).sqrt();
        let arguments = || (query.clone(), key.clone(), value.clone(), mask.clone());
        let fused = || {
            let (query, key, value, mask) = arguments();
            causal_attention(query, key, value, mask, scale)
        };
        let composite = || {
            let (query, key, value, mask) = arguments();
            causal_attention_composite(query, key, value, mask, scale)
        };
        pair(c, &format!("causal_attention_{heads}x{width}"), fused, composite);
    }
}

criterion_group!(benches, operators);
criterion_main!(benches);
