//! A whole run of the allocator, step by step, against PEFT's `RankAllocator`; settings, masks and errors by hand.
//!
//! The field `generator` of `allocator.json` describes its origin.

use std::path::Path;

use lrvd_core::Error;
use lrvd_core::adalora::{
    AdaLoraAllocator, AdaLoraConfig, Phase, TripletShape, TripletValues, mask_to_budget,
    matched_target_rank,
};
use lrvd_core::noise::{NoiseKey, fill_normal_f64};
use serde_json::Value;

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
        let phase = allocator.update(step, &triplets(&modules)).unwrap();
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

/// Hyper-parameters of the golden case `train/deberta_adalora`.
const RECORDED: AdaLoraConfig = AdaLoraConfig {
    init_r: 4,
    target_r: 2,
    tinit: 4,
    tfinal: 6,
    delta_t: 3,
    total_step: 30,
    beta1: 0.85,
    beta2: 0.85,
    orth_reg_weight: 0.1,
};

#[test]
fn a_freeze_step_off_the_grid_still_chooses() {
    let config = AdaLoraConfig { tfinal: 5, ..RECORDED };
    let expected = [Phase::Choose, Phase::Choose, Phase::Repeat];
    assert_eq!([24, 25, 26].map(|step| config.phase(step)), expected);
}

#[test]
fn every_range_is_checked_at_its_limit() {
    assert_eq!(RECORDED.check(), Ok(()));
    let ok = [
        AdaLoraConfig { target_r: 4, ..RECORDED },
        AdaLoraConfig { tinit: 23, ..RECORDED },
        AdaLoraConfig { tinit: 0, tfinal: 29, ..RECORDED },
        AdaLoraConfig { orth_reg_weight: 0.0, ..RECORDED },
    ];
    assert!(ok.iter().all(|config| config.check().is_ok()));
    let wrong = [
        ("init_r", AdaLoraConfig { init_r: 0, ..RECORDED }),
        ("target_r", AdaLoraConfig { target_r: 5, ..RECORDED }),
        ("delta_t", AdaLoraConfig { delta_t: 0, ..RECORDED }),
        ("total_step", AdaLoraConfig { total_step: 0, ..RECORDED }),
        ("tfinal", AdaLoraConfig { tfinal: 30, ..RECORDED }),
        ("tinit", AdaLoraConfig { tinit: 24, ..RECORDED }),
        ("beta1", AdaLoraConfig { beta1: 1.0, ..RECORDED }),
        ("beta2", AdaLoraConfig { beta2: 0.0, ..RECORDED }),
        ("orth_reg_weight", AdaLoraConfig { orth_reg_weight: f64::NAN, ..RECORDED }),
    ];
    for (field, config) in wrong {
        assert!(
            matches!(config.check(), Err(Error::OutOfRange { name, .. }) if name == field),
            "{field}"
        );
    }
}

#[test]
fn matched_ranks_round_halves_to_even_and_stay_positive() {
    // 1094/72 = 15.2; 36/72 = 0.5 → 0 → 1; 180/72 = 2.5 → 2; 252/72 = 3.5 → 4.
    let totals = [1094, 36, 0, 180, 252];
    assert_eq!(totals.map(|total| matched_target_rank(total, 72)), [15, 1, 1, 2, 4]);
    assert_eq!(matched_target_rank(3, 0), 1);
}

const SHAPES: [TripletShape; 2] =
    [TripletShape { d_input: 3, d_output: 2 }, TripletShape { d_input: 2, d_output: 5 }];

/// Rank 2, masks at steps 2 and 4 (freeze), budget 4, 4, 2 (⌊2·(2/3)³ + 2⌋), …
fn small() -> AdaLoraConfig {
    AdaLoraConfig {
        init_r: 2,
        target_r: 1,
        tinit: 1,
        tfinal: 2,
        delta_t: 2,
        total_step: 6,
        ..RECORDED
    }
}

