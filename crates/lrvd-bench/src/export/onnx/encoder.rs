//! The graphs of the encoders and of their heads: the formulas of `lrvd_models`, operator by operator.

use anyhow::bail;
use lrvd_models::deberta::{
    Activation, BIAS_ROWS, ConvolutionConfig, DebertaConfig, Family, LayerAttention, Pooling,
    RelativePositions, bias_row,
};

use super::graph::{Graph, Length, Setting, Value};
use super::schema::DataType;
use crate::backbone::Architecture;
use crate::error::Result;

/// Names of the free lengths.
const BATCH: &str = "batch";
const SEQUENCE: &str = "sequence";
pub(super) const IDS: &str = "input_ids";
pub(super) const MASK: &str = "attention_mask";
pub(super) const TYPE_IDS: &str = "token_type_ids";
pub(super) const LOGITS: &str = "logits";
pub(super) const PROBABILITIES: &str = "probabilities";

/// Function that turns logits into the answer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Link {
    /// Probabilities that sum to 1.
    Softmax { temperature: f64 },
    /// A probability for each label.
    Sigmoid { temperature: f64 },
    /// None: a number.
    Identity,
}

/// Sizes and kind of a head.
#[derive(Clone, Copy, Debug)]
pub(super) struct HeadShape {
    pub pooling: Pooling,
    pub width: usize,
    pub link: Link,
}

/// The inputs of an encoder, `[batch, sequence]`.
struct Inputs {
    ids: Value,
    /// 1 for tokens, 0 for padding, single precision.
    mask: Value,
    type_ids: Option<Value>,
}

impl Inputs {
    fn new(graph: &mut Graph<'_>, type_ids: bool) -> Self {
        let shape = [Length::Free(BATCH), Length::Free(SEQUENCE)];
        let ids = graph.input(IDS, DataType::Int64, &shape);
        let mask = graph.input(MASK, DataType::Int64, &shape);
        let mask = graph.op("Cast", &[&mask], [Setting::Int("to", DataType::Float as i64)]);
        let type_ids = type_ids.then(|| graph.input(TYPE_IDS, DataType::Int64, &shape));
        Self { ids, mask, type_ids }
    }

    /// A length of the inputs, without an axis.
    fn length(&self, graph: &mut Graph<'_>, axis: i64) -> Value {
        let shape = graph.op("Shape", &[&self.ids], []);
        let axis = graph.ints(&[], &[axis]);
        graph.op("Gather", &[&shape, &axis], [])
    }

    /// 0 for keys that are tokens, the lowest number for padding, `[batch, 1, 1, sequence]`.
    fn key_bias(&self, graph: &mut Graph<'_>) -> Value {
        let axes = graph.ints(&[2], &[1, 2]);
        let mask = graph.op("Unsqueeze", &[&self.mask, &axes], []);
        let (one, lowest) = (graph.number(1.0), graph.number(f64::from(f32::MIN)));
        let padding = graph.op("Sub", &[&one, &mask], []);
        graph.op("Mul", &[&padding, &lowest], [])
    }

    /// `[batch, sequence, 1]`.
    fn column(&self, graph: &mut Graph<'_>) -> Value {
        let axis = graph.ints(&[1], &[2]);
        graph.op("Unsqueeze", &[&self.mask, &axis], [])
    }
}

/// Adds encoder, head and outputs of a model of this architecture.
pub(super) fn classifier(
    graph: &mut Graph<'_>,
    architecture: &Architecture,
    head: HeadShape,
) -> Result<()> {
    match architecture {
        Architecture::Deberta(config) => deberta_classifier(graph, config, head),
        Architecture::Llama(_) => bail!(
            "an ONNX file is written of an encoder, and this is a language model: use `--to merged` or `--to gguf`"
        ),
    }
}

