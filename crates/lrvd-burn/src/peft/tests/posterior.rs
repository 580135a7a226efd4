//! `lrvd_posterior.safetensors`.

use std::collections::BTreeMap;

use lrvd_core::family::VariationalFamily;
use lrvd_core::moments::CrossTerm;
use lrvd_core::prune::StatisticAggregate;
use rstest::rstest;
use tempfile::tempdir;

use super::{f32s, names, report};
use crate::files::{HostTensor, TensorFile, write_safetensors};
use crate::peft::posterior::HEADER_KEY;
use crate::peft::{
    ExportLayout, POSTERIOR_FILE, PeftAdapter, PeftConfig, PeftModule, PeftPosterior,
    PosteriorHeader, PosteriorModuleHeader, PosteriorRun, posterior_family_name,
};
use crate::sampling::{DrawPer, Scheme};

fn tensor(shape: &[usize]) -> HostTensor {
    let values: Vec<f32> = (0..shape.iter().product()).map(|i| -8.0 + 0.25 * i as f32).collect();
    f32s(shape, &values)
}

/// Two modules with ranks 3 and 2 of 4; a third was pruned away.
fn sample(family: VariationalFamily) -> (PeftAdapter, PeftPosterior) {
    let shapes = [("h.0.q", 3, 5, 7), ("h.1.q", 2, 5, 6)];
    let scheme = Scheme::Weights(DrawPer::Sequence);
    let statistic = StatisticAggregate::Energy;
    let (log_alpha_threshold, kl_weight, seed) = (4.0, 0.1, u64::MAX);
    let run = PosteriorRun { scheme, statistic, log_alpha_threshold, kl_weight, seed };
    let mut header = PosteriorHeader::new(family, run);
    let mut modules = Vec::new();
    let mut tensors = BTreeMap::new();
    for (path, rank, d_input, d_output) in shapes {
        let (a, b) = (tensor(&[rank, d_input]), tensor(&[d_output, rank]));
        modules.push((path, PeftModule::lora(a, b, 0.1, 4).unwrap()));
        let parameters = match family {
            VariationalFamily::ElementVariance => vec![
                ("log_sigma2_a", tensor(&[rank, d_input])),
                ("log_sigma2_b", tensor(&[d_output, rank])),
            ],
            VariationalFamily::NoiseToSignal => vec![("rank_log_alpha", tensor(&[rank]))],
            _ => vec![("rank_log_sigma2", tensor(&[rank]))],
        };
        tensors.extend(parameters.into_iter().map(|(end, t)| (format!("{path}.{end}"), t)));
        let module = PosteriorModuleHeader { initial_rank: 4, rank, scaling: 0.1 };
        header.modules.insert(path.to_owned(), module);
    }
    let pruned = PosteriorModuleHeader { initial_rank: 4, rank: 0, scaling: 0.1 };
    header.modules.insert("h.2.q".to_owned(), pruned);
    let adapter = super::adapter(PeftConfig::lora(4, 0.4, names(&["q"])), &modules);
    (adapter, PeftPosterior { header, tensors })
}

#[rstest]
#[case(VariationalFamily::RankVariance, "rank_variance", &["rank_log_sigma2"])]
#[case(VariationalFamily::NoiseToSignal, "noise_to_signal", &["rank_log_alpha"])]
#[case(VariationalFamily::ElementVariance, "element_variance", &["log_sigma2_a", "log_sigma2_b"])]
#[case(VariationalFamily::AsymRankVariance, "a_only", &["rank_log_sigma2"])]
fn every_family_survives_a_round_trip_under_the_names_of_the_first_version(
    #[case] family: VariationalFamily,
    #[case] name: &str,
    #[case] ends: &[&str],
) {
    let (adapter, posterior) = sample(family);
    let dir = tempdir().unwrap();
    adapter.write(dir.path(), ExportLayout::Ragged).unwrap();
    posterior.write(dir.path(), &adapter).unwrap();
    let adapter = PeftAdapter::read(dir.path()).unwrap();
    assert_eq!(PeftPosterior::read(dir.path(), &adapter).unwrap(), posterior);

    let file = TensorFile::open(dir.path().join(POSTERIOR_FILE)).unwrap();
    let expected =
        ["h.0.q", "h.1.q"].iter().flat_map(|path| ends.iter().map(move |end| (path, end)));
    let expected: Vec<_> = expected.map(|(path, end)| format!("{path}.{end}")).collect();
    assert_eq!(file.names().collect::<Vec<_>>(), expected);
    let header: serde_json::Value = serde_json::from_str(&file.metadata()[HEADER_KEY]).unwrap();
    assert_eq!((&header["schema_version"], &header["family"]), (&1.into(), &name.into()));
    assert_eq!(posterior_family_name(family), name);
}

#[test]
fn headers_name_schemes_as_ever() {
    let header = sample(VariationalFamily::RankVariance).1.header;
    for (scheme, name) in [
        (Scheme::Mean, "mean"),
        (Scheme::Weights(DrawPer::Sequence), "weight_per_sequence"),
        (Scheme::Weights(DrawPer::Batch), "weight_per_batch"),
        (Scheme::FLIPOUT, "weight_per_token"),
        (Scheme::MomentMatched(CrossTerm::Exact), "moment_matched"),
        (Scheme::Nested, "nested"),
    ] {
        let header = PosteriorHeader { scheme, ..header.clone() };
        let text = serde_json::to_string(&header).unwrap();
        assert!(text.contains(&format!("\"scheme\":\"{name}\"")), "{text}");
        assert_eq!(serde_json::from_str::<PosteriorHeader>(&text).unwrap(), header);
    }
    let scheme = Scheme::MomentMatched(CrossTerm::Omitted);
    let value = serde_json::to_value(PosteriorHeader { scheme, ..header.clone() }).unwrap();
    assert_eq!(value["scheme"], "moment_matched");
    let text = serde_json::to_string(&header).unwrap().replace("weight_per_sequence", "sometimes");
    let error = serde_json::from_str::<PosteriorHeader>(&text).unwrap_err().to_string();
    assert!(error.contains("`sometimes`") && error.contains("`nested`"), "{error}");
}

