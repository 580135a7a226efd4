//! The page of a run: `docs/results/speed.md` between two marks, or a separate page.

use std::fmt::Write as _;

use anyhow::{Context, Result};

use super::Group;
use super::machine::Machine;
use super::report::{EQUAL_NLL, Entry, SideTimes};
use super::table::RANK;

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

/// A group with its entries.
pub(crate) type GroupEntries<'a> = (&'a Group, Vec<Entry<'a>>);

/// The generated part.
pub(crate) fn render(account: &Account<'_>, measured: &[GroupEntries<'_>]) -> String {
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

/// What the other side says of its versions.
pub(crate) fn versions(measured: &[GroupEntries<'_>]) -> String {
    let mut entries = measured.iter().flat_map(|(_, entries)| entries);
    let of = |entry: &Entry<'_>| entry.medians.reference.facts["versions"].as_object().cloned();
    let versions = entries.find_map(of).unwrap_or_default();
    let each = versions.iter().filter_map(|(name, v)| Some(format!("{name} {}", v.as_str()?)));
    each.collect::<Vec<_>>().join(", ")
}

fn head(out: &mut String, account: &Account<'_>, measured: &[GroupEntries<'_>]) {
    let Account { machine, command, .. } = account;
    let versions = match versions(measured) {
        none if none.is_empty() => none,
        versions => format!(" {versions}."),
    };
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
        machine.load_average,
    );
    let entries = || measured.iter().flat_map(|(_, entries)| entries);
    let aimed = entries().filter(|entry| entry.met.is_some()).count();
    let missed = entries().filter(|entry| entry.met == Some(false));
    let missed: Vec<String> = missed.map(|entry| format!("`{}`", entry.name)).collect();
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

/// A group as a section.
pub(crate) fn table(out: &mut String, (group, entries): &GroupEntries<'_>) {
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
    let side = |side: &SideTimes<'_>| {
        let peak = side.facts["peak_rss_bytes"].as_f64();
        let peak = peak.map(|bytes| format!(", {:.0} MiB", bytes / f64::from(1 << 20)));
        let seconds = digits(side.median_seconds);
        format!("{}: {seconds} s{}", side.label, peak.unwrap_or_default())
    };
    for Entry { name, medians, ratio, ratio_by_round, target, met, .. } in entries {
        let rounds: Vec<String> =
            ratio_by_round.iter().map(|ratio| format!("{ratio:.2}")).collect();
        let _ = writeln!(
            out,
            "| `{name}` | {} | {} | {ratio:.2} ({}) | {} | {} |",
            side(&medians.ours),
            side(&medians.reference),
            rounds.join(", "),
            target.map(|target| format!("{target:.2}")).unwrap_or_default(),
            met.map(|met| if met { "yes" } else { "**no**" }).unwrap_or_default(),
        );
    }
    for (entry, nll) in entries.iter().filter_map(|entry| Some((entry, entry.nll.as_ref()?))) {
        let _ = writeln!(
            out,
            "\n`{}` counts as met only within {:.0} % of the NLL of \"{}\": {:+.2} %.",
            entry.name,
            100.0 * EQUAL_NLL,
            nll.of,
            100.0 * (nll.ours / nll.expected - 1.0),
        );
    }
    if let Some(fit) = entries.first().and_then(|entry| entry.fit.as_ref()) {
        let _ = writeln!(
            out,
            "\nFitted: time grows as {}^{:.2}; a straight line has {} ms for each.",
            fit.over,
            fit.exponent,
            digits(1e3 * fit.seconds_per_unit)
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
    use super::super::report::entries;
    use super::super::report::tests::{machine, measured};
    use super::*;

    fn page(skipped: Option<(&[String], &str)>) -> String {
        let machine = machine();
        let failed = [("base".to_owned(), "it fell over".to_owned())];
        let account =
            Account { machine: &machine, command: "cargo xtask bench", skipped, failed: &failed };
        let groups = ["nano", "layers-nano"].map(measured);
        let of = |(group, samples)| (group, entries(group, samples, &machine));
        render(&account, &groups.each_ref().map(|(group, samples)| of((group, samples))))
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
        let ((group, samples), machine) = (measured("draws-trained"), machine());
        table(&mut page, &(&group, entries(&group, &samples, &machine)));
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
