//! A device by itself: what it is, and its operators, proved and timed. One carried program measures a borrowed card with them.

use std::error::Error;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

use burn::tensor::{DType, Device, Tensor, TensorData};
use lrvd_burn::device::{list, open};
use lrvd_burn::ops::by_definition;
use serde_json::{Value, json};

use crate::ops_checks::cases::each_of_a_step;
use crate::ops_checks::{Case, DEVICE_CHECKS, DeviceCheck, distance, evaluate, host, leaf};

/// Formats of timed operators, with the largest difference between kernel and composition, relative to the largest value.
const FORMATS: [(DType, f64); 2] = [(DType::F32, 1e-3), (DType::BF16, 3e-2)];
/// Runs of an operator before the clock starts, and on it.
const RUNS: [usize; 2] = [3, 10];

/// All devices of the build, and the formats of the device `name`, which has multiplied two small matrices.
pub fn facts(name: &str) -> Result<Value, Box<dyn Error>> {
    let device = open(name)?;
    let numbers = TensorData::new(vec![1.0_f32, 2.0, 3.0, 4.0], [2, 2]);
    let numbers = Tensor::<2>::from_data(numbers, (&device, DType::F32));
    let product = host(numbers.clone().matmul(numbers));
    if product != [7.0, 10.0, 15.0, 22.0] {
        return Err(format!("`{name}` multiplies wrongly: {product:?}").into());
    }
    let formats = [DType::F32, DType::F16, DType::BF16].into_iter();
    let formats = formats.filter(|dtype| device.supports_dtype(*dtype));
    let formats: Vec<&str> = formats.map(|dtype| dtype.name()).collect();
    Ok(json!({ "devices": list(), "formats": formats }))
}

/// Checks the operators called `names` on `device` with odd sizes, then holds their kernels against their compositions, and times
/// both, at the sizes of a training step for `texts` of `tokens`. Each line goes to `write` as it comes; returns the failures.
pub fn operators(
    names: &[String],
    device: &Device,
    [texts, tokens]: [usize; 2],
    write: &mut dyn FnMut(Value),
) -> usize {
    let is_asked = |case: &Case| names.iter().any(|name| operator(case) == name);
    let mut failures = 0;
    for DeviceCheck { name, dtype, cases, prove } in DEVICE_CHECKS {
        if !device.supports_dtype(dtype) {
            continue;
        }
        let mut count = 0;
        let mut failed = Vec::new();
        cases(&mut |case| {
            if is_asked(case) {
                count += 1;
                failed.extend(failure(|| prove(case, device)));
            }
        });
        if count > 0 {
            failures += failed.len();
            write(json!({ "operators": names, "check": name, "cases": count, "failed": failed }));
        }
    }
    each_of_a_step(texts, tokens, &mut |case| {
        for (dtype, tolerance) in FORMATS {
            if is_asked(case) && device.supports_dtype(dtype) {
                let mut line = json!({ "operator": operator(case), "case": case.name, "format": dtype.name() });
                let mut holds = false;
                let failed = failure(|| {
                    let found = differences(case, device, dtype);
                    holds = found.iter().all(|difference| *difference <= tolerance);
                    line["difference"] = json!(found[0]);
                    line["gradient_difference"] = json!(found[1]);
                    line["kernel_seconds"] = json!(seconds(case, device, dtype));
                    line["composition_seconds"] =
                        json!(by_definition(|| seconds(case, device, dtype)));
                });
                holds &= failed.is_none();
                failures += usize::from(!holds);
                line["holds"] = json!(holds);
                line["failed"] = json!(failed);
                write(line);
            }
        }
    });
    failures
}

/// The operator of a case, whose name is followed by sizes.
fn operator<'a>(case: &'a Case) -> &'a str {
    case.name.split(' ').next().unwrap_or_default()
}

/// The message of the panic that ends `check`, if it does.
fn failure(check: impl FnOnce()) -> Option<String> {
    let payload = catch_unwind(AssertUnwindSafe(check)).err()?;
    let text = payload.downcast_ref::<String>().cloned();
    let text = text.or_else(|| payload.downcast_ref::<&str>().map(|text| (*text).to_owned()));
    Some(text.unwrap_or_else(|| "a panic without a message".to_owned()))
}

