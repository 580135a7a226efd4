//! A tuned model in a loop of one's own: what trains, draws, the divergence, optimizers of Burn's after a cut, files, answers.

use crate::support::prelude::*;
use burn::module::ParamGroup;
use burn::nn::{Linear, LinearConfig};
use burn::optim::momentum::MomentumConfig;
use burn::optim::{
    AdamWConfig, AdaptiveMomentumState, ModuleOptimizer, MuonConfig, Optimizer, SgdConfig,
};
use burn::tensor::FloatDType;
use lrvd_burn::core::prune::{PruneRule, StatisticAggregate};
use lrvd_burn::model::total_kl;
use lrvd_burn::peft::{PeftAdapter, PeftPosterior};
use lrvd_burn::{BayesLora, Selection, Tuned, nn};

/// Two layers of one name at unlike paths, and one that applies its adapter to activations.
#[derive(Module, Debug)]
struct Net {
    attention: Block,
    fast: nn::Linear,
    output: Linear,
}

#[derive(Module, Debug)]
struct Block {
    output: Linear,
}

impl Net {
    fn new() -> Self {
        let device = Device::flex().autodiff();
        let layer = || LinearConfig::new(6, 6).init(&device);
        let fast = nn::LinearConfig::new(6, 6).init(&device);
        let mut net = Self { attention: Block { output: layer() }, fast, output: layer() };
        let mut seed = 0;
        net.visit_parameters_mut(&mut |p| {
            let len = p.value.len();
            p.value.set_flat(tensor(&numbers(seed, len), [len], DType::F32));
            seed += 1;
        });
        net
    }

    fn forward(&self, x: Tensor<2>) -> Tensor<2> {
        let x = self.fast.forward(self.attention.output.forward(x).tanh());
        self.output.forward(x.tanh())
    }
}

fn x() -> Tensor<2> {
    tensor(&numbers(9, 48), [8, 6], DType::F32)
}

/// Adapters of rank 4 on two layers, and a head that trains whole.
fn tuned(config: BayesLora) -> Tuned<Net> {
    let adaptation = config.targets(["attention.output", "fast"]);
    adaptation.unfreeze(Selection::Paths(vec!["output".to_owned()])).attach(Net::new(), 7).unwrap()
}

#[test]
fn one_language_selects_layers_and_what_trains_whole() {
    let found = |targets: Selection, whole: Selection| {
        let tuned = BayesLora::new(2).targets(targets).unfreeze(whole).attach(Net::new(), 1);
        tuned.unwrap().trainable()
    };
    let module = |name: &str, values| (name.to_owned(), values);
    let adapter = 2 * 12 + 2;
    let paths = |path: &str| Selection::Paths(vec![path.to_owned()]);
    assert_eq!(
        found(["fast"].into(), ["output"].into()),
        [module("attention.output", 42), module("fast", adapter), module("output", 42)]
    );
    assert_eq!(
        found(["fast"].into(), paths("output")),
        [module("fast", adapter), module("output", 42)]
    );
    assert_eq!(
        found(Selection::Matching(|path| path.starts_with("att")), paths("output.bias")),
        [module("attention.output", adapter), module("output", 6)]
    );
    assert_eq!(found(paths("output"), ["attention"].into())[0], module("attention.output", 42));
    let all = found(["fast"].into(), Selection::AllLinear);
    assert_eq!(all[1], module("fast", 42 + adapter));

    let unknown = |adaptation: lrvd_burn::Adaptation| {
        adaptation.attach(Net::new(), 1).unwrap_err().to_string()
    };
    let error = unknown(BayesLora::new(2).targets(["fast"]).unfreeze(["out", "fast"]));
    let expected = "the targets `out` match nothing in the model, which has `attention.output`, `fast`, `output`";
    assert_eq!(error, expected);
    let nothing = Selection::Matching(|path| path.len() > 99);
    assert!(unknown(BayesLora::new(2).targets(nothing)).contains("predicate"));
}

