//! The first section: who leads, and the headline table.

use std::fmt::Write as _;

use super::view::{self, Cast};
use super::{cards, leaders, method_table, table, task};
use crate::report::record::Results;
use crate::report::summary::{CheckpointChoice, table_draws};

/// The section for a few methods, or for the many of the uncertainty tables.
pub(crate) fn section(results: &Results, cast: &Cast) -> String {
    if cast.is_about_uncertainty() { many(results, cast) } else { few(results, cast) }
}

/// Leaders, calibration against accuracy and the table of all methods, each the mean over the tasks with classes. A
/// single task has the last two in its own section.
fn many(results: &Results, cast: &Cast) -> String {
    let tasks = view::class_tasks(results);
    let how = table_draws(results).map_or_else(
        || "Each method has one answer, without posterior draws.".to_owned(),
        |k| {
            format!(
                "A method with a posterior answers with the mean probabilities of {k} draws; all others have one answer."
            )
        },
    );
    let over = if tasks.len() > 1 {
        format!("Means over {} tasks and over seeds", tasks.len())
    } else {
        "Means over seeds".to_owned()
    };
    let mut html = format!(
        "<section id=\"results\"><h2>Results</h2><p class=\"how\">{over} at the last checkpoint. {how}</p>{}",
        leaders::leaders(results, cast)
    );
    if tasks.len() > 1 {
        let what = format!("Mean over {} tasks", tasks.len());
        html.push_str(&task::tradeoffs(results, cast, &tasks, &what));
        html.push_str("<h3>All methods</h3>");
        html.push_str(&method_table::tables(results, cast, &tasks, &what));
    }
    if results.data.values().any(|data| !data.is_official()) {
        html.push_str(
            "<p class=\"foot\">Some data are not the official splits; see the notes.</p>",
        );
    }
    html.push_str("</section>");
    html
}

/// Cards, overview, headline and calibration tables, for the last and for the best checkpoint. The switch is a pair of
/// radio buttons, which needs no script and begins with the checkpoint that the settings say to report.
fn few(results: &Results, cast: &Cast) -> String {
    let checked = |choice: CheckpointChoice| {
        if CheckpointChoice::reported(results) == choice { " checked" } else { "" }
    };
    let mut html = format!(
        "<section id=\"results\"><h2>Results</h2><div class=\"switch\">\
<input type=\"radio\" name=\"checkpoint\" id=\"show-last\"{}><label for=\"show-last\">Last checkpoint</label>\
<input type=\"radio\" name=\"checkpoint\" id=\"show-best\"{}><label for=\"show-best\">Best checkpoint</label>",
        checked(CheckpointChoice::Last),
        checked(CheckpointChoice::Best)
    );
    for choice in CheckpointChoice::BOTH {
        let what = match choice {
            CheckpointChoice::Last => "The state after the last step.",
            CheckpointChoice::Best => {
                "The state with the best validation metric, chosen on the data it is reported on: optimistic."
            }
        };
        let _ = write!(
            html,
            "<div class=\"panel {0}\"><p class=\"how\">{what} Mean ± sample standard deviation over seeds; bold: the \
best mean of a task. Hover a number for its median and its seeds.</p>{1}{2}",
            choice.name(),
            cards::cards(results, cast, choice),
            table::headline(results, cast, choice),
        );
        if results.data.values().any(|data| !data.is_official()) {
            html.push_str(
                "<p class=\"foot\">* The data are not the official splits; see the notes.</p>",
            );
        }
        let _ = write!(
            html,
            "<h3>Score against rank</h3>{}{}",
            cards::legend(cast),
            cards::overview(results, cast, choice)
        );
        if let Some(calibration) = table::calibration(results, cast, choice) {
            html.push_str("<h3>Likelihood and calibration</h3>");
            html.push_str(&calibration);
        }
        html.push_str("</div>");
    }
    html.push_str("</div></section>");
    html
}
