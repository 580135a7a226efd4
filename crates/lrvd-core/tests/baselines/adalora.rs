//! A whole run of the allocator, step by step, against PEFT's `RankAllocator`.
//!
//! The field `generator` of `allocator.json` describes its origin.

use lrvd_core::adalora::{AdaLoraAllocator, AdaLoraConfig, Phase, TripletShape, TripletValues};
use serde_json::Value;
use std::path::Path;

use crate::{count, number, numbers};

/// Float64 on both sides; sums over at most 15 entries in another order.
const RELATIVE: f64 = 1e-13;

fn check(what: &str, found: &[f64], expected: &Value) {
    let expected = numbers(expected);
    assert_eq!(found.len(), expected.len(), "{what}");
    for (entry, (found, expected)) in found.iter().zip(expected).enumerate() {
        let distance = (found - expected).abs();
        let bound = RELATIVE * expected.abs().max(1e-3);
        assert!(distance <= bound, "{what}, entry {entry}: {found} {expected}");
    }
}

/// Parameters and gradients of one module: `a`, `grad_a`, `e`, `grad_e`, `b`, `grad_b`.
fn values(module: &Value) -> [Vec<f64>; 6] {
    ["a", "grad_a", "e", "grad_e", "b", "grad_b"].map(|key| numbers(&module[key]))
}

fn triplet([a, grad_a, e, grad_e, b, grad_b]: &[Vec<f64>; 6]) -> TripletValues<'_> {
    [[a, grad_a], [e, grad_e], [b, grad_b]]
}

#[test]
fn every_step_of_the_reference_allocator() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/adalora/allocator.json");
    let golden: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    let settings = &golden["config"];
    let [init_r, target_r] = ["init_r", "target_r"].map(|key| count(&settings[key]));
    let steps = |key: &str| count(&settings[key]) as u32;
    let config = AdaLoraConfig {
        init_r,
        target_r,
        tinit: steps("tinit"),
        tfinal: steps("tfinal"),
        delta_t: steps("delta_t"),
        total_step: steps("total_step"),
        beta1: number(&settings["beta1"]),
        beta2: number(&settings["beta2"]),
        orth_reg_weight: number(&settings["orth_reg_weight"]),
    };
    let shapes = golden["shapes"].as_array().unwrap().iter().map(|shape| TripletShape {
        d_input: count(&shape["d_input"]),
        d_output: count(&shape["d_output"]),
    });
    let shapes = shapes.collect();
    let mut allocator = AdaLoraAllocator::new(config, shapes).unwrap();
    let steps = golden["steps"].as_array().unwrap();
    assert_eq!(steps.len(), 15);
    for (step, expected) in (0u32..).zip(steps) {
        let modules: Vec<_> = expected["modules"].as_array().unwrap().iter().map(values).collect();
        let modules: Vec<_> = modules.iter().map(triplet).collect();
        let phase = allocator.update(step, &modules).unwrap();
        let budget = config.budget(step, modules.len());
        assert_eq!(budget, count(&expected["budget"]), "step {step}");
        let is_masked = phase != Phase::Rest;
        assert_eq!(Some(is_masked), expected["masked_now"].as_bool(), "step {step}");
        let mask: Option<Vec<Vec<bool>>> =
            serde_json::from_value(expected["mask"].clone()).unwrap();
        assert_eq!(allocator.state().mask, mask, "step {step}");
        if expected.get("importance").is_none() {
            continue;
        }
        for (module, found) in allocator.state().modules.iter().enumerate() {
            for (factor, entries) in [("a", &found.a), ("e", &found.e), ("b", &found.b)] {
                let what = format!("step {step}, module {module}, {factor}");
                check(&what, &entries.importance, &expected["importance"][module][factor]);
                check(&what, &entries.uncertainty, &expected["uncertainty"][module][factor]);
            }
        }
    }
}