/// Largest differences of the output and of the gradients between the kernel in `dtype` and the composition in single precision,
/// both on `device` and with the same inputs; infinite where one is NaN.
fn differences(case: &Case, device: &Device, dtype: DType) -> [f64; 2] {
    let rounded = |values: &Vec<f64>| host(leaf(values, &Device::flex(), dtype));
    let leaves: Vec<Vec<f64>> = case.leaves.iter().map(rounded).collect();
    let run = |dtype| evaluate(case.op, &leaves, &case.differentiable, device, dtype);
    let (found, expected) = (run(dtype), by_definition(|| run(DType::F32)));
    let gradients = found.grads.iter().flatten().zip(expected.grads.iter().flatten());
    let of_gradients = gradients.map(|(found, expected)| distance(found, expected));
    [distance(&found.out, &expected.out), of_gradients.fold(0.0, f64::max)]
}

/// The median seconds of a forward and a backward pass.
fn seconds(case: &Case, device: &Device, dtype: DType) -> f64 {
    let device = device.clone().autodiff();
    let leaves = case.leaves.iter().zip(&case.differentiable);
    let leaves: Vec<Tensor<1>> = leaves
        .map(|(values, tracked)| leaf(values, &device, dtype).set_require_grad(*tracked))
        .collect();
    let [warmup, timed] = RUNS;
    let mut seconds = Vec::new();
    for _ in 0..warmup + timed {
        let begun = Instant::now();
        drop((case.op)(&leaves).sum().backward());
        if let Err(error) = device.sync() {
            panic!("the device stopped: {error}");
        }
        seconds.push(begun.elapsed().as_secs_f64());
    }
    let mut seconds = seconds.split_off(warmup);
    seconds.sort_by(f64::total_cmp);
    f64::midpoint(seconds[(timed - 1) / 2], seconds[timed / 2])
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn lines(names: &[&str]) -> (Vec<Value>, usize) {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut lines = Vec::new();
        let failures = operators(&names, &Device::flex(), [1, 4], &mut |line| lines.push(line));
        (lines, failures)
    }

    #[test]
    fn an_operator_is_checked_then_compared_in_every_format() {
        let (found, failures) = lines(&["kl_log_uniform"]);
        assert_eq!(failures, 0, "{found:?}");
        let checks: Vec<&Value> = found.iter().filter_map(|line| line.get("check")).collect();
        assert!(checks.contains(&&json!("many rows")), "{checks:?}");
        let timed: Vec<&Value> = found.iter().filter(|line| line["case"].is_string()).collect();
        let formats = FORMATS.iter().filter(|(dtype, _)| Device::flex().supports_dtype(*dtype));
        assert_eq!(timed.len(), formats.count());
        assert!(timed.iter().all(|line| line["holds"] == true && line["failed"].is_null()));
        // One without a kernel has no composition to be held against.
        let (found, _) = lines(&["row_energy"]);
        assert!(!found.is_empty() && found.iter().all(|line| line["check"].is_string()));
        assert!(lines(&["none"]).0.is_empty());
    }

    #[test]
    fn a_wrong_operator_is_reported_and_ends_nothing() {
        assert_eq!(failure(|| panic!("off by {}", 2)), Some("off by 2".to_owned()));
        let wrong = Case {
            name: "wrong 3",
            op: &|x| x[0].clone() * f64::NAN,
            leaves: vec![vec![0.5; 3]],
            differentiable: vec![true],
        };
        // Its definition is no better: what is not a number equals nothing.
        let found = differences(&wrong, &Device::flex(), DType::F32);
        assert_eq!(found, [f64::INFINITY; 2]);
    }

    #[test]
    fn a_device_says_its_formats() {
        let found = facts("cpu").unwrap();
        assert!(found["formats"].as_array().unwrap().contains(&json!("f32")), "{found}");
        assert!(facts("gpu").is_err());
    }
}
