//! Pairs of numbers as text and markdown.

use std::fmt::Write as _;

use super::pair::{Comparison, ComparisonRow, MILLION};
use crate::report::names::task_label;
use crate::report::table;

const ABSENT: &str = "–";
/// Decimals of a parameter count in millions: as many as are published, and enough for the smallest backbones.
const MILLION_DECIMALS: usize = 3;

impl Comparison {
    /// Rows that a reader of text is shown: a long published table has tasks that did not run, which the caveats name.
    fn shown(&self) -> impl Iterator<Item = &ComparisonRow> {
        self.rows.iter().filter(|row| row.task_ran)
    }

    fn grid(&self) -> Vec<Vec<String>> {
        let with_draws = self.rows.iter().any(|row| row.metric.draws().is_some_and(|k| k > 0));
        let mut header = vec!["metric", "method"];
        header.extend(with_draws.then_some("k"));
        header.extend(["task", "measured", "published", "difference", "std. errors", ""]);
        let mut grid = vec![header.into_iter().map(str::to_owned).collect::<Vec<_>>()];
        for row in self.shown() {
            let mut cells = vec![row.metric.base().into_owned(), row.method.clone()];
            if with_draws {
                cells.push(row.metric.draws().map(|k| k.to_string()).unwrap_or_default());
            }
            cells.extend([
                task_label(&row.task),
                row.measured_text(),
                row.published_text(),
                row.difference_text(),
                row.standard_errors_text(),
                if row.caveat.is_some() { "*".to_owned() } else { String::new() },
            ]);
            grid.push(cells);
        }
        grid
    }

    /// Aligned text for a terminal; a star marks tasks whose data are not the published ones.
    pub(crate) fn render_text(&self) -> String {
        let mut text = table::align(&self.grid());
        text.push('\n');
        for caveat in &self.caveats {
            let _ = writeln!(text, "* {caveat}");
        }
        text
    }

    /// Markdown, the caveats as a list below the table.
    pub(crate) fn render_markdown(&self) -> String {
        let mut text = table::markdown(&self.grid());
        text.push('\n');
        for caveat in &self.caveats {
            let _ = writeln!(text, "- {caveat}");
        }
        text
    }
}

impl ComparisonRow {
    fn value_text(&self, value: f64) -> String {
        if self.metric.is_count() && value.is_finite() {
            format!("{:.*} M", MILLION_DECIMALS, value / MILLION)
        } else {
            self.metric.format(value)
        }
    }

    /// The measured cell in print; counts in millions, as they are published.
    pub(crate) fn measured_text(&self) -> String {
        self.measured.as_ref().map_or_else(
            || ABSENT.to_owned(),
            |spread| {
                if self.metric.is_count() {
                    self.value_text(spread.mean)
                } else {
                    self.metric.format_spread(spread)
                }
            },
        )
    }

    pub(crate) fn published_text(&self) -> String {
        let mean = self.value_text(self.published);
        self.published_std
            .filter(|_| !self.metric.is_count())
            .map_or_else(|| mean.clone(), |std| format!("{mean} ±{}", self.metric.format_std(std)))
    }

    pub(crate) fn difference_text(&self) -> String {
        match self.difference {
            Some(x) if x.is_finite() && self.metric.is_count() => {
                format!("{:+.*} M", MILLION_DECIMALS, x / MILLION).replace('-', "−")
            }
            Some(x) if x.is_finite() => {
                format!("{x:+.*}", self.metric.decimals().0).replace('-', "−")
            }
            _ => ABSENT.to_owned(),
        }
    }

    /// The difference in standard errors in print, with its sign.
    pub(crate) fn standard_errors_text(&self) -> String {
        self.standard_errors.map_or_else(
            || ABSENT.to_owned(),
            |z| {
                let decimals = usize::from(z.abs() < 99.95);
                format!("{z:+.decimals$}").replace('-', "−")
            },
        )
    }
}
