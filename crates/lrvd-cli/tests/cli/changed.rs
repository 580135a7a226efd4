//! Files of a saved adapter that have changed, and names of files that leave this machine.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::support::{done, lines, model, rejected, replaced, run, train, write_data};

/// A copy of the base model in `dir`, which may be changed.
fn copied_base(dir: &Path) -> PathBuf {
    let base = dir.join("base");
    std::fs::create_dir(&base).unwrap();
    for file in std::fs::read_dir(model()).unwrap() {
        let file = file.unwrap();
        std::fs::copy(file.path(), base.join(file.file_name())).unwrap();
    }
    base
}

/// Changes `file` to what `change` makes of it, asks `question`, and puts it back.
fn while_changed(file: &Path, change: impl FnOnce(Vec<u8>) -> Vec<u8>, question: impl FnOnce()) {
    let bytes = std::fs::read(file).unwrap();
    let changed = change(bytes.clone());
    assert_ne!(changed, bytes, "{}", file.display());
    std::fs::write(file, changed).unwrap();
    question();
    std::fs::write(file, bytes).unwrap();
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
    let dir = tempfile::tempdir().unwrap();
    let data = write_data(dir.path());
    let (base, out) = (copied_base(dir.path()), dir.path().join("out"));
    let base_name = base.display().to_string();
    let fit = ["--method", "bayeslora+ts", "--set", "draws=[2]", "--set", "holdout=0.3"];
    done(&replaced(&train(&data, &out, 4, &fit), "--model", &base_name));
    let name = out.display().to_string();
    let adapter = out.join("adapter");
    let predict = ["predict", &name, "a fine film"];
    let (fresh, exported) = (dir.path().join("merged"), dir.path().join("peft"));
    let [fresh, exported] = [fresh, exported].map(|path| path.display().to_string());
    let answer = done(&predict).stdout;
    let noticed = |file: &Path, commands: &[&[&str]]| {
        let name = file.display().to_string();
        for command in commands {
            let ended = run(command);
            let text = &ended.stderr;
            assert_eq!(ended.code, 2, "{command:?}: {text}");
            assert!(
                text.contains(&name) && text.contains("--allow-changed"),
                "{command:?}: {text}"
            );
        }
        let allowed = done(&[&predict[..], &["--allow-changed"]].concat());
        assert!(allowed.stderr.contains(&format!("warning: `{name}` has changed")), "{name}");
        allowed.stdout
    };
    let all: &[&[&str]] = &[
        &predict,
        &["eval", &name, "--data", &data[1]],
        &["abstain", "fit", &name, "--data", &data[1]],
        &["inspect", &name],
        &["inspect", "--check", &name],
        &["export", "--to", "peft", &name, "--out", &exported],
        &["export", "--to", "merged", &name, "--out", &fresh],
        &["serve", &name, "--address", "127.0.0.1:0"],
    ];
    let checked = |command: &&&[&str]| command[..2] != ["inspect", "--check"];
    let (loading, no_exit_two): (Vec<&[&str]>, Vec<&[&str]>) = all.iter().partition(checked);
    for file in ["adapter_model.safetensors", "lrvd_posterior.safetensors"] {
        let file = adapter.join(file);
        while_changed(&file, flipped, || {
            noticed(&file, &loading);
            let check = run(no_exit_two[0]);
            assert!(
                check.code == 1 && check.stderr.contains("--allow-changed"),
                "{}",
                check.stderr
            );
            done(&["inspect", "--check", &name, "--allow-changed"]);
        });
    }
    let description = adapter.join("lrvd_classifier.json");
    let hotter = |bytes| {
        edited(bytes, "\"temperatures\": {\n    \"0\": ", "\"temperatures\": {\n    \"0\": 1")
    };
    while_changed(&description, hotter, || {
        noticed(&description, &loading);
    });
    // The base: configuration and tokenizer. Commands that do not open it do not know.
    let opening = [all[0], all[1], all[2], all[6], all[7]];
    let config = base.join("config.json");
    let wider = |bytes| edited(bytes, "\"layer_norm_eps\": 1e-07", "\"layer_norm_eps\": 0.1");
    while_changed(&config, wider, || {
        assert_ne!(noticed(&config, &opening), answer);
        done(&["inspect", &name]);
        assert!(done(&[&predict[..], &["--allow-other-base"]].concat()).stderr.contains("warning"));
    });
    let tokenizer = base.join("tokenizer.json");
    while_changed(
        &tokenizer,
        |bytes| [&bytes[..], b"\n"].concat(),
        || {
            noticed(&tokenizer, &opening);
        },
    );
    // What a command writes later is known; what an earlier version wrote has no hashes.
    assert_eq!(done(&predict).stdout, answer);
    let rows = dir.path().join("rows.csv");
    let label = lines(&answer)[0]["predicted"].as_str().unwrap().to_owned();
    let many = format!("a fine film,{label}\n").repeat(80);
    std::fs::write(&rows, format!("text,label\n{many}")).unwrap();
    let rows = rows.display().to_string();
    done(&["abstain", "fit", &name, "--data", &rows, "--risk", "0.1"]);
    let fitted = done(&predict);
    assert!(
        fitted.stdout.contains("\"abstained\"") && fitted.stderr.is_empty(),
        "{}",
        fitted.stderr
    );
    let mut info: Value = serde_json::from_slice(&std::fs::read(&description).unwrap()).unwrap();
    let hashes = info.as_object_mut().unwrap().remove("hashes").unwrap();
    assert_eq!(hashes["adapter"].as_object().unwrap().len(), 4);
    assert!(hashes["base"]["config.json"].is_string(), "{hashes}");
    info["temperatures"]["0"] = 2.into();
    std::fs::write(&description, info.to_string()).unwrap();
    assert!(done(&predict).stderr.is_empty());
}