fn deberta_classifier(
    graph: &mut Graph<'_>,
    config: &DebertaConfig,
    head: HeadShape,
) -> Result<()> {
    let d = config.hidden_size;
    let inputs = Inputs::new(graph, config.type_vocab_size > 1);
    let is_modern = config.family == Family::ModernBert;
    let hidden =
        if is_modern { modern(graph, config, &inputs)? } else { deberta(graph, config, &inputs)? };
    let [pooler, classifier] = config.family.head();
    let mut pooled = match head.pooling {
        Pooling::First | Pooling::FirstToken => first_token(graph, &hidden),
        Pooling::Mean | Pooling::PooledMean => mean(graph, &hidden, &inputs),
        Pooling::Last => {
            bail!("a head on the last token is of a language model, and this is an encoder")
        }
    };
    if head.pooling.has_pooler() {
        let dense = if is_modern { format!("{pooler}.dense") } else { pooler.to_owned() };
        let dense = graph.linear(&pooled, &dense, [d, d], !is_modern)?;
        pooled = activation(graph, config.family.spec().head_activation, &dense);
        if is_modern {
            let norm = format!("{pooler}.norm");
            pooled = graph.unshifted_norm(&pooled, &norm, d, config.layer_norm_eps)?;
        }
    }
    let logits = graph.linear(&pooled, classifier, [d, head.width], true)?;
    answer(graph, logits, head);
    Ok(())
}

/// The outputs: logits, and probabilities but of a number.
fn answer(graph: &mut Graph<'_>, logits: Value, head: HeadShape) {
    let shape = [Length::Free(BATCH), Length::Fixed(head.width)];
    graph.output(LOGITS, logits.clone(), &shape);
    let (kind, temperature) = match head.link {
        Link::Softmax { temperature } => ("Softmax", temperature),
        Link::Sigmoid { temperature } => ("Sigmoid", temperature),
        Link::Identity => return,
    };
    let temperature = graph.number(temperature);
    let scaled = graph.op("Div", &[&logits, &temperature], []);
    let axis = (kind == "Softmax").then_some(Setting::Int("axis", -1));
    let probabilities = graph.op(kind, &[&scaled], axis);
    graph.output(PROBABILITIES, probabilities, &shape);
}

/// `[batch, sequence, d]` to `[batch, d]`.
fn first_token(graph: &mut Graph<'_>, hidden: &Value) -> Value {
    let first = graph.ints(&[], &[0]);
    graph.op("Gather", &[hidden, &first], [Setting::Int("axis", 1)])
}

/// `Σ_t mask_t · h_t / Σ_t mask_t`.
fn mean(graph: &mut Graph<'_>, hidden: &Value, inputs: &Inputs) -> Value {
    let axis = graph.ints(&[1], &[1]);
    let keep = || Setting::Int("keepdims", 0);
    let column = inputs.column(graph);
    let kept = graph.op("Mul", &[hidden, &column], []);
    let sum = graph.op("ReduceSum", &[&kept, &axis], [keep()]);
    let count = graph.op("ReduceSum", &[&column, &axis], [keep()]);
    graph.op("Div", &[&sum, &count], [])
}

fn activation(graph: &mut Graph<'_>, kind: Activation, x: &Value) -> Value {
    let (half, one) = (graph.number(0.5), graph.number(1.0));
    let gate = match kind {
        Activation::Relu => return graph.op("Relu", &[x], []),
        Activation::Tanh => return graph.op("Tanh", &[x], []),
        Activation::Gelu => {
            let root = graph.number(std::f64::consts::SQRT_2);
            let scaled = graph.op("Div", &[x, &root], []);
            graph.op("Erf", &[&scaled], [])
        }
        Activation::GeluTanh => {
            let [slope, cubic] = [(2.0 / std::f64::consts::PI).sqrt(), 0.044_715];
            let (slope, cubic) = (graph.number(slope), graph.number(cubic));
            let square = graph.op("Mul", &[x, x], []);
            let cube = graph.op("Mul", &[&square, x], []);
            let cube = graph.op("Mul", &[&cube, &cubic], []);
            let sum = graph.op("Add", &[x, &cube], []);
            let scaled = graph.op("Mul", &[&sum, &slope], []);
            graph.op("Tanh", &[&scaled], [])
        }
    };
    let gate = graph.op("Add", &[&gate, &one], []);
    let product = graph.op("Mul", &[x, &gate], []);
    graph.op("Mul", &[&product, &half], [])
}

/// Terms that the scores of all layers have in common.
struct Scores {
    /// Added to every score: that of keys, and of an MPNet that of distances, `[batch, 1 | heads, 1 | sequence, sequence]`.
    bias: Value,
    positions: Option<Positions>,
}

/// Relative positions of a DeBERTa.
struct Positions {
    /// The relative embeddings, `[rows, hidden]`.
    table: Value,
    rows: usize,
    /// Row of every pair of positions, `[batch, heads, sequence, sequence]`: of query and key, and the other way round.
    of_query: Value,
    of_key: Value,
}

