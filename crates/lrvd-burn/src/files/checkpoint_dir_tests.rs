#![allow(clippy::unwrap_used)]

use std::fs;

use super::*;
use crate::files::write_safetensors;

fn write(path: &Path, names: &[&str]) {
    let tensors = names
        .iter()
        .map(|name| ((*name).to_owned(), HostTensor::from_u8(&[1], &[name.len() as u8]).unwrap()))
        .collect();
    write_safetensors(path, &tensors, &BTreeMap::new()).unwrap();
}

/// Two shards with an index that the caller writes.
fn sharded(index: &str) -> (tempfile::TempDir, Result<WeightStore, FileError>) {
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
    assert!(matches!(store.read("x"), Err(FileError::NoTensor { .. })));
}

#[test]
fn index_and_shards_must_agree() {
    let missing = sharded(&GOOD.replace("two.", "three.")).1.unwrap_err();
    let text = missing.to_string();
    assert!(text.contains("`three.safetensors`") && text.contains("`ccc`"), "{text}");
    let absent = sharded(&GOOD.replace("\"a\"", "\"x\"")).1.unwrap_err();
    assert!(matches!(absent, FileError::NotInShard { tensors, .. } if tensors == ["x"]));
    let unknown = sharded(&GOOD.replace("\"bb\":\"one.safetensors\",", "")).1.unwrap_err();
    assert!(matches!(unknown, FileError::NotInIndex { tensors, .. } if tensors == ["bb"]));
}

#[test]
fn an_index_cannot_point_outside_its_folder() {
    for shard in ["../two.safetensors", "/etc/passwd", "sub/two.safetensors", "..", ""] {
        let error = sharded(&GOOD.replace("two.safetensors", shard)).1.unwrap_err();
        assert!(matches!(error, FileError::ShardName { .. }), "{shard}: {error}");
    }
}

#[test]
fn folders_without_safetensors() {
    let dir = tempfile::tempdir().unwrap();
    assert!(matches!(WeightStore::open(dir.path()), Err(FileError::NoWeights { .. })));
    fs::write(dir.path().join("pytorch_model.bin"), "x").unwrap();
    let error = WeightStore::open(dir.path()).unwrap_err();
    assert!(
        matches!(&error, FileError::Pytorch { file, .. } if file.ends_with("pytorch_model.bin"))
    );
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
    let error = stripped().unwrap_err();
    assert!(matches!(error, FileError::DuplicateTensor { tensor, .. } if tensor == "a"));
}
