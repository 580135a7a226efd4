#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use rstest::rstest;
use tempfile::{TempDir, tempdir};

use super::atomic::{NO_NAME, flushed};
use super::safetensors_file::{MAX_HEADER, METADATA_KEY};
use super::weight_store::WEIGHTS;
use super::*;
use crate::error::Error;

fn f32s(shape: &[usize], values: &[f32]) -> HostTensor {
    HostTensor::from_f32(shape, values).unwrap()
}

fn raw(dtype: HostDType, shape: &[usize], bytes: &[u8]) -> HostTensor {
    HostTensor::new(dtype, shape.to_vec(), bytes.to_vec()).unwrap()
}

#[test]
fn integers_are_converted_without_loss() {
    let large = [i64::MIN, 7].map(i64::to_le_bytes).concat();
    for (tensor, expected, in_f64) in [
        (raw(HostDType::I64, &[2], &large), &[i64::MIN, 7][..], false),
        (raw(HostDType::U32, &[1], &[0xFF; 4]), &[4_294_967_295], true),
        (raw(HostDType::I16, &[1], &[0xFE, 0xFF]), &[-2], true),
        (raw(HostDType::BOOL, &[3], &[0, 1, 2]), &[0, 1, 1], true),
    ] {
        assert_eq!(tensor.to_i64().unwrap(), expected);
        let floats: Vec<f64> = expected.iter().map(|&value| value as f64).collect();
        assert_eq!(tensor.to_f64().ok(), in_f64.then_some(floats));
        assert!(tensor.to_f32().is_err());
    }
}

#[test]
fn what_does_not_fit_a_tensor_is_an_error() {
    let tensor = f32s(&[6], &[0.0; 6]);
    for (result, expected) in [
        (
            HostTensor::from_f32(&[2, 3], &[0.0; 5]),
            "expected 24 bytes for `F32` of shape [2, 3], found 20",
        ),
        (tensor.transpose2(), "expected a matrix, found shape [6]"),
        (tensor.select_rows(&[0, 7]), "expected a row below 6, found 7"),
    ] {
        assert_eq!(result.unwrap_err().to_string(), expected);
    }
    let error = tensor.to_i64().unwrap_err().to_string();
    assert_eq!(error, "expected values of the type `I64`, found `F32`");
    assert!(HostTensor::new(HostDType::F64, vec![usize::MAX, 2], Vec::new()).is_err());
    assert_eq!(f32s(&[0, 3], &[]).transpose2().unwrap().shape(), [3, 0]);
    // Whole blocks and parts of one.
    for (dtype, size) in [(HostDType::U8, 1), (HostDType::F16, 2), (HostDType::F64, 8)] {
        let bytes: Vec<u8> = (0..70 * 33 * size).map(|i| (i % 251) as u8).collect();
        let matrix = raw(dtype, &[70, 33], &bytes);
        let turned = matrix.transpose2().unwrap();
        let element = |tensor: &HostTensor, at: usize| tensor.bytes()[at * size..][..size].to_vec();
        for (row, column) in [(0, 0), (31, 32), (32, 31), (69, 5), (64, 32)] {
            assert_eq!(element(&turned, column * 70 + row), element(&matrix, row * 33 + column));
        }
        assert_eq!(turned.transpose2().unwrap(), matrix);
    }
}

#[test]
fn the_first_value_that_is_not_finite_is_found() {
    let tensor = f32s(&[3], &[1.0, f32::NEG_INFINITY, f32::NAN]);
    assert_eq!(tensor.first_non_finite(), Some((1, f64::NEG_INFINITY)));
    let large = f32s(&[3], &[65_504.0, -65_520.0, 1.0]);
    let found = (large.first_non_finite(), large.first_beyond(65_504.0));
    assert_eq!(found, (None, Some((1, -65_520.0))));
    let half = raw(HostDType::F16, &[2], &[0, 0, 0x00, 0x7E]);
    assert!(matches!(half.first_non_finite(), Some((1, value)) if value.is_nan()));
    assert_eq!(raw(HostDType::U8, &[1], &[255]).first_non_finite(), None);
}

