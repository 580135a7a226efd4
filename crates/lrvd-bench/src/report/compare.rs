//! Published numbers beside measured ones.

use std::fmt::Write as _;

use super::metric::Metric;
use super::names::{match_key, method_order, task_label, task_order};
use super::published::Published;
use super::record::Results;
use super::spread::Spread;
use super::summary::{CheckpointChoice, Summary};
use super::table;

/// Published and measured numbers side by side at one kind of checkpoint.
#[derive(Debug, Clone, PartialEq)]
pub struct Comparison {
    /// Where the published numbers come from.
    pub source: String,
    /// The checkpoint of the measured numbers.
    pub choice: CheckpointChoice,
    /// Pairs, in the order of the headline table.
    pub rows: Vec<ComparisonRow>,
    /// Published numbers without a measured partner.
    pub n_unmatched: usize,
    /// What to bear in mind: the backbone, units, data that are not the published ones.
    pub caveats: Vec<String>,
}

/// One pair.
#[derive(Debug, Clone, PartialEq)]
pub struct ComparisonRow {
    /// The metric.
    pub metric: Metric,
    /// Method in print.
    pub method: String,
    /// Task key.
    pub task: String,
    /// What was measured.
    pub measured: Spread,
    /// The published mean.
    pub published: f64,
    /// The published standard deviation; none where none was printed.
    pub published_std: Option<f64>,
    /// `measured - published`.
    pub difference: f64,
    /// The difference in units of the combined standard error, `sqrt(s1²/n1 + s2²/n2)`; none without both deviations
    /// or where both vanish, and none for time and memory, which speak of two machines.
    pub standard_errors: Option<f64>,
    /// Why the data of this task are not the published ones; none where they are.
    pub caveat: Option<String>,
}

/// Sets published numbers beside measured ones. Tasks match by letters and digits (`SST-2` is `sst2`), and a published
/// method `X_k10` is method `X` at ten draws.
pub fn compare(results: &Results, published: &Published, choice: CheckpointChoice) -> Comparison {
    let mut rows = Vec::new();
    let mut n_unmatched = 0;
    for row in &published.rows {
        let (method, draws) = row.method_and_draws();
        let Some(metric) = Metric::parse(&row.metric, draws) else {
            n_unmatched += 1;
            continue;
        };
        let summary = Summary::new(results, choice, &[metric]);
        let found = summary.cells().find(|(_, m, t, _)| {
            match_key(m) == match_key(method) && match_key(t) == match_key(&row.task)
        });
        let Some((_, method, task, spread)) = found else {
            n_unmatched += 1;
            continue;
        };
        rows.push(ComparisonRow {
            metric,
            method: method.to_owned(),
            task: task.to_owned(),
            measured: spread.clone(),
            published: row.mean,
            published_std: row.std,
            difference: spread.mean - row.mean,
            standard_errors: metric
                .is_of_the_model()
                .then(|| standard_errors(spread, row.mean, row.std, published.n_seeds))
                .flatten(),
            caveat: results.data.get(task).and_then(super::record::TaskData::caveat),
        });
    }
    rows.sort_by(|a, b| {
        let metric = metric_index(a.metric).cmp(&metric_index(b.metric));
        metric.then(method_order(&a.method, &b.method)).then(task_order(&a.task, &b.task))
    });
    let caveats = caveats(results, published, &rows, n_unmatched);
    Comparison { source: published.source.clone(), choice, rows, n_unmatched, caveats }
}

/// Quality first, then size, then time.
fn metric_index(metric: Metric) -> (u8, Metric) {
    let group = match metric {
        Metric::Accuracy(_) | Metric::Standard(_) => 0,
        Metric::Nll(_) | Metric::Ece(_) | Metric::Brier(_) => 1,
        Metric::Rank | Metric::RankPercent => 2,
        Metric::TimeMin | Metric::MemoryMib => 3,
    };
    (group, metric)
}

fn standard_errors(measured: &Spread, mean: f64, std: Option<f64>, n: usize) -> Option<f64> {
    let published = std? / (n as f64).sqrt();
    let combined = measured.standard_error()?.hypot(published);
    (combined > 0.0 && combined.is_finite()).then(|| (measured.mean - mean) / combined)
}

fn caveats(
    results: &Results,
    published: &Published,
    rows: &[ComparisonRow],
    n_unmatched: usize,
) -> Vec<String> {
    let mut caveats = vec![format!(
        "measured with {} ({:.1} M parameters) on {}; published numbers speak of the model, data and device of their \
source",
        results.model.name,
        results.model.parameters as f64 / 1e6,
        results.device
    )];
    let mut seen: Vec<&str> = Vec::new();
    for row in rows {
        if let Some(caveat) = &row.caveat
            && !seen.contains(&row.task.as_str())
        {
            seen.push(&row.task);
            caveats.push(format!("{}: {caveat}; not comparable", task_label(&row.task)));
        }
    }
    if published.was_percent {
        caveats.push(format!(
            "accuracy and ECE in {} are per cent and were divided by 100",
            published.source
        ));
    }
    if n_unmatched > 0 {
        caveats.push(format!(
            "{n_unmatched} of {} published numbers have no measured partner",
            published.rows.len()
        ));
    }
    caveats
}

