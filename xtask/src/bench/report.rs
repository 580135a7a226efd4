//! What is made of the times: an entry of speed.json for each comparison, and pages by templates.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, anyhow};
use minijinja::Environment;
use minijinja::syntax::SyntaxConfig;
use minijinja::value::Serde;
use serde::Serialize;
use serde_json::{Value, json};

use super::programs::{Ceiling, Measured, Sample, median};
use super::table::{Axis, Comparison, Group};
use crate::{forward, process};

/// The macro that lays a group out.
const SECTION: &str = include_str!("section.md.jinja");
const BEGIN: &str = "<!-- written by `cargo xtask bench`: begin -->";
const END: &str = "<!-- written by `cargo xtask bench`: end -->";
/// Largest difference of negative log-likelihoods that count as equal, as a share.
const EQUAL_NLL: f64 = 0.01;
/// Largest difference of the losses of two sides that take the same steps, as a share.
const EQUAL_LOSS: f64 = 1e-3;
const AVX512: &str = "AVX-512";

/// The machine and the state of the sources.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Machine {
    processor: String,
    vector_units: &'static str,
    pub(crate) threads: usize,
    system: String,
    revision: String,
    /// Day of the run.
    date: String,
    /// Of the last minute at the start of the run.
    load_average: String,
}

impl Machine {
    pub(crate) fn read(root: &Path) -> Self {
        let text = |file: &str| std::fs::read_to_string(file).unwrap_or_default();
        let known = |text: Option<&str>| text.unwrap_or("unknown").to_owned();
        let cpu = text("/proc/cpuinfo");
        let load = text("/proc/loadavg");
        let name = cpu.lines().find(|line| line.starts_with("model name"));
        Self {
            processor: known(name.and_then(|line| Some(line.split_once(": ")?.1))),
            vector_units: vector_units(),
            threads: std::thread::available_parallelism().map_or(1, usize::from),
            system: format!("{} {}", std::env::consts::OS, std::env::consts::ARCH),
            revision: known(forward::revision(root).as_deref()),
            date: known(
                process::output(Command::new("date").arg("+%F")).ok().as_deref().map(str::trim),
            ),
            load_average: known(load.split_whitespace().next()),
        }
    }

    /// True if the targets of a processor with AVX-512 hold.
    pub(crate) fn avx512(&self) -> bool {
        self.vector_units == AVX512
    }
}

fn vector_units() -> &'static str {
    #[cfg(target_arch = "x86_64")]
    return if std::arch::is_x86_feature_detected!("avx512f") {
        AVX512
    } else if std::arch::is_x86_feature_detected!("avx2") {
        "AVX2"
    } else {
        "SSE2"
    };
    #[cfg(not(target_arch = "x86_64"))]
    "not x86-64"
}

fn slope(x: &[f64], y: &[f64]) -> f64 {
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
    let at = mean(x);
    let of = mean(y);
    let products = x.iter().zip(y).map(|(x, y)| (x - at) * (y - of));
    products.sum::<f64>() / x.iter().map(|x| (x - at).powi(2)).sum::<f64>()
}

/// Growth of the time along an axis, by least squares: `seconds ∝ x^exponent`, and a straight line.
fn fit(Axis { unit, at }: &Axis, seconds: &[f64]) -> Value {
    let logs = |values: &[f64]| values.iter().map(|value| value.ln()).collect::<Vec<_>>();
    json!({
        "over": unit,
        "at": at,
        "median_seconds": seconds,
        "exponent": slope(&logs(at), &logs(seconds)),
        "seconds_per_unit": slope(at, seconds),
    })
}

/// Standard error of a ratio, from those of its rounds: of the mean of their logarithms. `None` of a single round.
fn ratio_error(ratio: f64, by_round: &[f64]) -> Option<f64> {
    let n = by_round.len() as f64;
    let logs = || by_round.iter().map(|ratio| ratio.ln());
    let mean = logs().sum::<f64>() / n;
    let squares = logs().map(|log| (log - mean).powi(2)).sum::<f64>();
    (by_round.len() > 1).then(|| ratio * (squares / (n - 1.0) / n).sqrt())
}

