//! Tables of published numbers: tidy CSV, `metric,method,task,mean,std`, `std` empty where none was printed; and `seeds`, the number
//! of seeds behind the mean, where it is stated.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{anyhow, bail};
use serde::Deserialize;

use super::metric::Metric;
use crate::error::Result;

/// Seeds behind each number of a table that does not state them: those of the paper.
pub(crate) const ASSUMED_SEEDS: u64 = 3;

/// The last one may be left out.
pub(super) const HEADER: [&str; 6] = ["metric", "method", "task", "mean", "std", "seeds"];
/// Metrics that some tables give in per cent.
const FRACTIONS: [&str; 3] = ["accuracy", "ece", "macro_f1"];

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Published {
    pub(crate) source: String,
    pub(crate) rows: Vec<PublishedRow>,
    /// Metrics that were per cent in the file and were divided by 100: those with a mean above 1. The published reasoning
    /// tables have them, the GLUE table does not.
    pub(crate) percent: BTreeSet<&'static str>,
}

/// A row, with names as in the file: the method `BayesLoRA` or `BayesLoRA_k10`, the task `SST-2`.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(crate) struct PublishedRow {
    pub(crate) metric: String,
    pub(crate) method: String,
    pub(crate) task: String,
    pub(crate) mean: f64,
    /// Standard deviation over seeds; `None` if none was printed.
    pub(crate) std: Option<f64>,
    /// Seeds behind the mean; `None` if they are not stated.
    #[serde(default)]
    pub(crate) seeds: Option<u64>,
}

impl PublishedRow {
    /// The method without its `_k<draws>` ending, and the number of draws; none without one.
    pub(crate) fn method_and_draws(&self) -> (&str, Option<u32>) {
        let ending = self.method.rsplit_once("_k");
        match ending.and_then(|(name, k)| Some((name, k.parse().ok()?))) {
            Some((name, draws)) => (name, Some(draws)),
            None => (&self.method, None),
        }
    }

    /// The metric among those that some tables give in per cent.
    pub(super) fn fraction(&self) -> Option<&'static str> {
        let base = Metric::parse(&self.metric, 0)?.base();
        FRACTIONS.into_iter().find(|name| *name == base)
    }

    /// A column whose cell is invalid, and what is expected there.
    fn invalid(&self) -> Option<(&'static str, &'static str)> {
        let named = [&self.metric, &self.method, &self.task];
        if let Some(column) = named.iter().position(|name| name.is_empty()) {
            Some((HEADER[column], "a name"))
        } else if !self.mean.is_finite() {
            Some(("mean", "a finite number"))
        } else {
            let known = self.std.is_none_or(|std| std.is_finite() && std >= 0.0);
            let std = ("std", "nothing, or a finite number that is not negative");
            let none = (self.seeds == Some(0)).then_some(("seeds", "nothing, or at least 1"));
            if known { none } else { Some(std) }
        }
    }
}

impl Published {
    pub(crate) fn read(path: &Path) -> Result<Self> {
        let source = path.display().to_string();
        let text = std::fs::read_to_string(path)
            .map_err(|error| anyhow!("cannot read `{source}`: {error}"))?;
        Self::parse(&text, &source)
    }

    /// Reads a text; `source` names it in errors and captions. A byte-order mark is allowed.
    pub(crate) fn parse(text: &str, source: &str) -> Result<Self> {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let mut reader =
            csv::ReaderBuilder::new().trim(csv::Trim::All).from_reader(text.as_bytes());
        let header = reader.headers()?.clone();
        if header != HEADER.to_vec() && header != HEADER[..5].to_vec() {
            let found = header.iter().collect::<Vec<_>>().join(",");
            bail!(
                "`{source}`:1: the header is `{found}`, expected `{}`, with or without the last",
                HEADER.join(",")
            );
        }
        let mut rows: Vec<PublishedRow> = Vec::new();
        let mut seen: BTreeMap<(String, String, String), u64> = BTreeMap::new();
        for record in reader.records() {
            let record = record.map_err(|error| match error.kind() {
                csv::ErrorKind::UnequalLengths { pos, expected_len, len } => anyhow!(
                    "`{source}`:{}: {len} cells in this row, expected {expected_len}",
                    pos.as_ref().map_or(1, csv::Position::line)
                ),
                _ => anyhow!("`{source}`: {error}"),
            })?;
            let line = line_of(text, &record);
            let row: PublishedRow = record.deserialize(Some(&header)).map_err(|error| {
                let field = match error.kind() {
                    csv::ErrorKind::Deserialize { err, .. } => err.field().unwrap_or(0) as usize,
                    _ => 0,
                };
                anyhow!(
                    "`{source}`:{line}: column `{}` holds `{}`, expected a number",
                    &header[field],
                    &record[field]
                )
            })?;
            if let Some((column, expected)) = row.invalid() {
                let found = HEADER.iter().position(|name| *name == column).map(|at| &record[at]);
                let found = found.unwrap_or_default();
                bail!("`{source}`:{line}: column `{column}` holds `{found}`, expected {expected}");
            }
            let key = (row.metric.clone(), row.method.clone(), row.task.clone());
            if let Some(first_line) = seen.insert(key, line) {
                let PublishedRow { metric, method, task, .. } = row;
                bail!(
                    "`{source}`:{line}: `{metric}`, `{method}`, `{task}` is already given on line {first_line}"
                );
            }
            rows.push(row);
        }
        if rows.is_empty() {
            bail!("`{source}` has a header but no rows");
        }
        let above = rows.iter().filter(|row| row.mean > 1.0);
        let percent: BTreeSet<&str> = above.filter_map(PublishedRow::fraction).collect();
        for row in &mut rows {
            if row.fraction().is_some_and(|metric| percent.contains(metric)) {
                row.mean /= 100.0;
                row.std = row.std.map(|std| std / 100.0);
            }
        }
        Ok(Self { source: source.to_owned(), rows, percent })
    }
}

