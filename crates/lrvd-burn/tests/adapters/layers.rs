//! An ensemble on one layer has the numbers of separate adapters; extensions and targets that do not fit.

use crate::support::prelude::*;
use lrvd_burn::Selection;
use lrvd_burn::adapter::repeat_for_members;
use lrvd_burn::files::HostTensor;
use lrvd_burn::model::{Named, attach_adapters, members};
use lrvd_burn::peft::{PeftAdapter, PeftConfig, PeftModule, TargetModules, attach_peft};

const MEMBERS: usize = 3;

/// Members with separate factors; those of the adapter are not used.
#[derive(Debug)]
struct Members;

const A: ParameterSchema =
    ParameterSchema::mean("lora_A_members", &[Axis::Other, Axis::Input, Axis::Rank], 0);
const B: ParameterSchema =
    ParameterSchema::mean("lora_B_members", &[Axis::Other, Axis::Rank, Axis::Output], 0);

impl UpdateOp for Members {
    fn start(
        &self,
        _a: &mut Param<Tensor<2>>,
        _b: &mut Param<Tensor<2>>,
        _key: NoiseKey,
    ) -> Result<Vec<OpParameter>, lrvd_burn::Error> {
        let (a, b) = ([MEMBERS, D_INPUT, RANK], [MEMBERS, RANK, D_OUTPUT]);
        let (a, b) = (random(41, a, DType::F64), random(42, b, DType::F64));
        Ok(vec![OpParameter::new(&A, a), OpParameter::new(&B, b)])
    }

    fn members(&self) -> usize {
        MEMBERS
    }

    fn prepare<'a>(&'a self, layer: OpLayer<'a>) -> Box<PreparedUpdate<'a>> {
        let (a, b) = (layer.extension.parameter::<3>(0), layer.extension.parameter::<3>(1));
        Box::new(move |x, use_index| layer.members_update(x, use_index, a.clone(), b.clone()))
    }
}

fn three_members() -> AdaptedLinear {
    let LowRankAdapter { mut a, mut b, .. } = adapter(&plain(), DType::F64);
    let extension = OpExtension::new(Arc::new(Members), &mut a, &mut b, NoiseKey::new(1));
    extended(Extension::Op(extension.unwrap()), DType::F64)
}

/// Member `index` alone.
fn member(ensemble: &AdaptedLinear, index: usize) -> AdaptedLinear {
    let leaves = leaves(ensemble);
    let part = |all: &[f64]| all.chunks(all.len() / MEMBERS).nth(index).unwrap().to_vec();
    let [a, b] = [&leaves[2], &leaves[3]].map(|all| part(all));
    let a = transpose(&a, D_INPUT, RANK);
    layer(&HostAdapter { a, b, ..plain() }, DType::F64)
}

#[test]
fn one_product_gives_every_member_its_own_numbers() {
    let layer = three_members();
    assert!(layer.slot().is_none(), "no LoRA file can hold them");
    let x = inputs(DType::F64);
    let shape = [MEMBERS * BATCH, TOKENS, D_OUTPUT];
    let weights = tensor(&numbers(2, shape.iter().product()), shape, DType::F64);
    let run = |scheme| {
        let x = repeat_for_members(x.clone(), MEMBERS);
        layer.forward_with(x, &Pass::sampled(scheme, NoiseKey::new(2)))
    };
    let out = run(Scheme::Mean);
    for scheme in [WEIGHTS[1], Scheme::PerToken, Scheme::Nested] {
        same("there is no noise", &host(run(scheme)), &host(out.clone()));
    }
    let gradients = (out.clone() * weights.clone()).sum().backward();
    let by_factor = layer_gradients(&layer, &gradients);
    let mut by_x = vec![0.0; N * D_INPUT];
    for m in 0..MEMBERS {
        let (alone, x) = (member(&layer, m), inputs(DType::F64));
        let expected = alone.forward_with(x.clone(), &Pass::mean());
        let slopes = (expected.clone() * weights.clone().narrow(0, m * BATCH, BATCH)).sum();
        let slopes = slopes.backward();
        let got = host(out.clone().narrow(0, m * BATCH, BATCH));
        close(&format!("member {m}"), &got, &host(expected), 1e-13);
        for (all, expected) in by_factor[2..].iter().zip(layer_gradients(&alone, &slopes)) {
            let got = &all[m * expected.len()..][..expected.len()];
            close(&format!("factor of {m}"), got, &expected, 1e-13);
        }
        by_x = plus(&by_x, &gradient(&x, &slopes));
    }
    close("x", &gradient(&x, &gradients), &by_x, 1e-13);

    // Shared rows reach every sequence through its member.
    let rows = leaf(&numbers(5, 4 * D_INPUT), [4, D_INPUT], DType::F64);
    let prepared = layer.prepare(&Pass::mean(), MEMBERS * BATCH);
    let shared = prepared.forward_shared(rows.clone());
    let tokens: Tensor<3> = repeat_for_members(rows.unsqueeze_dim(0), MEMBERS * BATCH);
    let tokens = prepared.forward(tokens);
    close("as tokens", &host(shared.clone()), &host(tokens.clone()), 1e-13);
    let slopes = |out: Tensor<3>| layer_gradients(&layer, &out.square().sum().backward());
    close("gradient", &slopes(shared).concat(), &slopes(tokens).concat(), 1e-12);
}

