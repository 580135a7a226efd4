//! The summary as aligned text, as markdown and as tidy CSV.
//!
//! A few methods are in one table whose first column is the metric. Many methods become the rows of several tables,
//! with as many metrics side by side as fit a terminal: where they fit, all tasks of one metric stay together, and so
//! do its values with and without posterior draws. A count of parameters is followed by that of the numbers kept beside
//! them, if there are any, and a calibration error by that of a calibrated model.

use std::fmt::Write as _;

use super::metric::{ABSENT, Better, Metric};
use super::names::task_label;
use super::published::HEADER;
use super::summary::Summary;

/// Up to so many methods the metric is a column.
const FEW_METHODS: usize = 4;
/// Characters of a line that tables of many methods keep to, if one metric alone does not exceed it.
const MOST_WIDTH: usize = 120;
const GAP: usize = 2;

/// Metrics with a number behind their cells, and the note on it below the tables.
const NOTES: [(Metric, &str); 2] = [
    (
        Metric::PARAMETERS,
        "parameters: trained, the head not counted; after a +, numbers kept for prediction beside them",
    ),
    (
        Metric::ECE,
        "ece: in brackets, the mean ECE of a perfectly calibrated model with the same confidences",
    ),
];

/// Header and rows of the table: metric, method, then one column per task.
fn grid(summary: &Summary<'_>, metrics: &[Metric]) -> Vec<Vec<String>> {
    let mut header = vec!["metric".to_owned(), "method".to_owned()];
    header.extend(summary.tasks.iter().map(|task| task_label(task)));
    let mut rows = vec![header];
    for metric in metrics {
        for method in &summary.methods {
            let mut row = vec![metric.name(), (*method).to_owned()];
            row.extend(summary.tasks.iter().map(|task| cell(summary, *metric, method, task)));
            rows.push(row);
        }
    }
    rows
}

fn cell(summary: &Summary<'_>, metric: Metric, method: &str, task: &str) -> String {
    let Some(spread) = summary.cell(metric, method, task) else { return ABSENT.to_owned() };
    metric.format_spread(spread) + &behind(summary, metric, method, task).unwrap_or_default()
}

/// Text behind a cell: ` + 81 408`, ` (0.031)`, ` of 8`.
fn behind(summary: &Summary<'_>, metric: Metric, method: &str, task: &str) -> Option<String> {
    let beside = summary.beside(metric, method, task)?;
    Some(match metric {
        Metric::RANK => format!(" of {beside}"),
        Metric::PARAMETERS => format!(" + {}", metric.format(beside)),
        _ => format!(" ({})", metric.format(beside)),
    })
}

fn footnote(summary: &Summary<'_>, metrics: &[Metric]) -> Option<String> {
    let has = |noted: Metric| {
        summary.cells(metrics).any(|(metric, method, task, _)| {
            metric.at(0) == noted && summary.beside(metric, method, task).is_some()
        })
    };
    let notes: Vec<&str> =
        NOTES.iter().filter(|(metric, _)| has(*metric)).map(|(_, note)| *note).collect();
    (!notes.is_empty()).then(|| notes.join("\n") + "\n")
}

/// One metric in a table of many methods: its name over one column per task, or over those that fit a line.
struct Group {
    title: String,
    /// Task, then a cell per method.
    columns: Vec<Vec<String>>,
}

impl Group {
    fn new(summary: &Summary<'_>, metric: Metric) -> Self {
        let column = |task: &&str| {
            let cells = summary.methods.iter().map(|method| cell(summary, metric, method, task));
            std::iter::once(task_label(task)).chain(cells).collect()
        };
        Self { title: metric.name(), columns: summary.tasks.iter().map(column).collect() }
    }

    /// The group in parts that are at most `room` wide, if one column alone does not exceed it.
    fn parted(self, room: usize) -> Vec<Self> {
        let mut parts: Vec<Self> = Vec::new();
        for column in self.columns {
            match parts.last_mut() {
                Some(part) if part.width() + widest(&column) + GAP <= room => {
                    part.columns.push(column);
                }
                _ => parts.push(Self { title: self.title.clone(), columns: vec![column] }),
            }
        }
        parts
    }

    /// Widths of the columns; the last one is widened until the title fits.
    fn widths(&self) -> Vec<usize> {
        let mut widths: Vec<usize> = self.columns.iter().map(|column| widest(column)).collect();
        let total = widths.iter().sum::<usize>() + GAP * widths.len().saturating_sub(1);
        if let Some(last) = widths.last_mut() {
            *last += self.title.chars().count().saturating_sub(total);
        }
        widths
    }