/// The last hidden state of every family but ModernBERT, `[batch, sequence, hidden]`.
fn deberta(graph: &mut Graph<'_>, config: &DebertaConfig, inputs: &Inputs) -> Result<Value> {
    let stack = config.family.stack();
    let embedded = embeddings(graph, config, inputs)?;
    let positions = config
        .relative_positions()
        .map(|layout| positions(graph, config, &stack, layout, inputs))
        .transpose()?;
    let mut bias = inputs.key_bias(graph);
    if config.family.spec().has_position_bias {
        let own = distance_bias(graph, config, &stack, inputs)?;
        bias = graph.op("Add", &[&own, &bias], []);
    }
    let scores = Scores { bias, positions };
    let mut x = embedded.clone();
    for layer in 0..config.num_hidden_layers {
        x = encoder_layer(graph, config, &format!("{stack}.layer.{layer}"), &x, &scores)?;
        if let (0, Some(own)) = (layer, config.convolution) {
            x = convolution(graph, config, &format!("{stack}.conv"), own, &embedded, &x, inputs)?;
        }
    }
    Ok(x)
}

fn embeddings(graph: &mut Graph<'_>, config: &DebertaConfig, inputs: &Inputs) -> Result<Value> {
    let path = format!("{}.embeddings", config.family.prefix());
    let width = config.embedding_size;
    let d = config.hidden_size;
    let table = |graph: &mut Graph<'_>, name: &str, rows: usize| {
        graph.weight(&format!("{path}.{name}.weight"), &[rows, width])
    };
    let words = format!("{path}.word_embeddings.weight");
    let mut x = graph.rows(&words, [config.vocab_size, width], &inputs.ids)?;
    if config.position_biased_input {
        let table = table(graph, "position_embeddings", config.max_position_embeddings)?;
        let rows = match config.counted_from() {
            None => {
                let (start, step) = (graph.ints(&[], &[0]), graph.ints(&[], &[1]));
                let length = inputs.length(graph, 1);
                graph.op("Range", &[&start, &length, &step], [])
            }
            Some(pad) => {
                let pad = graph.ints(&[], &[pad as i64]);
                let axis = graph.ints(&[], &[1]);
                let is_padding = graph.op("Equal", &[&inputs.ids, &pad], []);
                let real = graph.op("Not", &[&is_padding], []);
                let to = Setting::Int("to", DataType::Int64 as i64);
                let real = graph.op("Cast", &[&real], [to]);
                let counted = graph.op("CumSum", &[&real, &axis], []);
                let counted = graph.op("Mul", &[&counted, &real], []);
                graph.op("Add", &[&counted, &pad], [])
            }
        };
        let own = graph.op("Gather", &[&table, &rows], []);
        x = graph.op("Add", &[&x, &own], []);
    }
    if config.type_vocab_size > 0 {
        let table = table(graph, "token_type_embeddings", config.type_vocab_size)?;
        let own = match &inputs.type_ids {
            Some(type_ids) => graph.op("Gather", &[&table, type_ids], []),
            // The one row of a RoBERTa.
            None => table,
        };
        x = graph.op("Add", &[&x, &own], []);
    }
    if width != d {
        x = graph.linear(&x, &format!("{path}.embed_proj"), [width, d], false)?;
    }
    let x = graph.layer_norm(&x, &format!("{path}.LayerNorm"), d, config.layer_norm_eps)?;
    if config.convolution.is_none() {
        // Nothing but a convolution reads the places of padding.
        return Ok(x);
    }
    let mask = inputs.column(graph);
    Ok(graph.op("Mul", &[&x, &mask], []))
}