impl Comparison {
    fn grid(&self) -> Vec<Vec<String>> {
        let header =
            ["metric", "method", "task", "measured", "published", "difference", "std. errors", ""];
        let mut grid = vec![header.map(str::to_owned).to_vec()];
        for row in &self.rows {
            grid.push(vec![
                row.metric.name(),
                row.method.clone(),
                task_label(&row.task),
                row.metric.format_spread(&row.measured),
                row.published_text(),
                row.difference_text(),
                row.standard_errors_text(),
                if row.caveat.is_some() { "*".to_owned() } else { String::new() },
            ]);
        }
        grid
    }

    /// Aligned text for a terminal; a star marks tasks whose data are not the published ones.
    pub fn render_text(&self) -> String {
        let mut text = table::align(&self.grid());
        text.push('\n');
        for caveat in &self.caveats {
            let _ = writeln!(text, "* {caveat}");
        }
        text
    }

    /// Markdown, the caveats as a list below the table.
    pub fn render_markdown(&self) -> String {
        let mut text = table::markdown(&self.grid());
        text.push('\n');
        for caveat in &self.caveats {
            let _ = writeln!(text, "- {caveat}");
        }
        text
    }
}

impl ComparisonRow {
    /// The published cell in print.
    pub fn published_text(&self) -> String {
        let mean = self.metric.format(self.published);
        self.published_std
            .map_or_else(|| mean.clone(), |std| format!("{mean} ±{}", self.metric.format_std(std)))
    }

    /// The difference in print, with its sign.
    pub fn difference_text(&self) -> String {
        if self.difference.is_finite() {
            format!("{:+.*}", self.metric.decimals().0, self.difference).replace('-', "−")
        } else {
            "–".to_owned()
        }
    }

    /// The difference in standard errors in print, with its sign.
    pub fn standard_errors_text(&self) -> String {
        self.standard_errors.map_or_else(
            || "–".to_owned(),
            |z| {
                let decimals = usize::from(z.abs() < 99.95);
                format!("{z:+.decimals$}").replace('-', "−")
            },
        )
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::super::sample::{sample_results, set_accuracy};
    use super::*;

    const TABLE: &str = "metric,method,task,mean,std\naccuracy,LoRA,CoLA,0.625,0.25\naccuracy,LoRA,RTE,0.875,0.03\nrank,LoRA,CoLA,8,\naccuracy,LoRA,WNLI,0.5,\nparams_m,LoRA,CoLA,1,\n";

    fn comparison() -> Comparison {
        let mut results = sample_results();
        set_accuracy(&mut results, "cola", "LoRA", &[(0.25, 0.0), (0.5, 0.0), (0.75, 0.0)]);
        set_accuracy(&mut results, "rte", "LoRA", &[(0.5, 0.0), (0.5, 0.0), (0.5, 0.0)]);
        let published = Published::parse(TABLE, "glue.csv").unwrap();
        compare(&results, &published, CheckpointChoice::Last)
    }

    #[test]
    fn differences_and_standard_errors() {
        let comparison = comparison();
        assert_eq!(comparison.rows.len(), 3);
        assert_eq!(comparison.n_unmatched, 2);
        let first = &comparison.rows[0];
        assert_eq!((first.task.as_str(), first.difference), ("cola", -0.125));
        // Both deviations 0.25 at three seeds: -0.125 / (0.25 · sqrt(2/3)) = -0.612372...
        assert!((first.standard_errors.unwrap() + 0.612_372_435_695_794_5).abs() < 1e-12);
        assert_eq!(comparison.rows[2].standard_errors, None, "no published deviation");
        assert!(first.caveat.is_none());
        let rte = &comparison.rows[1];
        assert!(rte.caveat.as_ref().unwrap().contains("subset"), "{:?}", rte.caveat);
    }

    #[test]
    fn text_marks_tasks_that_are_not_comparable() {
        let text = comparison().render_text();
        let line = |start: &str| text.lines().find(|l| l.starts_with(start)).unwrap().to_owned();
        assert_eq!(
            line("accuracy  LoRA    CoLA"),
            "accuracy  LoRA    CoLA  0.500 ±.250  0.625 ±.250  −0.125      −0.6"
        );
        assert!(line("accuracy  LoRA    RTE").ends_with('*'));
        assert!(text.contains("* 2 of 5 published numbers have no measured partner"));
        assert!(
            comparison().render_markdown().contains("| accuracy | LoRA | CoLA | 0.500 ±.250 |")
        );
    }
}