    /// Characters that the group adds to a line.
    fn width(&self) -> usize {
        self.widths().iter().map(|width| width + GAP).sum()
    }
}

fn widest(column: &[String]) -> usize {
    column.iter().map(|cell| cell.chars().count()).max().unwrap_or(0)
}

/// Metrics that share a table: first one at all its numbers of draws, then as many more as fit. Sizes and times stand
/// apart from quality.
fn blocks(summary: &Summary<'_>, metrics: &[Metric]) -> Vec<Vec<Group>> {
    let names = name_width(summary);
    let width = |groups: &[Group]| groups.iter().map(Group::width).sum::<usize>();
    let room = MOST_WIDTH.saturating_sub(names);
    let mut blocks: Vec<Vec<Group>> = Vec::new();
    let mut facts = false;
    for metrics in metrics.chunk_by(|a, b| a.base() == b.base()) {
        let groups = metrics.iter().flat_map(|metric| Group::new(summary, *metric).parted(room));
        let mut lines: Vec<Vec<Group>> = Vec::new();
        for group in groups {
            match lines.last_mut() {
                Some(line) if width(line) + group.width() <= room => line.push(group),
                _ => lines.push(vec![group]),
            }
        }
        let added: usize = lines.iter().map(|line| width(line)).sum();
        let is_fact = metrics.iter().any(|metric| metric.fact().better == Better::Neither);
        match blocks.last_mut() {
            Some(last) if is_fact == facts && width(last) + added <= room => {
                last.extend(lines.into_iter().flatten());
            }
            _ => blocks.extend(lines),
        }
        facts = is_fact;
    }
    blocks
}

fn name_width(summary: &Summary<'_>) -> usize {
    let longest = summary.methods.iter().map(|method| method.chars().count()).max();
    longest.unwrap_or(0).max("method".len())
}

fn block_text(summary: &Summary<'_>, groups: &[Group]) -> String {
    let names = name_width(summary);
    let gap = " ".repeat(GAP);
    let heads = ["", "method", &"-".repeat(names)];
    let names = heads.iter().chain(&summary.methods).map(|name| format!("{name:names$}"));
    let mut lines: Vec<String> = names.collect();
    for group in groups {
        let widths = group.widths();
        let _ = write!(lines[0], "{gap}{:1$}", group.title, group.width() - GAP);
        for (column, width) in group.columns.iter().zip(widths) {
            let _ = write!(lines[2], "{gap}{}", "-".repeat(width));
            let rows = std::iter::once(1).chain(3..);
            for (row, cell) in rows.zip(column) {
                let _ = write!(lines[row], "{gap}{cell:width$}");
            }
        }
    }
    lines.iter().flat_map(|line| [line.trim_end(), "\n"]).collect()
}

/// The rows of a table of many methods in markdown, whose header has one line.
fn block_rows(summary: &Summary<'_>, groups: &[Group]) -> Vec<Vec<String>> {
    let names = std::iter::once("method").chain(summary.methods.iter().copied());
    let mut rows: Vec<Vec<String>> = names.map(|name| vec![name.to_owned()]).collect();
    for group in groups {
        for column in &group.columns {
            for (i, (row, cell)) in rows.iter_mut().zip(column).enumerate() {
                row.push(if i == 0 { format!("{} {cell}", group.title) } else { cell.clone() });
            }
        }
    }
    rows
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
        let cells: Vec<String> =
            row.iter().zip(&widths).map(|(cell, w)| format!("{cell:w$}")).collect();
        let _ = writeln!(text, "{}", cells.join("  ").trim_end());
        if i == 0 {
            let rules: Vec<String> = widths.iter().map(|w| "-".repeat(*w)).collect();
            let _ = writeln!(text, "{}", rules.join("  "));
        }
    }
    text
}

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

/// The table for a terminal: aligned columns, no colour. More than a few methods become the rows of several tables.
pub(crate) fn render_text(summary: &Summary<'_>) -> String {
    rendered(summary, align, block_text)
}

pub(crate) fn render_markdown(summary: &Summary<'_>) -> String {
    rendered(summary, markdown, |summary, groups| markdown(&block_rows(summary, groups)))
}

