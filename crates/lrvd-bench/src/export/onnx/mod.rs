//! A classifier as one ONNX file: encoder with the adapter merged in, pooling, head, temperature, probabilities.

mod encoder;
mod evaluate;
mod graph;
mod schema;

pub use graph::OnnxPrecision;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::Path;

use anyhow::{Context as _, bail};
use burn::tensor::Device;
use lrvd_burn::files::{AtomicDir, HostDType, HostTensor};
use serde_json::{Value, json};

use super::card::{Card, CardFormat};
use super::merged::{self, Answers, MergeReport, Plan, probes};
use crate::adapter::{Adapter, Description};
use crate::answers::AnswerSpace;
use crate::backbone::{Architecture, Backbone, shared_name};
use crate::data::Label;
use crate::error::Result;
use crate::io::{JsonLayout, cannot, create_dir, write_json};
use encoder::{HeadShape, Link};
use graph::{Constant, Content, Graph, LARGEST};
use schema::{
    GraphProto, Head, IR_VERSION, ModelProto, OPSET, OperatorSetIdProto, StringStringEntryProto,
};

/// Folder and files where transformers.js and optimum look for them.
const FOLDER: &str = "onnx";
/// Key of `config.json` with what the other keys have no place for.
const CONFIG_KEY: &str = "lrvd";

impl OnnxPrecision {
    /// Name of the file where transformers.js looks for it.
    const fn file(self) -> &'static str {
        match self {
            Self::Single => "model.onnx",
            Self::Int8 => "model_quantized.onnx",
        }
    }

    /// The name that transformers.js has for it.
    const fn dtype(self) -> &'static str {
        match self {
            Self::Single => "fp32",
            Self::Int8 => "q8",
        }
    }
}

/// Writes the folder `out`, whole or not at all; it must not exist. `command` is for the model card.
/// With `verify` the written file is executed by our own implementation of its operators, and its logits are compared with those of
/// base and adapter. A difference above that, in units of the largest logit or of 1 where that is larger, is an error.
pub fn export_onnx(
    adapter: &Adapter,
    precision: OnnxPrecision,
    verify: Option<f64>,
    command: &str,
    out: &Path,
    device: &Device,
) -> Result<MergeReport> {
    let (backbone, changed) = adapter.base()?;
    let info = classifier(adapter, &backbone, "onnx")?;
    let left_out = info.abstentions.get(&0).filter(|own| own.detector.is_some()).map(|_| {
        "the threshold of `--abstain` is left out: it was fitted with a detector of texts unlike those of training, which the file \
         does not have"
            .to_owned()
    });
    let warnings = changed.into_iter().chain(left_out).collect();
    let store = backbone.architecture.open_weights(&backbone.location.folder)?;
    let lora = adapter.files.peft.to_lora()?;
    let plan = Plan::new(&backbone.architecture, info.pooling, &store, &lora)?;
    let mut facts = facts(&info, &backbone);
    if precision == OnnxPrecision::Int8 {
        facts.insert("precision", json!("int8"));
    }
    let file = OnnxFile::new(&backbone.architecture, head(&info), precision, &plan, &facts)?;

    let building = AtomicDir::create(out)?;
    let folder = building.path();
    create_dir(&folder.join(FOLDER))?;
    let path = folder.join(FOLDER).join(precision.file());
    let is_whole = file.write(&plan, &path)?;
    let mut config = merged::config(&backbone, Some(&info), false)?;
    config["transformers.js_config"] =
        json!({"dtype": precision.dtype(), "use_external_data_format": !is_whole});
    config[CONFIG_KEY] = json!(facts);
    write_json(&folder.join("config.json"), &config, JsonLayout::Pretty)?;
    tokenizer(&info, &backbone, folder)?;
    let ranks: BTreeMap<String, usize> =
        lora.modules.iter().map(|(path, module)| (path.clone(), module.rank)).collect();
    Card::of(adapter, Some(&info), &ranks, command)?.write(
        CardFormat::Onnx { file: precision.file(), int8: precision == OnnxPrecision::Int8 },
        folder,
    )?;
    let compare = |limit| {
        let answers = Answers::of(adapter, Some(&info), device)?;
        answers.compare(limit, &logits(&path, &info, &backbone, device)?)
    };
    let difference = verify.map(compare).transpose()?;
    building.commit()?;
    let tensors = file.weights().count();
    let parameters = file.weights().map(|own| own.shape.iter().product::<usize>()).sum();
    Ok(MergeReport { ranks, tensors, parameters, untied: false, difference, warnings })
}

/// The description of an encoder that answers without options of the row; others have no form `to`.
pub(super) fn classifier(adapter: &Adapter, backbone: &Backbone, to: &str) -> Result<Description> {
    let name = &backbone.location.name;
    let info = adapter.described(backbone)?;
    let is_encoder = !matches!(backbone.architecture, Architecture::Llama(_));
    match info.filter(|_| is_encoder) {
        None => bail!(
            "`--to {to}` is for classifiers on an encoder, and `{name}` is a language model: use `--to merged` or `--to gguf`"
        ),
        Some(info) if matches!(info.goal.answers, AnswerSpace::Choice { .. }) => bail!(
            "the classifier answers by options of the row, which differ in number, and `--to {to}` writes one answer for all rows: \
             use `--to merged`, or serve it by `lrvd serve`"
        ),
        Some(info) => Ok(info),
    }
}

