//! Tables of rows.

use std::collections::BTreeMap;

use comfy_table::{CellAlignment, LineStyle, Table, TableStyle};
use lrvd_bench::adapter::QuestionMetrics;
use lrvd_bench::answers::QuestionKind;
use lrvd_bench::data::At;
use lrvd_bench::decimals;
use lrvd_bench::eval::Residual;
use lrvd_bench::record::{
    AverageRecord, ClassRecord, ClassReport, ConfusedRecord, Metrics, Reliability,
};

/// One rule below the header.
const STYLE: TableStyle =
    TableStyle::new().header_separator(LineStyle::none().fill('─').junction('─'));

/// A table of numbers, with its first column to the left and the others to the right.
pub(super) fn table(header: &[&str], rows: Vec<Vec<String>>) -> String {
    aligned(header, rows, CellAlignment::Right)
}

/// A table of words, with all columns to the left.
pub(super) fn words(header: &[&str], rows: Vec<Vec<String>>) -> String {
    let table = aligned(header, rows, CellAlignment::Left);
    table.lines().map(str::trim_end).collect::<Vec<_>>().join("\n")
}

fn aligned(header: &[&str], rows: Vec<Vec<String>>, others: CellAlignment) -> String {
    let mut table = Table::new();
    table.load_style(STYLE).set_header(header.to_vec());
    for row in rows {
        table.add_row(row);
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(others);
    }
    table.to_string()
}

/// Metrics by number of draws: one row each, a column for every metric that any of them has. `ECE if calibrated` is the mean ECE
/// of a perfectly calibrated model with the same confidences. `R2` is followed by its standard error over the rows.
pub(super) fn metrics(
    by_draws: &BTreeMap<u32, Metrics>,
    reliability: &BTreeMap<u32, Reliability>,
) -> String {
    type Named = Vec<(String, Option<String>)>;
    let named = |k: &u32, m: &Metrics| -> Named {
        let digits = |value: Option<f64>| value.map(|v| decimals(v, 4));
        let defined = |value: &Option<f64>| digits(*value).or_else(|| Some("undefined".to_owned()));
        let own = m.standard.iter();
        let own = own.filter(|(name, _)| !["accuracy", "r2_error"].contains(&name.as_str()));
        let error = m.standard.get("r2_error").copied().flatten();
        let shown = |name: &String, value: &Option<f64>| match (name.as_str(), value, error) {
            ("r2", Some(value), Some(error)) => {
                (name.clone(), Some(format!("{} ± {}", decimals(*value, 4), decimals(error, 4))))
            }
            _ => (name.clone(), defined(value)),
        };
        let mut named = vec![("accuracy".to_owned(), digits(m.accuracy))];
        named.extend(own.map(|(name, value)| shown(name, value)));
        let others = [
            ("NLL".to_owned(), m.nll),
            ("ECE".to_owned(), m.ece),
            ("ECE if calibrated".to_owned(), reliability.get(k).map(Reliability::floor)),
            ("Brier".to_owned(), m.brier),
            ("entropy".to_owned(), m.entropy),
            ("mutual inf.".to_owned(), m.mutual_information),
        ];
        named.extend(others.map(|(name, value)| (name, digits(value))));
        named
    };
    let all: Vec<(u32, Named)> = by_draws.iter().map(|(k, m)| (*k, named(k, m))).collect();
    let Some((_, first)) = all.first() else { return String::new() };
    let kept: Vec<usize> = (0..first.len())
        .filter(|&i| all.iter().any(|(_, values)| values.get(i).is_some_and(|v| v.1.is_some())))
        .collect();
    let header: Vec<&str> =
        std::iter::once("draws").chain(kept.iter().map(|&i| first[i].0.as_str())).collect();
    let rows = all.iter().map(|(k, values)| {
        let cell = |&i: &usize| values[i].1.clone().unwrap_or_else(|| "-".to_owned());
        std::iter::once(k.to_string()).chain(kept.iter().map(cell)).collect()
    });
    table(&header, rows.collect())
}

