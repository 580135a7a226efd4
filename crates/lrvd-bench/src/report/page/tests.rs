//! The page as a whole: self-contained, safe, complete, and the same every time.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use serde_json::{Value, json};

use super::{PLOT, PROCEDURES, Page, SCRIPTS, STYLE, TEMPLATE};
use crate::record::sample::{plan_runs, sample_reasoning, sample_results, six_tasks};
use crate::record::{RankEvent, Results, RunStatus};
use crate::report::{Findings, Published, RowScores, Summary, compare};
use crate::settings::CheckpointChoice;

/// Made-up published numbers of tasks of both samples, some without a partner.
const PUBLISHED: &str = "metric,method,task,mean,std\naccuracy,LoRA,CoLA,0.858,0.011\nrank,LoRA,RTE,2,\n\
accuracy,LoRA,OBQA,0.59,0.01\naccuracy,ENS,OBQA,0.62,0.01\naccuracy,LoRA,ARC-E,0.69,0.02\n\
accuracy,BayesLoRA_k0,OBQA,0.57,0.01\naccuracy,BayesLoRA_k10,OBQA,0.575,0.01\naccuracy,IVON_k10,OBQA,0.6,\n\
ece,LAP,OBQA,0.05,0.01\nece,BLoB_k10,OBQA,0.06,0.01\nparams_m,LoRA,all,4.48,\n\
params_m_min,BayesLoRA_k10,all,2.40,\nparams_m_max,BayesLoRA_k10,all,3.87,\n";

fn page(results: &Results) -> String {
    let rows = RowScores::default();
    let summary = Summary::new(results, &rows);
    let published = Published::parse(PUBLISHED, "published.csv").unwrap();
    let comparison = compare(&summary.at(CheckpointChoice::Last), &published);
    Page::new(&summary, &Findings::new(&summary).unwrap(), Some(&comparison))
        .render(results)
        .unwrap()
}

fn embedded<'a>(html: &'a str, id: &str) -> &'a str {
    let start = format!("<script type=\"application/json\" id=\"{id}\">");
    html.split(&start).nth(1).unwrap().split("</script>").next().unwrap()
}

fn data(results: &Results) -> Value {
    serde_json::from_str(embedded(&page(results), "page")).unwrap()
}

#[test]
fn the_script_reads_fields_that_are_written() {
    let scripts = SCRIPTS.concat();
    let html = page(&sample_reasoning());
    for (document, fields) in [
        ("results", include_str!("read_of_results.txt")),
        ("page", include_str!("read_of_page.txt")),
    ] {
        let json = embedded(&html, document);
        for field in fields.split_whitespace() {
            assert!(json.contains(&format!("\"{field}\":")), "{document} has no {field}");
            assert!(scripts.contains(field), "nothing reads {field}");
        }
    }
}

/// Sentences and names are those of the terminal; numbers are numbers, each with the format of its metric.
#[test]
fn the_page_has_the_terminals_words() {
    let mut results = sample_reasoning();
    results.runs.retain(|run| run.task == "obqa" && ["LoRA", "SWAG"].contains(&&*run.method));
    plan_runs(&mut results);
    let data = data(&results);
    let summary = Summary::of_last(&results);
    for (metric, method, task, spread) in summary.cells(&summary.on_page()) {
        let cell = &data["cells"]["last"][metric.name()][method][task];
        let seeds: Vec<f64> = spread.by_seed.values().copied().collect();
        assert_eq!(
            (&cell["mean"], &cell["seeds"]),
            (&json!(spread.mean), &json!(seeds)),
            "{metric:?}"
        );
        let format = &data["metrics"][&*metric.base()]["format"];
        assert_eq!(format, &json!(metric.number_format()), "{metric:?}");
    }
    let behind = ["rank", "memory_mib", "parameters"]
        .map(|m| &data["cells"]["last"][m]["SWAG"]["obqa"]["behind"]);
    assert_eq!(behind, [&json!(8.0), &json!(240.0), &Value::Null]);
    assert_eq!(
        json!(["accuracy", "time_min", "parameters"].map(|m| &data["metrics"][m]["format"])),
        json!([
            { "digits": 3, "std_digits": 3, "style": "plain" },
            { "digits": 1, "std_digits": 2, "style": "finer" },
            { "digits": 0, "std_digits": 0, "style": "grouped" },
        ])
    );
    let mut shown = String::new();
    // Fixed colours for the first table's methods, otherwise one for each family.
    for results in [sample_results(), sample_reasoning()] {
        for method in self::data(&results)["methods"].as_array().unwrap() {
            writeln!(shown, "{}: colour {}", method["name"], method["colour"]).unwrap();
        }
    }
    for name in ["findings", "methods", "tasks", "sets", "kinds"] {
        shown += &serde_json::to_string_pretty(&data[name]).unwrap();
    }
    insta::assert_snapshot!(shown);
}

