//! The page of a run: `docs/results/speed.md` between two marks, or a separate page.

use std::fmt::Write as _;

use super::machine::Machine;
use super::report::{EQUAL_NLL, Entry, Measured};
use super::table::RANK;
use anyhow::{Context, Result};

const BEGIN: &str = "<!-- written by `cargo xtask bench`: begin -->";
const END: &str = "<!-- written by `cargo xtask bench`: end -->";

/// What a page says besides its tables.
pub(crate) struct Account<'a> {
    pub(crate) machine: &'a Machine,
    /// As typed.
    pub(crate) command: &'a str,
    /// Comparisons that were left out, and why.
    pub(crate) skipped: Option<(&'a [String], &'a str)>,
    /// Groups that failed, and how.
    pub(crate) failed: &'a [(String, String)],
}

/// The generated part.
pub(crate) fn render(account: &Account<'_>, measured: &[Measured]) -> String {
    let mut out = format!("{BEGIN}\n\n");
    head(&mut out, account, measured);
    for one in measured {
        table(&mut out, one);
    }
    out.push_str(END);
    out.push('\n');
    out
}

/// `page` with its generated part replaced.
pub(crate) fn replace(page: &str, generated: &str) -> Result<String> {
    let marks = || format!("the page has no `{BEGIN}` before a `{END}`");
    let (before, rest) = page.split_once(BEGIN).with_context(marks)?;
    let (_, after) = rest.split_once(END).with_context(marks)?;
    Ok(format!("{before}{}{after}", generated.trim_end()))
}

fn head(out: &mut String, account: &Account<'_>, measured: &[Measured]) {
    let Account { machine, command, .. } = account;
    let versions = measured
        .iter()
        .flat_map(|one| &one.samples)
        .find_map(|sample| sample.facts["versions"].as_object())
        .map_or(String::new(), |versions| {
            let each =
                versions.iter().filter_map(|(name, v)| Some(format!("{name} {}", v.as_str()?)));
            format!(" {}.", each.collect::<Vec<_>>().join(", "))
        });
    let _ = writeln!(
        out,
        "{}, {}, {} threads on each side, {}; revision {}; load average {} at the start.{versions}\n\n\
         ```console\n{command}\n```\n\n\
         Unless stated otherwise: random weights, no padding, no dropout, single precision, rank {RANK}. A step is \
         forward, cross-entropy, backward, clipping of the gradient norm and AdamW. The sides of a table run interleaved, \
         A B A B, each as a separate process with one warm-up step. Times are medians over the steps of all \
         rounds, beside the peak memory of the process; a ratio is our time over the other's, in brackets for each round.\n",
        machine.processor,
        machine.vector_units,
        machine.threads,
        machine.system,
        machine.revision,
        machine.load,
    );
    let entries: Vec<Entry<'_>> = measured.iter().flat_map(Measured::entries).collect();
    let aimed = entries.iter().filter(|entry| entry.met.is_some()).count();
    let missed: Vec<String> = entries
        .iter()
        .filter(|entry| entry.met == Some(false))
        .map(|entry| format!("`{}`", entry.comparison.name))
        .collect();
    let _ = write!(out, "{} of {aimed} targets are met", aimed - missed.len());
    if machine.avx512() {
        out.push_str(" (those against PyTorch are the ones for a processor with AVX-512)");
    }
    out.push('.');
    if !missed.is_empty() {
        let _ = write!(out, " **Missed**: {}.", missed.join(", "));
    }
    out.push_str("\n\n");
    if let Some((names, reason)) = account.skipped {
        let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
        let _ = writeln!(out, "**Skipped**, {reason}: {}.\n", names.join(", "));
    }
    for (name, error) in account.failed {
        let _ = writeln!(out, "**Failed**: `{name}`: {error}\n");
    }
}

