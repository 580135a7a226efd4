//! Merging the mean update into the weight.

use crate::support::{
    BATCH, D_INPUT, D_OUTPUT, RANK, SCALING, TOKENS, base, close, host, host_adapter, layer,
    numbers, product, tensor,
};
use burn::tensor::{DType, FloatDType, Tensor};
use lrvd_burn::adapter::AdaptedLinear;
use lrvd_burn::host::HostAdapter;
use lrvd_burn::sampling::Pass;
use lrvd_core::family::VariationalFamily;

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
    host(layer.forward_with(inputs(dtype), &Pass::mean()))
}

#[test]
fn a_merged_layer_is_the_mean_forward() {
    for (dtype, tolerance) in [(DType::F32, 1e-6), (DType::F64, 1e-14)] {
        for adapter in adapters() {
            let layer = layer("net.first", &adapter, dtype);
            let expected = mean(&layer, dtype);
            let merged = layer.clone().merge();
            close("merged", &host(merged.forward(inputs(dtype))), &expected, tolerance);
            assert_eq!(merged.weight.val().dtype(), dtype);
            // The base is not the merged weight: the update is there.
            assert_ne!(host(merged.weight.val()), host(layer.weight.base()));
        }
        let bare = base("net.first", D_INPUT, D_OUTPUT, dtype);
        let merged = bare.clone().merge();
        assert_eq!(host(merged.weight.val()), host(bare.weight.base()));
    }
}

#[test]
fn a_narrow_weight_takes_the_update_in_with_one_rounding() {
    let mut layer = layer("net.first", &host_adapter(None, 10), DType::F32);
    let narrow = layer.weight.base().cast(FloatDType::BF16);
    let wide = narrow.clone().cast(FloatDType::F32) + layer.delta().unwrap();
    layer.set_weight(narrow);
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
    let scaled = crate::support::transposed(&adapter.a, RANK, D_INPUT);
    let e = adapter.e.as_ref().unwrap();
    let scaled: Vec<f64> =
        scaled.iter().enumerate().map(|(i, a)| SCALING * a * e[i % RANK]).collect();
    let expected = product(&scaled, &adapter.b, RANK, D_OUTPUT);
    let delta = layer.delta().unwrap();
    assert_eq!(delta.dims(), [D_INPUT, D_OUTPUT]);
    close("delta", &host(delta), &expected, 1e-14);
    assert!(base("net.first", 5, 7, DType::F64).delta().is_none());
}
