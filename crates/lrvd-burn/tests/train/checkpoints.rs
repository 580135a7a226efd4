//! What is wrong with a checkpoint is found and named, and a saved adapter answers as the model that it was taken from.

use crate::prelude::*;
use lrvd_burn::train::{latest_checkpoint, load_adapter};
use std::fs;

fn kept(checkpoints: &Checkpoints, steps: usize) -> Run<Net, BayesLora> {
    let config = config(steps);
    let mut run = run(pruned(), &config);
    let mut watch = Watch { checkpoints: Some(checkpoints), ..Watch::default() };
    run.fit(&mut batches(&config), &mut watch).unwrap();
    run
}

#[test]
fn a_flipped_byte_is_noticed_in_either_file() {
    let folder = tempfile::tempdir().unwrap();
    let checkpoints = Checkpoints::open(folder.path()).unwrap();
    let done = kept(&checkpoints, 5);
    let newest = latest_checkpoint(folder.path()).unwrap().unwrap();
    let fresh = || run(pruned(), &config(5));
    let mut whole = fresh();
    assert!(whole.resume(&checkpoints).unwrap());
    assert!(numbers(&whole.state) == numbers(&done.state));
    for name in ["state.safetensors", "state.json"] {
        let file = newest.join(name);
        let good = fs::read(&file).unwrap();
        for seed in 0..20 {
            let mut bad = good.clone();
            bad[index(seed, good.len())] ^= 1 << (seed % 8);
            fs::write(&file, bad).unwrap();
            match fresh().resume(&checkpoints) {
                Err(lrvd_burn::Error::File { path, what }) => {
                    assert_eq!(path, file);
                    assert!(what.starts_with("has changed since it was written"), "{what}");
                }
                other => panic!("{name} {seed}: {other:?}"),
            }
        }
        fs::write(&file, good).unwrap();
    }
    assert!(fresh().resume(&checkpoints).unwrap());
}

#[test]
fn a_folder_serves_one_run_at_a_time() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("checkpoints");
    let first = Checkpoints::open(&path).unwrap();
    match Checkpoints::open(&path) {
        Err(lrvd_burn::Error::File { path: folder, what }) => {
            assert_eq!(folder, path);
            assert!(what.starts_with("is in use by another run"), "{what}");
        }
        other => panic!("{other:?}"),
    }
    drop(first);
    let second = Checkpoints::open(&path).unwrap();
    kept(&second, 4);
    second.remove().unwrap();
    assert!(!path.exists());
}

#[test]
fn only_the_newest_checkpoint_stays_and_another_model_is_rejected() {
    let folder = tempfile::tempdir().unwrap();
    let checkpoints = Checkpoints::open(folder.path()).unwrap();
    kept(&checkpoints, 9);
    let mut names: Vec<_> =
        fs::read_dir(folder.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["lock", "step-00000009"]);
    // Without variances there is nothing that their moments could belong to.
    let mut other = run(Lora { rank: 5, ..Lora::default() }, &config(9));
    let failed = other.resume(&checkpoints).unwrap_err();
    assert!(matches!(failed, lrvd_burn::Error::State(_)), "{failed}");
}

#[test]
fn mean_and_draws_come_back_bit_for_bit() {
    let run = trained(run(pruned(), &config(8)));
    assert!(ranks(&run.state.model)[0].1 < 5);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("adapter");
    run.save(&path).unwrap();

    let mut loaded = net();
    load_adapter(&mut loaded, &path).unwrap();
    let asked = examples(9, 20);
    let inputs = Inputs::new(&asked);
    for draws in [0, 3] {
        let expected = run.predict(&inputs, draws).unwrap();
        assert!(run.method.predict(&loaded, &inputs, draws).unwrap() == expected);
        assert_eq!((expected.members(), expected.rows, expected.width), (draws.max(1), 20, 3));
        let answers = expected.classes().unwrap();
        let sampled = answers.iter().any(|answer| answer.mutual_information > Some(0.0));
        assert_eq!(sampled, draws > 0);
        assert!(answers.iter().all(|a| (a.probabilities.iter().sum::<f64>() - 1.0).abs() < 1e-6));
    }
    // Draws of a smaller number are the first ones of a larger.
    let three = run.predict(&inputs, 3).unwrap();
    assert!(run.predict(&inputs, 2).unwrap() == three.first(2));

    let failed = run.save(&path).unwrap_err();
    assert!(matches!(failed, lrvd_burn::Error::File { .. }), "{failed}");
}
