//! A frozen base weight costs no weight gradient: backward of an adapted layer against the same
//! layer with a trainable base, in the same run.
#![allow(missing_docs, clippy::unwrap_used, reason = "a bench")]

use burn::module::Param;
use burn::tensor::{DType, Device, Tensor};
use criterion::{Criterion, criterion_group};
use lrvd_burn::adapter::{AdaptedLinear, AdapterConfig};
use lrvd_burn::sampling::Pass;
use lrvd_core::noise::NoiseKey;

fn layer(trainable: bool) -> AdaptedLinear {
    let device = Device::flex();
    let weight = Tensor::<2>::full([768, 3072], 0.01, (&device, DType::F32));
    let mut layer = AdaptedLinear::new("layer", weight.clone(), None);
    AdapterConfig { rank: 8, ..AdapterConfig::default() }
        .attach(&mut layer, NoiseKey::new(1))
        .unwrap();
    if trainable {
        layer.weight = Param::from_tensor(weight.autodiff().require_grad());
    }
    layer
}

fn backward(c: &mut Criterion) {
    let device = Device::flex().autodiff();
    let mut group = c.benchmark_group("forward_and_backward_1024x768x3072");
    group.sample_size(10);
    for (name, trainable) in [("frozen_base", false), ("trainable_base", true)] {
        let layer = layer(trainable);
        let x = Tensor::<3>::full([8, 128, 768], 0.5, (&device, DType::F32)).require_grad();
        group.bench_function(name, |b| {
            b.iter(|| layer.forward(x.clone(), &Pass::mean()).sum().backward());
        });
    }
    group.finish();
}

criterion_group!(benches, backward);

fn main() {
    lrvd_perf::as_command(benches);
    Criterion::default().configure_from_args().final_summary();
}