#[test]
fn what_is_written_is_read_here_and_by_the_reference_implementation() {
    let dir = tempdir().unwrap();
    let path = dir.path().join("t.safetensors");
    let tensors = [
        ("z", HostTensor::from_f64(&[2], &[0.1, -2.5]).unwrap()),
        ("b", raw(HostDType::U8, &[3], &[1, 2, 3])),
        ("a", f32s(&[2, 1], &[1.0, f32::MIN_POSITIVE])),
        ("none", f32s(&[0, 4], &[])),
        ("h", raw(HostDType::BF16, &[1], &[1, 2])),
    ];
    let tensors = BTreeMap::from(tensors.map(|(name, tensor)| (name.to_owned(), tensor)));
    let texts = ["q", "format", "x"].map(|key| (key.to_owned(), format!("\"{key}\"\n"))).into();
    write_safetensors(&path, &tensors, &texts).unwrap();
    let file = WeightStore::open(&path).unwrap();
    assert_eq!((file.metadata(), file.read_all().unwrap()), (&texts, tensors.clone()));
    let bytes = fs::read(&path).unwrap();
    let other = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    assert_eq!(other.len(), tensors.len());
    for (name, tensor) in &tensors {
        let view = other.tensor(name).unwrap();
        assert_eq!((view.shape(), view.data()), (tensor.shape(), tensor.bytes()), "{name}");
    }
    // Data start aligned, and so does the f64 tensor, which comes first.
    let n_header = u64::from_le_bytes(bytes[..8].try_into().unwrap());
    assert_eq!(n_header % 8, 0);
    assert_eq!(&bytes[8 + n_header as usize..][..8], &0.1_f64.to_le_bytes());
}

#[test]
fn failing_half_way_keeps_the_old_file() {
    let dir = tempdir().unwrap();
    let path = dir.path().join("state");
    write_atomic(&path, b"old").unwrap();
    let failed = replace_with(&path, |out| {
        out.write_all(b"ne")?;
        Err(io::Error::other("disk full"))
    });
    assert!(matches!(failed, Err(Error::Io { action: "write", .. })));
    assert_eq!((fs::read(&path).unwrap(), names(dir.path()).len()), (b"old".to_vec(), 1));
    write_atomic(&path, b"new").unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"new");
}

#[test]
fn names_that_cannot_be_written() {
    let dir = tempdir().unwrap();
    let tensors = [(METADATA_KEY.to_owned(), f32s(&[0], &[]))].into();
    let error = write_safetensors(dir.path().join("t"), &tensors, &BTreeMap::new());
    assert!(error.unwrap_err().to_string().contains("called `__metadata__`"));
    assert!(write_atomic("/", b"").unwrap_err().to_string().ends_with(NO_NAME));
    assert!(matches!(write_atomic(dir.path().join("no/x"), b""), Err(Error::Io { .. })));
}

fn open(header: &str, n_data: usize) -> Result<WeightStore, Error> {
    let data = vec![0; n_data];
    open_bytes(&[&(header.len() as u64).to_le_bytes(), header.as_bytes(), &data].concat())
}

fn open_bytes(bytes: &[u8]) -> Result<WeightStore, Error> {
    let dir = tempdir().unwrap();
    let path = dir.path().join("x.safetensors");
    fs::write(&path, bytes).unwrap();
    WeightStore::open(&path)
}

const EIGHT_BYTES: &str = r#"{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}"#;
const OVERLAP: &str = r#"{"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},
                          "b":{"dtype":"U8","shape":[4],"data_offsets":[3,7]}}"#;

#[rstest]
#[case(open(EIGHT_BYTES, 7), "is cut short")]
#[case(open(EIGHT_BYTES, 9), "belong to no tensor")]
#[case(open_bytes(&[1, 2]), "is cut short: 8 bytes expected, 2 found")]
#[case(open_bytes(&[100, 0, 0, 0, 0, 0, 0, 0, b'{']), "108 bytes expected, 9 found")]
#[case(open_bytes(&MAX_HEADER.to_le_bytes()), "is cut short")]
#[case(open_bytes(&u64::MAX.to_le_bytes()), "has a header of 18446744073709551615 bytes")]
#[case(
    open(r#"{"w":{"dtype":"F8_E4M3","shape":[1],"data_offsets":[0,1]}}"#, 1),
    "the unsupported element type `F8_E4M3` in tensor `w`"
)]
#[case(open(OVERLAP, 9), "a header that cannot be used")]
#[case(open(&EIGHT_BYTES.replace("[2]", "[4294967296,4294967296]"), 8), "a header that cannot be used")]
// Deep nesting must not exhaust the stack.
#[case(open(&"[".repeat(100_000), 0), "a header that cannot be used")]
fn files_that_cannot_be_read(#[case] opened: Result<WeightStore, Error>, #[case] expected: &str) {
    let error = opened.unwrap_err().to_string();
    assert!(error.contains(expected), "{error}");
}

fn pytorch(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden/pytorch").join(name)
}