#[test]
fn a_draw_is_a_function_of_seed_and_step_and_leaves_the_model_at_its_mean() {
    let tuned = tuned(BayesLora::new(4)).valid();
    let mean = host(tuned.model().forward(x()));
    let drawn = |step| host(tuned.draw(step).forward(x()));
    assert_ne!(drawn(0), mean);
    assert_ne!(drawn(0), drawn(1));
    assert_eq!(drawn(0), drawn(0));
    assert_eq!(host(tuned.model().forward(x())), mean);
    // Without a `burn::nn::Linear` each row has a separate draw; with one, and by request, all rows share it.
    let same_row = || tensor(&numbers(3, 6).repeat(2), [2, 6], DType::F32);
    let rows_differ = |targets: [&str; 1], scheme| {
        let config = BayesLora { scheme, initial: -1.0, ..BayesLora::new(4) };
        let mut tuned = config.targets(targets).attach(Net::new(), 7).unwrap();
        tuned = tuned.valid();
        let rows = host(tuned.draw(0).forward(same_row()));
        rows[..6] != rows[6..]
    };
    assert!(rows_differ(["fast"], None));
    assert!(!rows_differ(["fast"], Some(WEIGHTS[0])));
    assert!(!rows_differ(["attention.output"], None));

    for config in [
        BayesLora { scheme: Some(Scheme::Nested), ..BayesLora::new(4) },
        BayesLora { dropout: 0.1, ..BayesLora::new(4) },
    ] {
        let error = config.targets(["attention.output"]).attach(Net::new(), 7).unwrap_err();
        assert!(error.to_string().contains("layer `attention.output`"), "{error}");
        let tuned = config.targets(["fast"]).attach(Net::new(), 7).unwrap();
        assert_ne!(host(tuned.draw(0).forward(x())), host(tuned.draw(1).forward(x())));
    }
}

/// An optimizer that a user writes.
#[derive(Clone)]
struct Own;

impl Optimizer for Own {
    /// Both moments are the sum of squared gradients.
    type State<const D: usize> = AdaptiveMomentumState<D>;

    fn step<const D: usize>(
        &self,
        rate: f64,
        value: Tensor<D>,
        gradient: Tensor<D>,
        state: Option<AdaptiveMomentumState<D>>,
    ) -> (Tensor<D>, Option<AdaptiveMomentumState<D>>) {
        let squares = gradient.clone().square();
        let sum = state.map_or(squares.clone(), |state| state.moment_2 + squares);
        let update = gradient / (sum.clone().sqrt() + 1e-6);
        (value - update.mul_scalar(rate), Some(AdaptiveMomentumState::new(1, sum.clone(), sum)))
    }

    fn to_device<const D: usize>(
        state: AdaptiveMomentumState<D>,
        device: &Device,
    ) -> AdaptiveMomentumState<D> {
        state.to_device(device)
    }
}

fn sgd() -> SgdConfig {
    SgdConfig::new().with_momentum(Some(MomentumConfig::new()))
}

/// Muon is for matrices.
fn muon() -> ModuleOptimizer {
    let vectors = ParamGroup::from_any_predicates(vec!["bias", "extension"]);
    MuonConfig::new().init().with_group(vectors, sgd().build(), None)
}

/// Name, id and values of what trains.
fn trained(tuned: &Tuned<Net>) -> Vec<(String, u64, Vec<f64>)> {
    let mut found = Vec::new();
    tuned.visit_parameters(&mut |p| {
        if p.value.is_trainable() {
            found.push((p.name.to_owned(), p.value.id().val(), host(p.value.flat())));
        }
    });
    found
}

#[rstest]
#[case::adamw(AdamWConfig::new().init())]
#[case::sgd(sgd().init())]
#[case::muon(muon())]
#[case::own(Own.into())]
fn an_optimizer_of_burns_trains_on_after_a_cut(#[case] mut optimizer: ModuleOptimizer) {
    let mut tuned = tuned(BayesLora { rule: PruneRule::new(3.0, 1).unwrap(), ..BayesLora::new(4) });
    tuned.visit_parameters_mut(&mut |p| {
        if p.name.ends_with("lora_B") {
            let len = p.value.len();
            p.value.set_flat(tensor(&numbers(5, len), [len], DType::F32) * 0.3);
        }
    });
    let y = tensor(&numbers(11, 48), [8, 6], DType::F32);
    let error = |net: &Net| (net.forward(x()) - y.clone()).square().mean();
    let step = |tuned: &mut Tuned<Net>, optimizer: &mut ModuleOptimizer, step| {
        let loss = error(&tuned.draw(step)) + tuned.kl(100_000).unwrap();
        tuned.step(optimizer, 1e-2, loss);
    };
    let at_mean = |tuned: &Tuned<Net>| error(tuned.model()).into_scalar::<f64>();
    let mut unused = optimizer.clone();
    for number in 0..4 {
        step(&mut tuned, &mut optimizer, number);
    }
    // The second and the last rank drown in their noise.
    tuned.visit_parameters_mut(&mut |p| {
        if p.group == Group::LogVariance {
            p.value.set_flat(tensor(&[-8.0, 1.9, -7.0, 1.9], [4], DType::F32));
        }
    });
    let before = trained(&tuned);
    let event = tuned.prune().unwrap();
    assert_eq!(event.kept["fast"], [0, 2], "{:?}", event.statistics);
    let ranks = [("attention.output".to_owned(), 2), ("fast".to_owned(), 2)];
    assert_eq!(tuned.ranks(), ranks);

    // What was cut is another parameter, of which the optimizer knows nothing; the others keep their moments.
    let (mut anew, loss) = (tuned.clone(), at_mean(&tuned));
    step(&mut anew, &mut unused, 4);
    step(&mut tuned, &mut optimizer, 4);
    for ((name, _, anew), (_, _, on)) in trained(&anew).into_iter().zip(trained(&tuned)) {
        assert_eq!(anew == on, !name.starts_with("output."), "{name}");
    }
    for number in 5..24 {
        step(&mut tuned, &mut optimizer, number);
        assert_eq!(tuned.ranks(), ranks, "step {number}");
    }
    for ((name, old, _), (_, new, values)) in before.iter().zip(trained(&tuned)) {
        assert_eq!(*old == new, name.starts_with("output."), "{name}");
        assert!(values.iter().all(|value| value.is_finite()), "{name}");
    }
    let last = at_mean(&tuned);
    assert!(last < loss, "{loss} {last}");
}