fn positions(
    graph: &mut Graph<'_>,
    config: &DebertaConfig,
    stack: &str,
    layout: RelativePositions,
    inputs: &Inputs,
) -> Result<Positions> {
    let d = config.hidden_size;
    let rows = 2 * layout.span();
    let mut table = graph.weight(&format!("{stack}.rel_embeddings.weight"), &[rows, d])?;
    if config.norm_rel_ebd {
        let path = format!("{stack}.LayerNorm");
        table = graph.layer_norm(&table, &path, d, config.layer_norm_eps)?;
    }
    // Rows stay the same from `max_relative_positions` on, or from the number of rows without buckets.
    let most = 2 * config.max_relative_positions.max(layout.span()) as i64;
    let row = |distance| i64::from(layout.row(distance));
    if row(most) != row(most * 64) || row(-most) != row(-most * 64) {
        bail!(
            "`max_relative_positions` is {} with {} position buckets, for which the row of a distance has no limit: such a \
             model is not written as ONNX; use `--to merged`",
            config.max_relative_positions,
            layout.span()
        );
    }
    let of_query = distance_rows(graph, inputs, row, most);
    let of_key = graph.op("Transpose", &[&of_query], [Setting::Ints("perm", vec![1, 0])]);
    let heads = graph.ints(&[1], &[config.num_attention_heads as i64]);
    let first = graph.ints(&[1], &[0]);
    let [batch, length] = [0, 1].map(|axis| {
        let length = inputs.length(graph, axis);
        graph.op("Unsqueeze", &[&length, &first], [])
    });
    let shape = [&batch, &heads, &length, &length];
    let shape = graph.op("Concat", &shape, [Setting::Int("axis", 0)]);
    let [of_query, of_key] =
        [of_query, of_key].map(|rows| graph.op("Expand", &[&rows, &shape], []));
    Ok(Positions { table, rows, of_query, of_key })
}

/// The bias of every head for the distance of query and key, `[1, heads, sequence, sequence]`.
fn distance_bias(
    graph: &mut Graph<'_>,
    config: &DebertaConfig,
    stack: &str,
    inputs: &Inputs,
) -> Result<Value> {
    let shape = [BIAS_ROWS, config.num_attention_heads];
    let table = graph.weight(&format!("{stack}.relative_attention_bias.weight"), &shape)?;
    // The row is that of the last bucket from a distance of 91 on.
    let rows = distance_rows(graph, inputs, |distance| bias_row(distance).into(), 128);
    let bias = graph.op("Gather", &[&table, &rows], []);
    let bias = graph.op("Transpose", &[&bias], [Setting::Ints("perm", vec![2, 0, 1])]);
    let first = graph.ints(&[1], &[0]);
    Ok(graph.op("Unsqueeze", &[&bias, &first], []))
}

/// Row of a table for the distance `i − j` of every pair of positions, `[sequence, sequence]`. They are read from a list of
/// those of all distances, which is exact for every length: from `most` on the row of a distance is that of `most`.
fn distance_rows(
    graph: &mut Graph<'_>,
    inputs: &Inputs,
    row: impl Fn(i64) -> i64,
    most: i64,
) -> Value {
    let is_last = |&r: &i64| [r, -r].iter().any(|&r| row(r) != row(r + r.signum()));
    let farthest = (1..most).rev().find(is_last).unwrap_or(0) + 1;
    let all: Vec<i64> = (-farthest..=farthest).map(row).collect();
    let list = graph.ints(&[all.len()], &all);
    let (low, high) = (graph.ints(&[], &[-farthest]), graph.ints(&[], &[farthest]));
    let (start, step) = (graph.ints(&[], &[0]), graph.ints(&[], &[1]));
    let length = inputs.length(graph, 1);
    let places = graph.op("Range", &[&start, &length, &step], []);
    let (first, last) = (graph.ints(&[1], &[0]), graph.ints(&[1], &[1]));
    let query = graph.op("Unsqueeze", &[&places, &last], []);
    let key = graph.op("Unsqueeze", &[&places, &first], []);
    let distance = graph.op("Sub", &[&query, &key], []);
    let near = graph.op("Clip", &[&distance, &low, &high], []);
    let at = graph.op("Add", &[&near, &high], []);
    graph.op("Gather", &[&list, &at], [])
}

fn encoder_layer(
    graph: &mut Graph<'_>,
    config: &DebertaConfig,
    path: &str,
    x: &Value,
    scores: &Scores,
) -> Result<Value> {
    let d = config.hidden_size;
    let wide = config.intermediate_size;
    let [.., attended, intermediate, output] = config.family.spec().layers;
    let [first, second] = config.family.spec().norms;
    let context = attention(graph, config, path, x, scores)?;
    let dense = graph.linear(&context, &format!("{path}.{attended}"), [d, d], true)?;
    let sum = graph.op("Add", &[&dense, x], []);
    let x = graph.layer_norm(&sum, &format!("{path}.{first}"), d, config.layer_norm_eps)?;
    let inner = graph.linear(&x, &format!("{path}.{intermediate}"), [d, wide], true)?;
    let inner = activation(graph, config.hidden_act, &inner);
    let dense = graph.linear(&inner, &format!("{path}.{output}"), [wide, d], true)?;
    let sum = graph.op("Add", &[&dense, &x], []);
    graph.layer_norm(&sum, &format!("{path}.{second}"), d, config.layer_norm_eps)
}

