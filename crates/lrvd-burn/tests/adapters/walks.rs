//! Walks over modules: names and groups, tied weights, and what Burn's own walks see of an adapter.

use crate::support::prelude::*;
use burn::module::{Devices, ModuleDisplay, ModuleDisplayDefault, ModuleMapper, ModuleVisitor};
use burn::nn::{Embedding, EmbeddingConfig, LayerNorm, LayerNormConfig, LinearConfig};
use burn::store::ModuleRecord;
use burn::tensor::Int;
use lrvd_burn::model::{Named, attach_adapters};
use lrvd_burn::{Selection, nn};

/// A module that reports nothing of itself.
#[derive(Clone, Debug)]
struct Silent<M>(M);

impl<M: Module> Module for Silent<M> {
    fn collect_devices(&self, devices: Devices) -> Devices {
        self.0.collect_devices(devices)
    }

    fn fork(self, device: &Device) -> Self {
        Self(self.0.fork(device))
    }

    fn to_device(self, device: &Device) -> Self {
        Self(self.0.to_device(device))
    }

    fn train(self) -> Self {
        Self(self.0.train())
    }

    fn valid(&self) -> Self {
        Self(self.0.valid())
    }

    fn materialize(self) -> Self {
        Self(self.0.materialize())
    }

    fn visit<V: ModuleVisitor>(&self, visitor: &mut V) {
        self.0.visit(visitor);
    }

    fn map<V: ModuleMapper>(self, mapper: &mut V) -> Self {
        Self(self.0.map(mapper))
    }
}

impl<M> ModuleDisplayDefault for Silent<M> {
    fn content(&self, content: burn::module::Content) -> Option<burn::module::Content> {
        Some(content)
    }
}

impl<M> ModuleDisplay for Silent<M> {}

#[derive(Module, Debug)]
struct Stranger {
    norm: LayerNorm,
    blocks: Vec<Silent<burn::nn::Linear>>,
    named: Named<Block>,
    score: nn::Linear,
}

#[derive(Module, Debug)]
struct Block {
    inner: nn::Linear,
    outer: Named<nn::Linear>,
}

/// `model` with adapters of rank 2 on the targets, and all else frozen.
fn attach<M: Module>(model: M, targets: impl Into<Selection>, seed: u64) -> M {
    let mut model = model.freeze();
    let config = AdapterConfig { rank: 2, ..AdapterConfig::default() };
    attach_adapters(&mut model, &targets.into(), &config, NoiseKey::new(seed)).unwrap();
    model
}

fn device() -> Device {
    Device::flex().autodiff()
}

fn linear() -> nn::Linear {
    nn::LinearConfig::new(4, 4).with_bias(false).init(&device())
}

fn stranger() -> Stranger {
    let block = Block { inner: linear(), outer: Named::new("out_proj", Group::Pooler, linear()) };
    Stranger {
        norm: LayerNormConfig::new(4).init(&device()).freeze(),
        blocks: vec![Silent(LinearConfig::new(4, 4).with_bias(false).init(&device()))],
        named: Named::new("net.block", Group::Backbone, block),
        score: linear(),
    }
}

fn names(model: &impl NamedModule) -> Vec<(String, Group)> {
    let mut found = Vec::new();
    model.visit_parameters(&mut |p| found.push((p.name.to_owned(), p.group)));
    found
}

#[test]
fn parameters_have_the_names_of_their_fields_or_their_own() {
    let expected = [
        ("norm.gamma", Group::Backbone),
        ("norm.beta", Group::Backbone),
        ("blocks.0.weight", Group::Head),
        ("net.block.inner.weight", Group::Backbone),
        ("out_proj.weight", Group::Pooler),
        ("score.weight", Group::Head),
    ];
    let expected = expected.map(|(name, group)| (name.to_owned(), group));
    let mut model = stranger();
    assert_eq!(names(&model), expected);
    let mut written = Vec::new();
    model.visit_parameters_mut(&mut |p| written.push((p.name.to_owned(), p.group)));
    assert_eq!(written, expected);
    let paths = ["blocks.0", "net.block.inner", "out_proj", "score"];
    let mut layers = Vec::new();
    model.visit_layers_mut(&mut |path, _| layers.push(path.to_owned()));
    assert_eq!(layers, paths);

    let model = attach(model, Selection::AllLinear, 1);
    // A pooler and a head are trained whole; frozen, an own head is not known as one.
    let adapted = ["blocks.0", "net.block.inner", "score"];
    assert_eq!(ranks(&model), adapted.map(|path| (path.to_owned(), 2)));
    let means = names(&model).into_iter().filter(|(_, group)| *group == Group::AdapterMean);
    let parts = adapted.iter().flat_map(|path| ["lora_A", "lora_B"].map(|p| format!("{path}.{p}")));
    assert_eq!(means.map(|(name, _)| name).collect::<Vec<_>>(), parts.collect::<Vec<_>>());

    // A walk in a walk, of another model and of the same.
    let mut seen = 0;
    model.visit_parameters(&mut |_| seen += names(&model).len());
    assert_eq!(seen, names(&model).len().pow(2));
}