fn head(info: &Description) -> HeadShape {
    let answers = &info.goal.answers;
    let temperature = info.mean_temperature().unwrap_or(1.0);
    let link = match answers {
        AnswerSpace::Score => Link::Identity,
        AnswerSpace::Labels { .. } => Link::Sigmoid { temperature },
        _ => Link::Softmax { temperature },
    };
    HeadShape { pooling: info.pooling, width: answers.width(), link }
}

/// Facts that a program needs beside the tensors, for the file's metadata and `config.json`.
fn facts(info: &Description, backbone: &Backbone) -> BTreeMap<&'static str, Value> {
    let answers = &info.goal.answers;
    let mut facts = BTreeMap::from([
        ("base_model", json!(shared_name(&info.base.name))),
        ("max_length", json!(info.run.max_length)),
        ("padding_id", json!(backbone.tokenizer.special_tokens().pad)),
        ("pooling", json!(info.pooling)),
        ("task", json!(info.goal.name)),
        ("written_by", json!(format!("lrvd {}", env!("CARGO_PKG_VERSION")))),
    ]);
    match head(info).link {
        Link::Identity => facts.extend([("function", json!("identity"))]),
        Link::Softmax { temperature } => {
            facts.extend([("function", json!("softmax")), ("temperature", json!(temperature))]);
        }
        Link::Sigmoid { temperature } => {
            let thresholds = info.thresholds.of(0, answers.width());
            facts.extend([
                ("function", json!("sigmoid")),
                ("temperature", json!(temperature)),
                ("thresholds", json!(thresholds)),
            ]);
        }
    }
    if *answers != AnswerSpace::Score {
        facts.insert("labels", json!(answers.names()));
    }
    if let Some(radius) = info.intervals.by_draws.get(&0) {
        facts.insert("interval_half_width", json!(radius));
    }
    if let Some(own) = info.abstentions.get(&0)
        && own.detector.is_none()
    {
        let name = if own.untempered {
            "abstain_above_entropy_at_temperature_1"
        } else {
            "abstain_above_entropy"
        };
        facts.insert(name, json!(own.above));
    }
    if let AnswerSpace::Question { question } = answers
        && let Some(own) = info.calibration.get(&question.kind).and_then(|own| own.get(&0))
        && let Some(threshold) = own.threshold
    {
        facts.insert("abstain_below_confidence", json!(threshold.least));
    }
    facts
}

/// The tokenizer of the base, whose longest text is the classifier's, with a `tokenizer.json`.
pub(super) fn tokenizer(info: &Description, backbone: &Backbone, folder: &Path) -> Result<()> {
    merged::companions(&backbone.location.folder, folder)?;
    let file = folder.join("tokenizer.json");
    if !file.is_file() {
        std::fs::write(&file, backbone.tokenizer.to_json()?).map_err(cannot("write", folder))?;
    }
    let file = folder.join(merged::SETTINGS_FILE);
    let mut settings: Value = if file.is_file() { crate::io::read_json(&file)? } else { json!({}) };
    settings["model_max_length"] = json!(info.run.max_length);
    let pad = backbone.tokenizer.special_tokens().pad;
    if let (None, Some(pad)) = (settings.get("pad_token"), pad) {
        settings["pad_token"] = json!(backbone.tokenizer.token(pad)?);
    }
    write_json(&file, &settings, JsonLayout::Pretty)
}

/// The file before its weights are read.
struct OnnxFile {
    model: ModelProto,
    graph: GraphProto,
    constants: Vec<Constant>,
}

impl OnnxFile {
    fn new(
        architecture: &Architecture,
        head: HeadShape,
        precision: OnnxPrecision,
        plan: &Plan<'_>,
        facts: &BTreeMap<&'static str, Value>,
    ) -> Result<Self> {
        let shape = |name: &str| plan.shape(name).map(<[usize]>::to_vec);
        let mut graph = Graph::new(&shape, precision);
        encoder::classifier(&mut graph, architecture, head)?;
        let (graph, constants) = graph.finish("classifier");
        let entry = |(key, value): (&&str, &Value)| StringStringEntryProto {
            key: format!("{CONFIG_KEY}.{key}"),
            value: value.as_str().map_or_else(|| value.to_string(), str::to_owned),
        };
        let model = ModelProto {
            ir_version: IR_VERSION,
            producer_name: "lrvd".to_owned(),
            producer_version: env!("CARGO_PKG_VERSION").to_owned(),
            graph: None,
            opset_import: vec![OperatorSetIdProto { domain: Some(String::new()), version: OPSET }],
            metadata_props: facts.iter().map(entry).collect(),
        };
        Ok(Self { model, graph, constants })
    }

