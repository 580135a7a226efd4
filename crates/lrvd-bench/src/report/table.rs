//! The summary as aligned text, as markdown and as tidy CSV.

use std::fmt::Write as _;

use super::names::task_label;
use super::summary::Summary;

/// What stands where nothing was measured.
const ABSENT: &str = "–";

/// Header and rows of the table: metric, method, then one column per task.
fn grid(summary: &Summary) -> Vec<Vec<String>> {
    let mut header = vec!["metric".to_owned(), "method".to_owned()];
    header.extend(summary.tasks.iter().map(|task| task_label(task)));
    let mut rows = vec![header];
    for metric in &summary.metrics {
        for method in &summary.methods {
            let mut row = vec![metric.name(), method.clone()];
            row.extend(summary.tasks.iter().map(|task| {
                summary
                    .cell(*metric, method, task)
                    .map_or_else(|| ABSENT.to_owned(), |spread| metric.format_spread(spread))
            }));
            rows.push(row);
        }
    }
    rows
}

/// Pads with spaces on the right, counting characters, not bytes (`±` and `–` are longer than one byte).
pub(crate) fn pad(text: &str, width: usize) -> String {
    let mut padded = text.to_owned();
    padded.extend(std::iter::repeat_n(' ', width.saturating_sub(text.chars().count())));
    padded
}

/// Lays rows out in columns; a rule under the header and a blank line before each change in the first column.
pub(crate) fn align(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |c: usize| {
        rows.iter().filter_map(|row| row.get(c)).map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for (i, row) in rows.iter().enumerate() {
        if i > 1 && row.first() != rows[i - 1].first() {
            text.push('\n');
        }
        let cells: Vec<String> = row.iter().zip(&widths).map(|(cell, w)| pad(cell, *w)).collect();
        let _ = writeln!(text, "{}", cells.join("  ").trim_end());
        if i == 0 {
            let rules: Vec<String> = widths.iter().map(|w| "-".repeat(*w)).collect();
            let _ = writeln!(text, "{}", rules.join("  "));
        }
    }
    text
}

/// Lays rows out as a markdown table.
pub(crate) fn markdown(rows: &[Vec<String>]) -> String {
    let mut text = String::new();
    for (i, row) in rows.iter().enumerate() {
        let cells: Vec<String> = row.iter().map(|cell| cell.replace('|', "\\|")).collect();
        let _ = writeln!(text, "| {} |", cells.join(" | "));
        if i == 0 {
            let _ = writeln!(text, "|{}", " --- |".repeat(row.len()));
        }
    }
    text
}

/// The table for a terminal: aligned columns, no colour.
pub fn render_text(summary: &Summary) -> String {
    align(&grid(summary))
}

/// The table in markdown.
pub fn render_markdown(summary: &Summary) -> String {
    markdown(&grid(summary))
}

/// The table as tidy CSV, `metric,method,task,mean,std`: full precision, `std` empty for one seed.
///
/// The layout is that of the published tables, so a file written here can be given to `--compare`.
pub fn render_csv(summary: &Summary) -> String {
    let mut text = String::from("metric,method,task,mean,std\n");
    for (metric, method, task, spread) in summary.cells() {
        let std = spread.std.map(|x| x.to_string()).unwrap_or_default();
        let row = [metric.name(), method.to_owned(), task_label(task)].map(|cell| quote(&cell));
        let _ = writeln!(text, "{},{},{std}", row.join(","), spread.mean);
    }
    text
}

/// A CSV cell, quoted only where it must be (RFC 4180).
fn quote(cell: &str) -> String {
    if cell.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", cell.replace('"', "\"\""))
    } else {
        cell.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::super::metric::Metric;
    use super::super::sample::{sample_results, set_accuracy};
    use super::super::summary::CheckpointChoice;
    use super::*;

    fn summary() -> Summary {
        let mut results = sample_results();
        results.runs.retain(|run| run.method != "AdaLoRA" && (run.task != "rte" || run.seed == 1));
        set_accuracy(&mut results, "cola", "LoRA", &[(0.25, 0.5), (0.5, 0.5), (0.75, 0.5)]);
        set_accuracy(&mut results, "cola", "BayesLoRA", &[(0.5, 0.5), (0.5, 0.5), (0.5, 0.5)]);
        set_accuracy(&mut results, "rte", "LoRA", &[(0.625, 0.5)]);
        set_accuracy(&mut results, "rte", "BayesLoRA", &[(0.75, 0.5)]);
        Summary::new(&results, CheckpointChoice::Last, &[Metric::Accuracy(0)])
    }

    #[test]
    fn text_is_aligned() {
        let wanted = "\
metric    method     CoLA         RTE    STS-B
--------  ---------  -----------  -----  -----
accuracy  LoRA       0.500 ±.250  0.625  –
accuracy  BayesLoRA  0.500 ±.000  0.750  –
";
        assert_eq!(render_text(&summary()), wanted);
    }

    #[test]
    fn markdown_has_a_rule() {
        let wanted = "\
| metric | method | CoLA | RTE | STS-B |
| --- | --- | --- | --- | --- |
| accuracy | LoRA | 0.500 ±.250 | 0.625 | – |
| accuracy | BayesLoRA | 0.500 ±.000 | 0.750 | – |
";
        assert_eq!(render_markdown(&summary()), wanted);
    }

    #[test]
    fn csv_is_tidy_and_quoted() {
        let wanted = "\
metric,method,task,mean,std
accuracy,LoRA,CoLA,0.5,0.25
accuracy,LoRA,RTE,0.625,
accuracy,BayesLoRA,CoLA,0.5,0
accuracy,BayesLoRA,RTE,0.75,
";
        assert_eq!(render_csv(&summary()), wanted);
        assert_eq!(quote("a,\"b\""), "\"a,\"\"b\"\"\"");
    }
}
