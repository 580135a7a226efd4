//! What is wrong with a checkpoint is noticed and named.

use std::fs;

use lrvd_burn::burn::tensor::Tensor;
use lrvd_burn::train::{BayesLora, Checkpoints, Lora, Run, Watch, latest_checkpoint};

use crate::net::{Net, batches, config, index, net, numbers, pruned, run, targets};

fn trained(checkpoints: &Checkpoints, steps: usize) -> Run<Net, BayesLora> {
    let config = config(steps);
    let mut run = run(pruned(), &config);
    let mut watch = Watch::<Tensor<2>>::default().keeping(checkpoints);
    run.fit(&mut batches(&config), &mut watch).unwrap();
    run
}

#[test]
fn a_flipped_byte_is_noticed_in_either_file() {
    let folder = tempfile::tempdir().unwrap();
    let checkpoints = Checkpoints::open(folder.path()).unwrap();
    let done = trained(&checkpoints, 5);
    let newest = latest_checkpoint(folder.path()).unwrap().unwrap();
    let fresh = || run(pruned(), &config(5));
    let mut whole = fresh();
    assert!(whole.resume(&checkpoints).unwrap());
    assert_eq!(numbers(&whole.state), numbers(&done.state));
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
    trained(&second, 4);
    second.remove().unwrap();
    assert!(!path.exists());
}

#[test]
fn only_the_newest_checkpoint_stays_and_another_model_is_rejected() {
    let folder = tempfile::tempdir().unwrap();
    let checkpoints = Checkpoints::open(folder.path()).unwrap();
    trained(&checkpoints, 9);
    let mut names: Vec<_> =
        fs::read_dir(folder.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["lock", "step-00000009"]);
    // Without variances there is nothing that their moments could belong to.
    let mut other =
        Run::new(net(), Lora { rank: 5, ..Lora::default() }, &targets(), &config(9)).unwrap();
    let failed = other.resume(&checkpoints).unwrap_err();
    assert!(matches!(failed, lrvd_burn::Error::State(_)), "{failed}");
}