/// Attention of all heads, before the output projection.
fn attention(
    graph: &mut Graph<'_>,
    config: &DebertaConfig,
    path: &str,
    x: &Value,
    scores: &Scores,
) -> Result<Value> {
    let d = config.hidden_size;
    let heads = config.num_attention_heads;
    let width = d / heads;
    let [query, key, value, ..] =
        config.family.spec().layers.map(|layer| format!("{path}.{layer}"));
    let split = graph.ints(&[4], &[0, 0, heads as i64, width as i64]);
    let projected = |graph: &mut Graph<'_>, path: &str, order: [i64; 4]| -> Result<Value> {
        let all = graph.linear(x, path, [d, d], true)?;
        let all = graph.op("Reshape", &[&all, &split], []);
        Ok(graph.op("Transpose", &[&all], [Setting::Ints("perm", order.to_vec())]))
    };
    let q = projected(graph, &query, [0, 2, 1, 3])?;
    let k = projected(graph, &key, [0, 2, 1, 3])?;
    let v = projected(graph, &value, [0, 2, 1, 3])?;
    let swapped = || Setting::Ints("perm", vec![0, 1, 3, 2]);
    let k_columns = graph.op("Transpose", &[&k], [swapped()]);
    let mut sum = graph.op("MatMul", &[&q, &k_columns], []);
    let mut terms = 1;
    if let Some(positions) = &scores.positions {
        let [site, ..] = config.family.spec().dropouts;
        let own = |name: &str| format!("{path}.{site}.{name}");
        if config.c2p {
            let path = if config.share_att_key { key } else { own("pos_key_proj") };
            let columns = position_columns(graph, config, &path, positions)?;
            let all = graph.op("MatMul", &[&q, &columns], []);
            let last = Setting::Int("axis", 3);
            let term = graph.op("GatherElements", &[&all, &positions.of_query], [last]);
            sum = graph.op("Add", &[&sum, &term], []);
            terms += 1;
        }
        if config.p2c {
            let path = if config.share_att_key { query } else { own("pos_query_proj") };
            let columns = position_columns(graph, config, &path, positions)?;
            let all = graph.op("MatMul", &[&k, &columns], []);
            let last = Setting::Int("axis", 3);
            let term = graph.op("GatherElements", &[&all, &positions.of_key], [last]);
            let term = graph.op("Transpose", &[&term], [swapped()]);
            sum = graph.op("Add", &[&sum, &term], []);
            terms += 1;
        }
    }
    let scale = graph.number(1.0 / ((width * terms) as f64).sqrt());
    let scaled = graph.op("Mul", &[&sum, &scale], []);
    let biased = graph.op("Add", &[&scaled, &scores.bias], []);
    let weights = graph.op("Softmax", &[&biased], [Setting::Int("axis", -1)]);
    let context = graph.op("MatMul", &[&weights, &v], []);
    let order = Setting::Ints("perm", vec![0, 2, 1, 3]);
    let context = graph.op("Transpose", &[&context], [order]);
    let joined = graph.ints(&[3], &[0, 0, d as i64]);
    Ok(graph.op("Reshape", &[&context, &joined], []))
}

/// The relative embeddings under a projection, `[heads, width, rows]`.
fn position_columns(
    graph: &mut Graph<'_>,
    config: &DebertaConfig,
    path: &str,
    positions: &Positions,
) -> Result<Value> {
    let d = config.hidden_size;
    let heads = config.num_attention_heads;
    let all = graph.linear(&positions.table, path, [d, d], true)?;
    let split = [positions.rows, heads, d / heads].map(|length| length as i64);
    let split = graph.ints(&[3], &split);
    let all = graph.op("Reshape", &[&all, &split], []);
    Ok(graph.op("Transpose", &[&all], [Setting::Ints("perm", vec![1, 2, 0])]))
}

