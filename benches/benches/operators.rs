//! Fused operators against Burn's compositions of them, forward and backward, in the same run; sizes are those of a
//! batch of 8 texts of 256 tokens in a small model, and for layers 8 of 128.
//!
//! Each is held against its composition before it is timed: a wrong operator cannot win.
#![allow(missing_docs, clippy::expect_used, reason = "a bench")]

use burn::module::{Lora, Module, Param};
use burn::nn::{Linear, LinearConfig};
use burn::tensor::{DType, Device, Gradients, Tensor};
use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, Criterion, criterion_group};
use lrvd_burn::adapter::{AdaptedLinear, AdapterConfig};
use lrvd_burn::model::NamedModule as _;
use lrvd_burn::ops::{
    LowRank, Window, adapted_linear, attention, by_definition, gated_silu, gelu, layer_norm,
    rms_norm, standard_normal,
};
use lrvd_burn::sampling::Pass;
use lrvd_core::noise::NoiseKey;

/// Largest difference between two forms, relative to the largest value.
const TOLERANCE: f64 = 1e-4;

/// Numbers that take part in the graph.
fn leaf<const D: usize>(seed: u64, shape: [usize; D]) -> Tensor<D> {
    let like = Tensor::<1>::zeros([1], (&Device::flex().autodiff(), DType::F32));
    standard_normal(&like, shape, NoiseKey::new(seed)).require_grad()
}

/// The gradient of a leaf.
fn gradient<const D: usize>(leaf: &Tensor<D>, of: &Gradients) -> Vec<f64> {
    leaf.grad(of).expect("a leaf has a gradient").into_data().iter().collect()
}

/// Output and gradients, for a loss that weighs every output differently.
fn values<const D: usize>(
    out: Tensor<D>,
    gradients: &impl Fn(&Gradients) -> Vec<Vec<f64>>,
) -> Vec<Vec<f64>> {
    let weights = leaf(9, out.dims()).detach();
    let mut all = gradients(&(out.clone() * weights).sum().backward());
    all.push(out.into_data().iter().collect());
    all
}

/// Panics unless both forms agree.
fn prove(name: &str, found: &[Vec<f64>], expected: &[Vec<f64>]) {
    assert_eq!(found.len(), expected.len(), "{name}");
    for (found, expected) in found.iter().zip(expected) {
        assert_eq!(found.len(), expected.len(), "{name}");
        let largest = expected.iter().fold(0.0, |m: f64, w| m.max(w.abs()));
        let worst = found.iter().zip(expected).fold(0.0, |m: f64, (f, w)| m.max((f - w).abs()));
        assert!(worst <= TOLERANCE * largest, "{name}: off by {worst} of {largest}");
    }
}

/// Proves a fused operator by its composition, then times both, each with its backward pass.
fn pair<'c, const D: usize>(
    c: &'c mut Criterion,
    name: &str,
    gradients: impl Fn(&Gradients) -> Vec<Vec<f64>>,
    op: impl Fn() -> Tensor<D>,
) -> BenchmarkGroup<'c, WallTime> {
    prove(name, &values(op(), &gradients), &values(by_definition(&op), &gradients));
    let mut group = c.benchmark_group(name);
    group.sample_size(20);
    group.bench_function("fused", |b| b.iter(|| op().sum().backward()));
    group.bench_function("composite", |b| b.iter(|| by_definition(&op).sum().backward()));
    group
}

