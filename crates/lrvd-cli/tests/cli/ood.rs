//! Out-of-distribution scores.

use std::collections::BTreeSet;

use crate::support::Sandbox;

#[test]
fn a_score_is_chosen_on_held_out_rows_and_used() {
    let dir = Sandbox::new();
    dir.train("out", 40, "");
    let other: Vec<String> =
        (0..8).map(|i| format!("SELECT {i} FROM log WHERE id = {i};")).collect();
    dir.write("outside.txt", other.join("\n"));
    dir.write("few.txt", "one\ntwo\nthree");
    let score = |more: &str| dir.run(&format!("ood score out {more}"));
    score("'a fine film'").rejected("run `lrvd ood fit` first");

    let fit = |more: &str| dir.run(&format!("ood fit out --outside outside.txt {more}"));
    fit("--data train.tsv").rejected("trained or chose this model");
    let too_few = dir.run("ood fit out --data dev.csv --outside few.txt");
    too_few.rejected("12 rows of the distribution and 3 others are too few");
    fit("--data dev.csv --tolerance 0.1 --draws 3").rejected("`tolerance`");

    // Of 12 rows a third fits the distance, and half of the others chooses; of the 8 others half does.
    let mean = fit("--data dev.csv --format json").json();
    assert_eq!(mean["reference_rows"], 4, "{mean}");
    assert_eq!((&mean["selection_rows"], &mean["report_rows"]), (&[4, 4].into(), &[4, 4].into()));
    assert_eq!(mean["scores"].as_object().unwrap().len(), 4, "no draws, no mutual information");
    let drawn = "--data dev.csv --reference train.tsv --draws 3";
    let found = fit(&format!("{drawn} --format json")).json();
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
    let table = fit(drawn).stdout;
    assert!(table.contains("mutual information") && table.contains("report rows"), "{table}");

    // The same in one call and in several, by argument and by table.
    let texts = ["a fine film number 3", other[0].as_str()];
    let both = score(&format!("'{}' '{}'", texts[0], texts[1])).lines();
    assert_eq!(dir.run_with("ood score out", &texts.join("\n")).lines(), both);
    for (text, answer) in texts.iter().zip(&both) {
        assert_eq!(score(&format!("'{text}'")).lines(), std::slice::from_ref(answer));
        let keys: BTreeSet<&str> = answer.as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(keys, ["outside", "p", "schema_version", "score", "text"].into());
        // Six calibration rows, and the text itself.
        let p = answer["p"].as_f64().unwrap() * 7.0;
        assert!((p - p.round()).abs() < 1e-12 && p > 0.5, "{answer}");
    }
    let json = score(&format!("--alpha 0.999 --format json '{}'", texts[1])).json();
    assert_eq!((&json["score"], json["draws"].as_u64()), (&found["score"], Some(3)), "{json}");
    assert_eq!(json["texts"][0]["outside"], json["texts"][0]["p"].as_f64().unwrap() <= 0.999);
    score("--draws 2 a").rejected("fitted with `--draws 3`");
    score("--seed 9 a").rejected("fitted with `--seed 5`");

    // A score belongs to the weights that it was fitted to.
    dir.train("again", 4, "");
    let file = "adapter/lrvd_ood.safetensors";
    dir.write(&format!("again/{file}"), dir.bytes(&format!("out/{file}")));
    dir.run("ood score again a").rejected("was fitted to other weights");
}

#[test]
fn numbers_have_no_out_of_distribution_score() {
    let dir = Sandbox::new();
    for (file, start) in [("a.csv", 0), ("b.csv", 40)] {
        let rows: Vec<String> =
            (start..start + 12).map(|i| format!("a film number {i},{i}.5")).collect();
        dir.write(file, format!("text,label\n{}\n", rows.join("\n")));
    }
    dir.train("out", 2, "--train a.csv --validation b.csv --regression");
    let fit = "ood fit out --data b.csv --outside b.csv";
    dir.rejected(fit, "no fixed classes", "out/adapter/lrvd_ood.safetensors");
}