/// The line of a record. The reader's position is where it started to read, before blank lines.
fn line_of(text: &str, record: &csv::StringRecord) -> u64 {
    let start = record.position().map_or(0, |position| position.byte() as usize).min(text.len());
    let blank = text.as_bytes()[start..].iter().take_while(|b| matches!(b, b'\r' | b'\n')).count();
    1 + text[..start + blank].matches('\n').count() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    const H: &str = "metric,method,task,mean,std\n";

    #[test]
    fn rows_have_a_deviation_or_none_and_per_cent_become_fractions() {
        let read = |rows: &str| {
            let table = Published::parse(&format!("\u{feff}{H}{rows}"), "t.csv").unwrap();
            let numbers: Vec<_> = table.rows.iter().map(|row| (row.mean, row.std)).collect();
            (table, numbers)
        };
        let (table, numbers) = read("accuracy,LoRA,CoLA,0.858,0.011\nrank,LoRA,CoLA,10,\n");
        assert_eq!(numbers, [(0.858, Some(0.011)), (10.0, None)]);
        assert!(table.percent.is_empty());
        // Each metric by itself: an error given as a fraction stays one beside accuracies in per cent.
        let (table, numbers) = read(
            "accuracy,BayesLoRA_k10,BoolQ,87.5,0.25\nece,my_kernel,BoolQ,0.5,\nnll,LoRA,BoolQ,0.38,\n",
        );
        assert_eq!(numbers, [(0.875, Some(0.0025)), (0.5, None), (0.38, None)]);
        assert_eq!(table.percent, BTreeSet::from(["accuracy"]));
        let [one, two] = [0, 1].map(|row| table.rows[row].method_and_draws());
        assert_eq!((one, two), (("BayesLoRA", Some(10)), ("my_kernel", None)));
        let own = "metric,method,task,mean,std,seeds\nece,LoRA,RTE,5,1,2\nece,LoRA,CoLA,0.5,,\n";
        let own = Published::parse(own, "own.csv").unwrap();
        let found: Vec<_> = own.rows.iter().map(|row| (row.mean, row.seeds)).collect();
        assert_eq!(found, [(0.05, Some(2)), (0.005, None)]);
    }

    #[test]
    fn errors_name_line_and_column() {
        let seeds = "metric,method,task,mean,std,seeds\nece,LoRA,RTE,0.5,,0\n";
        let seeds = Published::parse(seeds, "t.csv").unwrap_err().to_string();
        assert_eq!(seeds, "`t.csv`:2: column `seeds` holds `0`, expected nothing, or at least 1");
        let rows = "accuracy,LoRA,CoLA,0.5|accuracy,LoRA,CoLA,0.5,\naccuracy,LoRA,RTE,high,|\
                    accuracy,LoRA,CoLA,NaN,|accuracy,LoRA,CoLA,0.5,-1|accuracy,LoRA,CoLA,0.5,x|\
                    accuracy,,CoLA,0.5,|rank,LoRA,CoLA,1,\n\nrank,LoRA,CoLA,2,";
        let texts = [String::new(), "a,b\n".to_owned(), H.to_owned()].into_iter();
        let texts = texts.chain(rows.split('|').map(|rows| format!("{H}{rows}\n")));
        let error = |text: String| Published::parse(&text, "t.csv").unwrap_err().to_string();
        let errors: Vec<String> = texts.map(error).collect();
        insta::assert_snapshot!(errors.join("\n"));
        let missing = Published::read(Path::new("no-such-table.csv")).unwrap_err().to_string();
        assert!(missing.starts_with("cannot read `no-such-table.csv`"), "{missing}");
    }
}
