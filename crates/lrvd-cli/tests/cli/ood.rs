//! Out-of-distribution scores.

use std::collections::BTreeSet;
use std::path::Path;

use crate::support::{done, lines, rejected, run, run_with, train, write_data};

#[test]
fn a_score_is_chosen_on_held_out_rows_and_used() {
    let dir = tempfile::tempdir().unwrap();
    let data = write_data(dir.path());
    let out = dir.path().join("out").display().to_string();
    done(&train(&data, Path::new(&out), 40, &[]));
    let other: Vec<String> =
        (0..8).map(|i| format!("SELECT {i} FROM log WHERE id = {i};")).collect();
    let file = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let outside = file("outside.txt", &other.join("\n"));
    let score = |more: &[&str]| run(&[&["ood", "score", &out], more].concat());
    score(&["a fine film"]).rejected("run `lrvd ood fit` first");

    let fixed = ["ood", "fit", &out, "--format", "json", "--outside", &outside];
    let fit = |more: &[&str]| run(&[&fixed[..], more].concat());
    fit(&["--data", &data[0]]).rejected("trained or chose this model");
    let few = file("few.txt", "one\ntwo\nthree");
    let too_few = run(&["ood", "fit", &out, "--data", &data[1], "--outside", &few]);
    too_few.rejected("12 rows of the distribution and 3 others are too few");
    fit(&["--data", &data[1], "--tolerance", "0.1", "--draws", "3"]).rejected("`tolerance`");

    // Of 12 rows a third fits the distance, and half of the others chooses; of the 8 others half does.
    let mean = fit(&["--data", &data[1]]).json();
    assert_eq!(mean["reference_rows"], 4, "{mean}");
    assert_eq!((&mean["selection_rows"], &mean["report_rows"]), (&[4, 4].into(), &[4, 4].into()));
    assert_eq!(mean["scores"].as_object().unwrap().len(), 4, "no draws, no mutual information");
    let found = fit(&["--data", &data[1], "--reference", &data[0], "--draws", "3"]).json();
    assert_eq!((&found["reference_rows"], &found["selection_rows"]), (&32.into(), &[6, 4].into()));
    let scores = found["scores"].as_object().unwrap();
    let area = |name: &str, of: &str| scores[name][of].as_f64().unwrap();
    let chosen = found["score"].as_str().unwrap();
    for name in scores.keys() {
        assert!(area(name, "selection") <= area(chosen, "selection"), "{found}");
        let over = area(name, "auroc") - area("entropy", "auroc");
        assert!((area(name, "over_entropy") - over).abs() < 1e-12, "{found}");
    }
    assert!(area(chosen, "auroc") > 0.5, "{found}");
    let table = run(&[
        "ood",
        "fit",
        &out,
        "--data",
        &data[1],
        "--reference",
        &data[0],
        "--outside",
        &outside,
        "--draws",
        "3",
    ])
    .stdout;
    assert!(table.contains("mutual information") && table.contains("report rows"), "{table}");

    // The same in one call and in several, by argument and by table.
    let texts = ["a fine film number 3", other[0].as_str()];
    let both = lines(&score(&texts).stdout);
    let piped = run_with(&["ood", "score", &out], &texts.join("\n")).stdout;
    assert_eq!(lines(&piped), both);
    for (text, answer) in texts.iter().zip(&both) {
        assert_eq!(lines(&score(&[text]).stdout), std::slice::from_ref(answer));
        let keys: BTreeSet<&str> = answer.as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(keys, ["outside", "p", "schema_version", "score", "text"].into());
        // Six calibration rows, and the text itself.
        let p = answer["p"].as_f64().unwrap() * 7.0;
        assert!((p - p.round()).abs() < 1e-12 && p > 0.5, "{answer}");
    }
    let json = score(&["--alpha", "0.999", "--format", "json", texts[1]]).json();
    assert_eq!((&json["score"], json["draws"].as_u64()), (&found["score"], Some(3)), "{json}");
    assert_eq!(json["texts"][0]["outside"], json["texts"][0]["p"].as_f64().unwrap() <= 0.999);
    score(&["--draws", "2", "a"]).rejected("fitted with `--draws 3`");
    score(&["--seed", "9", "a"]).rejected("fitted with `--seed 5`");

    // A score belongs to the weights that it was fitted to.
    let folder = Path::new(&out).join("adapter");
    let again = dir.path().join("again");
    done(&train(&data, &again, 4, &[]));
    std::fs::copy(folder.join("lrvd_ood.safetensors"), again.join("adapter/lrvd_ood.safetensors"))
        .unwrap();
    let again = again.display().to_string();
    run(&["ood", "score", &again, "a"]).rejected("was fitted to other weights");
}

#[test]
fn numbers_have_no_out_of_distribution_score() {
    let dir = tempfile::tempdir().unwrap();
    let data = ["train.csv", "dev.csv"].map(|name| dir.path().join(name).display().to_string());
    for (file, start) in data.iter().zip([0, 40]) {
        let rows: Vec<String> =
            (start..start + 12).map(|i| format!("a film number {i},{i}.5")).collect();
        std::fs::write(file, format!("text,label\n{}\n", rows.join("\n"))).unwrap();
    }
    let out = dir.path().join("out");
    done(&train(&data, &out, 2, &["--regression"]));
    let name = out.display().to_string();
    let detector = out.join("adapter/lrvd_ood.safetensors");
    rejected(
        &["ood", "fit", &name, "--data", &data[1], "--outside", &data[1]],
        "no fixed classes",
        &detector,
    );
}
