//! The form for typed questions on the page of `lrvd serve`, in a headless Chromium.

mod browser;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail, ensure};
use clap::Args;
use serde_json::{Value, json};

use self::browser::Browser;
use crate::served::{Lrvd, TINY};
use crate::{forward, workspace};

const KEY: &str = "a-key-of-this-test";
const STATE: &str = "it was a dull day 😡";
const TAB: (&str, u32) = ("Tab", 9);
const ENTER: (&str, u32) = ("Enter", 13);
const DOWN: (&str, u32) = ("ArrowDown", 40);
/// Paths that the page asks for.
const PATHS: [&str; 3] = ["/", "/v1/adapters", "/v1/systemone"];

/// Options of `page-test`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// A built `lrvd` [default: it is built].
    #[arg(long, value_name = "LRVD")]
    program: Option<PathBuf>,
    /// A Chromium or Chrome [default: the first of `chromium`, `chromium-browser`, `google-chrome` and `google-chrome-stable`
    /// on the path].
    #[arg(long, value_name = "PROGRAM")]
    chromium: Option<PathBuf>,
}

/// A question as it is typed, and as a client asks it.
struct Asked {
    instructions: &'static str,
    /// Of a select whose first option is `noul`.
    steps_down: usize,
    /// Options or levels, a line each.
    lines: &'static str,
    question: Value,
}

/// One of each type.
fn questions() -> [Asked; 3] {
    let mood = json!({ "kind": "a fine one: or so", "dull": null, "환불 🙂": "neither" });
    [
        Asked {
            instructions: "Did it rain?",
            steps_down: 0,
            lines: "",
            question: json!({ "type": "noul", "instructions": "Did it rain?" }),
        },
        Asked {
            instructions: "Which mood?",
            steps_down: 1,
            lines: "kind: a fine one: or so\n\n  dull\n환불 🙂: neither",
            question: json!({ "type": "choice", "instructions": "Which mood?", "criteria": mood }),
        },
        Asked {
            instructions: "How much wind?",
            steps_down: 2,
            lines: "none\nsome\nmuch",
            question: json!({ "type": "score", "instructions": "How much wind?", "criteria": ["none", "some", "much"] }),
        },
    ]
}

/// Fills in and sends the form as a user does with a keyboard, and compares what is shown with the server's answer.
pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    // Nothing is trained for a browser that is not there.
    let chromium = browser::find(options.chromium.as_deref())?;
    let mut browser = Browser::start(&chromium)?;
    let root = workspace::root()?;
    let lrvd =
        Lrvd { program: forward::program(&root, options.program.as_deref())?, root: root.clone() };
    let folder = tempfile::tempdir()?;
    let trained = folder.path().join("run");
    lrvd.train(&root.join(TINY), &trained)?;
    lrvd.fit_threshold(&trained)?;
    set_thresholds(&trained)?;
    for key in [None, Some(KEY)] {
        // The thresholds are not those that were saved.
        let server = lrvd.serve(Some(&trained), &["--draws", "0", "--allow-changed"], key)?;
        for asked in questions() {
            let kind = asked.question["type"].as_str().unwrap_or_default().to_owned();
            let with = if key.is_some() { "with a key" } else { "without a key" };
            check(&mut browser, &server.address, key, &asked)
                .with_context(|| format!("a {kind} {with}"))?;
            println!(
                "{kind:<6} {with}: verdict, confidence, entropy, threshold and probabilities are those of the answer"
            );
        }
    }
    check_choice(&mut browser, &lrvd, &trained)?;
    println!("the second of two adapters answers once it is chosen");
    let faults: Vec<String> = browser.events.iter().filter_map(fault).collect();
    ensure!(faults.is_empty(), "the page is at fault: {}", faults.join("; "));
    println!("requests went to {} only, and there was no error", PATHS.join(", "));
    Ok(ExitCode::SUCCESS)
}

/// Of two adapters the one is asked that is chosen.
fn check_choice(browser: &mut Browser, lrvd: &Lrvd, trained: &Path) -> Result<()> {
    let folder = trained.to_str().context("a folder whose name is no text")?;
    let words = ["--base", TINY, "--allow-changed"];
    let adapters = ["one", "two"].map(|name| format!("--adapter={name}={folder}"));
    let words: Vec<&str> = words.into_iter().chain(adapters.iter().map(String::as_str)).collect();
    let server = lrvd.serve(None, &words, None)?;
    browser.open(&format!("{}/", server.address))?;
    browser.until("!document.getElementById('several').hidden")?;
    browser.write(STATE)?;
    let names = browser.value(
        "(() => { const chosen = document.getElementById('adapter'); chosen.value = 'two'; \
         chosen.dispatchEvent(new Event('change')); document.getElementById('asks').focus(); \
         return [...chosen.options].map((option) => option.value); })()",
    )?;
    ensure!(names == json!(["one", "two"]), "the adapters to choose from are {names}");
    browser.write("Did it rain?")?;
    browser.value("document.getElementById('form').requestSubmit()")?;
    browser.until("document.querySelector('#result .card .verdict')")?;
    let sent = browser.events.iter().rev().find_map(|event| {
        event["params"]["request"]["postData"]
            .as_str()
            .filter(|_| event["method"] == "Network.requestWillBeSent")
    });
    let sent: Value = serde_json::from_str(sent.unwrap_or_default())?;
    ensure!(sent["model"] == "two", "the page asked {sent}");
    Ok(())
}