#[test]
fn adapters_that_do_not_fit_are_rejected_by_name() {
    // Layers of unlike numbers of members.
    let mut net = Net::new([Some(&plain()), None], DType::F32);
    assert_eq!(members(&net).unwrap(), 1);
    net.first.extend(Some(scales(2, DType::F32))).unwrap();
    *net.second = layer_at("net.second", &plain(), DType::F32);
    net.second.extend(Some(scales(3, DType::F32))).unwrap();
    let error = members(&net).unwrap_err();
    assert_eq!(
        error.to_string(),
        "module `net.second`: `members` should be 2 as in other layers, found 3"
    );
    // A rate of dropout out of its range.
    let mut wrong = adapter(&plain(), DType::F32);
    wrong.dropout = 1.0;
    let error = net.first.attach("net.first", wrong, RANK).unwrap_err().to_string();
    assert!(error.starts_with("`dropout`"), "{error}");

    // Extensions stand on factors of their shape, and replace what was there.
    let error = bare(DType::F32).extend(Some(scales(1, DType::F32))).unwrap_err();
    assert_eq!(error.to_string(), "layer `` has no adapter");
    let mut noisy = layer(&noisy(VariationalFamily::RankVariance), DType::F32);
    let narrow = Gaussian::per_entry(NoiseMap::Square, random(1, [D_INPUT, 1], DType::F32), None);
    let error = noisy.extend(Some(Extension::Gaussian(narrow))).unwrap_err();
    let expected = "module `net.first`: `lora_A_G` should be [5, 4], found [5, 1]";
    assert_eq!(error.to_string(), expected);
    assert!(of(&noisy).posterior().is_some() && noisy.slot().is_some());
    let old = noisy.extend(Some(element_noise(NoiseMap::Square, false, DType::F32))).unwrap();
    assert!(matches!(old, Some(Extension::Gaussian(old)) if old.family().is_some()));
    assert!(of(&noisy).posterior().is_none());
    assert_eq!(noisy.slot().unwrap().family, None);
}

#[test]
fn targets_that_do_not_fit_are_rejected_by_name() {
    let attach = |net: &mut Net, names: Vec<String>| {
        let (targets, key) = (Selection::Names(names), NoiseKey::new(1));
        attach_adapters(net, &targets, &AdapterConfig::default(), key).unwrap_err().to_string()
    };
    let mut net = Net::new([None, None], DType::F32);
    let error = attach(&mut net, (0..1000).map(|i| i.to_string()).collect());
    let expected = ", `9` and 990 more match nothing in the model, which has `first`, `second`";
    assert!(error.ends_with(expected), "{error}");
    assert_eq!(attach(&mut net, Vec::new()), "`targets` should be at least 1, found none");

    net.second = Named::new("net.first", Group::Backbone, (*net.second).clone());
    let error = attach(&mut net, vec!["first".to_owned()]);
    assert!(error.starts_with("two layers of the model have the path `net.first`"), "{error}");
    let factor = |shape: &[usize]| HostTensor::from_f32(shape, &[0.5; 14]).unwrap();
    let module = PeftModule::lora(factor(&[2, 7]), factor(&[7, 2]), 4.0, 2).unwrap();
    let config = PeftConfig::lora(2, 8.0, TargetModules::Names(vec!["first".to_owned()]));
    let modules = [("net.first".to_owned(), module)].into();
    let adapter =
        PeftAdapter { config, modules, saved: [].into(), base: [].into(), ignored: Vec::new() };
    assert_eq!(attach_peft(&mut net, &adapter, false).unwrap_err().to_string(), error);
    assert!(net.first.low_rank().is_none() && net.second.low_rank().is_none());
}