/// Every element type and every view is read as PyTorch wrote it.
#[rstest]
fn pytorch_files(#[values("weights.bin", "legacy.bin")] file: &str) {
    let store = WeightStore::open(pytorch(file)).unwrap();
    assert_eq!(store.len(), 9);
    let counted: Vec<f64> = (0..12).map(f64::from).collect();
    let columns = [0., 4., 8., 1., 5., 9., 2., 6., 10., 3., 7., 11.];
    for (name, dtype, shape, values) in [
        ("whole", HostDType::F32, &[3, 4][..], &counted[..]),
        ("half", HostDType::F16, &[3, 4], &counted),
        ("brain", HostDType::BF16, &[3, 4], &counted),
        ("double", HostDType::F64, &[3, 4], &counted),
        ("transposed", HostDType::F32, &[4, 3], &columns),
        ("part", HostDType::F32, &[2, 2], &[5., 6., 9., 10.]),
        ("parameter", HostDType::F32, &[4], &[0., 1., 2., 3.]),
        ("scalar", HostDType::F32, &[], &[7.]),
    ] {
        let tensor = store.read(name).unwrap();
        assert_eq!((tensor.dtype(), tensor.shape()), (dtype, shape), "{name}");
        assert_eq!((store.dtype(name), store.shape(name)), (Some(dtype), Some(shape)), "{name}");
        assert_eq!(tensor.to_f64().unwrap(), values, "{name}");
    }
    assert_eq!(store.read("index").unwrap().to_i64().unwrap(), [0, 1, 2]);
}

#[test]
fn nothing_in_a_pytorch_file_is_executed_or_trusted() {
    let error = WeightStore::open(pytorch("call.bin")).map(|store| store.len());
    let harmless = matches!(&error, Ok(1) | Err(Error::File { .. }));
    assert!(harmless, "the weight alone, or a rejection: {error:?}");
    let bytes = fs::read(pytorch("weights.bin")).unwrap();
    let dir = tempdir().unwrap();
    let path = dir.path().join("x.bin");
    let fails = |bytes: &[u8]| {
        fs::write(&path, bytes).unwrap();
        WeightStore::open(&path).unwrap_err().to_string()
    };
    // What Python's pickle.dumps({"w": <a call of os.system>}, 2) writes.
    let call = b"\x80\x02}q\x00X\x01\x00\x00\x00wq\x01cposix\nsystem\nq\x02X\x04\x00\x00\x00trueq\x03\x85q\x04Rq\x05s.";
    let error = fails(call);
    assert!(error.contains("x.bin") && error.contains("no tensor"), "{error}");
    for length in [0, 1, 100, bytes.len() / 2, bytes.len() - 1] {
        let error = fails(&bytes[..length]);
        assert!(error.contains("x.bin` is not a PyTorch file"), "{length}: {error}");
    }
}

/// A safetensors file whose tensors hold the lengths of their names.
fn write(path: &Path, names: &[&str]) {
    let tensor = |name: &&str| raw(HostDType::U8, &[1], &[name.len() as u8]);
    let tensors = names.iter().map(|name| ((*name).to_owned(), tensor(name))).collect();
    write_safetensors(path, &tensors, &BTreeMap::new()).unwrap();
}

const MAP: &str = r#"{"ccc":"two.safetensors","bb":"one.safetensors","a":"one.safetensors"}"#;

