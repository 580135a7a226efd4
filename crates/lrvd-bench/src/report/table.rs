//! The summary as aligned text, as markdown and as tidy CSV.
//!
//! A few methods are in one table whose first column is the metric. Many methods become the rows of several tables,
//! with as many metrics side by side as fit a terminal: where they fit, all tasks of one metric stay together, and so
//! do its values with and without posterior draws. A count of parameters is followed by that of the numbers kept beside
//! them, if there are any, and a calibration error by that of a calibrated model.

use std::fmt::Write as _;

use super::metric::{Better, FLOOR, KEPT, Metric};
use super::rows::task_label;
use super::summary::Summary;
use crate::record::{Results, RunStatus};

/// What stands where nothing was measured.
const ABSENT: &str = "–";
/// Up to so many methods the metric is a column.
const FEW_METHODS: usize = 4;
/// Characters of a line that tables of many methods keep to, if one metric alone does not exceed it.
const MOST_WIDTH: usize = 120;
const GAP: usize = 2;

/// Header and rows of the table: metric, method, then one column per task.
fn grid(summary: &Summary) -> Vec<Vec<String>> {
    let mut header = vec!["metric".to_owned(), "method".to_owned()];
    header.extend(summary.tasks.iter().map(|task| task_label(task)));
    let mut rows = vec![header];
    for metric in &summary.metrics {
        for method in &summary.methods {
            let mut row = vec![metric.name(), method.clone()];
            row.extend(summary.tasks.iter().map(|task| cell(summary, *metric, method, task)));
            rows.push(row);
        }
    }
    rows
}

fn cell(summary: &Summary, metric: Metric, method: &str, task: &str) -> String {
    let Some(spread) = summary.cell(metric, method, task) else { return ABSENT.to_owned() };
    let text = metric.format_spread(spread);
    match summary.beside(metric, method, task) {
        Some(stored) if metric == Metric::Parameters => {
            format!("{text} + {}", metric.format(stored))
        }
        Some(floor) => format!("{text} ({})", metric.format(floor)),
        None if metric == Metric::Rank => match summary.full_rank(method, task) {
            Some(full) => format!("{text} of {full}"),
            None => text,
        },
        None => text,
    }
}

/// What is said below tables that have a `+` or brackets.
fn footnote(summary: &Summary) -> Option<String> {
    let has = |parameters: bool| {
        let mut cells = summary.cells();
        cells.any(|(metric, method, task, _)| {
            (metric == Metric::Parameters) == parameters
                && summary.beside(metric, method, task).is_some()
        })
    };
    let notes = [(true, KEPT), (false, FLOOR)].into_iter().filter(|(which, _)| has(*which));
    let notes: Vec<&str> = notes.map(|(_, note)| note).collect();
    (!notes.is_empty()).then(|| notes.join("\n") + "\n")
}

/// One metric in a table of many methods: its name over one column per task, or over those that fit a line.
struct Group {
    title: String,
    /// Task, then a cell per method.
    columns: Vec<Vec<String>>,
}

