//! `lrvd_posterior.safetensors`; `tests/adapters/files.rs` has the round trips.

use std::collections::BTreeMap;

use lrvd_core::moments::CrossTerm;
use lrvd_core::posterior::VariationalFamily;
use tempfile::tempdir;

use super::{f32s, names, report};
use crate::adapter::posterior_schemas;
use crate::files::{HostTensor, WeightStore, write_safetensors};
use crate::peft::posterior::HEADER_KEY;
use crate::peft::{
    POSTERIOR_FILE, PeftAdapter, PeftConfig, PeftModule, PeftPosterior, PosteriorHeader,
    PosteriorModuleHeader, PosteriorRun, posterior_family_name,
};
use crate::sampling::Scheme;

fn tensor(shape: &[usize]) -> HostTensor {
    let values: Vec<f32> = (0..shape.iter().product()).map(|i| -8.0 + 0.25 * i as f32).collect();
    f32s(shape, &values)
}

/// Two modules with ranks 3 and 2 of 4; a third was pruned away.
fn sample() -> (PeftAdapter, PeftPosterior) {
    let run = PosteriorRun {
        scheme: Some(Scheme::PerSequence),
        seed: Some(u64::MAX),
        ..PosteriorRun::default()
    };
    let mut header = PosteriorHeader::new(VariationalFamily::RankVariance, run);
    let (mut modules, mut tensors) = (Vec::new(), BTreeMap::new());
    for (path, rank) in [("h.0.q", 3), ("h.1.q", 2), ("h.2.q", 0)] {
        let module = PosteriorModuleHeader { initial_rank: 4, rank, scaling: 0.1 };
        header.modules.insert(path.to_owned(), module);
        if rank > 0 {
            let (a, b) = (tensor(&[rank, 5]), tensor(&[7, rank]));
            modules.push((path, PeftModule::lora(a, b, 0.1, 4).unwrap()));
            tensors.insert(format!("{path}.rank_log_sigma2"), tensor(&[rank]));
        }
    }
    let adapter = super::adapter(PeftConfig::lora(4, 0.4, names(&["q"])), &modules);
    (adapter, PeftPosterior { header, tensors })
}

#[test]
fn names_in_the_file_are_those_of_the_first_version() {
    let element = &["log_sigma2_a", "log_sigma2_b"][..];
    for (family, name, ends) in [
        (VariationalFamily::RankVariance, "rank_variance", &["rank_log_sigma2"][..]),
        (VariationalFamily::NoiseToSignal, "noise_to_signal", &["rank_log_alpha"]),
        (VariationalFamily::ElementVariance, "element_variance", element),
        (VariationalFamily::AsymRankVariance, "a_only", &["rank_log_sigma2"]),
    ] {
        assert_eq!(posterior_family_name(family), name);
        assert!(posterior_schemas(family).into_iter().map(|s| s.name).eq(ends.iter().copied()));
    }
    let header = sample().1.header;
    for (scheme, name) in [
        (Scheme::Mean, "mean"),
        (Scheme::PerSequence, "weight_per_sequence"),
        (Scheme::PerBatch, "weight_per_batch"),
        (Scheme::PerToken, "weight_per_token"),
        (Scheme::MomentMatched(CrossTerm::Exact), "moment_matched"),
        (Scheme::MomentMatched(CrossTerm::Omitted), "moment_matched"),
        (Scheme::Nested, "nested"),
    ] {
        let of_scheme = PosteriorHeader { scheme: Some(scheme), ..header.clone() };
        let text = serde_json::to_string(&of_scheme).unwrap();
        assert!(text.contains(&format!("\"scheme\":\"{name}\"")), "{text}");
        let read = serde_json::from_str::<PosteriorHeader>(&text).unwrap().scheme.unwrap();
        assert!(read == scheme || scheme == Scheme::MomentMatched(CrossTerm::Omitted), "{text}");
    }
    let text = serde_json::to_string(&header).unwrap().replace("weight_per_sequence", "sometimes");
    let error = serde_json::from_str::<PosteriorHeader>(&text).unwrap_err().to_string();
    assert!(error.contains("`sometimes`") && error.contains("`nested`"), "{error}");
}

#[test]
fn what_nobody_gave_is_not_in_the_header() {
    let header = PosteriorHeader::new(VariationalFamily::RankVariance, PosteriorRun::default());
    let text = serde_json::to_string(&header).unwrap();
    let expected = r#"{"schema_version":1,"family":"rank_variance","log_variance_clamp":[-20.0,2.0],"modules":{}}"#;
    assert_eq!(text, expected);
    assert_eq!(serde_json::from_str::<PosteriorHeader>(&text).unwrap(), header);
}

#[test]
fn the_adapter_must_be_the_same() {
    let fails = |edit: &dyn Fn(&mut PeftAdapter, &mut PeftPosterior)| {
        let (mut adapter, mut posterior) = sample();
        edit(&mut adapter, &mut posterior);
        posterior.check_against(&adapter).unwrap_err()
    };
    let error = fails(&|adapter, _| adapter.modules.get_mut("h.0.q").unwrap().scaling = 0.2);
    let expected = "module `h.0.q`: `rank and scale of the posterior` should be 3 and 0.2 as in \
                    the adapter, found 3 and 0.1";
    assert_eq!(error.to_string(), expected);
    let found = report(fails(&|_, posterior| {
        posterior.header.modules.remove("h.1.q").unwrap();
    }));
    assert_eq!(found.missing, ["h.1.q.rank_log_sigma2"]);
    assert_eq!(found.unexpected, ["h.1.q.rank_log_sigma2"]);
    let found = report(fails(&|_, posterior| {
        let nan = f32s(&[3], &[0.0, f32::NAN, 0.0]);
        posterior.tensors.insert("h.0.q.rank_log_sigma2".into(), nan);
        posterior.tensors.insert("h.1.q.rank_log_sigma2".into(), tensor(&[3]));
    }));
    assert!(found.non_finite[0].ends_with("NaN at index 1"), "{found}");
    assert!(found.mis_shaped[0].ends_with("expected [2], found [3]"), "{found}");
    let error = fails(&|_, posterior| posterior.header.log_alpha_threshold = Some(f64::INFINITY));
    assert!(error.to_string().ends_with("as `log_alpha_threshold`, found inf"), "{error}");
    let error = fails(&|_, posterior| posterior.header.kl_weight = Some(-1.0));
    assert!(error.to_string().ends_with("at least 0 as `kl_weight`, found -1"), "{error}");
}

#[test]
fn headers_are_read_strictly() {
    let (adapter, posterior) = sample();
    let dir = tempdir().unwrap();
    posterior.write(dir.path(), &adapter).unwrap();
    let path = dir.path().join(POSTERIOR_FILE);
    let header = WeightStore::open(&path).unwrap().metadata()[HEADER_KEY].clone();
    let read = |key: &str, header: &str| {
        let metadata = [(key.to_owned(), header.to_owned())].into();
        write_safetensors(&path, &posterior.tensors, &metadata).unwrap();
        PeftPosterior::read(dir.path(), &adapter)
    };
    assert_eq!(read(HEADER_KEY, &header).unwrap(), posterior);
    let later = header.replace("\"schema_version\":1", "\"schema_version\":2");
    let extra = header.replace("\"seed\":", "\"sede\":1,\"seed\":");
    for (key, header, expected) in [
        (HEADER_KEY, &later, "should have 1 as `schema_version`, found 2"),
        (HEADER_KEY, &extra, "has a posterior header that cannot be read: unknown field `sede`"),
        ("other", &header, "should have a header as `lrvd`, found nothing"),
    ] {
        let error = read(key, header).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}