/// Parameters and gradients of both modules, distinct by step.
fn values_at(step: u32) -> Vec<[Vec<f64>; 6]> {
    let key = NoiseKey::new(11).at_step(step);
    let of_module = |(&shape, module): (&TripletShape, u32)| {
        let lengths = [2 * shape.d_input, 2, 2 * shape.d_output];
        std::array::from_fn(|part| {
            let mut values = vec![0.0; lengths[part / 2]];
            fill_normal_f64(key.for_module(module).on_stream(part as u32), 0, &mut values);
            values
        })
    };
    SHAPES.iter().zip(0..).map(of_module).collect()
}

fn triplets(values: &[[Vec<f64>; 6]]) -> Vec<TripletValues<'_>> {
    values.iter().map(triplet).collect()
}

/// An allocator after so many steps.
fn after(steps: u32) -> AdaLoraAllocator {
    let mut allocator = AdaLoraAllocator::new(small(), SHAPES.to_vec()).unwrap();
    for step in 0..steps {
        allocator.update(step, &triplets(&values_at(step))).unwrap();
    }
    allocator
}

#[test]
fn the_frozen_phase_reads_no_values() {
    let mut allocator = after(4);
    assert_eq!(allocator.update(4, &[]), Ok(Phase::Choose));
    let frozen = allocator.state().mask.clone().unwrap();
    assert_eq!(allocator.update(5, &[]), Ok(Phase::Repeat));
    assert_eq!(frozen.iter().flatten().filter(|&&kept| kept).count(), 2);
    assert_eq!(allocator.state().mask, Some(frozen));
}

#[test]
fn mistakes_are_errors_and_change_nothing() {
    let mut allocator = after(1);
    let before = allocator.state().clone();
    let mut values = values_at(1);
    let count = allocator.update(1, &triplets(&values)[..1]);
    assert_eq!(count, Err(Error::length("modules", 1, 2)));
    values[1][5].pop();
    let length = allocator.update(1, &triplets(&values));
    assert_eq!(length, Err(Error::length("B of module 1", 9, 10)));
    values[1][5].push(f64::INFINITY);
    let infinite = allocator.update(1, &triplets(&values)).unwrap_err();
    assert!(matches!(infinite, Error::Entry { name, index: 9, .. } if name == "B of module 1"));
    assert_eq!(allocator.state(), &before);
    let missed = allocator.update(5, &[]);
    let reason = "has not been chosen at step 5, after the last masking step 4";
    assert_eq!(missed, Err(Error::undefined("mask", reason)));
}

#[test]
fn a_foreign_state_is_an_error() {
    let state = after(0).state().clone();
    let other = |shapes: &[TripletShape], state| {
        AdaLoraAllocator::from_state(small(), shapes.to_vec(), state).unwrap_err()
    };
    assert_eq!(other(&SHAPES[..1], state.clone()), Error::length("state", 2, 1));
    let swapped = [SHAPES[1], SHAPES[0]];
    assert_eq!(other(&swapped, state.clone()), Error::length("A of module 0", 6, 4));
    let mut short = state.clone();
    short.mask = Some(vec![vec![true; 2], vec![true]]);
    assert_eq!(other(&SHAPES, short), Error::length("mask of module 1", 1, 2));
    let mut broken = state;
    broken.modules[0].e.uncertainty[1] = f64::NAN;
    let broken = other(&SHAPES, broken);
    assert!(matches!(broken, Error::Entry { name, index: 1, .. } if name == "E of module 0"));
    let empty = AdaLoraAllocator::new(small(), vec![TripletShape { d_input: 0, d_output: 1 }]);
    assert!(matches!(empty, Err(Error::OutOfRange { name: "d_input", .. })));
}

#[test]
fn ties_at_the_threshold_are_all_masked() {
    let scores = [vec![1.0, 2.0, 2.0, 2.0, 3.0]];
    assert_eq!(mask_to_budget(&scores, 3), [vec![false, false, false, false, true]]);
    assert_eq!(mask_to_budget(&scores, 4), [vec![false, true, true, true, true]]);
    assert_eq!(mask_to_budget(&scores, 6), [[true; 5]]);
    assert!(mask_to_budget(&[], 0).is_empty());
}