#[test]
fn moments_of_a_cut_parameter_start_anew_and_noise_has_its_own_rate() {
    let mut tuned = tuned(BayesLora { initial: 1.0, ..BayesLora::new(4) });
    let mut burns = AdamWConfig::new().with_weight_decay(0.0).with_epsilon(1e-12).init();
    let loss = |tuned: &Tuned<Net>, step| {
        tuned.draw(step).forward(x()).square().mean() + tuned.kl(10).unwrap()
    };
    // A first step of Adam has the length of the rate, whatever the gradient.
    let lengths = |old: &Tuned<Net>, new: &Tuned<Net>| {
        let mut lengths = Vec::new();
        for ((name, _, old), (_, _, new)) in trained(old).into_iter().zip(trained(new)) {
            let moves = old.iter().zip(new).map(|(old, new)| (new - old).abs());
            lengths.push((name, moves.fold(0.0, f64::max)));
        }
        lengths
    };
    for number in 0..3 {
        let (old, own) = (tuned.clone(), loss(&tuned, number));
        tuned.step(&mut burns, 1e-3, own);
        if number == 0 {
            for (name, length) in lengths(&old, &tuned) {
                let rate = if name.ends_with("log_sigma2") { 5e-3 } else { 1e-3 };
                assert!((length / rate - 1.0).abs() < 1e-2, "{name}: {length}");
            }
        }
    }
    // Ours keeps moments by name: those of another length are of a parameter that was cut since.
    let mut ours = optimizer();
    let gradients = NamedGradients::collect(&tuned, &loss(&tuned, 3).backward());
    ours.step(&mut tuned, &gradients, 1.0);
    tuned.visit_layers_mut(&mut |_, layer| layer.select_ranks(&[1, 3]));
    let (old, own) = (tuned.clone(), loss(&tuned, 4));
    let gradients = NamedGradients::collect(&tuned, &own.clone().backward());
    ours.step(&mut tuned, &gradients, 1.0);
    assert_eq!(ours.state()["fast.lora_A"].steps, 1);
    assert_eq!(ours.state()["output.weight"].steps, 2);
    let own = loss(&old, 4);
    let mut tuned = old.clone();
    tuned.step(&mut burns, 1e-3, own);
    for (name, length) in
        lengths(&old, &tuned).into_iter().filter(|(name, _)| name.contains("lora"))
    {
        assert!((length / 1e-3 - 1.0).abs() < 1e-2, "{name}: {length}");
    }
}

#[test]
fn the_divergence_is_weighted_and_zero_without_ranks() {
    let prior = Prior::Ard {
        scales: lrvd_burn::core::kl::ArdScales::Shared,
        hyper: lrvd_burn::adapter::ArdHyper::EmpiricalBayes,
    };
    let mut tuned = tuned(BayesLora { prior, kl_weight: 0.5, ..BayesLora::new(4) });
    let total = total_kl(tuned.model(), prior, KlReduction::Element).unwrap().unwrap();
    let [total, found] = [total, tuned.kl(20).unwrap()].map(|kl| kl.into_scalar::<f64>());
    assert!((found - 0.5 * total / 20.0).abs() < 1e-6 * total.abs(), "{found} {total}");
    assert!(tuned.kl(0).is_err());
    tuned.visit_layers_mut(&mut |_, layer| layer.select_ranks(&[]));
    assert_eq!(tuned.kl(20).unwrap().into_scalar::<f64>(), 0.0);
    // The head trains on.
    let loss = tuned.draw(0).forward(x()).square().mean() + tuned.kl(20).unwrap();
    let before = trained(&tuned);
    tuned.step(&mut sgd().init(), 1e-2, loss);
    assert_ne!(trained(&tuned), before);
}