    /// Tensors of the model.
    fn weights(&self) -> impl Iterator<Item = &Constant> {
        self.constants.iter().filter(|own| !matches!(own.content, Content::Constant(_)))
    }

    /// Writes the file `path`, and the weights beside it where it would be longer than a message may be; `true` if they are in it.
    fn write(&self, plan: &Plan<'_>, path: &Path) -> Result<bool> {
        self.write_within(schema::MOST_BYTES, plan, path)
    }

    fn write_within(&self, most: u64, plan: &Plan<'_>, path: &Path) -> Result<bool> {
        let head = |own: &Constant| Head { tensor: own.tensor(), bytes: own.bytes() };
        let mut tensors: Vec<Head> = self.constants.iter().map(head).collect();
        let is_whole = schema::file_size(&self.model, &self.graph, &tensors) <= most;
        let other = path.with_extension("onnx_data");
        if !is_whole {
            let name = other.file_name().unwrap_or_default().to_string_lossy();
            self.move_beside(&mut tensors, &name);
        }
        let create = |path: &Path| -> Result<BufWriter<File>> {
            Ok(BufWriter::new(File::create(path).map_err(cannot("write", path))?))
        };
        let mut out = create(path)?;
        let mut beside = (!is_whole).then(|| create(&other)).transpose()?;
        let values = |at: usize| match &self.constants[at].content {
            Content::Constant(bytes) => Ok(bytes.clone()),
            Content::Weight(name) => Ok(plan.tensor(name)?.into_bytes()),
            Content::Transposed(name) => Ok(plan.tensor(name)?.transpose2()?.into_bytes()),
            Content::Bytes { name, transposed } => {
                let bytes = rounded(&plan.tensor(name)?)?;
                Ok(if *transposed { bytes.transpose2()?.into_bytes() } else { bytes.into_bytes() })
            }
            Content::Steps(name) => {
                let steps = steps(&plan.tensor(name)?)?;
                Ok(steps.iter().flat_map(|step| step.to_le_bytes()).collect())
            }
        };
        schema::write((&self.model, &self.graph), &tensors, values, &mut out, &mut beside)?;
        for mut file in std::iter::once(out).chain(beside) {
            file.flush().map_err(cannot("write", path))?;
        }
        Ok(is_whole)
    }

    /// Gives the weights their places in the other file.
    fn move_beside(&self, tensors: &mut [Head], file: &str) {
        let mut offset = 0;
        for (head, own) in tensors.iter_mut().zip(&self.constants) {
            if matches!(own.content, Content::Constant(_)) {
                continue;
            }
            let at = offset.to_string();
            let length = head.bytes.to_string();
            let place = [("location", file.to_owned()), ("offset", at), ("length", length)];
            let entry = |(key, value): (&str, String)| StringStringEntryProto {
                key: key.to_owned(),
                value,
            };
            head.tensor.external_data = place.map(entry).to_vec();
            head.tensor.data_location = Some(1);
            offset += head.bytes;
        }
    }
}

/// The step of each row of a matrix in signed bytes: its largest value is ±[`LARGEST`] steps.
fn steps(matrix: &HostTensor) -> Result<Vec<f32>> {
    let largest = |row: &[f32]| row.iter().fold(0.0_f32, |most, value| most.max(value.abs()));
    let values = matrix.to_f32()?;
    Ok(values.chunks(width(matrix)).map(|row| largest(row) / f32::from(LARGEST)).collect())
}

/// A matrix in signed bytes: `w ≈ byte · step`.
fn rounded(matrix: &HostTensor) -> Result<HostTensor> {
    let steps = steps(matrix)?;
    let width = width(matrix);
    let byte = |(at, value): (usize, &f32)| {
        let step = steps[at / width];
        // A row of zeros has no step.
        let byte = if step > 0.0 { (value / step).round_ties_even() as i8 } else { 0 };
        byte.cast_unsigned()
    };
    let bytes = matrix.to_f32()?.iter().enumerate().map(byte).collect();
    Ok(HostTensor::new(HostDType::I8, matrix.shape().to_vec(), bytes)?)
}

/// Columns of a matrix.
fn width(matrix: &HostTensor) -> usize {
    matrix.shape().last().copied().unwrap_or(1).max(1)
}

/// The logits of a file on the probes, in one padded batch.
fn logits(
    file: &Path,
    info: &Description,
    backbone: &Backbone,
    device: &Device,
) -> Result<Vec<f64>> {
    let reader = info.reader(backbone)?;
    let encode = |input| Ok(reader.encode(input, Label::Class(0))?.0);
    let inputs = probes(info);
    let rows = inputs.iter().map(encode).collect::<Result<Vec<_>>>()?;
    let rows: Vec<(&[u32], &[u32])> = rows.iter().map(|row| (&*row.ids, &*row.type_ids)).collect();
    let outputs = evaluate::run(file, &rows, reader.pad_id, device)
        .with_context(|| format!("`{}`", file.display()))?;
    Ok(outputs[encoder::LOGITS].iter().map(|&value| f64::from(value)).collect())
}

#[cfg(all(test, feature = "flex"))]
mod tests;
