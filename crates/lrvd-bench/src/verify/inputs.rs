//! Batches of token ids, checked against a model's configuration before anything is computed.

use std::path::Path;

use burn::tensor::{DType, Device, Int, Tensor, TensorData, activation};
use lrvd_burn::files::{TensorFile, is_float};
use lrvd_models::TokenBatch;
use lrvd_models::deberta::{DebertaConfig, ProblemType};

use super::{
    Comparison, Folder, Values, VerifyError, open, read_finite, read_indices, read_integers,
    same_shape,
};

/// File name of the inputs.
const FILE: &str = "inputs.safetensors";
/// Everything that a batch may hold.
const KNOWN: [&str; 4] = ["input_ids", "attention_mask", "token_type_ids", "labels"];

/// What the model should answer.
#[derive(Clone, Debug)]
pub(super) enum Labels {
    Classes(Vec<usize>),
    Scores(Vec<f64>),
}

/// One padded batch on the host.
#[derive(Clone, Debug)]
pub(super) struct Batch {
    pub(super) rows: usize,
    pub(super) tokens: usize,
    ids: Vec<i64>,
    types: Vec<i64>,
    /// 1 for tokens, 0 for padding, `[rows, tokens]`.
    pub(super) mask: Vec<i64>,
    pub(super) labels: Option<Labels>,
    n_labels: usize,
}

impl Batch {
    /// The single batch of a folder.
    pub(super) fn read(folder: &Folder, config: &DebertaConfig) -> Result<Self, VerifyError> {
        let mut batches = read_batches(&folder.dir, config, false)?;
        Ok(batches.remove(0))
    }

    /// The batches of a training run: index `t` of the first axis is step `t`.
    pub(super) fn read_steps(
        folder: &Folder,
        config: &DebertaConfig,
    ) -> Result<Vec<Self>, VerifyError> {
        read_batches(&folder.dir, config, true)
    }

    /// A small batch of made-up ids: a full row and a padded one.
    pub(super) fn built_in(config: &DebertaConfig) -> Self {
        let (rows, tokens) = (2, 8.min(config.max_position_embeddings));
        let full = tokens.div_ceil(2);
        let mask = |i: usize| i64::from(i < tokens || i - tokens < full);
        let id = |i: usize| (mask(i) as usize * (1 + 7 * i) % config.vocab_size) as i64;
        let cells = rows * tokens;
        Self {
            rows,
            tokens,
            ids: (0..cells).map(id).collect(),
            types: vec![0; cells],
            mask: (0..cells).map(mask).collect(),
            labels: None,
            n_labels: config.num_labels(),
        }
    }

    /// Compares what the folder says about the batch.
    pub(super) fn check_description(
        &self,
        comparison: &mut Comparison<'_>,
    ) -> Result<(), VerifyError> {
        comparison.described(&[("num_labels", &[self.n_labels as f64])])?;
        check_lengths(comparison, &self.mask, self.tokens)
    }

    pub(super) fn upload(&self, device: &Device, dtype: DType) -> TokenBatch {
        upload(&self.ids, &self.types, &self.mask, [self.rows, self.tokens], device, dtype)
    }

    /// The mean loss of `[rows, labels]` logits, `[1]`; none without labels.
    ///
    /// ```text
    /// classes:  −1/n Σ_i ln softmax(z_i)[y_i]        scores:  1/n Σ_i (z_i − y_i)²
    /// ```
    pub(super) fn loss(&self, logits: Tensor<2>) -> Option<Tensor<1>> {
        let (device, dtype) = (logits.device().inner(), logits.dtype());
        // Multiplied, not divided: the backward pass of a division by a number rounds its
        // reciprocal to single precision.
        let share = 1.0 / self.rows as f64;
        Some(match self.labels.as_ref()? {
            Labels::Classes(classes) => {
                let mut one_hot = vec![0.0_f32; self.rows * self.n_labels];
                for (row, &class) in classes.iter().enumerate() {
                    one_hot[row * self.n_labels + class] = 1.0;
                }
                let data = TensorData::new(one_hot, [self.rows, self.n_labels]);
                let one_hot = Tensor::<2>::from_data(data, (&device, dtype));
                let chosen = activation::log_softmax(logits, 1) * one_hot;
                chosen.sum().mul_scalar(-share)
            }
            Labels::Scores(scores) => {
                let data = TensorData::new(scores.clone(), [self.rows, 1]);
                let scores = Tensor::<2>::from_data(data, (&device, dtype));
                (logits - scores).square().sum().mul_scalar(share)
            }
        })
    }
}