/// Two shards with an index.
fn sharded(map: &str) -> (TempDir, Result<WeightStore, Error>) {
    let dir = tempdir().unwrap();
    write(&dir.path().join("one.safetensors"), &["a", "bb"]);
    write(&dir.path().join("two.safetensors"), &["ccc"]);
    let index = format!(r#"{{"metadata":{{}},"weight_map":{map}}}"#);
    fs::write(dir.path().join(WEIGHTS[1]), index).unwrap();
    let store = WeightStore::open(dir.path());
    (dir, store)
}

#[test]
fn an_index_agrees_with_its_shards_and_stays_in_its_folder() {
    let outside = "expected a file name without a folder";
    for (from, to, expected) in [
        ("\"a\"", "\"x\"", "puts `x` into `one.safetensors`, which does not have them"),
        (
            "\"bb\":\"one.safetensors\",",
            "",
            "does not put `bb` into `one.safetensors`, which has them",
        ),
        ("two.safetensors", "../two.safetensors", outside),
        ("two.safetensors", "/etc/passwd", outside),
        ("two.safetensors", "", outside),
        // An index is no shard.
        ("two.safetensors", WEIGHTS[1], "has a header of"),
    ] {
        let error = sharded(&MAP.replace(from, to)).1.unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
    let (dir, store) = sharded(MAP);
    assert_eq!(WeightStore::open(dir.path().join(WEIGHTS[1])).unwrap().len(), 3);
    let store = store.unwrap();
    assert!(store.read("x").unwrap_err().to_string().ends_with("has no tensor `x`"));
    let error = store.map(|name, _| Some((name.replace("bb", "a"), None))).unwrap_err().to_string();
    assert!(error.ends_with("has two tensors called `a`"), "{error}");
}

#[test]
fn a_folder_prefers_safetensors_and_knows_shards_of_either_kind() {
    let dir = tempdir().unwrap();
    let opened = || WeightStore::open(dir.path()).map(|store| store.len());
    assert!(opened().unwrap_err().to_string().contains("has no weights"));
    let [safetensors, _, bin, bin_index] = WEIGHTS.map(|name| dir.path().join(name));
    fs::copy(pytorch("weights.bin"), dir.path().join("one.bin")).unwrap();
    let names = WeightStore::open(pytorch("weights.bin")).unwrap();
    let map: Vec<String> = names.names().map(|n| format!(r#""{n}": "one.bin""#)).collect();
    fs::write(&bin_index, format!(r#"{{"weight_map": {{{}}}}}"#, map.join(", "))).unwrap();
    assert_eq!(opened().unwrap(), 9);
    fs::write(&bin, "x").unwrap();
    let error = opened().unwrap_err().to_string();
    assert!(error.contains("pytorch_model.bin` is not a PyTorch file"), "{error}");
    write(&safetensors, &["a"]);
    assert_eq!(opened().unwrap(), 1);
}

fn fill(dir: &AtomicDir, text: &str) {
    fs::create_dir(dir.path().join("sub")).unwrap();
    fs::write(dir.path().join("sub/state"), text).unwrap();
}

fn read(target: &Path) -> String {
    fs::read_to_string(target.join("sub/state")).unwrap()
}

fn names(parent: &Path) -> Vec<String> {
    let entries = fs::read_dir(parent).unwrap();
    let mut names: Vec<_> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn a_folder_is_absent_until_committed_and_never_overwritten_unless_asked() {
    let parent = tempdir().unwrap();
    let target = parent.path().join("best");
    for other in ["best.tmp", "best.old"] {
        fs::create_dir(parent.path().join(other)).unwrap();
    }
    drop(AtomicDir::create(&target).unwrap());
    assert_eq!(names(parent.path()), ["best.old", "best.tmp"], "dropped without a commit");
    for (text, replace) in [("first", true), ("second", false), ("third", true)] {
        let dir = AtomicDir::create(&target).unwrap();
        fill(&dir, text);
        assert_eq!(target.exists(), text != "first");
        if replace {
            dir.commit_replacing().unwrap();
            assert_eq!(read(&target), text);
        } else {
            assert!(dir.commit().unwrap_err().to_string().ends_with("already exists"));
            assert_eq!(read(&target), "first");
        }
        assert_eq!(names(parent.path()), ["best", "best.old", "best.tmp"]);
    }
}

/// A killed process runs no destructor.
#[test]
fn a_crash_leaves_the_old_folder_or_nothing_and_the_next_start_is_empty() {
    let parent = tempdir().unwrap();
    let target = parent.path().join("best");
    fs::create_dir_all(parent.path().join("best.lrvd-tmp/sub")).unwrap();
    let dir = AtomicDir::create(&target).unwrap();
    assert!(names(dir.path()).is_empty());
    fill(&dir, "old");
    dir.commit().unwrap();
    // Between the two renames of a replacement.
    fs::rename(&target, parent.path().join("best.lrvd-old")).unwrap();
    drop(AtomicDir::create(&target).unwrap());
    assert_eq!((read(&target).as_str(), names(parent.path())), ("old", vec!["best".to_owned()]));
    // And with the new one in place, the old one goes.
    fs::create_dir(parent.path().join("best.lrvd-old")).unwrap();
    drop(AtomicDir::create(&target).unwrap());
    assert_eq!((read(&target).as_str(), names(parent.path()).len()), ("old", 1));
}

#[cfg(unix)]
#[test]
fn of_two_that_build_a_folder_the_second_is_told() {
    let parent = tempdir().unwrap();
    let target = parent.path().join("best");
    let dir = AtomicDir::create(&target).unwrap();
    fill(&dir, "first");
    let error = AtomicDir::create(&target).unwrap_err();
    assert!(matches!(&error, Error::InUse { path, .. } if *path == target), "{error}");
    dir.commit().unwrap();
    assert_eq!(read(&target), "first");
    // A link to nothing is no place for a folder, nor is a folder below it.
    let link = parent.path().join("link");
    std::os::unix::fs::symlink("absent", &link).unwrap();
    for target in [link.clone(), link.join("below")] {
        let error = AtomicDir::create(target).unwrap_err().to_string();
        let expected =
            format!("`{}` is a link to `absent`, where there is nothing", link.display());
        assert_eq!(error, expected);
    }
}

#[test]
fn a_file_system_that_flushes_no_folders_is_no_error() {
    use std::io::ErrorKind;

    let flushes = |kind: ErrorKind| flushed(Err(io::Error::from(kind)));
    assert!(
        !flushes(ErrorKind::InvalidInput).unwrap() && !flushes(ErrorKind::Unsupported).unwrap()
    );
    assert!(flushes(ErrorKind::StorageFull).is_err());
}
