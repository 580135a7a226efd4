//! Files of a saved adapter that have changed, and names of files that leave this machine.

use serde_json::{Value, json};

use crate::support::{Sandbox, model, training};

/// Changes `file` to what `change` makes of it, asks `question`, and puts it back.
fn while_changed(
    dir: &Sandbox,
    file: &str,
    change: impl FnOnce(Vec<u8>) -> Vec<u8>,
    question: impl FnOnce(),
) {
    let bytes = dir.bytes(file);
    let changed = change(bytes.clone());
    assert_ne!(changed, bytes, "{file}");
    dir.write(file, changed);
    question();
    dir.write(file, bytes);
}

/// Its last byte but one is another.
fn flipped(mut bytes: Vec<u8>) -> Vec<u8> {
    let place = bytes.len() - 2;
    bytes[place] ^= 0x10;
    bytes
}

fn edited(bytes: Vec<u8>, from: &str, to: &str) -> Vec<u8> {
    String::from_utf8(bytes).unwrap().replacen(from, to, 1).into_bytes()
}

#[test]
fn a_changed_file_is_an_error_unless_it_is_allowed() {
    const PREDICT: &str = "predict out 'a fine film'";
    const CHECK: &str = "inspect --check out";
    /// Commands that open the adapter and its base, and those that open the adapter alone.
    const BOTH: [&str; 5] = [
        PREDICT,
        "eval out --data dev.csv",
        "abstain fit out --data dev.csv",
        "export --to merged out --out merged",
        "serve out --address 127.0.0.1:0",
    ];
    const ALONE: [&str; 2] = ["inspect out", "export --to peft out --out peft"];

    let dir = Sandbox::new();
    dir.copy(&model(), "base");
    let fit = "--model base --method bayeslora+ts --set draws=[2] --set holdout=0.3";
    dir.train("out", 4, fit);
    let predict = |more: &str| dir.done(&format!("{PREDICT} {more}"));
    let answer = predict("").stdout;
    let noticed = |file: &str, commands: &[&str]| {
        for command in commands {
            let ended = dir.run(command);
            ended.rejected(file);
            ended.rejected("--allow-changed");
        }
        let allowed = predict("--allow-changed");
        let warned = allowed.stderr.starts_with("warning: `")
            && allowed.stderr.contains(&format!("{file}` has changed"));
        assert!(warned, "{}", allowed.stderr);
        allowed.stdout
    };
    let loading = [&BOTH[..], &ALONE].concat();
    for file in ["adapter_model.safetensors", "lrvd_posterior.safetensors"] {
        let file = format!("out/adapter/{file}");
        while_changed(&dir, &file, flipped, || {
            noticed(&file, &loading);
            let check = dir.run(CHECK);
            let named = check.stderr.contains("--allow-changed");
            assert!(check.code == 1 && named, "{}", check.stderr);
            dir.done(&format!("{CHECK} --allow-changed"));
        });
    }
    let description = "out/adapter/lrvd_classifier.json";
    let hotter = |bytes| {
        edited(bytes, "\"temperatures\": {\n    \"0\": ", "\"temperatures\": {\n    \"0\": 1")
    };
    while_changed(&dir, description, hotter, || {
        noticed(description, &loading);
    });
    // The base: configuration and tokenizer. Commands that do not open it do not know.
    let wider = |bytes| edited(bytes, "\"layer_norm_eps\": 1e-07", "\"layer_norm_eps\": 0.1");
    while_changed(&dir, "base/config.json", wider, || {
        assert_ne!(noticed("base/config.json", &BOTH), answer);
        dir.done(ALONE[0]);
        assert!(predict("--allow-other-base").stderr.contains("warning"));
    });
    let longer = |bytes: Vec<u8>| [&bytes[..], b"\n"].concat();
    while_changed(&dir, "base/tokenizer.json", longer, || {
        noticed("base/tokenizer.json", &BOTH);
    });
    // What a command writes later is known; what an earlier version wrote has no hashes.
    assert_eq!(predict("").stdout, answer);
    let label = predict("").lines()[0]["predicted"].as_str().unwrap().to_owned();
    let rows = format!("a fine film,{label}\n").repeat(80);
    dir.write("rows.csv", format!("text,label\n{rows}"));
    dir.done("abstain fit out --data rows.csv --risk 0.1");
    let fitted = predict("");
    assert!(fitted.stdout.contains("\"abstained\""), "{}", fitted.stdout);
    assert_eq!(fitted.stderr, "");
    let hashes = dir.edit(description, |info| {
        info["temperatures"]["0"] = 2.into();
        info.as_object_mut().unwrap().remove("hashes").unwrap()
    });
    assert_eq!(hashes["adapter"].as_object().unwrap().len(), 4);
    assert!(hashes["base"]["config.json"].is_string(), "{hashes}");
    assert_eq!(predict("").stderr, "");
}

#[test]
fn exports_name_no_place_on_this_machine() {
    let dir = Sandbox::new();
    dir.copy(&model(), "base");
    // As `save_pretrained` leaves it.
    for (file, key) in [("config", "_name_or_path"), ("tokenizer_config", "name_or_path")] {
        dir.edit(&format!("base/{file}.json"), |value| value[key] = json!("/srv/me/models/nano"));
    }
    let base = dir.name("base");
    dir.train(&dir.name("out"), 2, &format!("--model {base}"));
    // The adapter folder itself finds its base.
    let answer = dir.done("predict out 'a fine film'").stdout;
    let local = dir.name("");
    for form in ["peft", "merged"] {
        dir.done(&format!("export --to {form} {} --out {}", dir.name("out"), dir.name(form)));
        for file in std::fs::read_dir(dir.path(form)).unwrap() {
            let path = file.unwrap().path();
            let text = String::from_utf8_lossy(&std::fs::read(&path).unwrap()).into_owned();
            assert!(!text.contains(&local) && !text.contains("/srv/me"), "{}", path.display());
        }
    }
    let field = |file: &str, key: &str| -> Value { dir.json(&format!("peft/{file}"))[key].take() };
    assert_eq!(field("adapter_config.json", "base_model_name_or_path"), "base");
    assert_eq!(field("lrvd_classifier.json", "base_model"), "base");
    // Elsewhere its base has to be named.
    let exported = dir.name("peft");
    let predict = format!("predict {exported} 'a fine film'");
    crate::support::run(&predict).rejected("names its base model `base`");
    assert_eq!(dir.done(&format!("{predict} --model {base}")).stdout, answer);
    let card = dir.text("out/adapter/README.md");
    assert!(card.contains("`base`") && !card.contains(&local), "{card}");
}

#[test]
fn too_few_rows_are_an_error_before_the_start() {
    let dir = Sandbox::new();
    dir.write("few.csv", "text,label\na fine film,good\na grim book,bad\na fine book,good\n");
    let few = "--train few.csv --method lora+ts";
    let expected = "a share of 0.1 of 3 training rows is held out for the temperature";
    dir.rejected(&training("out", 2, few), expected, "out");
    // No model is looked for.
    dir.rejected(&training("out", 2, &format!("{few} --model /nowhere")), expected, "out");
    dir.train("out", 2, &format!("{few} --set holdout=0.4"));
}
