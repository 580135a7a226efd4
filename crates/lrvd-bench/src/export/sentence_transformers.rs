//! A classifier as a folder of sentence-transformers: the merged encoder, its pooling, and the head as dense layers.
//!
//! The library's embedding of a text is the classifier's logits, before the temperature.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::bail;
use lrvd_burn::files::{AtomicDir, HostTensor, write_safetensors};
use lrvd_models::deberta::{Activation, Family, Pooling};
use serde_json::{Value, json};

use super::card::{Card, CardFormat};
use super::merged::{self, MergeReport, Plan};
use super::onnx;
use crate::adapter::Adapter;
use crate::backbone::Architecture;
use crate::error::Result;
use crate::io::{JsonLayout, create_dir, write_json};

const NAME: &str = "sentence-transformers";
/// Start of the types of modules in `modules.json`, under the names that every version of the library reads.
const MODELS: &str = "sentence_transformers.models";

/// A linear layer behind the pooling.
struct Dense {
    /// In the model with a head.
    path: String,
    /// The class of torch that is applied to its output, below `torch.nn.modules`.
    activation: &'static str,
}

/// Writes the folder `out`, whole or not at all; it must not exist. `command` is for the model card.
pub fn export_sentence_transformers(
    adapter: &Adapter,
    command: &str,
    out: &Path,
) -> Result<MergeReport> {
    let (backbone, warnings) = adapter.base()?;
    let info = onnx::classifier(adapter, &backbone, NAME)?;
    let store = backbone.architecture.open_weights(&backbone.location.folder)?;
    let lora = adapter.files.peft.to_lora()?;
    let plan = Plan::new(&backbone.architecture, info.pooling, &store, &lora)?;
    let form = Form::of(&backbone.architecture, info.pooling)?;
    let building = AtomicDir::create(out)?;
    let folder = building.path();

    let mut size = Size::default();
    let encoder = plan.names().filter_map(|name| Some((name, name.strip_prefix(&form.prefix)?)));
    let encoder = encoder.map(|(name, own)| Ok((own.to_owned(), plan.tensor(name)?)));
    size.write(folder, encoder.collect::<Result<_>>()?)?;
    let mut config = merged::config(&backbone, Some(&info), false)?;
    config["architectures"] = json!([form.class]);
    write_json(&folder.join("config.json"), &config, JsonLayout::Pretty)?;
    onnx::tokenizer(&info, &backbone, folder)?;
    let limits = json!({"max_seq_length": info.run.max_length, "do_lower_case": false});
    write_json(&folder.join("sentence_bert_config.json"), &limits, JsonLayout::Pretty)?;

    let mut modules = vec![(String::new(), "Transformer"), ("1_Pooling".to_owned(), "Pooling")];
    create_dir(&folder.join("1_Pooling"))?;
    let width = backbone.architecture.sizes().hidden;
    write_json(&folder.join(Pooling::FILE), &pooling(info.pooling, width), JsonLayout::Pretty)?;
    for layer in &form.layers {
        let name = format!("{}_Dense", modules.len());
        let own = folder.join(&name);
        create_dir(&own)?;
        let part =
            |part| Ok((format!("linear.{part}"), plan.tensor(&format!("{}.{part}", layer.path))?));
        let tensors: BTreeMap<_, _> =
            ["weight", "bias"].map(part).into_iter().collect::<Result<_>>()?;
        let settings = json!({
            "in_features": tensors["linear.weight"].shape()[1],
            "out_features": tensors["linear.weight"].shape()[0],
            "bias": true,
            "activation_function": format!("torch.nn.modules.{}", layer.activation),
        });
        write_json(&own.join("config.json"), &settings, JsonLayout::Pretty)?;
        size.write(&own, tensors)?;
        modules.push((name, "Dense"));
    }
    let modules: Vec<Value> = modules.iter().enumerate().map(module).collect();
    write_json(&folder.join("modules.json"), &modules, JsonLayout::Pretty)?;

    let ranks: BTreeMap<String, usize> =
        lora.modules.iter().map(|(path, module)| (path.clone(), module.rank)).collect();
    let card = Card::of(adapter, Some(&info), &ranks, command)?;
    card.write(CardFormat::SentenceTransformers, folder)?;
    building.commit()?;
    let Size { tensors, parameters } = size;
    Ok(MergeReport { ranks, tensors, parameters, untied: false, difference: None, warnings })
}

/// Numbers of tensors and values that were written.
#[derive(Default)]
struct Size {
    tensors: usize,
    parameters: usize,
}

impl Size {
    fn write(&mut self, folder: &Path, tensors: BTreeMap<String, HostTensor>) -> Result<()> {
        self.tensors += tensors.len();
        self.parameters += tensors.values().map(HostTensor::n_elements).sum::<usize>();
        let metadata = [("format".to_owned(), "pt".to_owned())].into();
        Ok(write_safetensors(folder.join("model.safetensors"), &tensors, &metadata)?)
    }
}

/// An architecture in the modules of the library.
struct Form {
    /// Start of the names of the encoder's parameters, with its dot.
    prefix: String,
    /// Class of transformers for the encoder alone.
    class: String,
    layers: Vec<Dense>,
}

impl Form {
    fn of(architecture: &Architecture, pooling: Pooling) -> Result<Self> {
        let config = match architecture {
            Architecture::Deberta(config) => config,
            Architecture::Llama(_) => bail!("a language model has no form of {NAME}"),
        };
        let [pooler, classifier] = config.family.head();
        let pooler_activation = match config.family.spec().head_activation {
            Activation::Gelu => "activation.GELU",
            Activation::Relu => "activation.ReLU",
            Activation::Tanh => "activation.Tanh",
            other @ Activation::GeluTanh => {
                bail!("a pooler with the activation {other:?} has no form of {NAME}")
            }
        };
        if config.family == Family::ModernBert && pooling.has_pooler() {
            bail!(
                "the head of a ModernBERT has a norm without a shift behind its pooler, for which {NAME} has no module: use `--to onnx` or \
                 `--to merged`, or train with `--set pooling=mean`"
            );
        }
        let pooler = pooling
            .has_pooler()
            .then(|| Dense { path: pooler.to_owned(), activation: pooler_activation });
        let head = Dense { path: classifier.to_owned(), activation: "linear.Identity" };
        let class = config.family.architecture().replace("ForSequenceClassification", "Model");
        let prefix = format!("{}.", config.family.prefix());
        Ok(Self { prefix, class, layers: pooler.into_iter().chain([head]).collect() })
    }
}

fn pooling(pooling: Pooling, width: usize) -> Value {
    json!({
        "word_embedding_dimension": width,
        "pooling_mode_cls_token": matches!(pooling, Pooling::First | Pooling::FirstToken),
        "pooling_mode_mean_tokens": matches!(pooling, Pooling::Mean | Pooling::PooledMean),
        "pooling_mode_lasttoken": pooling == Pooling::Last,
        "pooling_mode_max_tokens": false,
        "pooling_mode_mean_sqrt_len_tokens": false,
    })
}

fn module((place, (path, kind)): (usize, &(String, &str))) -> Value {
    json!({"idx": place, "name": place.to_string(), "path": path, "type": format!("{MODELS}.{kind}")})
}