fn rendered(
    summary: &Summary<'_>,
    grid_text: fn(&[Vec<String>]) -> String,
    block_text: fn(&Summary<'_>, &[Group]) -> String,
) -> String {
    let metrics = &summary.headline();
    let mut tables: Vec<String> = if summary.methods.len() <= FEW_METHODS {
        vec![grid_text(&grid(summary, metrics))]
    } else {
        blocks(summary, metrics).iter().map(|groups| block_text(summary, groups)).collect()
    };
    tables.extend(footnote(summary, metrics));
    tables.join("\n")
}

/// The table as tidy CSV, `metric,method,task,mean,std,seeds`: full precision, `std` empty for one seed.
///
/// The layout is that of the published tables, so a file written here can be given to `--compare`.
pub(crate) fn render_csv(summary: &Summary<'_>) -> String {
    let metrics = summary.in_files();
    let rows = summary.cells(&metrics).map(|(metric, method, task, spread)| {
        let std = spread.std.map(|x| x.to_string()).unwrap_or_default();
        let mean = spread.mean.to_string();
        let seeds = spread.n().to_string();
        [metric.name(), method.to_owned(), task_label(task), mean, std, seeds]
    });
    csv_text(HEADER, rows)
}

/// Every number of the last checkpoints of finished runs as tidy CSV; `at` is the number of draws.
pub(crate) fn render_runs(summary: &Summary<'_>) -> String {
    let results = summary.results;
    let metrics = summary.in_files();
    let rows = results.finished().flat_map(|run| {
        metrics.iter().filter_map(move |metric| {
            let value = metric.value(results, run, run.checkpoints.last.as_ref()?)?;
            let draws = metric.draws.map_or_else(String::new, |draws| draws.to_string());
            let arm = run.method.clone();
            let task = run.task.clone();
            let seed = run.seed.to_string();
            Some([arm, task, seed, metric.base().into_owned(), draws, value.to_string()])
        })
    });
    csv_text(["arm", "task", "seed", "metric", "at", "value"], rows)
}

fn csv_text<const N: usize>(header: [&str; N], rows: impl Iterator<Item = [String; N]>) -> String {
    let lines = rows.map(|row| row.map(quoted).join(","));
    std::iter::once(header.join(",")).chain(lines).map(|line| line + "\n").collect()
}

/// A CSV cell, quoted only where it must be (RFC 4180).
fn quoted(cell: String) -> String {
    if cell.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", cell.replace('"', "\"\""))
    } else {
        cell
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Results;
    use crate::record::sample::{sample_reasoning, sample_results, set_accuracy, six_tasks};

    /// The results in all formats, of files some lines.
    fn all_formats(results: &Results) -> String {
        let summary = Summary::of_last(results);
        let files = render_csv(&summary) + "\n" + &render_runs(&summary);
        let shown =
            ["m", "arm,", "accuracy", "rank", "parameters", "stored", "auroc_entropy_arc-c"];
        let is_shown = |line: &&str| {
            let of_run = line.contains(",1,auroc_entropy") || line.contains(",1,rank");
            of_run || shown.iter().any(|start| line.starts_with(start))
        };
        let lines: Vec<&str> = files.lines().filter(is_shown).collect();
        format!("{}\n{}\n{}", render_text(&summary), render_markdown(&summary), lines.join("\n"))
    }

    #[test]
    fn a_few_methods_are_in_one_table() {
        let mut results = sample_results();
        results.runs.retain(|run| run.method != "AdaLoRA" && (run.task != "rte" || run.seed == 1));
        set_accuracy(&mut results, "cola", 0.5, [("LoRA", [0.25, 0.5, 0.75])]);
        set_accuracy(&mut results, "rte", 0.5, [("LoRA", [0.625; 3])]);
        insta::assert_snapshot!(all_formats(&results));
        assert_eq!(quoted("a,\"b\"".into()), "\"a,\"\"b\"\"\"");
    }

    #[test]
    fn every_number_of_draws_has_its_rows() {
        let mut results = sample_reasoning();
        results.runs.retain(|run| run.seed == 1 && run.task == "obqa");
        results.runs.retain(|run| ["LoRA", "SWAG"].contains(&run.method.as_str()));
        insta::assert_snapshot!(all_formats(&results));
    }

    #[test]
    fn many_methods_stay_within_a_terminal() {
        for results in [sample_reasoning(), six_tasks()] {
            let mut summary = Summary::of_last(&results);
            let text = render_text(&summary);
            let widest = text.lines().map(|line| line.chars().count()).max();
            assert!(widest.is_some_and(|n| n <= MOST_WIDTH), "{widest:?}\n{text}");
            for table in render_markdown(&summary).split("\n\n").filter(|t| t.starts_with('|')) {
                let bars: Vec<usize> = table.lines().map(|l| l.matches(" |").count()).collect();
                assert!(bars.len() == 2 + 20 && bars.iter().all(|n| *n == bars[0]), "{table}");
            }
            summary.methods.truncate(5);
            if summary.tasks.len() == 2 {
                insta::assert_snapshot!(render_text(&summary));
            }
        }
    }
}
