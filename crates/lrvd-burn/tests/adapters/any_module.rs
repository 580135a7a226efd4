//! Adapters on modules that know nothing of them: what is attached, what is an error, and what a walk sees.

use crate::support::prelude::*;
use burn::module::ParamGroup;
use burn::nn::{
    Embedding, EmbeddingConfig, LayerNorm, LayerNormConfig, Linear, LinearConfig, LinearLayout,
};
use burn::store::ModuleRecord;
use burn::tensor::Int;
use lrvd_burn::adapter::BaseBits;
use lrvd_burn::model::{attach_adapters, with_pass};
use lrvd_burn::{Error, Selection, nn};

/// An embedding, which is a matrix as well, two layers and a head.
#[derive(Module, Debug)]
struct Plain {
    embedding: Embedding,
    norm: LayerNorm,
    layers: Vec<Linear>,
    fast: nn::Linear,
    head: Linear,
}

impl Plain {
    fn new() -> Self {
        let device = device();
        let layer = || LinearConfig::new(6, 6).init(&device);
        let mut model = Self {
            embedding: EmbeddingConfig::new(9, 6).init(&device),
            norm: LayerNormConfig::new(6).init(&device),
            layers: vec![layer(), layer()],
            fast: nn::LinearConfig::new(6, 5).with_bias(false).init(&device),
            head: LinearConfig::new(5, 2).init(&device),
        };
        model.visit_parameters_mut(&mut |p| {
            let len = p.value.len();
            p.value.set_flat(tensor(&numbers(len as u64, len), [len], DType::F32));
        });
        model
    }

    fn forward(&self, ids: Tensor<2, Int>) -> Tensor<2> {
        let x = self.norm.forward(self.embedding.forward(ids));
        let x = self.layers.iter().fold(x, |x, layer| layer.forward(x).tanh());
        self.head.forward(self.fast.forward(x).mean_dim(1).squeeze_dim(1))
    }
}

/// `model` frozen, with fresh adapters.
fn attach<M: Module>(
    model: M,
    config: AdapterConfig,
    targets: impl Into<Selection>,
    seed: u64,
) -> Result<M, Error> {
    let mut model = model.freeze();
    attach_adapters(&mut model, &targets.into(), &config, NoiseKey::new(seed))?;
    Ok(model)
}

fn config() -> AdapterConfig {
    AdapterConfig { rank: 2, ..AdapterConfig::default() }
}

fn device() -> Device {
    Device::flex().autodiff()
}

fn adapted() -> Plain {
    attach(Plain::new(), config(), Selection::AllLinear, 1).unwrap()
}

fn ids() -> Tensor<2, Int> {
    Tensor::arange(0..8, &Device::flex()).reshape([2, 4])
}

#[test]
fn every_linear_layer_is_found_and_nothing_else() {
    let model = adapted();
    let expected = ["layers.0", "layers.1", "fast", "head"].map(|path| (path.to_owned(), 2));
    assert_eq!(ranks(&model), expected);
    let mut trained = Vec::new();
    model.visit_parameters(&mut |p| {
        if p.value.is_trainable() {
            trained.push(p.name.to_owned());
        }
    });
    let parts = ["lora_A", "lora_B", "rank_log_sigma2"];
    let parts = expected.iter().flat_map(|(path, _)| parts.map(|part| format!("{path}.{part}")));
    assert_eq!(trained, parts.collect::<Vec<_>>(), "all else is frozen");
    // Burn's own walks see the parameters as well.
    let widths = [(6, 6), (6, 6), (6, 5), (5, 2)];
    let added: usize = widths.iter().map(|(d_in, d_out)| 2 * (d_in + d_out) + 2).sum();
    assert_eq!(model.num_params() - Plain::new().num_params(), added);

    // An unfrozen parameter without a name is part of a head.
    let model = model.unfreeze_group(ParamGroup::from_predicate("norm"));
    let mut groups = Vec::new();
    model.visit_parameters(&mut |p| groups.push((p.name.to_owned(), p.group)));
    let group = |name: &str| groups.iter().find(|(found, _)| found == name).unwrap().1;
    assert_eq!((group("norm.gamma"), group("embedding.weight")), (Group::Head, Group::Backbone));
}