#[test]
fn exports_name_no_place_on_this_machine() {
    let dir = tempfile::tempdir().unwrap();
    let data = write_data(dir.path());
    let base = copied_base(dir.path());
    // As `save_pretrained` leaves it.
    for (file, key) in [("config.json", "_name_or_path"), ("tokenizer_config.json", "name_or_path")]
    {
        let file = base.join(file);
        let named = format!("{{\"{key}\": \"/srv/me/models/nano\",");
        std::fs::write(&file, edited(std::fs::read(&file).unwrap(), "{", &named)).unwrap();
    }
    let out = dir.path().join("out");
    let base_name = base.display().to_string();
    done(&replaced(&train(&data, &out, 2, &[]), "--model", &base_name));
    let name = out.display().to_string();
    // The adapter folder itself finds its base.
    let answer = done(&["predict", &name, "a fine film"]).stdout;
    let local = dir.path().display().to_string();
    for form in ["peft", "merged"] {
        let exported = dir.path().join(form);
        done(&["export", "--to", form, &name, "--out", &exported.display().to_string()]);
        for file in std::fs::read_dir(&exported).unwrap() {
            let path = file.unwrap().path();
            let text = String::from_utf8_lossy(&std::fs::read(&path).unwrap()).into_owned();
            assert!(!text.contains(&local) && !text.contains("/srv/me"), "{}", path.display());
        }
    }
    let exported = dir.path().join("peft");
    let json = |file: &str| -> Value {
        serde_json::from_slice(&std::fs::read(exported.join(file)).unwrap()).unwrap()
    };
    assert_eq!(json("adapter_config.json")["base_model_name_or_path"], "base");
    assert_eq!(json("lrvd_classifier.json")["base_model"], "base");
    let exported = exported.display().to_string();
    let lost = run(&["predict", &exported, "a fine film"]);
    let words = "names its base model `base`";
    lost.rejected(words);
    let found = done(&["predict", &exported, "--model", &base_name, "a fine film"]);
    assert_eq!(found.stdout, answer);
    let card = std::fs::read_to_string(out.join("adapter/README.md")).unwrap();
    assert!(card.contains("`base`") && !card.contains(&local), "{card}");
}

#[test]
fn too_few_rows_are_an_error_before_the_start() {
    let dir = tempfile::tempdir().unwrap();
    let mut data = write_data(dir.path());
    let few = dir.path().join("few.csv");
    std::fs::write(&few, "text,label\na fine film,good\na grim book,bad\na fine book,good\n")
        .unwrap();
    data[0] = few.display().to_string();
    let out = dir.path().join("out");
    let arguments = |more: &[&str]| train(&data, &out, 2, more);
    let expected = "a share of 0.1 of 3 training rows is held out for the temperature";
    rejected(&arguments(&["--method", "lora+ts"]), expected, &out);
    // No model is looked for.
    let nowhere = replaced(&arguments(&["--method", "lora+ts"]), "--model", "/nowhere");
    rejected(&nowhere, expected, &out);
    done(&arguments(&["--method", "lora+ts", "--set", "holdout=0.4"]));
}