#[test]
fn burns_records_hold_the_adapters_and_what_is_left_of_them() {
    let pruned = |seed| {
        let mut model = attach(vec![linear(), linear()], ["0", "1"], seed);
        model.visit_layers_mut(&mut |path, layer| {
            layer.select_ranks(&[1][..usize::from(path == "0")]);
        });
        model.visit_parameters_mut(&mut |p| p.value.set_flat(p.value.flat() + 0.5));
        model
    };
    let values = |model: &Vec<nn::Linear>| {
        let mut all = Vec::new();
        model.visit_parameters(&mut |p| all.push((p.name.to_owned(), host(p.value.flat()))));
        all
    };
    let trained = pruned(1);
    let bytes = trained.clone().into_record().into_bytes().unwrap();
    let loaded = pruned(2).load_record(ModuleRecord::from_bytes(bytes).unwrap());
    let is_own = |name: &str| name.contains("lora") || name.contains("rank");
    let [expected, found] = [&trained, &loaded].map(|model| {
        values(model).into_iter().filter(|(name, _)| is_own(name)).collect::<Vec<_>>()
    });
    assert_eq!(found, expected);
    assert_eq!(found.len(), 3, "of the first layer only");
    assert_eq!(ranks(&loaded), [("0".to_owned(), 1), ("1".to_owned(), 0)]);
    assert_eq!(Module::num_params(&loaded), 2 * 16 + 2 * 4 + 1);
    // Groups of Burn reach the parameters of an adapter.
    let frozen = loaded.freeze();
    let mut trainable = 0;
    frozen.visit_parameters(&mut |p| trainable += usize::from(p.value.is_trainable()));
    assert_eq!(trainable, 0);
}

/// A head that is the embedding, transposed or as it is.
#[derive(Module, Debug)]
struct Tied {
    embedding: Embedding,
    head: nn::Linear,
}

fn tied(is_transposed: bool) -> Tied {
    let n = 4;
    let embedding = EmbeddingConfig::new(n, if is_transposed { 3 } else { n }).init(&device());
    let weight = embedding.weight.val();
    let weight = if is_transposed { weight.transpose() } else { weight };
    let weight = Param::initialized(embedding.weight.id, weight);
    Tied { embedding, head: nn::Linear { weight, bias: None } }
}

#[test]
fn a_tied_weight_is_visited_once_and_follows_the_first() {
    let mut model = tied(true);
    assert_eq!(names(&model).len(), 1);
    model.visit_parameters_mut(&mut |p| p.value.set_flat(p.value.flat() * 0.0 + 2.0));
    assert_eq!(host(model.head.weight.val()), [2.0; 12]);
    assert_eq!(model.head.weight.val().dims(), [3, 4]);
    let model = attach(model, ["head"], 1);
    assert_eq!(ranks(&model), [("head".to_owned(), 2)]);
}

#[rstest]
fn the_gradient_of_a_tied_weight_is_that_of_both_uses(#[values(true, false)] is_transposed: bool) {
    let ids = || Tensor::<2, Int>::from_ints([[0, 2, 3]], &Device::flex());
    let loss = |model: &Tied| {
        let x: Tensor<3> = model.embedding.forward(ids());
        model.head.forward(x).powi_scalar(2).sum()
    };
    let gradient = |model: &Tied| {
        let gradients = loss(model).backward();
        let mut found = Vec::new();
        model.visit_parameters(&mut |p| found.push(p.value.gradient(&gradients)));
        assert_eq!(found.len(), 1);
        found.remove(0).map(host)
    };
    let mut model = tied(is_transposed);
    let expected = gradient(&model).unwrap();
    let single = {
        let weight = model.embedding.weight.val();
        let x: Tensor<3> = model.embedding.forward(ids());
        let product = if is_transposed { weight.clone().transpose() } else { weight.clone() };
        let loss = x.matmul(product.unsqueeze()).powi_scalar(2).sum();
        host(weight.grad(&loss.backward()).unwrap())
    };
    close("before a walk", &expected, &single, 1e-5);
    // Walks that write, also through an evaluation and a freeze.
    model.visit_parameters_mut(&mut |p| p.value.set_flat(p.value.flat()));
    close("after a walk", &gradient(&model).unwrap(), &single, 1e-5);
    model.visit_layers_mut(&mut |_, _| ());
    close("after a walk over layers", &gradient(&model).unwrap(), &single, 1e-5);
    model.visit_parameters_mut(&mut |p| p.value.set_trainable(false));
    assert!(!loss(&model).is_tracked());
    model.visit_parameters_mut(&mut |p| p.value.set_trainable(true));
    close("after a freeze", &gradient(&model).unwrap(), &single, 1e-5);
    let mut model = model.valid().train();
    model.visit_parameters_mut(&mut |_| ());
    close("after an evaluation", &gradient(&model).unwrap(), &single, 1e-5);
}