/// A choice keeps its threshold, a score gets one that no answer reaches, and a noul has none.
fn set_thresholds(run: &Path) -> Result<()> {
    let file = run.join("adapter/lrvd_adapter.json");
    let mut description: Value = serde_json::from_str(&std::fs::read_to_string(&file)?)?;
    let types = &mut description["calibration"];
    ensure!(
        types["choice"]["0"]["threshold"]["least"].is_f64(),
        "`{}` has no threshold of choices",
        file.display()
    );
    types["score"]["0"]["threshold"] = types["choice"]["0"]["threshold"].clone();
    types["score"]["0"]["threshold"]["least"] = json!(1.0);
    types["noul"]["0"]["threshold"] = Value::Null;
    std::fs::write(&file, description.to_string())?;
    Ok(())
}

/// What an event of the browser says against the page.
fn fault(event: &Value) -> Option<String> {
    let params = &event["params"];
    match event["method"].as_str()? {
        "Runtime.exceptionThrown" => Some(params["exceptionDetails"].to_string()),
        "Log.entryAdded" if params["entry"]["source"] == "security" => {
            Some(params["entry"]["text"].to_string())
        }
        "Network.requestWillBeSent" => {
            let url = params["request"]["url"].as_str()?;
            let path = url
                .strip_prefix("http://127.0.0.1:")
                .and_then(|rest| Some(&rest[rest.find('/')?..]));
            let is_own = path.is_some_and(|path| PATHS.contains(&path)) || url.starts_with("data:");
            (!is_own).then(|| format!("a request for `{url}`"))
        }
        _ => None,
    }
}

/// The element with the focus.
fn focus(browser: &mut Browser, expected: &str) -> Result<()> {
    let found = browser.value("document.activeElement.id")?;
    ensure!(found == expected, "the focus is on {found}, expected `{expected}`");
    Ok(())
}

fn check(browser: &mut Browser, address: &str, key: Option<&str>, asked: &Asked) -> Result<()> {
    browser.open(&format!("{address}/"))?;
    focus(browser, "text")?;
    browser.write(STATE)?;
    if let Some(key) = key {
        browser.until("!document.getElementById('locked').hidden")?;
        browser.press(TAB)?;
        focus(browser, "key")?;
        browser.write(key)?;
        // The form learns what the model is, and what is left to fill in.
        browser.press(ENTER)?;
        browser.until("document.activeElement.id === 'asks'")?;
    } else {
        browser.until("!document.getElementById('typed').hidden")?;
        browser.press(TAB)?;
        focus(browser, "asks")?;
    }
    browser.write(asked.instructions)?;
    browser.press(TAB)?;
    focus(browser, "type")?;
    for _ in 0..asked.steps_down {
        browser.press(DOWN)?;
    }
    browser.press(TAB)?;
    if !asked.lines.is_empty() {
        focus(browser, "options")?;
        browser.write(asked.lines)?;
        browser.press(TAB)?;
    }
    if key.is_some() {
        focus(browser, "key")?;
        browser.press(TAB)?;
    }
    focus(browser, "draws")?;
    browser.press(TAB)?;
    focus(browser, "ask")?;
    browser.press(ENTER)?;
    browser.until("document.querySelector('#result .card')")?;
    let shown = browser.value(SHOWN)?;
    let body = json!({ "model": "jev-latest", "state": STATE, "questions": { "q": asked.question }, "x_draws": 0 });
    let authorization = key.map_or_else(String::new, |key| format!("Bearer {key}"));
    let answer = browser.value(&format!(
        "fetch('/v1/systemone', {{ method: 'POST', body: {}, headers: {{ 'Content-Type': 'application/json', \
         Authorization: {authorization:?} }} }}).then((response) => response.json())",
        Value::String(body.to_string()),
    ))?;
    let answer = &answer["answers"]["q"];
    ensure!(answer.is_object(), "the server answers {answer}");
    compare(&shown, answer)
}