fn operators(c: &mut Criterion) {
    let [rows, other] = [1, 2].map(|seed| leaf(seed, [8, 256, 768]));
    let [gain, shift] = [3, 4].map(|seed| leaf(seed, [768]).detach());
    let of_rows = |g: &Gradients| vec![gradient(&rows, g)];
    let of_both = |g: &Gradients| vec![gradient(&rows, g), gradient(&other, g)];
    pair(c, "gelu", of_rows, || gelu(rows.clone()));
    pair(c, "gated_silu", of_both, || gated_silu(rows.clone(), other.clone()));
    pair(c, "layer_norm", of_rows, || {
        layer_norm(rows.clone(), gain.clone(), Some(shift.clone()), 1e-7)
    });
    pair(c, "rms_norm", of_rows, || rms_norm(rows.clone(), gain.clone(), 1e-5));
    for (heads, width) in [(8, 8), (12, 64)] {
        let [query, key, value] = [1, 2, 3].map(|seed| leaf(seed, [8, 256, heads, width]));
        let mask = Tensor::<2>::ones([8, 256], (&Device::flex().autodiff(), DType::F32));
        let scale = 1.0 / (width as f64).sqrt();
        let op = || {
            let [query, key, value] = [&query, &key, &value].map(Tensor::clone);
            attention(query, key, value, mask.clone(), Window::CAUSAL, scale)
        };
        let gradients = |g: &Gradients| [&query, &key, &value].map(|leaf| gradient(leaf, g)).into();
        pair(c, &format!("causal_attention_{heads}x{width}"), gradients, op);
    }
}

/// A frozen layer of 1,024 rows and its update of rank 8: the operator, its composition, Burn's `Linear` with Burn's
/// own LoRA on it, and without any update.
fn layers(c: &mut Criterion) {
    for (d_input, d_output) in [(192, 768), (768, 768), (768, 3072)] {
        let x = leaf(1, [8, 128, d_input]);
        let a = leaf(2, [1, d_input, 8]);
        let b = leaf(3, [1, 8, d_output]);
        let weight = leaf(4, [d_input, d_output]).detach();
        let bias = leaf(5, [d_output]).detach();
        let low = || Some(LowRank { a: a.clone(), b: b.clone(), scale: 2.0 });
        let op = || adapted_linear(x.clone(), weight.clone(), Some(bias.clone()), low());
        let gradients = |g: &Gradients| vec![gradient(&x, g), gradient(&a, g), gradient(&b, g)];
        let name = format!("adapted_linear_{d_input}x{d_output}");
        let mut group = pair(c, &name, gradients, op);
        let device = Device::flex().autodiff();
        let mut linear = LinearConfig::new(d_input, d_output).init(&device).no_grad();
        linear.weight = Param::initialized(linear.weight.id, weight.clone());
        linear.bias = Some(Param::from_tensor(bias.clone()).set_require_grad(false));
        let mut lora = linear.clone().apply_lora(Lora::new(8, 16.0));
        // The factors of the operator, so that both sides are one function of the same numbers.
        lora.visit_parameters_mut(&mut |p| match p.name {
            "weight.lora.a" => p.value.set_flat(a.clone().without_autodiff().reshape([-1])),
            "weight.lora.b" => p.value.set_flat(b.clone().without_autodiff().reshape([-1])),
            _ => {}
        });
        let run = |layer: &Linear| layer.forward(x.clone());
        let of_lora = |g: &Gradients| {
            let mut found = vec![gradient(&x, g)];
            lora.visit_parameters(&mut |p| {
                found.extend(p.value.gradient(g).map(|g| g.into_data().iter().collect::<Vec<_>>()));
            });
            found
        };
        prove(
            &format!("{name} by Burn's LoRA"),
            &values(op(), &gradients),
            &values(run(&lora), &of_lora),
        );
        let of_x = |g: &Gradients| vec![gradient(&x, g)];
        let base = || adapted_linear(x.clone(), weight.clone(), Some(bias.clone()), None);
        prove(
            &format!("{name} without an update"),
            &values(base(), &of_x),
            &values(run(&linear), &of_x),
        );
        group.bench_function("burn_lora", |b| b.iter(|| run(&lora).sum().backward()));
        group.bench_function("burn_linear", |b| b.iter(|| run(&linear).sum().backward()));
        group.bench_function("fused_forward", |b| b.iter(op));
        group.bench_function("composite_forward", |b| b.iter(|| by_definition(op)));
        group.bench_function("burn_lora_forward", |b| b.iter(|| run(&lora)));
        group.bench_function("burn_linear_forward", |b| b.iter(|| run(&linear)));
    }
}

