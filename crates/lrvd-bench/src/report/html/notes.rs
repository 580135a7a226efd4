//! What a reader must know before believing a number: caveats, the data, the resolved configuration.

use std::fmt::Write as _;

use serde_json::Value;

use super::scale::grouped;
use super::svg::escape;
use super::view;
use crate::report::names::task_label;
use crate::report::record::{DataOrigin, Results, RunStatus, SplitRecord};
use crate::report::summary::table_draws;

/// Caveats that follow from the record itself, then the notes of the run.
pub(crate) fn caveats(results: &Results) -> Vec<String> {
    let mut notes = Vec::new();
    let mut seeds: Vec<u64> = results.runs.iter().map(|run| run.seed).collect();
    seeds.sort_unstable();
    seeds.dedup();
    notes.push(match seeds.len() {
        0 => "No run has been recorded.".to_owned(),
        1 => "One seed: no spread can be stated, and differences between methods may be chance.".to_owned(),
        n => format!(
            "{n} seeds: ± is the sample standard deviation (divisor n − 1) of {n} values, itself a rough estimate."
        ),
    });
    notes.push(
        "The best checkpoint is chosen on the validation data it is reported on, so its numbers are optimistic; the \
last checkpoint is the fair comparison. Ranks, metrics and figures of one table or figure belong to one checkpoint."
            .to_owned(),
    );
    for task in view::tasks(results) {
        if let Some(caveat) =
            results.data.get(&task).and_then(super::super::record::TaskData::caveat)
        {
            let name = task_label(&task);
            notes.push(format!(
                "{name} (marked *): {caveat}. Not comparable with published numbers."
            ));
        }
        let note = results.data.get(&task).map_or("", |d| d.note.as_str());
        if !note.is_empty() {
            notes.push(format!("{}: {note}", task_label(&task)));
        }
    }
    for run in &results.runs {
        let what = match &run.status {
            RunStatus::Finished => continue,
            RunStatus::Interrupted => "was interrupted".to_owned(),
            RunStatus::Failed { reason } => format!("failed: {reason}"),
        };
        notes.push(format!(
            "{} on {}, seed {}, {what}. It is left out of all tables.",
            run.method,
            task_label(&run.task),
            run.seed
        ));
    }
    if let Some(k) = table_draws(results) {
        notes.push(format!(
            "The posterior mean is one deterministic answer. An answer of {k} draws is the mean of the probabilities of {k} \
fixed draws, which all examples share."
        ));
    }
    notes.push(
        "Time is training time on the stated device, evaluation not counted; other work on the machine enters it."
            .to_owned(),
    );
    notes.extend(results.notes.iter().cloned());
    notes
}

/// The caveats as a list.
pub(crate) fn caveat_list(results: &Results) -> String {
    let items: Vec<String> =
        caveats(results).iter().map(|note| format!("<li>{}</li>", escape(note))).collect();
    format!("<ul class=\"caveats\">{}</ul>", items.join(""))
}

/// Files, rows, origin and hashes of every task.
pub(crate) fn data_table(results: &Results) -> String {
    let mut html = String::from(
        "<div class=\"scroll\"><table><thead><tr><th scope=\"col\">Task</th><th scope=\"col\">Split</th>\
<th scope=\"col\">File</th><th scope=\"col\" class=\"n\">Rows</th><th scope=\"col\">Origin</th>\
<th scope=\"col\">SHA-256</th></tr></thead><tbody>",
    );
    for (task, data) in &results.data {
        for (split, record) in [("train", &data.train), ("validation", &data.validation)] {
            split_rows(&mut html, task, split, record);
        }
    }
    html.push_str("</tbody></table></div>");
    html
}

fn split_rows(html: &mut String, task: &str, split: &str, record: &SplitRecord) {
    let origin = match record.origin {
        DataOrigin::Official => "official",
        DataOrigin::Subset => "subset",
        DataOrigin::LocalDev => "local split",
        DataOrigin::Generated => "generated",
    };
    for (i, file) in record.files.iter().enumerate() {
        let rows = if i == 0 { grouped(record.rows) } else { String::new() };
        let _ = write!(
            html,
            "<tr><td>{}</td><td>{split}</td><td><code>{}</code></td><td class=\"n\">{rows}</td><td>{origin}</td>\
<td><code title=\"{}\">{}</code></td></tr>",
            escape(&task_label(task)),
            escape(&file.path),
            escape(&file.sha256),
            escape(&short_hash(&file.sha256)),
        );
    }
}

/// The first twelve characters of a hash.
pub(crate) fn short_hash(hash: &str) -> String {
    hash.chars().take(12).collect()
}

/// The resolved configuration, one dotted key a row.
pub(crate) fn config_table(results: &Results) -> String {
    let mut rows = Vec::new();
    flatten("", &results.config, &mut rows);
    let mut html = String::from("<div class=\"config\">");
    for (key, value) in rows {
        let _ =
            write!(html, "<div><code>{}</code><span>{}</span></div>", escape(&key), escape(&value));
    }
    html.push_str("</div>");
    html
}

/// Objects become dotted keys; lists and plain values stay on one row.
fn flatten(prefix: &str, value: &Value, rows: &mut Vec<(String, String)>) {
    match value {
        Value::Object(map) if !map.is_empty() => {
            let mut entries: Vec<(&String, &Value)> = map.iter().collect();
            // The order of a JSON map depends on how `serde_json` is built; ours must not.
            entries.sort_by_key(|(key, _)| *key);
            for (key, inner) in entries {
                let path = if prefix.is_empty() { key.clone() } else { format!("{prefix}.{key}") };
                flatten(&path, inner, rows);
            }
        }
        Value::String(text) => rows.push((prefix.to_owned(), text.clone())),
        Value::Array(list) if list.iter().all(Value::is_string) => {
            let words: Vec<&str> = list.iter().filter_map(Value::as_str).collect();
            rows.push((prefix.to_owned(), words.join(", ")));
        }
        other => rows.push((prefix.to_owned(), other.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample::sample_results;

    #[test]
    fn caveats_name_subsets_and_failures() {
        let mut results = sample_results();
        results.runs[0].status = RunStatus::Failed { reason: "loss is NaN at step 3".into() };
        let text = caveats(&results).join("\n");
        assert!(text.contains("RTE (marked *): training data are a subset of 8551 rows"));
        assert!(text.contains("LoRA on CoLA, seed 1, failed: loss is NaN at step 3."));
        assert!(text.starts_with("3 seeds: ±") && text.ends_with("made up."));
        results.runs.clear();
        assert!(caveats(&results)[0].starts_with("No run"));
    }

    #[test]
    fn configuration_is_flattened_in_key_order() {
        let mut rows = Vec::new();
        flatten("", &serde_json::json!({"b": {"y": 1, "x": null}, "a": ["p", "q"]}), &mut rows);
        let rows: Vec<String> = rows.iter().map(|(k, v)| format!("{k}={v}")).collect();
        assert_eq!(rows, ["a=p, q", "b.x=null", "b.y=1"]);
    }
}