/// The page and the derivation have one text of every procedure, and each names its source.
#[test]
fn procedures_are_those_of_the_documents() {
    let document = include_str!("../../../../../docs/math/statistics.md");
    assert!(
        document.contains(PROCEDURES),
        "docs/math/statistics.md has another text than procedures.md"
    );
    let data = data(&sample_results());
    let shown = data["procedures"].as_array().unwrap();
    assert_eq!(shown.len(), PROCEDURES.matches("## ").count());
    let text = serde_json::to_string(shown).unwrap();
    for name in [
        "Howe 1974",
        "Tukey 1958",
        "Holm 1979",
        "Fisher 1925",
        "DeLong et al. 1988",
        "Clopper, Pearson 1934",
    ] {
        assert!(text.contains(name), "{name}");
    }
    assert!(!text.contains("```") && !text.contains("##"), "{text}");
}

#[test]
fn the_curve_of_total_ranks_is_that_of_the_rank_events() {
    let mut results = sample_results();
    results.runs.retain(|run| run.task == "rte" && run.method == "BayesLoRA" && run.seed <= 2);
    let events = r#"[
        [{"step": 0, "cause": "prune", "ranks": {"a": 4, "b": 4}, "total_rank": 8},
         {"step": 30, "cause": "prune", "ranks": {"a": 4, "b": 1}, "total_rank": 5}],
        [{"step": 0, "cause": "prune", "ranks": {"a": 4, "b": 4}, "total_rank": 8},
         {"step": 20, "cause": "prune", "ranks": {"a": 0, "b": 3}, "total_rank": 3}]]"#;
    let events: Vec<Vec<RankEvent>> = serde_json::from_str(events).unwrap();
    for (run, events) in results.runs.iter_mut().zip(events) {
        run.rank_events = events;
        // Evaluations saw other ranks: they come before a prune of the same step, and rarely.
        run.history.iter_mut().for_each(|point| point.total_rank = 8);
    }
    let end = results.runs[0].steps;
    let curve = data(&results)["total_ranks"].clone();
    let of = |seed: u64| -> Vec<(u64, u64)> {
        let points = curve.as_array().unwrap().iter().filter(|point| point["seed"] == seed);
        points.map(|p| (p["step"].as_u64().unwrap(), p["value"].as_u64().unwrap())).collect()
    };
    assert_eq!(of(1), [(0, 8), (20, 8), (30, 5), (end, 5)]);
    assert_eq!(of(2), [(0, 8), (20, 3), (30, 3), (end, 3)]);
}

#[test]
fn the_page_needs_no_network() {
    let own = [TEMPLATE, STYLE, SCRIPTS[0], SCRIPTS[1], SCRIPTS[2]].concat();
    for needle in ["http:", "https:", "//cdn", "src=", "<link", "@import", "fetch(", "import("] {
        assert!(!own.contains(needle), "{needle}");
    }
    assert_eq!(own.matches("url(").count(), own.matches("url(#").count(), "only into the page");
    assert!(own.contains("default-src 'none'"), "and the browser is told so");
    for library in PLOT {
        // Names of the libraries' own origin and of XML, which are not requested.
        let foreign =
            |url: &&str| !url.starts_with("://www.w3.org/") && !url.starts_with("://d3js.org ");
        let found = library.split("http").skip(1).map(|rest| rest.trim_start_matches('s'));
        assert_eq!(found.filter(|rest| rest.starts_with("://")).find(foreign), None);
    }
}

#[test]
fn the_record_comes_back_from_the_page_and_names_cannot_become_markup() {
    let scripts = TEMPLATE.matches("</script").count();
    for results in [sample_results(), six_tasks(), with_markup(&sample_reasoning())] {
        let html = page(&results);
        assert_eq!(page(&results), html, "the same record gives the same bytes");
        let back: Results = serde_json::from_str(embedded(&html, "results")).unwrap();
        assert_eq!(back, results);
        assert!(!html.contains("<script>alert") && !html.contains("<!--<"), "markup came through");
        assert_eq!(html.matches("</script").count(), scripts, "the page's own");
    }
    let own = SCRIPTS.concat();
    for needle in ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write"] {
        assert!(!own.contains(needle), "{needle}");
    }
}