#[test]
fn a_composed_weight_is_one_weight_for_a_batch() {
    for &scheme in &SCHEMES[2..] {
        let pass = Pass::sampled(scheme, NoiseKey::new(1));
        let error = with_pass(&adapted(), pass).unwrap_err().to_string();
        assert!(error.starts_with("layer `layers.0` does not support sampling "), "{error}");
        let fast = attach(Plain::new(), config(), ["fast"], 1).unwrap();
        let drawn = with_pass(&fast, pass).unwrap();
        assert_ne!(host(drawn.forward(ids())), host(fast.forward(ids())), "{scheme:?}");
    }
    let config = AdapterConfig { dropout: 0.1, ..config() };
    let error = attach(Plain::new(), config, ["layers.1"], 1).unwrap_err().to_string();
    assert!(error.contains("layer `layers.1` is a `burn::nn::Linear`"), "{error}");
    assert!(attach(Plain::new(), config, ["fast"], 1).is_ok());
}

#[test]
fn a_layer_has_one_adapter_until_it_has_lost_its_ranks() {
    let error = attach(adapted(), config(), ["fast"], 1).unwrap_err().to_string();
    assert!(error.starts_with("layer `fast` has an adapter"), "{error}");
    let bare = host(Plain::new().valid().forward(ids()));
    let mut model = adapted();
    model.visit_layers_mut(&mut |_, layer| layer.select_ranks(&[]));
    assert!(ranks(&model).iter().all(|(_, rank)| *rank == 0) && ranks(&model).len() == 4);
    assert_eq!(host(model.clone().valid().forward(ids())), bare);
    assert_eq!(model.num_params(), Plain::new().num_params());
    assert!(ranks(&attach(model, config(), ["fast"], 1).unwrap()).contains(&("fast".into(), 2)));
}

/// Of a square weight, whose transpose would load without an error. Burn loads no record of another initialised weight of this
/// layout: it compares the shape in memory with that of the record.
#[test]
fn an_adapted_layer_is_saved_and_loaded_in_its_own_layout() {
    let [d_in, d_out] = [4, 4];
    let plain = || LinearConfig::new(d_in, d_out).with_layout(LinearLayout::Col).init(&device());
    let adapted = |seed| {
        let mut model = attach(vec![plain()], config(), Selection::AllLinear, seed).unwrap();
        let own = model[0].weight.base().dims();
        // Walks of every kind.
        model.visit_layers_mut(&mut |_, layer| layer.set_weight(layer.weight.base()));
        model.visit_parameters_mut(&mut |p| p.value.set_flat(p.value.flat() * 2.0));
        assert_eq!((own, model[0].weight.base().dims()), ([d_in, d_out], own));
        model
    };
    let (trained, x) = (adapted(1), tensor(&numbers(5, d_in), [1, d_in], DType::F32));
    let bytes = trained.clone().into_record().into_bytes().unwrap();
    let loaded = adapted(2).load_record(ModuleRecord::from_bytes(bytes).unwrap());
    let [expected, found] = [&trained, &loaded].map(|model| host(model[0].forward(x.clone())));
    assert_eq!(found, expected);
    // What was frozen and what trained are so again after an evaluation.
    let trains = |model: &Vec<Linear>| {
        let mut names = Vec::new();
        model.visit_parameters(&mut |p| {
            names.extend(p.value.is_trainable().then(|| p.name.to_owned()));
        });
        names
    };
    let mut evaluated = trained.valid();
    evaluated.visit_parameters_mut(&mut |p| p.value.set_flat(p.value.flat()));
    assert_eq!((trains(&evaluated).len(), trains(&evaluated.train())), (0, trains(&trained)));
}

#[test]
fn a_layer_of_burns_own_has_the_mean_of_ours_also_on_a_quantised_base() {
    let weight = tensor(&numbers(3, 64 * 5), [64, 5], DType::F32);
    let applied = nn::Linear::new(weight, None).quantized(BaseBits::Q8).unwrap();
    let composed = Linear { weight: applied.weight.clone(), bias: None };
    let applied = attach(vec![applied], config(), Selection::AllLinear, 1).unwrap();
    let composed = attach(vec![composed], config(), Selection::AllLinear, 1).unwrap();
    for weight in [applied[0].weight.base(), composed[0].weight.base()] {
        assert!(matches!(weight.dtype(), DType::QFloat(_)));
    }
    let x = tensor(&numbers(5, 64), [1, 64], DType::F32);
    let [applied, composed] = [applied[0].forward(x.clone()), composed[0].forward(x)].map(host);
    close("mean", &composed, &applied, 1e-6);
}