/// One row, as in a step of generation: the operator, which reads the weight in place, Burn's product (`gemm`), and
/// 64 rows of the operator, which packs the weight; the last weight is a tied head.
fn few_rows(c: &mut Criterion) {
    for (d_input, d_output, is_tied) in
        [(576, 1536, false), (2048, 2048, false), (576, 49_152, true)]
    {
        let like = Tensor::<1>::zeros([1], (&Device::flex(), DType::F32));
        let normals = |seed, shape: [usize; 2]| -> Tensor<2> {
            standard_normal(&like, shape, NoiseKey::new(seed))
        };
        let weight = if is_tied {
            normals(1, [d_output, d_input]).transpose()
        } else {
            normals(1, [d_input, d_output])
        };
        let x = normals(2, [64, d_input]);
        let rows = |count| x.clone().narrow(0, 0, count);
        let fused = |count| adapted_linear(rows(count).unsqueeze(), weight.clone(), None, None);
        let burn = || rows(1).matmul(weight.clone());
        let name = format!("one_row_{d_input}x{d_output}");
        let numbers = |out: Tensor<2>| vec![out.into_data().iter().collect::<Vec<f64>>()];
        prove(&name, &numbers(fused(1).squeeze_dim(0)), &numbers(burn()));
        let mut group = c.benchmark_group(name);
        group.sample_size(20);
        group.bench_function("fused", |b| b.iter(|| fused(1)));
        group.bench_function("burn_product", |b| b.iter(burn));
        group.bench_function("fused_64_rows", |b| b.iter(|| fused(64)));
    }
}

/// A frozen base weight costs no weight gradient: an adapted layer against the same layer with a trainable base.
fn frozen_base(c: &mut Criterion) {
    let weight = Tensor::<2>::full([768, 3072], 0.01, (&Device::flex(), DType::F32));
    let adapter = AdapterConfig { rank: 8, ..AdapterConfig::default() };
    let layer_of = |base: Option<Tensor<2>>| {
        let mut layer = AdaptedLinear::new(weight.clone(), None);
        // Before the adapter, which lies on the parameter.
        if let Some(base) = base {
            layer.weight = Param::from_tensor(base);
        }
        adapter.attach(&mut layer, "layer", NoiseKey::new(1)).expect("a rank in range");
        layer
    };
    let layer = layer_of(None);
    let trainable = layer_of(Some(weight.clone().autodiff().require_grad()));
    let device = Device::flex().autodiff();
    let x = Tensor::<3>::full([8, 128, 768], 0.5, (&device, DType::F32)).require_grad();
    let run = |layer: &AdaptedLinear| layer.forward_with(x.clone(), &Pass::mean());
    let of_x = |g: &Gradients| vec![gradient(&x, g)];
    prove("frozen base", &values(run(&layer), &of_x), &values(run(&trainable), &of_x));
    let has_gradient = [&layer, &trainable]
        .map(|layer| layer.weight.base().grad(&run(layer).sum().backward()).is_some());
    assert_eq!(has_gradient, [false, true], "the gradient of the base is what is timed");
    let mut group = c.benchmark_group("forward_and_backward_1024x768x3072");
    group.sample_size(10);
    for (name, layer) in [("frozen_base", layer), ("trainable_base", trainable)] {
        group.bench_function(name, |b| {
            b.iter(|| run(&layer).sum().backward());
        });
    }
    group.finish();
}

criterion_group!(benches, operators, layers, few_rows, frozen_base);

fn main() {
    lrvd_perf::as_command(benches).expect("the threads of the machine");
    Criterion::default().configure_from_args().final_summary();
}
