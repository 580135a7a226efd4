//! Tables of published numbers: tidy CSV, `metric,method,task,mean,std`, `std` empty where none was printed.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{anyhow, bail};

use super::metric::Metric;
use crate::error::Result;

/// Seeds behind each published number; the paper states three, the CSV does not carry it.
pub(crate) const PUBLISHED_SEEDS: usize = 3;

const HEADER: &str = "metric,method,task,mean,std";
const COLUMNS: usize = 5;

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Published {
    pub(crate) source: String,
    /// The rows in file order, fractions as fractions.
    pub(crate) rows: Vec<PublishedRow>,
    /// Whether accuracy and ECE were per cent in the file and were divided by 100. They are taken as per cent if any
    /// accuracy or ECE of the file exceeds 1: the published reasoning tables are, the GLUE table is not.
    pub(crate) was_percent: bool,
    pub(crate) n_seeds: usize,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct PublishedRow {
    /// Line in the file, the header being line 1.
    pub(crate) line: u64,
    pub(crate) metric: String,
    /// Method as in the file, e.g. `BayesLoRA` or `BayesLoRA_k10`.
    pub(crate) method: String,
    /// Task as in the file, e.g. `SST-2`.
    pub(crate) task: String,
    pub(crate) mean: f64,
    /// Standard deviation over seeds; none where none was printed.
    pub(crate) std: Option<f64>,
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

    fn is_fraction(&self) -> bool {
        let name = Metric::parse(&self.metric, 0).map(Metric::base);
        matches!(name.as_deref(), Some("accuracy" | "ece" | "macro_f1"))
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
        let file = source.to_owned();
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let mut reader = csv::ReaderBuilder::new()
            .has_headers(false)
            .flexible(true)
            .trim(csv::Trim::All)
            .from_reader(text.as_bytes());
        let mut rows: Vec<PublishedRow> = Vec::new();
        let mut seen: BTreeMap<(String, String, String), u64> = BTreeMap::new();
        let mut header = false;
        for record in reader.records() {
            let record = record.map_err(|error| {
                anyhow!("`{file}`:{}: {error}", error.position().map_or(1, csv::Position::line))
            })?;
            if !header {
                header = true;
                let found = record.iter().collect::<Vec<_>>().join(",");
                if found != HEADER {
                    bail!("`{file}`:1: the header is `{found}`, expected `{HEADER}`");
                }
                continue;
            }
            let row = parse_row(&record, line_of(text, &record), &file)?;
            let key = (row.metric.clone(), row.method.clone(), row.task.clone());
            if let Some(first_line) = seen.insert(key, row.line) {
                let PublishedRow { line, metric, method, task, .. } = row;
                bail!(
                    "`{file}`:{line}: `{metric}`, `{method}`, `{task}` is already given on line {first_line}"
                );
            }
            rows.push(row);
        }
        if !header {
            bail!("`{file}`:1: the header is ``, expected `{HEADER}`");
        }
        if rows.is_empty() {
            bail!("`{file}` has a header but no rows");
        }
        let was_percent = rows.iter().any(|row| row.is_fraction() && row.mean > 1.0);
        if was_percent {
            for row in rows.iter_mut().filter(|row| row.is_fraction()) {
                row.mean /= 100.0;
                row.std = row.std.map(|std| std / 100.0);
            }
        }
        Ok(Self { source: file, rows, was_percent, n_seeds: PUBLISHED_SEEDS })
    }
}

/// The line a record stands on. The reader's position is where it started to read, before blank lines.
fn line_of(text: &str, record: &csv::StringRecord) -> u64 {
    let start = record.position().map_or(0, |position| position.byte() as usize).min(text.len());
    let bytes = text.as_bytes();
    let blank = bytes[start..].iter().take_while(|b| matches!(b, b'\r' | b'\n')).count();
    1 + text[..start + blank].matches('\n').count() as u64
}

fn parse_row(record: &csv::StringRecord, line: u64, file: &str) -> Result<PublishedRow> {
    if record.len() != COLUMNS {
        bail!("`{file}`:{line}: {} cells in this row, expected {COLUMNS}", record.len());
    }
    let text = |index: usize, column: &'static str| match &record[index] {
        "" => Err(anyhow!("`{file}`:{line}: column `{column}` is empty")),
        cell => Ok(cell.to_owned()),
    };
    let number = |index: usize, column: &'static str, expected: &'static str, low: f64| {
        let parsed = record[index].parse::<f64>().ok().filter(|x| x.is_finite() && *x >= low);
        parsed.ok_or_else(|| {
            anyhow!(
                "`{file}`:{line}: column `{column}` holds `{}`, expected {expected}",
                &record[index]
            )
        })
    };
    let std = if record[4].is_empty() {
        None
    } else {
        Some(number(4, "std", "nothing, or a finite number that is not negative", 0.0)?)
    };
    Ok(PublishedRow {
        line,
        metric: text(0, "metric")?,
        method: text(1, "method")?,
        task: text(2, "task")?,
        mean: number(3, "mean", "a finite number", f64::MIN)?,
        std,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::error::Error;

    fn error(text: &str) -> Error {
        Published::parse(text, "t.csv").unwrap_err()
    }

    #[test]
    fn rows_with_and_without_deviation() {
        let text = "\u{feff}metric,method,task,mean,std\naccuracy,LoRA,CoLA,0.858,0.011\nrank,LoRA,CoLA,10,\n";
        let table = Published::parse(text, "t.csv").unwrap();
        assert_eq!(table.rows.len(), 2);
        assert_eq!((table.rows[0].mean, table.rows[0].std), (0.858, Some(0.011)));
        assert_eq!((table.rows[1].line, table.rows[1].mean, table.rows[1].std), (3, 10.0, None));
        assert!(!table.was_percent);
    }

    #[test]
    fn per_cent_becomes_fractions() {
        let text = "metric,method,task,mean,std\naccuracy,BayesLoRA_k10,BoolQ,87.5,0.25\nece,BayesLoRA_k10,BoolQ,0.5,\nnll,BayesLoRA_k10,BoolQ,0.38,\n";
        let table = Published::parse(text, "t.csv").unwrap();
        assert!(table.was_percent);
        assert_eq!((table.rows[0].mean, table.rows[0].std), (0.875, Some(0.0025)));
        assert_eq!((table.rows[1].mean, table.rows[2].mean), (0.005, 0.38));
        assert_eq!(table.rows[0].method_and_draws(), ("BayesLoRA", Some(10)));
        let plain = PublishedRow { method: "my_kernel".into(), ..table.rows[0].clone() };
        assert_eq!(plain.method_and_draws(), ("my_kernel", None));
    }

    #[test]
    fn errors_name_line_and_column() {
        let h = "metric,method,task,mean,std\n";
        let cases = [
            (String::new(), "`t.csv`:1: the header is ``, expected `metric,method,task,mean,std`"),
            (
                "a,b\n".into(),
                "`t.csv`:1: the header is `a,b`, expected `metric,method,task,mean,std`",
            ),
            (h.into(), "`t.csv` has a header but no rows"),
            (format!("{h}accuracy,LoRA,CoLA,0.5\n"), "`t.csv`:2: 4 cells in this row, expected 5"),
            (
                format!("{h}accuracy,LoRA,CoLA,0.5,\naccuracy,LoRA,RTE,high,\n"),
                "`t.csv`:3: column `mean` holds `high`, expected a finite number",
            ),
            (
                format!("{h}accuracy,LoRA,CoLA,NaN,\n"),
                "`t.csv`:2: column `mean` holds `NaN`, expected a finite number",
            ),
            (
                format!("{h}accuracy,LoRA,CoLA,0.5,-1\n"),
                "`t.csv`:2: column `std` holds `-1`, expected nothing, or a finite number that is not negative",
            ),
            (format!("{h}accuracy,,CoLA,0.5,\n"), "`t.csv`:2: column `method` is empty"),
            (
                format!("{h}rank,LoRA,CoLA,1,\n\nrank,LoRA,CoLA,2,\n"),
                "`t.csv`:4: `rank`, `LoRA`, `CoLA` is already given on line 2",
            ),
        ];
        for (text, expected) in cases {
            assert_eq!(error(&text).to_string(), expected);
        }
        let missing = Published::read(Path::new("no-such-table.csv")).unwrap_err().to_string();
        assert!(missing.starts_with("cannot read `no-such-table.csv`"), "{missing}");
    }
}
