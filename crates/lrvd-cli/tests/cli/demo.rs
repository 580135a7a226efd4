//! `lrvd demo planted-rank`

use crate::support::{done, run};

#[test]
fn a_planted_rank_is_found_and_shown() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("new/planted");
    let out = out.display().to_string();
    let arguments = ["demo", "planted-rank", "--rank", "1", "--n", "2000", "--seeds", "1"];
    let output = done(&[&arguments[..], &["--format", "json", "--out", &out]].concat());
    let found = output.json();
    assert_eq!(found["planted_rank"], 1);
    assert_eq!(found["found_rank"], serde_json::json!([1]));
    let nll = |key: &str| found[key][0].as_f64().unwrap();
    let (mean, truth) = (nll("nll_mean"), nll("nll_oracle"));
    assert!(truth < mean && mean < 1.03 * truth, "{mean} and {truth}");
    assert!((nll("nll_mc") / mean - 1.0).abs() < 0.02);
    // Without a direction the loss is that of the frozen network alone.
    let path = found["runs"][0]["nll_by_rank"].as_array().unwrap();
    assert!(path.len() == 17 && path[0].as_f64().unwrap() > 1.2 * truth);
    assert!(output.stderr.contains("found rank 1"), "{}", output.stderr);
    let image = std::fs::read_to_string(format!("{out}/planted-rank.svg")).unwrap();
    assert!(image.contains("found: 1"));
    let file = std::fs::read_to_string(format!("{out}/planted-rank.json")).unwrap();
    assert_eq!(serde_json::from_str::<serde_json::Value>(&file).unwrap(), found);
}

#[test]
fn the_ranks_of_two_layers_are_found() {
    let layers = ["--layers", "2", "--rank", "1", "--n", "3000", "--seeds", "1"];
    let found = done(&[&["demo", "planted-rank", "--format", "json"], &layers[..]].concat()).json();
    let of = |layer: usize| &found["runs"][0]["layers"][layer]["found"];
    assert_eq!((of(0), of(1), &found["found_rank"][0]), (&1.into(), &1.into(), &2.into()));
    assert_eq!(found["exact"][0], true);
}

#[test]
fn what_cannot_be_planted_is_refused() {
    for (option, value) in [("--rank", "17"), ("--n", "10"), ("--layers", "3")] {
        let output = run(&["demo", "planted-rank", option, value]);
        assert_eq!(output.code, 2, "{option}");
        assert!(output.stderr.contains(&option[2..]), "{}", output.stderr);
    }
}