fn table(out: &mut String, one: &Measured) {
    let group = &one.group;
    let how = if group.is_criterions() {
        "By criterion, one after another in one process".to_owned()
    } else {
        format!("Rounds: {}, steps in each: {}", group.rounds, group.steps)
    };
    let _ = writeln!(
        out,
        "### {}\n\n{how}.\n\n| comparison | ours | other | ratio | target | met |\n|---|---|---|---|---|---|",
        group.title
    );
    let side = |index: usize| {
        let sample = &one.samples[index];
        let peak = sample.facts["peak_rss_bytes"].as_f64();
        let peak = peak.map(|bytes| format!(", {:.0} MiB", bytes / f64::from(1 << 20)));
        let (label, seconds) = (&group.sides[index].label, digits(sample.median()));
        format!("{label}: {seconds} s{}", peak.unwrap_or_default())
    };
    for Entry { comparison, ratio, by_round, met, .. } in one.entries() {
        let rounds: Vec<String> = by_round.iter().map(|ratio| format!("{ratio:.2}")).collect();
        let target = comparison.target.map(|target| format!("{target:.2}"));
        let met = met.map(|met| if met { "yes" } else { "**no**" });
        let _ = writeln!(
            out,
            "| `{}` | {} | {} | {ratio:.2} ({}) | {} | {} |",
            comparison.name,
            side(comparison.ours),
            side(comparison.reference),
            rounds.join(", "),
            target.unwrap_or_default(),
            met.unwrap_or_default(),
        );
    }
    for Entry { comparison, nll, .. } in one.entries() {
        if let (Some([ours, expected]), Some(side)) = (nll, comparison.worth) {
            let _ = writeln!(
                out,
                "\n`{}` counts as met only within {:.0} % of the NLL of \"{}\": {:+.2} %.",
                comparison.name,
                100.0 * EQUAL_NLL,
                group.sides[side].label,
                100.0 * (ours / expected - 1.0),
            );
        }
    }
    if let (Some(axis), Some(fit)) = (&group.axis, one.fit()) {
        let _ = writeln!(
            out,
            "\nFitted: time grows as {}^{:.2}; a straight line has {} ms for each.",
            axis.unit,
            fit.exponent,
            digits(1e3 * fit.per_unit)
        );
    }
    out.push('\n');
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
    use super::super::report::tests::{machine, measured};
    use super::*;

    fn page(skipped: Option<(&[String], &str)>) -> String {
        let machine = machine();
        let failed = [("base".to_owned(), "it fell over".to_owned())];
        let account =
            Account { machine: &machine, command: "cargo xtask bench", skipped, failed: &failed };
        render(&account, &[measured("nano"), measured("layers-nano")])
    }

    #[test]
    fn the_page_tells_what_was_missed_skipped_and_failed() {
        let names = ["smollm2-lora-pytorch".to_owned()];
        let page = page(Some((&names, "no PyTorch")));
        for expected in [
            "Test 9, AVX2, 2 threads on each side, linux x86_64; revision abc; load average 0.05",
            "1 of 4 targets are met. **Missed**: `nano-lora-pytorch`, `nano-bayeslora-lora`, `nano-moment-matched-lora`.",
            "**Skipped**, no PyTorch: `smollm2-lora-pytorch`.",
            "**Failed**: `base`: it fell over",
            "| `nano-lora-pytorch` | LoRA: 3.00 s, 3 MiB | PyTorch + PEFT, LoRA: 1.50 s, 3 MiB | 2.00 (2.00, 2.00) | 1.00 | **no** |",
            " | 3.00 (3.00, 3.00) |  |  |",
            "Fitted: time grows as layers^",
        ] {
            assert!(page.contains(expected), "{expected}\n{page}");
        }
    }

    #[test]
    fn answers_are_shown_with_their_worth() {
        let mut page = String::new();
        table(&mut page, &measured("draws-trained"));
        let expected = "`draws-trained-cascade-mean` counts as met only within 1 % of the NLL of \"ten draws, one by one\": +0.80 %.";
        assert!(page.contains(expected), "{page}");
    }

    #[test]
    fn only_what_stands_between_the_marks_is_replaced() {
        let page = page(None);
        let kept = format!("# Speed\n\n{BEGIN}\nold\n{END}\n\n## What it shows\n\nThere.\n");
        let new = replace(&kept, &page).unwrap();
        assert!(
            new.starts_with("# Speed\n\n<!--")
                && new.ends_with("end -->\n\n## What it shows\n\nThere.\n")
        );
        assert!(!new.contains("old") && new.contains("| LoRA: "));
        assert_eq!(replace(&new, &page).unwrap(), new);
        assert!(replace("# Speed\n", &page).is_err());
        assert!(replace(&format!("{END}{BEGIN}"), &page).is_err());
    }

    #[test]
    fn the_page_of_the_results_has_the_marks() {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/results/speed.md");
        let kept = std::fs::read_to_string(file).unwrap();
        assert!(replace(&kept, &page(None)).unwrap().contains("## What it shows"));
    }

    #[test]
    fn numbers_have_three_digits() {
        let shown = [0.01234, 0.1, 2.345, 34.56, 1234.5, -0.5].map(digits);
        assert_eq!(shown, ["0.0123", "0.100", "2.35", "34.6", "1234", "-0.500"]);
    }
}