#[test]
fn a_folder_states_what_was_configured_and_belongs_to_its_base() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let config = BayesLora { rule: PruneRule::new(5.0, 1).unwrap(), ..BayesLora::new(4) };
    let head = Selection::Paths(vec!["output".to_owned()]);
    let mut tuned = config.targets(["fast"]).unfreeze(head).attach(Net::new(), 7).unwrap();
    let header = |path: &std::path::Path| {
        let adapter = PeftAdapter::read(path).unwrap();
        PeftPosterior::read(path, &adapter).unwrap().header
    };
    tuned.save(at("whole")).unwrap();
    let found = header(&at("whole"));
    assert_eq!((found.scheme, found.kl_weight, found.seed), (Some(WEIGHTS[1]), Some(0.1), Some(7)));
    assert_eq!((found.statistic, found.log_alpha_threshold), (None, None), "nothing was pruned");
    tuned.prune().unwrap();
    tuned.save(at("cut")).unwrap();
    let found = header(&at("cut"));
    assert_eq!(found.statistic, Some(StatisticAggregate::default()));
    assert_eq!(found.log_alpha_threshold, Some(5.0));

    // Half precision of the same weights is the same base, and what is stored whole may be anything.
    let base = Net::new();
    let mut narrow = Net::new();
    narrow.visit_parameters_mut(&mut |p| {
        let rounded = p.value.flat().cast(FloatDType::BF16).cast(FloatDType::F32);
        p.value.set_flat(if p.name.starts_with("output") { rounded + 1.0 } else { rounded });
    });
    for (name, base) in [("again", base), ("from half", narrow)] {
        let loaded = Tuned::load(base, at("cut")).unwrap();
        let [expected, found] =
            [&tuned, &loaded].map(|tuned| host(tuned.model().output.weight.val()));
        same("head", &found, &expected);
        assert_eq!((loaded.ranks(), loaded.trainable()), (tuned.ranks(), Vec::new()));
        assert!(loaded.kl(10).unwrap_err().to_string().contains("one from files"));
        // Saved again it states the same.
        loaded.save(at(name)).unwrap();
        assert_eq!(header(&at(name)), header(&at("cut")));
    }
    // Without a rank PEFT's files have one module of zeros; the posterior tells that it was cut away.
    tuned.visit_layers_mut(&mut |_, layer| layer.select_ranks(&[]));
    tuned.save(at("bare")).unwrap();
    let filler = &PeftAdapter::read(at("bare")).unwrap().modules["fast"];
    assert_eq!((filler.rank, filler.b.to_f64().unwrap()), (1, vec![0.0; 6]));
    let loaded = Tuned::load(Net::new(), at("bare")).unwrap();
    assert_eq!((loaded.ranks(), tuned.ranks()), (vec![("fast".to_owned(), 0)], loaded.ranks()));
    loaded.save(at("bare again")).unwrap();
    assert_eq!(header(&at("bare again")), header(&at("bare")));
    // The same shapes, other weights.
    let mut other = Net::new();
    other.visit_parameters_mut(&mut |p| p.value.set_flat(p.value.flat() * 2.0));
    let error = Tuned::load(other, at("cut")).unwrap_err().to_string();
    assert!(error.contains("belongs to another base model: the SHA-256 of"), "{error}");
}

#[test]
fn the_same_models_answer_every_batch() {
    let tuned = tuned(BayesLora { initial: -2.0, ..BayesLora::new(4) });
    let forward = |net: &Net, x: &Tensor<2>| net.forward(x.clone());
    let one = tuned.predict(3, [x()], forward).unwrap();
    let parts = tuned.predict(3, x().split(3, 0), forward).unwrap();
    assert_eq!((one.members(), one.rows, one.width), (3, 8, 6));
    close("batches", &parts.values, &one.values, 1e-6);
    assert_ne!(one.values[..48], one.values[48..96]);
    let mean = tuned.predict(0, [x()], forward).unwrap();
    assert_eq!(mean.values, host(tuned.valid().model().forward(x())));
    assert_eq!(tuned.predict(3, Vec::<Tensor<2>>::new(), forward).unwrap().rows, 0);
    let uneven = |net: &Net, x: &Tensor<2>| {
        let columns = x.dims()[0];
        net.forward(x.clone()).narrow(1, 0, columns)
    };
    let error = tuned.predict(1, x().split(5, 0), uneven).unwrap_err().to_string();
    assert!(error.contains("5 columns"), "{error}");
}