impl Group {
    fn new(summary: &Summary, metric: Metric) -> Self {
        let column = |task: &String| {
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
fn blocks(summary: &Summary) -> Vec<Vec<Group>> {
    let names = name_width(summary);
    let width = |groups: &[Group]| groups.iter().map(Group::width).sum::<usize>();
    let room = MOST_WIDTH.saturating_sub(names);
    let mut blocks: Vec<Vec<Group>> = Vec::new();
    let mut facts = false;
    for metrics in summary.metrics.chunk_by(|a, b| a.base() == b.base()) {
        let groups = metrics.iter().flat_map(|metric| Group::new(summary, *metric).parted(room));
        let mut lines: Vec<Vec<Group>> = Vec::new();
        for group in groups {
            match lines.last_mut() {
                Some(line) if width(line) + group.width() <= room => line.push(group),
                _ => lines.push(vec![group]),
            }
        }
        let added: usize = lines.iter().map(|line| width(line)).sum();
        let is_fact = metrics.iter().any(|metric| metric.better() == Better::Neither);
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

fn name_width(summary: &Summary) -> usize {
    let longest = summary.methods.iter().map(|method| method.chars().count()).max();
    longest.unwrap_or(0).max("method".len())
}

fn block_text(summary: &Summary, groups: &[Group]) -> String {
    let names = name_width(summary);
    let gap = " ".repeat(GAP);
    let mut lines = vec![pad("", names), pad("method", names), "-".repeat(names)];
    lines.extend(summary.methods.iter().map(|method| pad(method, names)));
    for group in groups {
        let widths = group.widths();
        let _ = write!(lines[0], "{gap}{}", pad(&group.title, group.width() - GAP));
        for (column, width) in group.columns.iter().zip(widths) {
            let _ = write!(lines[2], "{gap}{}", "-".repeat(width));
            let rows = std::iter::once(1).chain(3..);
            for (row, cell) in rows.zip(column) {
                let _ = write!(lines[row], "{gap}{}", pad(cell, width));
            }
        }
    }
    lines.iter().flat_map(|line| [line.trim_end(), "\n"]).collect()
}

/// The rows of a table of many methods in markdown, whose header has one line.
fn block_rows(summary: &Summary, groups: &[Group]) -> Vec<Vec<String>> {
    let mut rows: Vec<Vec<String>> = std::iter::once("method".to_owned())
        .chain(summary.methods.iter().cloned())
        .map(|name| vec![name])
        .collect();
    for group in groups {
        for column in &group.columns {
            for (i, (row, cell)) in rows.iter_mut().zip(column).enumerate() {
                row.push(if i == 0 { format!("{} {cell}", group.title) } else { cell.clone() });
            }
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
pub(crate) fn render_text(summary: &Summary) -> String {
    let mut tables: Vec<String> = if summary.methods.len() <= FEW_METHODS {
        vec![align(&grid(summary))]
    } else {
        blocks(summary).iter().map(|groups| block_text(summary, groups)).collect()
    };
    tables.extend(footnote(summary));
    tables.join("\n")
}

/// The table in markdown, parted as the text is.
pub(crate) fn render_markdown(summary: &Summary) -> String {
    let mut tables: Vec<String> = if summary.methods.len() <= FEW_METHODS {
        vec![markdown(&grid(summary))]
    } else {
        blocks(summary).iter().map(|groups| markdown(&block_rows(summary, groups))).collect()
    };
    tables.extend(footnote(summary));
    tables.join("\n")
}

/// The table as tidy CSV, `metric,method,task,mean,std`: full precision, `std` empty for one seed.
///
/// The layout is that of the published tables, so a file written here can be given to `--compare`.
pub(crate) fn render_csv(summary: &Summary) -> String {
    let mut text = String::from("metric,method,task,mean,std\n");
    for (metric, method, task, spread) in summary.cells() {
        let std = spread.std.map(|x| x.to_string()).unwrap_or_default();
        let row = [metric.name(), method.to_owned(), task_label(task)].map(|cell| quote(&cell));
        let _ = writeln!(text, "{},{},{std}", row.join(","), spread.mean);
    }
    text
}

/// Every number of the last checkpoints of finished runs as tidy CSV, `arm,task,seed,metric,at,value`; `at` is the number of
/// draws.
pub(crate) fn render_runs(results: &Results, metrics: &[Metric]) -> String {
    let mut text = String::from("arm,task,seed,metric,at,value\n");
    for run in results.runs.iter().filter(|run| run.status == RunStatus::Finished) {
        let Some(last) = &run.checkpoints.last else { continue };
        for metric in metrics {
            let Some(value) = metric.value(results, run, last) else { continue };
            let draws = metric.draws().map_or_else(String::new, |draws| draws.to_string());
            let (arm, task) = (quote(&run.method), quote(&run.task));
            let _ = writeln!(text, "{arm},{task},{},{},{draws},{value}", run.seed, metric.base());
        }
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
    use super::super::published::{Published, PublishedRow};
    use super::super::summary::{CheckpointChoice, csv_metrics, headline_metrics};
    use super::*;
    use crate::record::sample::{sample_reasoning, sample_results, set_accuracy, six_tasks};

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
        let expected = "\
metric    method     CoLA         RTE    STS-B
--------  ---------  -----------  -----  -----
accuracy  LoRA       0.500 ±.250  0.625  –
accuracy  BayesLoRA  0.500 ±.000  0.750  –
";
        assert_eq!(render_text(&summary()), expected);
    }

    #[test]
    fn markdown_has_a_rule() {
        let expected = "\
| metric | method | CoLA | RTE | STS-B |
| --- | --- | --- | --- | --- |
| accuracy | LoRA | 0.500 ±.250 | 0.625 | – |
| accuracy | BayesLoRA | 0.500 ±.000 | 0.750 | – |
";
        assert_eq!(render_markdown(&summary()), expected);
    }

    #[test]
    fn csv_is_tidy_and_quoted() {
        let expected = "\
metric,method,task,mean,std
accuracy,LoRA,CoLA,0.5,0.25
accuracy,LoRA,RTE,0.625,
accuracy,BayesLoRA,CoLA,0.5,0
accuracy,BayesLoRA,RTE,0.75,
";
        assert_eq!(render_csv(&summary()), expected);
        assert_eq!(quote("a,\"b\""), "\"a,\"\"b\"\"\"");
    }

    #[test]
    fn many_methods_stay_within_a_terminal() {
        for (results, n_tasks) in [(sample_reasoning(), 2), (six_tasks(), 6)] {
            let summary =
                Summary::new(&results, CheckpointChoice::Last, &headline_metrics(&results));
            assert_eq!((summary.methods.len(), summary.tasks.len()), (20, n_tasks));
            let text = render_text(&summary);
            let widest = text.lines().map(|line| line.chars().count()).max();
            assert!(widest.is_some_and(|n| n <= MOST_WIDTH), "{widest:?}\n{text}");
            for name in ["accuracy_k2", "macro_f1", "brier_k10", "parameters", "predict_s_k5"] {
                assert!(text.contains(name), "{name}");
            }
            let kept = "13\u{202f}568 + 81\u{202f}408";
            let tables = |text: &str| -> Vec<String> {
                let (tables, note) = text.rsplit_once("\n\n").unwrap_or_default();
                assert!(note == format!("{KEPT}\n{FLOOR}\n") && tables.contains(kept), "{text}");
                tables.split("\n\n").map(str::to_owned).collect()
            };
            for table in tables(&text) {
                assert_eq!(table.lines().count(), 3 + 20, "{table}");
            }
            for table in tables(&render_markdown(&summary)) {
                let bars = |line: &str| line.matches(" |").count();
                let expected = table.lines().next().map(bars);
                assert!(table.lines().all(|line| Some(bars(line)) == expected), "{table}");
            }
        }
    }

    #[test]
    fn every_number_of_draws_has_its_rows() {
        let mut results = sample_reasoning();
        results.runs.retain(|run| ["LoRA", "BayesLoRA"].contains(&run.method.as_str()));
        let metrics = [0, 1, 2, 5, 10].map(Metric::Ece);
        let summary = Summary::new(&results, CheckpointChoice::Last, &metrics);
        let (text, csv) = (render_text(&summary), render_csv(&summary));
        for name in ["ece", "ece_k1", "ece_k2", "ece_k5", "ece_k10"] {
            for method in ["LoRA", "BayesLoRA"] {
                let start = format!("{name:<7}  {method} ");
                assert!(text.lines().any(|line| line.starts_with(&start)), "{start}\n{text}");
            }
            assert!(csv.contains(&format!("\n{name},BayesLoRA,OBQA,0.")), "{csv}");
            assert_eq!(csv.contains(&format!("\n{name},LoRA,")), name == "ece", "one answer");
        }
        assert!(!text.contains('+'), "nothing is kept");
    }

    #[test]
    fn files_count_what_is_kept_apart() {
        let mut results = sample_reasoning();
        results.runs.retain(|run| run.method == "SWAG" && run.task == "obqa");
        let metrics = csv_metrics(&results);
        let csv = render_csv(&Summary::new(&results, CheckpointChoice::Last, &metrics));
        for row in ["parameters,SWAG,OBQA,13568,0", "stored_parameters,SWAG,OBQA,81408,0"] {
            assert_eq!(csv.lines().filter(|line| *line == row).count(), 1, "{csv}");
        }
        for start in ["aurc_k5,SWAG,OBQA,", "auroc_entropy_arc-c,", "auroc_information_arc-e_k10,"]
        {
            assert!(csv.lines().any(|line| line.starts_with(start)), "{start}");
        }
        // What is written here can be compared with.
        let known = |row: &PublishedRow| Metric::parse(&row.metric, 0).is_some();
        let read = Published::parse(&csv, "table.csv");
        assert!(read.is_ok_and(|table| table.rows.iter().all(known)), "{csv}");
    }

    #[test]
    fn metrics_stand_side_by_side_while_they_fit() {
        let mut results = sample_reasoning();
        results.runs.retain(|run| run.seed == 1 && run.task == "obqa");
        let metrics = [Metric::Accuracy(0), Metric::Accuracy(10), Metric::Ece(0), Metric::Rank];
        let mut summary = Summary::new(&results, CheckpointChoice::Last, &metrics);
        summary.methods.truncate(1);
        let groups = blocks(&summary);
        assert_eq!(groups.len(), 2, "sizes stand apart");
        let value = |metric| cell(&summary, metric, "LoRA", "obqa");
        let expected = format!(
            "        accuracy  accuracy_k10  ece\nmethod  OBQA      OBQA          OBQA\n\
------  --------  ------------  -------------\nLoRA    {}     –             {}\n",
            value(Metric::Accuracy(0)),
            value(Metric::Ece(0))
        );
        assert_eq!(block_text(&summary, &groups[0]), expected);
    }
}