#[test]
fn the_adapter_must_be_the_same() {
    let fails = |edit: &dyn Fn(&mut PeftAdapter, &mut PeftPosterior)| {
        let (mut adapter, mut posterior) = sample(VariationalFamily::RankVariance);
        edit(&mut adapter, &mut posterior);
        posterior.check_against(&adapter).unwrap_err()
    };
    let error = fails(&|adapter, _| adapter.modules.get_mut("h.0.q").unwrap().scaling = 0.2);
    assert!(error.to_string().starts_with("module `h.0.q`"), "{error}");
    let error = fails(&|_, posterior| posterior.header.modules.get_mut("h.0.q").unwrap().rank = 2);
    assert!(error.to_string().starts_with("module `h.0.q`"), "{error}");
    let error = fails(&|adapter, _| drop(adapter.modules.remove("h.0.q")));
    assert!(error.to_string().starts_with("module `h.0.q`"), "{error}");
    let error = fails(&|_, posterior| {
        posterior.header.modules.remove("h.1.q").unwrap();
    });
    let found = report(error);
    assert_eq!(found.missing, ["h.1.q.rank_log_sigma2"]);
    assert_eq!(found.unexpected, ["h.1.q.rank_log_sigma2"]);
    let error = fails(&|_, posterior| {
        let nan = HostTensor::from_f32(&[3], &[0.0, f32::NAN, 0.0]).unwrap();
        posterior.tensors.insert("h.0.q.rank_log_sigma2".into(), nan);
        posterior.tensors.insert("h.1.q.rank_log_sigma2".into(), tensor(&[3]));
    });
    let found = report(error);
    assert_eq!((found.non_finite[0].index, &found.mis_shaped[0].expected[..]), (1, &[2][..]));
    let error = fails(&|_, posterior| {
        posterior.tensors.remove("h.0.q.rank_log_sigma2").unwrap();
        posterior.tensors.insert("h.0.q.log_sigma2_a".into(), tensor(&[3, 5]));
        posterior.tensors.insert("h.0.q.log_sigma2_b".into(), tensor(&[7, 3]));
    });
    let found = report(error);
    assert_eq!((found.missing.len(), found.unexpected.len()), (1, 2));
}

#[rstest]
#[case("schema_version", |h: &mut PosteriorHeader| h.schema_version = 2)]
#[case("log_alpha_threshold", |h: &mut PosteriorHeader| h.log_alpha_threshold = f64::INFINITY)]
#[case("log_variance_clamp", |h: &mut PosteriorHeader| h.log_variance_clamp = [2.0, 2.0])]
#[case("kl_weight", |h: &mut PosteriorHeader| h.kl_weight = -1.0)]
#[case("h.0.q.rank", |h: &mut PosteriorHeader| h.modules.get_mut("h.0.q").unwrap().initial_rank = 2)]
#[case("h.2.q.scaling", |h: &mut PosteriorHeader| h.modules.get_mut("h.2.q").unwrap().scaling = f64::NAN)]
fn headers_out_of_range_are_named(#[case] key: &str, #[case] edit: fn(&mut PosteriorHeader)) {
    let (adapter, mut posterior) = sample(VariationalFamily::RankVariance);
    edit(&mut posterior.header);
    let error = posterior.write("unused", &adapter).unwrap_err().to_string();
    assert!(error.contains(&format!("as `{key}`, found")), "{error}");
}

#[test]
fn files_are_read_strictly() {
    let (adapter, posterior) = sample(VariationalFamily::RankVariance);
    let dir = tempdir().unwrap();
    posterior.write(dir.path(), &adapter).unwrap();
    let path = dir.path().join(POSTERIOR_FILE);
    let file = TensorFile::open(&path).unwrap();
    let tensors = file.read_all().unwrap();
    let header = file.metadata()[HEADER_KEY].clone();
    let read = |tensors: &BTreeMap<String, HostTensor>, header: &str| {
        let metadata = [(HEADER_KEY.to_owned(), header.to_owned())].into();
        write_safetensors(&path, tensors, &metadata).unwrap();
        PeftPosterior::read(dir.path(), &adapter)
    };
    assert!(read(&tensors, &header).is_ok());
    let later = header.replace("\"schema_version\":1", "\"schema_version\":2");
    let error = read(&tensors, &later).unwrap_err().to_string();
    assert!(error.ends_with("should have 1 as `schema_version`, found 2"), "{error}");
    let extra = header.replace("\"seed\":", "\"sede\":1,\"seed\":");
    let error = read(&tensors, &extra).unwrap_err().to_string();
    assert!(error.contains("has a posterior header that cannot be read"), "{error}");
    let mut odd = tensors.clone();
    let moved = odd.remove("h.0.q.rank_log_sigma2").unwrap();
    odd.insert("h.0.q.rank_log_alpha".into(), moved);
    let found = report(read(&odd, &header).unwrap_err());
    assert_eq!((found.missing.len(), found.unexpected.len()), (1, 1));
    write_safetensors(&path, &tensors, &BTreeMap::new()).unwrap();
    let error = PeftPosterior::read(dir.path(), &adapter).unwrap_err().to_string();
    assert!(error.ends_with("should have a header as `lrvd`, found nothing"), "{error}");
}
