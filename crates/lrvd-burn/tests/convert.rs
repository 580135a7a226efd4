//! Merging, and exchange with Burn's own weight-space LoRA.

#![cfg(feature = "flex")]
#![allow(clippy::unwrap_used)]

mod support;

use burn::module::{Lora, Module, ModuleMapper, Param};
use burn::nn::Linear;
use burn::tensor::{DType, FloatDType, Tensor};
use lrvd_burn::adapter::AdaptedLinear;
use lrvd_burn::host::HostAdapter;
use lrvd_burn::sampling::Pass;
use lrvd_core::family::VariationalFamily;
use support::{
    BATCH, D_INPUT, D_OUTPUT, RANK, SCALING, TOKENS, base, close, host, host_adapter, layer,
    numbers, of, product, tensor,
};

fn inputs(dtype: DType) -> Tensor<3> {
    tensor(&numbers(1, BATCH * TOKENS * D_INPUT), [BATCH, TOKENS, D_INPUT], dtype)
}

/// Every kind of adapter: plain, with singular values, and with each posterior.
fn adapters() -> Vec<HostAdapter> {
    let mut all = vec![host_adapter(None, 10)];
    all.push(HostAdapter { e: Some(vec![0.5, -2.0, 0.0, 1.5]), ..host_adapter(None, 10) });
    all.extend(VariationalFamily::ALL.map(|family| host_adapter(Some(family), 10)));
    all
}

fn mean(layer: &AdaptedLinear, dtype: DType) -> Vec<f64> {
    host(layer.forward(inputs(dtype), &Pass::mean()))
}

#[test]
fn a_merged_layer_is_the_mean_forward() {
    for (dtype, tolerance) in [(DType::F32, 1e-6), (DType::F64, 1e-14)] {
        for adapter in adapters() {
            let layer = layer("net.first", &adapter, dtype);
            let wanted = mean(&layer, dtype);
            let merged = layer.clone().merge();
            close("merged", &host(merged.forward(inputs(dtype))), &wanted, tolerance);
            assert_eq!(merged.weight.val().dtype(), dtype);
            // The base is not the merged weight: the update is there.
            assert_ne!(host(merged.weight.val()), host(layer.weight.val()));
        }
        let bare = base("net.first", D_INPUT, D_OUTPUT, dtype);
        let merged = bare.clone().merge();
        assert_eq!(host(merged.weight.val()), host(bare.weight.val()));
    }
}

#[test]
fn a_narrow_weight_takes_the_update_in_with_one_rounding() {
    let mut layer = layer("net.first", &host_adapter(None, 10), DType::F32);
    let narrow = layer.weight.val().cast(FloatDType::BF16);
    let wide = narrow.clone().cast(FloatDType::F32) + layer.delta().unwrap();
    layer.weight = Param::from_tensor(narrow);
    let merged = layer.merge().weight.val();
    assert_eq!(merged.dtype(), DType::BF16);
    assert_eq!(host(merged), host(wide.cast(FloatDType::BF16)));
}

#[test]
fn the_dense_update_by_hand() {
    let mut adapter = host_adapter(None, 10);
    adapter.e = Some(vec![0.5, -2.0, 0.0, 1.5]);
    let layer = layer("net.first", &adapter, DType::F64);
    // c·Σ_k A[k,i]·E[k]·B[k,o]
    let scaled = support::transposed(&adapter.a, RANK, D_INPUT);
    let e = adapter.e.as_ref().unwrap();
    let scaled: Vec<f64> =
        scaled.iter().enumerate().map(|(i, a)| SCALING * a * e[i % RANK]).collect();
    let wanted = product(&scaled, &adapter.b, RANK, D_OUTPUT);
    let delta = layer.delta().unwrap();
    assert_eq!(delta.dims(), [D_INPUT, D_OUTPUT]);
    close("delta", &host(delta), &wanted, 1e-14);
    assert!(base("net.first", 5, 7, DType::F64).delta().is_none());
}

#[test]
fn burns_lora_gives_the_same_outputs() {
    for (dtype, tolerance) in [(DType::F32, 1e-6), (DType::F64, 1e-14)] {
        for adapter in adapters() {
            let layer = layer("net.first", &adapter, dtype);
            let wanted = mean(&layer, dtype);
            let theirs = layer.clone().into_burn();
            let lora = theirs.weight.adapter().unwrap();
            assert_eq!((lora.scale, lora.a.val().dims()), (SCALING, [D_INPUT, RANK]));
            assert_eq!(host(theirs.weight.base()), host(layer.weight.val()), "the base is apart");
            close("into", &host(theirs.forward(inputs(dtype))), &wanted, tolerance);

            let ours = AdaptedLinear::from_burn("net.first", theirs);
            assert_eq!(ours.noise_id(), layer.noise_id());
            let slot = ours.slot().unwrap();
            assert_eq!((slot.initial_rank, slot.scaling, slot.family), (RANK, SCALING, None));
            close("and back", &mean(&ours, dtype), &wanted, tolerance);
            let read = HostAdapter::read(of(&ours));
            assert_eq!(read.e, None, "folded into A");
            if adapter.e.is_none() {
                let original = HostAdapter::read(of(&layer));
                assert_eq!((read.a, read.b), (original.a, original.b));
            }
        }
        let bare = base("net.first", D_INPUT, D_OUTPUT, dtype);
        let theirs = bare.clone().into_burn();
        assert!(theirs.weight.adapter().is_none());
        assert_eq!(host(theirs.forward(inputs(dtype))), mean(&bare, dtype));
        let ours = AdaptedLinear::from_burn("net.first", theirs);
        assert!(ours.adapter().is_none() && ours.slot().is_none());
    }
}

/// Fills every matrix that is trained, so that Burn's zero factor does not hide an error.
struct Fill(u64);

impl ModuleMapper for Fill {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        if !param.is_require_grad() || D != 2 {
            return param;
        }
        self.0 += 1;
        let seed = self.0;
        param.map(|old| {
            let shape = old.dims();
            let values = numbers(seed, shape.iter().product());
            tensor::<D>(&values, shape, old.dtype()).autodiff().require_grad()
        })
    }
}

#[test]
fn an_adapter_that_burn_made_comes_along() {
    let plain = base("net.first", D_INPUT, D_OUTPUT, DType::F32).merge();
    let theirs: Linear = plain.train().apply_lora(Lora::new(RANK, 7.0)).map(&mut Fill(50));
    let lora = theirs.weight.adapter().unwrap();
    assert!(host(lora.b.val()).iter().all(|b| *b != 0.0), "the factors are filled");
    let wanted = host(theirs.forward(inputs(DType::F32)));
    let ours = AdaptedLinear::from_burn("net.first", theirs.clone());
    assert_eq!(of(&ours).scaling, 7.0 / RANK as f64);
    close("from Burn", &mean(&ours, DType::F32), &wanted, 1e-6);
    // Its factors train, its base does not.
    assert!(of(&ours).a.val().is_require_grad() && of(&ours).b.val().is_require_grad());
    assert!(!ours.weight.val().is_require_grad());
    let back = ours.into_burn();
    close("and back", &host(back.forward(inputs(DType::F32))), &wanted, 1e-6);
}