/// Share of what the processor can do at most that a side reached in `seconds`: of its product if the side counts its operations,
/// of its memory if it counts the bytes that it reads.
fn share(facts: &Value, seconds: f64, ceiling: Option<Ceiling>) -> Option<Value> {
    let Ceiling { product_gflops, read_gigabytes_per_second } = ceiling?;
    let of = |key: &str, kind: &str, most: f64| {
        let share = facts[key].as_f64()? / seconds / (1e9 * most);
        Some(json!({ "of": kind, "share": share }))
    };
    let read = of("bytes", "reading", read_gigabytes_per_second);
    read.or_else(|| of("operations", "product", product_gflops))
}

/// A comparison with its numbers: an element of speed.json.
fn entry(group: &Group, comparison: &Comparison, measured: &Measured, machine: &Machine) -> Value {
    let Measured { samples, ceiling } = measured;
    let Comparison { name, ours, reference, target, worth, same_loss, .. } = comparison;
    let seconds = |key: &str| samples[key].rounds.concat();
    let fastest = |seconds: &[f64]| seconds.iter().copied().fold(f64::INFINITY, f64::min);
    let side = |key: &str| {
        let Sample { rounds, facts } = &samples[key];
        let side = group.sides.iter().find(|side| side.key == key);
        let all = seconds(key);
        let fastest = (all.len() > 1).then(|| fastest(&all));
        json!({
            "label": side.map(|side| &side.label),
            "arguments": side.map(|side| &side.arguments),
            "median_seconds": median(&all),
            "fastest_seconds": fastest,
            "seconds": rounds,
            "facts": facts,
        })
    };
    let time = |seconds: &[f64]| if group.fastest { fastest(seconds) } else { median(seconds) };
    let bytes = |name: &str| samples[ours].facts[name].as_f64().unwrap_or(f64::NAN);
    let [our_value, other_value] = if group.memory {
        ["estimated_bytes", "peak_rss_bytes"].map(bytes)
    } else {
        [ours, reference].map(|key| time(&seconds(key)))
    };
    let ratio = our_value / other_value;
    // An estimate may be as far off on either side.
    let meets = |target: f64| ratio <= target && (!group.memory || ratio >= 2.0 - target);
    let rounds = samples[ours].rounds.iter().zip(&samples[reference].rounds);
    let by_round: Vec<f64> = rounds.map(|(a, b)| time(a) / time(b)).collect();
    let by_round = if group.memory { vec![ratio] } else { by_round };
    let limit = if group.memory { None } else { share(&samples[ours].facts, our_value, *ceiling) };
    // Missing measurements never compare equal.
    let nll = |key: &str| samples[key].facts["nll"].as_f64().unwrap_or(f64::NAN);
    let nll = worth.as_ref().map(|worth| (nll(ours), nll(worth)));
    let equal = nll.is_none_or(|(own, other)| (own - other).abs() <= EQUAL_NLL * other);
    let loss = |key: &str| samples[key].facts["loss"].as_f64().unwrap_or(f64::NAN);
    let losses = same_loss.then(|| (loss(ours), loss(reference)));
    let same = losses.is_none_or(|(own, other)| (own - other).abs() <= EQUAL_LOSS * other);
    let medians = || group.used().map(|side| median(&seconds(&side.key))).collect::<Vec<_>>();
    json!({
        "name": name,
        "ours": our_value,
        "reference": other_value,
        "ratio": ratio,
        "ratio_error": ratio_error(ratio, &by_round),
        "limit": limit,
        "ceiling": ceiling,
        "target": target,
        "nll": nll.map(|(ours, wanted)| json!({ "ours": ours, "wanted": wanted })),
        "losses": losses.map(|(ours, wanted)| json!({ "ours": ours, "wanted": wanted })),
        "met": target.map(|target| meets(target) && equal && same),
        "unit": if group.memory { "bytes" } else { "seconds" },
        "ratio_by_round": by_round,
        "medians": { "ours": side(ours), "reference": side(reference) },
        "fit": group.axis.as_ref().map(|axis| fit(axis, &medians())),
        "command": format!("cargo xtask bench --only {name}"),
        "machine": machine,
    })
}