/// What the page shows: lines of text, and bars by their list.
const SHOWN: &str = "(() => { \
     const card = document.querySelector('#result .card'); \
     const bars = (name) => [...card.querySelectorAll(`ul[aria-label=\"${name}\"] li`)].map((item) => { \
       const [label, number] = item.querySelectorAll('.named span'); \
       const mark = item.querySelector('.limit'); \
       return { label: label.textContent, number: number.textContent, width: parseFloat(item.querySelector('.fill').style.width), \
         mark: mark === null ? null : parseFloat(mark.style.left) }; }); \
     return { verdict: card.querySelector('.verdict')?.textContent ?? null, \
       lines: [...card.querySelectorAll('p')].map((line) => line.textContent), \
       uncertainty: bars('Uncertainty'), probabilities: bars('Probabilities') }; })()";

fn percent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}

/// Compares what is shown with the answer.
fn compare(shown: &Value, answer: &Value) -> Result<()> {
    let number = |key: &str| {
        answer[key].as_f64().with_context(|| format!("the answer has no `{key}`: {answer}"))
    };
    // By option or level in words, in the order that is shown.
    let mut options: Vec<(String, f64)> = Vec::new();
    let (verdict, confidence) = match answer["type"].as_str() {
        Some("noul") => {
            let p = number("noul")?;
            options.extend([("true".to_owned(), p), ("false".to_owned(), 1.0 - p)]);
            let side = if p >= 0.5 { "true" } else { "false" };
            (format!("{side}: {}", percent(p.max(1.0 - p))), number("x_confidence")?)
        }
        kind => {
            for (name, p) in answer["probabilities"].as_object().context("no probabilities")? {
                let words = answer["legend"][name].as_str().unwrap_or(name);
                options.push((words.to_owned(), p.as_f64().context("no number")?));
            }
            if kind == Some("choice") {
                options.sort_by(|a, b| b.1.total_cmp(&a.1));
                (answer["choice"].as_str().unwrap_or_default().to_owned(), number("confidence")?)
            } else {
                (
                    format!("Level {:.2} of 0 to {}", number("score")?, options.len() - 1),
                    number("confidence")?,
                )
            }
        }
    };
    let entropy = number("x_entropy")?;
    let most = (options.len() as f64).ln();
    let threshold = answer["x_threshold"].as_f64();
    let bars = |name: &str, expected: &[(String, String, f64, Option<f64>)]| {
        let found = shown[name].as_array().map_or(&[][..], Vec::as_slice);
        ensure!(
            found.len() == expected.len(),
            "{} bars of {name}, expected {}",
            found.len(),
            expected.len()
        );
        for (bar, (label, number, share, mark)) in found.iter().zip(expected) {
            let near = |found: &Value, share: f64| {
                found.as_f64().is_some_and(|found| (found - 100.0 * share).abs() < 0.01)
            };
            ensure!(
                bar["label"] == **label && bar["number"] == **number,
                "{bar}, expected {label} with {number}"
            );
            ensure!(near(&bar["width"], *share), "the width of {bar}, expected {share}");
            let marked = mark.map_or(bar["mark"].is_null(), |mark| near(&bar["mark"], mark));
            ensure!(marked, "the mark of {bar}, expected {mark:?}");
        }
        Ok(())
    };
    ensure!(
        shown["verdict"] == *verdict,
        "the verdict is {}, expected {verdict}",
        shown["verdict"]
    );
    bars(
        "uncertainty",
        &[
            ("Confidence".to_owned(), percent(confidence), confidence, threshold),
            ("Entropy".to_owned(), format!("{entropy:.4} nats"), entropy / most, None),
        ],
    )?;
    let expected: Vec<_> =
        options.into_iter().map(|(name, p)| (name, percent(p), p, None)).collect();
    bars("probabilities", &expected)?;
    let says = |line: &str| {
        shown["lines"].as_array().is_some_and(|lines| lines.iter().any(|found| found == line))
    };
    let of_threshold = threshold.map(|at| {
        format!("The threshold is a confidence of {}, the mark on its bar.", percent(at))
    });
    let is_below = answer["x_abstained"] == true;
    if of_threshold.is_some_and(|line| !says(&line)) {
        bail!("no line about the threshold in {}", shown["lines"]);
    }
    ensure!(
        says("Below the threshold: too unsure to act on.") == is_below,
        "{}, abstained: {is_below}",
        shown["lines"]
    );
    ensure!(
        !says("No temperature was fitted: these probabilities are not calibrated."),
        "{}",
        shown["lines"]
    );
    // As the test has set them.
    let expected = match answer["type"].as_str() {
        Some("noul") => (true, false),
        Some("choice") => (false, false),
        _ => (false, true),
    };
    ensure!(
        (threshold.is_none(), is_below) == expected,
        "threshold {threshold:?}, abstained {is_below}"
    );
    Ok(())
}