/// A batch on the device, `[rows, tokens]`.
pub(super) fn upload(
    ids: &[i64],
    types: &[i64],
    mask: &[i64],
    shape: [usize; 2],
    device: &Device,
    dtype: DType,
) -> TokenBatch {
    let ints = |values: &[i64]| {
        Tensor::<2, Int>::from_data(TensorData::new(values.to_vec(), shape), device)
    };
    let mask: Vec<f32> = mask.iter().map(|&m| m as f32).collect();
    TokenBatch {
        ids: ints(ids),
        type_ids: ints(types),
        mask: Tensor::from_data(TensorData::new(mask, shape), (device, dtype)),
        barred: None,
    }
}

/// Compares what the folder says about the lengths of rows.
pub(super) fn check_lengths(
    comparison: &mut Comparison<'_>,
    mask: &[i64],
    tokens: usize,
) -> Result<(), VerifyError> {
    let row = |row: &[i64]| row.iter().sum::<i64>() as f64;
    let lengths: Vec<f64> = mask.chunks(tokens).map(row).collect();
    comparison.described(&[("lengths", &lengths), ("padded_length", &[tokens as f64])])
}

/// 1 for tokens, 0 for padding.
pub(super) fn read_mask(file: &TensorFile, shape: &[usize]) -> Result<Vec<i64>, VerifyError> {
    let name = "attention_mask";
    let (found, mask) = read_integers(file, name)?;
    same_shape(file, name, shape, &found)?;
    match mask.iter().position(|m| !(0..=1).contains(m)) {
        None => Ok(mask),
        Some(index) => Err(VerifyError::value(file, name, index, mask[index] as f64, "0 or 1")),
    }
}

fn read_batches(
    dir: &Path,
    config: &DebertaConfig,
    steps: bool,
) -> Result<Vec<Batch>, VerifyError> {
    let file = open(dir, FILE)?;
    if let Some(name) = file.names().find(|name| !KNOWN.contains(name)) {
        return Err(VerifyError::unsupported(format!("input tensor `{name}`")));
    }
    let (shape, ids) = read_indices(&file, "input_ids", config.vocab_size)?;
    let wanted = if steps { "[steps, batch, tokens]" } else { "[batch, tokens]" };
    let (count, rows, tokens) = match (shape.as_slice(), steps) {
        (&[rows, tokens], false) => (1, rows, tokens),
        (&[count, rows, tokens], true) => (count, rows, tokens),
        (found, _) => return Err(VerifyError::shape(file.path(), "input_ids", wanted, found)),
    };
    if count * rows * tokens == 0 {
        let wanted = format!("{wanted}, none of them 0");
        return Err(VerifyError::shape(file.path(), "input_ids", wanted, &shape));
    }
    if config.position_biased_input && tokens > config.max_position_embeddings {
        let limit = config.max_position_embeddings;
        let what = format!("{tokens} tokens with {limit} absolute position embeddings");
        return Err(VerifyError::unsupported(what));
    }
    let mask = read_mask(&file, &shape)?;
    let types = if file.contains("token_type_ids") {
        // Without a table the types are not looked up, so any value does.
        let limit = if config.type_vocab_size > 0 { config.type_vocab_size } else { usize::MAX };
        let (found, types) = read_indices(&file, "token_type_ids", limit)?;
        same_shape(&file, "token_type_ids", &shape, &found)?;
        types
    } else {
        vec![0; ids.len()]
    };
    let labels = read_labels(&file, config, &shape[..shape.len() - 1])?;
    let cells = rows * tokens;
    let ints = |values: &[usize], t: usize| -> Vec<i64> {
        values[t * cells..(t + 1) * cells].iter().map(|&v| v as i64).collect()
    };
    Ok((0..count)
        .map(|t| Batch {
            rows,
            tokens,
            ids: ints(&ids, t),
            types: if config.type_vocab_size > 0 { ints(&types, t) } else { vec![0; cells] },
            mask: mask[t * cells..(t + 1) * cells].to_vec(),
            labels: labels.as_ref().map(|labels| match labels {
                Labels::Classes(c) => Labels::Classes(c[t * rows..(t + 1) * rows].to_vec()),
                Labels::Scores(s) => Labels::Scores(s[t * rows..(t + 1) * rows].to_vec()),
            }),
            n_labels: config.num_labels(),
        })
        .collect())
}

fn read_labels(
    file: &TensorFile,
    config: &DebertaConfig,
    shape: &[usize],
) -> Result<Option<Labels>, VerifyError> {
    let name = "labels";
    if !file.contains(name) {
        return Ok(None);
    }
    match config.problem() {
        ProblemType::Classification => {
            let (found, classes) = read_indices(file, name, config.num_labels())?;
            same_shape(file, name, shape, &found)?;
            Ok(Some(Labels::Classes(classes)))
        }
        ProblemType::Regression => {
            if !file.dtype(name).is_some_and(is_float) {
                return Err(VerifyError::unsupported("a regression whose `labels` are no floats"));
            }
            let Values { shape: found, values } = read_finite(file, name)?;
            same_shape(file, name, shape, &found)?;
            Ok(Some(Labels::Scores(values)))
        }
    }
}