/// A group with an entry for each comparison, as the templates read it.
pub(crate) fn section(group: &Group, measured: &Measured, machine: &Machine) -> Value {
    let entry = |comparison| entry(group, comparison, measured, machine);
    let label = |key: &String| group.sides.iter().find(|side| side.key == *key).map(|s| &s.label);
    json!({
        "title": group.title,
        "is_criterions": group.is_criterions(),
        "rounds": group.rounds,
        "steps": group.steps,
        "threads": group.threads,
        "fastest": group.fastest,
        "memory": group.memory,
        "ceiling": measured.ceiling,
        "entries": group.comparisons.iter().map(entry).collect::<Vec<_>>(),
        "worth": group.comparisons.iter().map(|c| c.worth.as_ref().map(label)).collect::<Vec<_>>(),
    })
}

/// Versions of the other side.
pub(crate) fn versions(sections: &[Value]) -> String {
    let mut entries = sections.iter().filter_map(|section| section["entries"].as_array()).flatten();
    let of =
        |entry: &Value| entry["medians"]["reference"]["facts"]["versions"].as_object().cloned();
    let versions = entries.find_map(of).unwrap_or_default();
    let each = versions.iter().filter_map(|(name, v)| Some(format!("{name} {}", v.as_str()?)));
    each.collect::<Vec<_>>().join(", ")
}

/// The page that `template` makes of `values`.
pub(crate) fn render(template: &str, values: &Value) -> Result<String> {
    let mut environment = Environment::new();
    let mut syntax = SyntaxConfig::builder();
    syntax.trim_blocks(true).lstrip_blocks(true).keep_trailing_newline(true);
    environment.set_syntax(syntax.build()?);
    environment.add_filter("digits", digits);
    let page = environment.render_str(&format!("{SECTION}{template}"), Serde(values));
    page.map_err(|error| anyhow!("page: {error:#}"))
}

/// The generated part of the page about speed.
pub(crate) fn speed(values: &Value) -> Result<String> {
    let page = render(include_str!("speed.md.jinja"), values)?;
    Ok(format!("{BEGIN}\n\n{page}{END}\n"))
}

/// `page` with its generated part replaced.
pub(crate) fn replace(page: &str, generated: &str) -> Result<String> {
    let marks = || format!("the page has no `{BEGIN}` before a `{END}`");
    let (before, rest) = page.split_once(BEGIN).with_context(marks)?;
    let (_, after) = rest.split_once(END).with_context(marks)?;
    Ok(format!("{before}{}{after}", generated.trim_end()))
}