/// `norm(after_layer + act(conv(embeddings) · mask)) · mask`.
fn convolution(
    graph: &mut Graph<'_>,
    config: &DebertaConfig,
    path: &str,
    ConvolutionConfig { kernel_size, activation: kind }: ConvolutionConfig,
    embedded: &Value,
    after_layer: &Value,
    inputs: &Inputs,
) -> Result<Value> {
    let d = config.hidden_size;
    let swapped = || Setting::Ints("perm", vec![0, 2, 1]);
    let kernel = graph.weight(&format!("{path}.conv.weight"), &[d, d, kernel_size])?;
    let bias = graph.weight(&format!("{path}.conv.bias"), &[d])?;
    let channels = graph.op("Transpose", &[embedded], [swapped()]);
    let margin = (kernel_size as i64 - 1) / 2;
    let settings = [
        Setting::Ints("kernel_shape", vec![kernel_size as i64]),
        Setting::Ints("pads", vec![margin; 2]),
    ];
    let out = graph.op("Conv", &[&channels, &kernel, &bias], settings);
    let out = graph.op("Transpose", &[&out], [swapped()]);
    let mask = inputs.column(graph);
    let out = graph.op("Mul", &[&out, &mask], []);
    let out = activation(graph, kind, &out);
    let sum = graph.op("Add", &[after_layer, &out], []);
    let sum = graph.layer_norm(&sum, &format!("{path}.LayerNorm"), d, config.layer_norm_eps)?;
    Ok(graph.op("Mul", &[&sum, &mask], []))
}

/// The last hidden state of a ModernBERT, `[batch, sequence, hidden]`.
fn modern(graph: &mut Graph<'_>, config: &DebertaConfig, inputs: &Inputs) -> Result<Value> {
    let d = config.hidden_size;
    let epsilon = config.layer_norm_eps;
    let prefix = config.family.prefix();
    let words = format!("{prefix}.embeddings.tok_embeddings.weight");
    let x = graph.rows(&words, [config.vocab_size, d], &inputs.ids)?;
    let mut x = graph.unshifted_norm(&x, &format!("{prefix}.embeddings.norm"), d, epsilon)?;
    let mut kinds: Vec<(LayerAttention, ModernScores)> = Vec::new();
    for (layer, &own) in config.layer_attention.iter().enumerate() {
        let known = kinds.iter().find(|(kind, _)| *kind == own).map(|(_, scores)| scores.clone());
        let scores = known.unwrap_or_else(|| {
            let scores = ModernScores::new(graph, config, own, inputs);
            kinds.push((own, scores.clone()));
            scores
        });
        let path = format!("{}.{layer}", config.family.stack());
        x = modern_layer(graph, config, &path, layer, &x, &scores)?;
    }
    graph.unshifted_norm(&x, &format!("{prefix}.final_norm"), d, epsilon)
}

/// Terms that the layers with one kind of attention have in common.
#[derive(Clone)]
struct ModernScores {
    /// Cosines and signed sines of the rotation, `[sequence, width]`.
    rotation: [Value; 2],
    /// Added to every score, `[batch, 1, 1 | sequence, sequence]`.
    bias: Value,
}

impl ModernScores {
    fn new(
        graph: &mut Graph<'_>,
        config: &DebertaConfig,
        attention: LayerAttention,
        inputs: &Inputs,
    ) -> Self {
        let (start, step) = (graph.ints(&[], &[0]), graph.ints(&[], &[1]));
        let length = inputs.length(graph, 1);
        let places = graph.op("Range", &[&start, &length, &step], []);
        let (rows, width) =
            (config.max_position_embeddings, config.hidden_size / config.num_attention_heads);
        let angle = |at: usize| {
            // The second half of the features has the angles of the first.
            let (row, pair) = (at / width, at % width % (width / 2));
            row as f64 * attention.rope_theta.powf(-((2 * pair) as f64) / width as f64)
        };
        // x₁·cos − x₂·sin, and x₂·cos + x₁·sin.
        let sign = |at: usize| if at % width < width / 2 { -1.0 } else { 1.0 };
        let cos: Vec<f64> = (0..rows * width).map(|at| angle(at).cos()).collect();
        let sin: Vec<f64> = (0..rows * width).map(|at| sign(at) * angle(at).sin()).collect();
        let rotation = [cos, sin].map(|table| {
            let table = graph.numbers(&[rows, width], &table);
            graph.op("Gather", &[&table, &places], [])
        });
        let mut bias = inputs.key_bias(graph);
        if let Some(window) = attention.window {
            let window = window as i64;
            let is_far = |distance: i64| i64::from(distance.abs() > window);
            let far = distance_rows(graph, inputs, is_far, window + 2);
            let to = Setting::Int("to", DataType::Float as i64);
            let far = graph.op("Cast", &[&far], [to]);
            let lowest = graph.number(f64::from(f32::MIN));
            let far = graph.op("Mul", &[&far, &lowest], []);
            bias = graph.op("Add", &[&bias, &far], []);
        }
        Self { rotation, bias }
    }