/// The results with markup in every name and text of a record: a task, a method, another set, a module, a statistic.
fn with_markup(results: &Results) -> Results {
    let evil = r#"<!--</script><script>alert(\"x\")</script>"#;
    let words = "obqa|rte|arc-c|LoRA|deberta.encoder.layer.0.output.dense|lm_head|log_alpha|torchmetrics|\
                 glue|reasoning|quick|default|cpu, 2 threads|nano|0.1.0|0123abc|2026-11-21T10:00:00Z|\
                 model.safetensors|cargo xtask|The numbers";
    let json = serde_json::to_string(results).unwrap();
    let json = words
        .split('|')
        .fold(json, |json, word| json.replace(&format!("\"{word}"), &format!("\"{evil}{word}")));
    let mut evil: Results = serde_json::from_str(&json).unwrap();
    evil.config = serde_json::json!({ "<!--</script><script>": evil.suite });
    evil.runs[0].status = RunStatus::Failed { reason: "<!--</script><script>alert(1)".into() };
    evil
}

/// The colours of a theme by name: the declarations between two texts of the style sheet.
fn colours_between(start: &str, end: &str) -> BTreeMap<String, [f64; 3]> {
    let block = STYLE.split(start).nth(1).unwrap().split(end).next().unwrap();
    let byte = |hex: &str| f64::from(u8::from_str_radix(hex, 16).unwrap()) / 255.0;
    let declared = block.split(';').filter_map(|line| line.rsplit_once("--")?.1.split_once(": #"));
    declared.map(|(name, hex)| (name.into(), [0, 2, 4].map(|i| byte(&hex[i..i + 2])))).collect()
}

/// Contrast by WCAG 2.2: `(l1 + 0.05) / (l2 + 0.05)` of the relative luminances.
fn contrast(a: [f64; 3], b: [f64; 3]) -> f64 {
    let luminance = |rgb: [f64; 3]| {
        let [r, g, b] =
            rgb.map(|c| if c <= 0.04045 { c / 12.92 } else { ((c + 0.055) / 1.055).powf(2.4) });
        0.2126 * r + 0.7152 * g + 0.0722 * b
    };
    let a = luminance(a);
    let b = luminance(b);
    (a.max(b) + 0.05) / (a.min(b) + 0.05)
}

#[test]
fn text_has_contrast_in_both_themes() {
    // Black on white is 21; #777 on white is 4.48, the grey that just fails.
    let grey = [119.0 / 255.0; 3];
    assert!((contrast([0.0; 3], [1.0; 3]) - 21.0).abs() < 1e-9);
    assert!((contrast(grey, [1.0; 3]) - 4.48).abs() < 0.005);
    let themes =
        [colours_between(":root {", "\n}"), colours_between("[data-theme=\"dark\"] {", "}")];
    let pairs = "ink soft on paper card hair mark; accent c0 c1 c2 c3 c4 c5 on paper card; warn-ink on warn-bg; \
                 on-weak on h0 h1 h2 h3 h4 h5 h6 h7 h8 hatch; on-strong on h9 h10 h11 h12 h13 h14 h15 h16";
    for colours in themes {
        assert_eq!(colours.len(), 36, "{colours:?}");
        for (texts, grounds) in pairs.split("; ").filter_map(|pair| pair.split_once(" on ")) {
            for text in texts.split(' ') {
                for ground in grounds.split(' ') {
                    let found = contrast(colours[text], colours[ground]);
                    assert!(found >= 4.5, "{text} on {ground}: {found:.2}");
                }
            }
        }
    }
}

#[test]
fn headings_are_said_once_and_no_label_is_smaller_than_eleven_pixels() {
    let named = |call: &str, place: usize| -> Vec<&str> {
        let calls = SCRIPTS[2].split(call).skip(1);
        calls.filter_map(|rest| rest.split('"').nth(place)).collect()
    };
    let headings = [named("part(\"", 0), named("section(\"", 2)].concat();
    let once: BTreeSet<&str> = headings.iter().copied().collect();
    assert!(headings.len() > 12 && headings.len() == once.len(), "{headings:?}");
    let sizes = STYLE.split("font").skip(1).filter_map(|rest| {
        let number = rest.split([';', '}']).next()?.split_once("px")?.0.rsplit([' ', ':', '(']);
        number.into_iter().next().map(|number| number.parse::<f64>().unwrap())
    });
    let sizes: Vec<f64> = sizes.collect();
    assert!(sizes.len() > 10 && sizes.iter().all(|px| *px >= 11.0), "{sizes:?}");
}

#[test]
fn an_empty_or_broken_record_still_makes_a_page() {
    for mut results in [sample_results(), sample_reasoning()] {
        for run in &mut results.runs {
            run.status = RunStatus::Interrupted;
            run.checkpoints.last = None;
            run.checkpoints.best = None;
            run.history.clear();
            run.rank_events.clear();
            run.train_seconds = f64::NAN;
        }
        page(&results);
        results.runs.clear();
        results.data.clear();
        results.config = Value::Null;
        assert!(page(&results).contains("\"methods\":[]"));
    }
}
