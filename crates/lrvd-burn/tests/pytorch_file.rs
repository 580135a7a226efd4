//! Weights in PyTorch's own format, against files that PyTorch wrote.

#![allow(clippy::unwrap_used, clippy::tests_outside_test_module)]

use std::path::PathBuf;

use lrvd_burn::files::{HostDType, WeightStore};

fn golden(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden/pytorch").join(name)
}

fn check(store: &WeightStore, name: &str, dtype: HostDType, shape: &[usize], values: &[f64]) {
    let tensor = store.read(name).unwrap();
    assert_eq!((tensor.dtype(), tensor.shape()), (dtype, shape), "{name}");
    assert_eq!((store.dtype(name), store.shape(name)), (Some(dtype), Some(shape)), "{name}");
    assert_eq!(tensor.to_f64().unwrap(), values, "{name}");
}

#[test]
fn every_element_type_and_every_view_is_read_as_pytorch_wrote_it() {
    for file in ["weights.bin", "legacy.bin"] {
        let store = WeightStore::open(golden(file)).unwrap();
        assert_eq!(store.len(), 9, "{file}");
        let counted: Vec<f64> = (0..12).map(f64::from).collect();
        check(&store, "whole", HostDType::F32, &[3, 4], &counted);
        check(&store, "half", HostDType::F16, &[3, 4], &counted);
        check(&store, "brain", HostDType::BF16, &[3, 4], &counted);
        check(&store, "double", HostDType::F64, &[3, 4], &counted);
        let columns = [0., 4., 8., 1., 5., 9., 2., 6., 10., 3., 7., 11.];
        check(&store, "transposed", HostDType::F32, &[4, 3], &columns);
        check(&store, "part", HostDType::F32, &[2, 2], &[5., 6., 9., 10.]);
        check(&store, "parameter", HostDType::F32, &[4], &[0., 1., 2., 3.]);
        check(&store, "scalar", HostDType::F32, &[], &[7.]);
        assert_eq!(store.read("index").unwrap().to_i64().unwrap(), [0, 1, 2]);
    }
}

#[test]
fn a_folder_prefers_safetensors_and_knows_shards_of_either_kind() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::copy(golden("weights.bin"), dir.path().join("pytorch_model.bin")).unwrap();
    assert_eq!(WeightStore::open(dir.path()).unwrap().len(), 9);

    let sharded = tempfile::tempdir().unwrap();
    std::fs::copy(golden("weights.bin"), sharded.path().join("one.bin")).unwrap();
    let names = WeightStore::open(golden("weights.bin")).unwrap();
    let map: Vec<String> = names.names().map(|n| format!(r#""{n}": "one.bin""#)).collect();
    let index = format!(r#"{{"weight_map": {{{}}}}}"#, map.join(", "));
    std::fs::write(sharded.path().join("pytorch_model.bin.index.json"), index).unwrap();
    assert_eq!(WeightStore::open(sharded.path()).unwrap().len(), 9);

    std::fs::write(dir.path().join("model.safetensors"), b"short").unwrap();
    assert!(WeightStore::open(dir.path()).unwrap_err().to_string().contains("is cut short"));
}

#[test]
fn nothing_in_a_file_is_executed_or_trusted() {
    let error = WeightStore::open(golden("call.bin")).map(|store| store.len());
    assert!(
        matches!(&error, Ok(1) | Err(lrvd_burn::Error::File { .. })),
        "the weight alone, or a rejection: {error:?}"
    );
    let bytes = std::fs::read(golden("weights.bin")).unwrap();
    let dir = tempfile::tempdir().unwrap();
    // What Python's pickle.dumps({"w": <a call of os.system>}, 2) writes.
    let call = dir.path().join("call-alone.bin");
    let pickle = b"\x80\x02}q\x00X\x01\x00\x00\x00wq\x01cposix\nsystem\nq\x02X\x04\x00\x00\x00trueq\x03\x85q\x04Rq\x05s.";
    std::fs::write(&call, pickle).unwrap();
    let error = WeightStore::open(&call).unwrap_err().to_string();
    assert!(error.contains("call-alone.bin") && error.contains("no tensor"), "{error}");
    let path = dir.path().join("cut.bin");
    for length in [0, 1, 100, bytes.len() / 2, bytes.len() - 1] {
        std::fs::write(&path, &bytes[..length]).unwrap();
        let error = WeightStore::open(&path).unwrap_err().to_string();
        assert!(error.contains("cut.bin` is not a PyTorch file"), "{length}: {error}");
    }
}