/// Metrics of typed questions: one row for each number of draws and type.
pub(super) fn by_type(
    by_draws: &BTreeMap<u32, BTreeMap<QuestionKind, QuestionMetrics>>,
    risk: f64,
) -> String {
    let covered = format!("coverage, ≤ {} % wrong", 100.0 * risk);
    let mut header = vec![
        "draws",
        "type",
        "rows",
        "accuracy",
        "NLL",
        "ECE",
        "ECE if calibrated",
        "Brier",
        "mean |error|",
    ];
    header.push(&covered);
    let all = by_draws.iter().flat_map(|(draws, own)| own.iter().map(move |own| (draws, own)));
    let rows = all.map(|(draws, (kind, m))| {
        let error = m.mean_absolute_error.map_or_else(|| "-".to_owned(), |v| decimals(v, 4));
        let values = [m.accuracy, m.nll, m.ece, m.ece_floor, m.brier].map(|v| decimals(v, 4));
        let first = [draws.to_string(), kind.to_string(), count(m.rows)];
        let last = [error, format!("{:.1} %", 100.0 * m.coverage)];
        first.into_iter().chain(values).chain(last).collect()
    });
    table(&header, rows.collect())
}

/// More classes than this are not all listed.
const MANY_CLASSES: usize = 20;

/// Scores of the classes, of many those with the smallest F1, and the classes that are taken for each other most.
pub(super) fn by_class(report: &ClassReport) -> String {
    let ClassReport { classes, macro_average, weighted_average, confused } = report;
    let mut listed: Vec<&ClassRecord> = classes.iter().collect();
    if classes.len() > MANY_CLASSES {
        // A class that does not occur has no F1.
        listed.retain(|class| class.f1.is_some());
        listed.sort_by(|a, b| a.f1.unwrap_or(1.0).total_cmp(&b.f1.unwrap_or(1.0)));
        listed.truncate(MANY_CLASSES);
    }
    let digits = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |v| decimals(v, 4));
    let row = |name: &str, [precision, recall, f1]: [Option<f64>; 3], rows: u64| {
        let scores = [precision, recall, f1].map(digits);
        let ends = (name.to_owned(), count(rows as usize));
        std::iter::once(ends.0).chain(scores).chain([ends.1]).collect::<Vec<_>>()
    };
    let support = classes.iter().map(|class| class.support).sum();
    let mut rows: Vec<Vec<String>> = listed
        .iter()
        .map(|class| row(&class.class, [class.precision, class.recall, class.f1], class.support))
        .collect();
    for (name, AverageRecord { precision, recall, f1 }) in
        [("mean of the classes", macro_average), ("weighted by rows", weighted_average)]
    {
        rows.push(row(name, [precision, recall, f1].map(|&score| Some(score)), support));
    }
    let mut parts = vec![table(&["class", "precision", "recall", "F1", "rows"], rows)];
    if listed.len() < classes.len() {
        parts.push(format!(
            "{} of {} classes, with the smallest F1; `--format csv` and `--format json` have all",
            listed.len(),
            classes.len()
        ));
    }
    if !confused.is_empty() {
        let row = |cell: &ConfusedRecord| {
            let share = format!("{:.1} %", 100.0 * cell.share);
            vec![cell.label.clone(), cell.answer.clone(), count(cell.count as usize), share]
        };
        let header = ["label", "answered", "rows", "of the label"];
        parts.push(format!("\n{}", words(&header, confused.iter().map(row).collect())));
    }
    parts.join("\n")
}

/// The rows whose numbers are missed most.
pub(super) fn residuals(found: &[Residual]) -> String {
    let row = |residual: &Residual| {
        let place = match residual.at {
            Some(At::Line(line)) => format!("line {line}"),
            Some(At::Row(row)) => format!("row {row}"),
            None => residual.id.clone(),
        };
        let Residual { label, predicted, residual, .. } = residual;
        let numbers = [label, predicted, residual].map(|number| decimals(*number, 4));
        std::iter::once(place).chain(numbers).collect()
    };
    let header = ["largest residuals", "label", "predicted", "residual"];
    table(&header, found.iter().map(row).collect())
}

/// `1234567` as `1 234 567`.
pub(super) fn count(n: usize) -> String {
    lrvd_bench::grouped(n as u64, ' ')
}
