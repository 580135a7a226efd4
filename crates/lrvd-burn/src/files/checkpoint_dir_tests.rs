#![allow(clippy::unwrap_used)]

use std::fs;

use super::*;
use crate::error::Error;
use crate::files::write_safetensors;

fn write(path: &Path, names: &[&str]) {
    let tensors = names
        .iter()
        .map(|name| ((*name).to_owned(), HostTensor::from_u8(&[1], &[name.len() as u8]).unwrap()))
        .collect();
    write_safetensors(path, &tensors, &BTreeMap::new()).unwrap();
}

/// Two shards with an index that the caller writes.
fn sharded(index: &str) -> (tempfile::TempDir, Result<WeightStore, Error>) {
    let dir = tempfile::tempdir().unwrap();
    write(&dir.path().join("one.safetensors"), &["a", "bb"]);
    write(&dir.path().join("two.safetensors"), &["ccc"]);
    fs::write(dir.path().join(WEIGHTS[1]), format!(r#"{{"metadata":{{}},"weight_map":{index}}}"#))
        .unwrap();
    let store = WeightStore::open(dir.path());
    (dir, store)
}

const GOOD: &str = r#"{"ccc":"two.safetensors","bb":"one.safetensors","a":"one.safetensors"}"#;

#[test]
fn shards_read_like_one_file() {
    let (dir, store) = sharded(GOOD);
    let store = store.unwrap();
    assert_eq!(store.names().collect::<Vec<_>>(), ["a", "bb", "ccc"]);
    assert_eq!(store.read("ccc").unwrap().bytes(), [3]);
    assert_eq!((store.files().len(), store.shape("bb")), (2, Some(&[1][..])));
    assert_eq!(WeightStore::open(dir.path().join(WEIGHTS[1])).unwrap().len(), 3);
    assert!(store.read("x").unwrap_err().to_string().ends_with("has no tensor `x`"));
}

#[test]
fn index_and_shards_must_agree() {
    for (from, to, expected) in [
        (
            "two.",
            "three.",
            "names the shard `three.safetensors`, which is missing (1 tensors, `ccc` first)",
        ),
        ("\"a\"", "\"x\"", "puts `x` into `one.safetensors`, which does not have them"),
        (
            "\"bb\":\"one.safetensors\",",
            "",
            "does not put `bb` into `one.safetensors`, which has them",
        ),
    ] {
        let error = sharded(&GOOD.replace(from, to)).1.unwrap_err().to_string();
        assert!(error.ends_with(expected), "{error}");
    }
}

#[test]
fn an_index_cannot_point_outside_its_folder() {
    for shard in ["../two.safetensors", "/etc/passwd", "sub/two.safetensors", "..", ""] {
        let error = sharded(&GOOD.replace("two.safetensors", shard)).1.unwrap_err().to_string();
        assert!(error.contains("expected a file name without a folder"), "{shard}: {error}");
    }
}

#[test]
fn folders_without_safetensors() {
    let dir = tempfile::tempdir().unwrap();
    let error = WeightStore::open(dir.path()).unwrap_err().to_string();
    assert!(error.contains("has no weights"), "{error}");
    fs::write(dir.path().join("pytorch_model.bin"), "x").unwrap();
    let error = WeightStore::open(dir.path()).unwrap_err().to_string();
    assert!(error.contains("pytorch_model.bin` is not a PyTorch file"), "{error}");
    write(&dir.path().join(WEIGHTS[0]), &["a"]);
    assert_eq!(WeightStore::open(dir.path()).unwrap().len(), 1);
}

#[test]
fn new_names_stay_apart() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("w.safetensors");
    let stripped = || {
        let store = WeightStore::open(&path).unwrap();
        store.rename(|name| name.strip_prefix("m.").unwrap_or(name).to_owned())
    };
    write(&path, &["m.a", "b"]);
    let store = stripped().unwrap();
    assert_eq!(store.names().collect::<Vec<_>>(), ["a", "b"]);
    assert_eq!(store.read("a").unwrap().bytes(), [3]);
    write(&path, &["m.a", "a"]);
    assert!(stripped().unwrap_err().to_string().ends_with("has two tensors called `a`"));
}