    /// Rotates every head of `[batch, heads, sequence, width]`.
    fn rotated(&self, graph: &mut Graph<'_>, x: &Value, width: i64) -> Value {
        let half = width / 2;
        let order: Vec<i64> = (half..width).chain(0..half).collect();
        let order = graph.ints(&[order.len()], &order);
        let swapped = graph.op("Gather", &[x, &order], [Setting::Int("axis", 3)]);
        let [cos, sin] = &self.rotation;
        let straight = graph.op("Mul", &[x, cos], []);
        let crossed = graph.op("Mul", &[&swapped, sin], []);
        graph.op("Add", &[&straight, &crossed], [])
    }
}

fn modern_layer(
    graph: &mut Graph<'_>,
    config: &DebertaConfig,
    path: &str,
    layer: usize,
    x: &Value,
    scores: &ModernScores,
) -> Result<Value> {
    let d = config.hidden_size;
    let wide = config.intermediate_size;
    let epsilon = config.layer_norm_eps;
    let heads = config.num_attention_heads;
    let width = d / heads;
    let normed = match layer {
        // The embeddings are normalised.
        0 => x.clone(),
        _ => graph.unshifted_norm(x, &format!("{path}.attn_norm"), d, epsilon)?,
    };
    let all = graph.linear(&normed, &format!("{path}.attn.Wqkv"), [d, 3 * d], false)?;
    let split = graph.ints(&[5], &[0, 0, 3, heads as i64, width as i64]);
    let all = graph.op("Reshape", &[&all, &split], []);
    let all = graph.op("Transpose", &[&all], [Setting::Ints("perm", vec![2, 0, 3, 1, 4])]);
    let [q, k, v] = [0, 1, 2].map(|part| {
        let part = graph.ints(&[], &[part]);
        graph.op("Gather", &[&all, &part], [])
    });
    let [q, k] = [q, k].map(|x| scores.rotated(graph, &x, width as i64));
    let k = graph.op("Transpose", &[&k], [Setting::Ints("perm", vec![0, 1, 3, 2])]);
    let product = graph.op("MatMul", &[&q, &k], []);
    let scale = graph.number(1.0 / (width as f64).sqrt());
    let product = graph.op("Mul", &[&product, &scale], []);
    let product = graph.op("Add", &[&product, &scores.bias], []);
    let weights = graph.op("Softmax", &[&product], [Setting::Int("axis", -1)]);
    let context = graph.op("MatMul", &[&weights, &v], []);
    let context = graph.op("Transpose", &[&context], [Setting::Ints("perm", vec![0, 2, 1, 3])]);
    let joined = graph.ints(&[3], &[0, 0, d as i64]);
    let context = graph.op("Reshape", &[&context, &joined], []);
    let mixed = graph.linear(&context, &format!("{path}.attn.Wo"), [d, d], false)?;
    let x = graph.op("Add", &[x, &mixed], []);
    let normed = graph.unshifted_norm(&x, &format!("{path}.mlp_norm"), d, epsilon)?;
    let both = graph.linear(&normed, &format!("{path}.mlp.Wi"), [d, 2 * wide], false)?;
    let halves = graph.ints(&[4], &[0, 0, 2, wide as i64]);
    let both = graph.op("Reshape", &[&both, &halves], []);
    let [first, second] = [0, 1].map(|half| {
        let half = graph.ints(&[], &[half]);
        graph.op("Gather", &[&both, &half], [Setting::Int("axis", 2)])
    });
    let gate = activation(graph, config.hidden_act, &first);
    let gated = graph.op("Mul", &[&gate, &second], []);
    let out = graph.linear(&gated, &format!("{path}.mlp.Wo"), [wide, d], false)?;
    Ok(graph.op("Add", &[&x, &out], []))
}