/// Three digits that count.
fn digits(value: f64) -> String {
    let places = if value.abs() >= 100.0 {
        0
    } else {
        (2.0 - value.abs().log10().floor()).clamp(0.0, 6.0) as usize
    };
    format!("{value:.places$}")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::table::{groups, select};
    use super::*;

    fn machine() -> Machine {
        Machine {
            processor: "Test 9".to_owned(),
            vector_units: "AVX2",
            threads: 2,
            system: "linux x86_64".to_owned(),
            revision: "abc".to_owned(),
            date: "2026-11-28".to_owned(),
            load_average: "0.05".to_owned(),
        }
    }

    fn group(name: &str) -> Group {
        select(groups(false).unwrap(), name).unwrap().remove(0)
    }

    /// Side `i` takes `i + 1` seconds in the first round and twice that in the second, and has an NLL 0.4 % above the
    /// one before.
    fn measured(group: &Group) -> Measured {
        let sample = |(i, side): (usize, &super::super::table::Side)| {
            let seconds = (i + 1) as f64;
            let nll = 0.5 * 1.004_f64.powi(i as i32);
            let facts = json!({
                "peak_rss_bytes": 3 << 20, "adapter_bytes": 2048, "nll": nll, "loss": nll,
                "operations": 200e9
            });
            let rounds = vec![vec![seconds; 2], vec![2.0 * seconds; 2]];
            (side.key.clone(), Sample { rounds, facts })
        };
        let samples = group.sides.iter().enumerate().map(sample).collect();
        let ceiling = Ceiling { product_gflops: 266.4, read_gigabytes_per_second: 18.2 };
        Measured { samples, ceiling: Some(ceiling) }
    }

    fn of(group: &Group) -> Value {
        section(group, &measured(group), &machine())
    }

    /// `entry.json` is an element of `speed.json`, which other programs read.
    #[test]
    fn an_entry_has_ratio_target_times_and_machine() {
        let entries = of(&group("nano"))["entries"].take();
        assert_eq!(entries.as_array().map(Vec::len), Some(6));
        let expected: Value = serde_json::from_str(include_str!("entry.json")).unwrap();
        assert_eq!(entries[0], expected, "{}", entries[0]);
        // No target: neither met nor missed.
        assert_eq!((&entries[1]["target"], &entries[1]["met"]), (&Value::Null, &Value::Null));
    }

    #[test]
    fn a_growth_carries_its_fit() {
        let entry = &of(&group("layers-nano"))["entries"][0];
        assert_eq!(
            (&entry["fit"]["at"], &entry["ratio"]),
            (&json!([2.0, 4.0, 8.0, 16.0]), &json!(4.0))
        );
        let near =
            |found: &Value, expected: f64| (found.as_f64().unwrap() - expected).abs() < 1e-12;
        let axis = Axis { unit: "tokens".to_owned(), at: vec![1.0, 2.0, 4.0] };
        assert!(near(&fit(&axis, &[3.0, 12.0, 48.0])["exponent"], 2.0));
        assert!(near(&fit(&axis, &[10.0, 15.0, 25.0])["seconds_per_unit"], 5.0));
    }

    #[test]
    fn a_ratio_counts_only_at_equal_worth() {
        let mut draws = group("draws-trained-cascade-mean");
        let own = draws.comparisons[0].clone();
        let of_target = |target, worth: Option<&str>| Comparison {
            target: Some(target),
            worth: worth.map(str::to_owned),
            ..own.clone()
        };
        draws.comparisons = vec![
            of_target(4.0, Some("sequential")),
            of_target(4.0, Some("mean")),
            of_target(4.0, None),
            of_target(3.9, Some("sequential")),
        ];
        let found = of(&draws);
        let is_met = |i: usize| found["entries"][i]["met"] == true;
        assert_eq!([0, 1, 2, 3].map(is_met), [true, false, true, false]);
        assert_eq!(found["entries"][1]["nll"]["wanted"], 0.5);
        let mut measured = measured(&draws);
        measured.samples.get_mut("sequential").unwrap().facts = Value::Null;
        assert_eq!(section(&draws, &measured, &machine())["entries"][0]["met"], false);
    }

    #[test]
    fn sides_that_take_the_same_steps_have_the_same_losses() {
        let mut nano = group("nano-lora-apply_lora");
        nano.comparisons[0].target = Some(1.0);
        let met = |loss: Value| {
            let mut measured = measured(&nano);
            let samples = &mut measured.samples;
            samples.get_mut("attach-lora").unwrap().facts["loss"] = json!(0.6);
            samples.get_mut("apply-lora").unwrap().facts["loss"] = loss;
            section(&nano, &measured, &machine())["entries"][0]["met"].take()
        };
        let found = [json!(0.6), json!(0.6005), json!(0.69), Value::Null].map(met);
        assert_eq!(found, [true, true, false, false].map(Value::from));
    }

    #[test]
    fn an_estimate_of_memory_may_be_off_as_far_on_either_side() {
        let memory = group("memory-nano-lora");
        let met = |mib: f64| {
            let mut measured = measured(&memory);
            let samples = &mut measured.samples;
            samples.get_mut("nano-lora").unwrap().facts["estimated_bytes"] =
                json!(mib * 1_048_576.0);
            section(&memory, &measured, &machine())["entries"][0]["met"].take()
        };
        assert_eq!([2.0, 2.2, 3.8, 4.0].map(met), [false, true, true, false].map(Value::from));
    }

    #[test]
    fn a_ratio_has_the_error_of_its_rounds_and_a_side_its_share_of_the_limit() {
        // Logarithms -ln 2, 0 and ln 2: a deviation of ln 2, over the root of three rounds.
        let found = ratio_error(3.0, &[0.5, 1.0, 2.0]).unwrap();
        assert!((found - 3.0 * std::f64::consts::LN_2 / 3.0_f64.sqrt()).abs() < 1e-12);
        assert_eq!(ratio_error(3.0, &[3.0]), None);
        let ceiling = Some(Ceiling { product_gflops: 100.0, read_gigabytes_per_second: 10.0 });
        let of = |facts| share(&facts, 2.0, ceiling);
        let product = json!({ "of": "product", "share": 0.25 });
        assert_eq!(of(json!({ "operations": 50e9 })), Some(product));
        // A step of decoding waits for memory.
        let reading = json!({ "of": "reading", "share": 0.5 });
        assert_eq!(of(json!({ "operations": 50e9, "bytes": 10e9 })), Some(reading));
        assert_eq!(of(json!({ "operations": null })), None);
        assert_eq!(share(&json!({ "bytes": 1 }), 1.0, None), None);
    }

    #[test]
    fn medians_are_of_the_middle() {
        let of = [&[5.0, 1.0, 3.0][..], &[5.0, 1.0, 3.0, 4.0]].map(median);
        assert!(of == [3.0, 3.5] && median(&[]).is_nan());
        let shown = [0.01234, 0.1, 2.345, 34.56, 1234.5, -0.5].map(digits);
        assert_eq!(shown, ["0.0123", "0.100", "2.35", "34.6", "1234", "-0.500"]);
    }

    #[test]
    fn the_page_states_what_was_missed_skipped_and_failed() {
        let sections =
            ["nano", "layers-nano", "draws-trained", "operators"].map(|name| of(&group(name)));
        let page = speed(&json!({
            "machine": machine(),
            "command": "cargo xtask bench",
            "versions": "torch 2",
            "skipped": [[["smollm2-lora-pytorch"], "no PyTorch"]],
            "failed": [["base", "it fell over"]],
            "sections": sections,
        }))
        .unwrap();
        let page =
            page.replace(&page[page.find("| `gated_silu").unwrap()..page.find(END).unwrap()], "");
        assert_eq!(page, include_str!("page.md"), "{page}");
        // Only what is between the marks is replaced.
        let kept = format!("# Speed\n\n{BEGIN}\nold\n{END}\n\n## What it shows\n\nThere.\n");
        let new = replace(&kept, &page).unwrap();
        assert!(new.starts_with("# Speed\n\n<!--") && !new.contains("old"));
        assert!(new.ends_with("end -->\n\n## What it shows\n\nThere.\n"));
        assert!(replace(&format!("{END}{BEGIN}"), &page).is_err());
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/results/speed.md");
        let of_results = std::fs::read_to_string(file).unwrap();
        assert!(replace(&of_results, &page).unwrap().contains("## What it shows"));
    }
}
