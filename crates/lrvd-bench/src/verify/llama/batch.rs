//! Batches of a language model, checked against its configuration before anything is computed.

use std::path::Path;

use burn::tensor::{DType, Device, Tensor, TensorData, activation};
use lrvd_burn::files::TensorFile;
use lrvd_models::TokenBatch;
use lrvd_models::llama::LlamaConfig;

use crate::verify::inputs::{check_lengths, read_mask, upload};
use crate::verify::{Comparison, VerifyError, open, read_indices, read_integers, same_shape};

/// File name of the inputs.
const FILE: &str = "inputs.safetensors";
/// Everything that a batch may hold.
const KNOWN: [&str; 6] =
    ["input_ids", "attention_mask", "position_ids", "labels", "answer_token_ids", "answer_labels"];
/// Label of a column that no loss counts.
const IGNORED: i64 = -100;

/// One padded batch on the host.
#[derive(Clone, Debug)]
pub(super) struct Batch {
    pub(super) rows: usize,
    pub(super) tokens: usize,
    ids: Vec<i64>,
    /// 1 for tokens, 0 for padding, `[rows, tokens]`.
    mask: Vec<i64>,
    /// The token that a column holds as a target, `[rows, tokens]`.
    labels: Option<Vec<Option<usize>>>,
    /// Tokens that may be the answer.
    pub(super) answers: Vec<u32>,
    /// The right one of them, by row.
    answer_labels: Option<Vec<usize>>,
    vocab_size: usize,
}

impl Batch {
    /// The batch of the folder `dir`.
    pub(super) fn read(dir: &Path, config: &LlamaConfig) -> Result<Self, VerifyError> {
        let file = open(dir, FILE)?;
        if let Some(name) = file.names().find(|name| !KNOWN.contains(name)) {
            return Err(VerifyError::unsupported(format!("input tensor `{name}`")));
        }
        let vocab_size = config.vocab_size;
        let (shape, ids) = read_indices(&file, "input_ids", vocab_size)?;
        let &[rows, tokens] = shape.as_slice() else {
            return Err(VerifyError::shape(file.path(), "input_ids", "[batch, tokens]", &shape));
        };
        if rows * tokens == 0 {
            let wanted = "[batch, tokens], none of them 0";
            return Err(VerifyError::shape(file.path(), "input_ids", wanted, &shape));
        }
        let mask = read_mask(&file, &shape)?;
        check_positions(&file, &shape, &mask)?;
        let (answers, answer_labels) = read_answers(&file, rows, vocab_size)?;
        Ok(Self {
            rows,
            tokens,
            ids: ids.into_iter().map(|id| id as i64).collect(),
            mask,
            labels: read_labels(&file, &shape, vocab_size)?,
            answers,
            answer_labels,
            vocab_size,
        })
    }

    /// A small batch of made-up ids: a full row and one that is padded on the left.
    pub(super) fn built_in(config: &LlamaConfig) -> Self {
        let (rows, tokens) = (2, 8.min(config.max_position_embeddings));
        let mask = |i: usize| i64::from(i < tokens || i - tokens >= tokens / 2);
        let id = |i: usize| (mask(i) as usize * (1 + 7 * i) % config.vocab_size) as i64;
        let cells = 0..rows * tokens;
        Self {
            rows,
            tokens,
            ids: cells.clone().map(id).collect(),
            mask: cells.map(mask).collect(),
            labels: None,
            answers: Vec::new(),
            answer_labels: None,
            vocab_size: config.vocab_size,
        }
    }

    pub(super) fn upload(&self, device: &Device, dtype: DType) -> TokenBatch {
        let types = vec![0; self.ids.len()];
        upload(&self.ids, &types, &self.mask, [self.rows, self.tokens], device, dtype)
    }

    /// Whether column `column` of row `row` is no padding.
    pub(super) fn is_real(&self, row: usize, column: usize) -> bool {
        self.mask[row * self.tokens + column] == 1
    }

    /// Whether the entry at a row-major index of `[rows, tokens, width]` stands at no padding.
    pub(super) fn real_entry(&self, index: usize, width: usize) -> bool {
        self.mask[index / width] == 1
    }

    /// Compares what the folder says about the batch.
    pub(super) fn check_description(
        &self,
        comparison: &mut Comparison<'_>,
    ) -> Result<(), VerifyError> {
        check_lengths(comparison, &self.mask, self.tokens)
    }

    /// Mean loss of the next token over the columns that count, `[1]`; none without labels, or if no column counts.
    ///
    /// ```text
    /// −1/n Σ_{b,t: y ≥ 0} ln softmax(z_{b,t})[y_{b,t+1}]
    /// ```
    pub(super) fn loss(&self, logits: &Tensor<3>) -> Option<Tensor<1>> {
        let labels = self.labels.as_ref()?;
        let steps = self.tokens - 1;
        let mut chosen = vec![0.0_f32; self.rows * steps * self.vocab_size];
        let mut count = 0;
        for row in 0..self.rows {
            for step in 0..steps {
                if let Some(label) = labels[row * self.tokens + step + 1] {
                    chosen[(row * steps + step) * self.vocab_size + label] = 1.0;
                    count += 1;
                }
            }
        }
        if count == 0 {
            return None;
        }
        let shape = [self.rows, steps, self.vocab_size];
        let log_probs = activation::log_softmax(logits.clone().narrow(1, 0, steps), 2);
        // Multiplied, not divided: the backward pass of a division rounds its reciprocal to single precision.
        Some(picked(log_probs, chosen, shape).mul_scalar(-1.0 / f64::from(count)))
    }

    /// Mean loss of the right answer, `[1]`, of logits `[rows, answers]`; none without answers.
    pub(super) fn answer_loss(&self, logits: &Tensor<2>) -> Option<Tensor<1>> {
        let labels = self.answer_labels.as_ref()?;
        let width = self.answers.len();
        let mut chosen = vec![0.0_f32; self.rows * width];
        for (row, label) in labels.iter().enumerate() {
            chosen[row * width + label] = 1.0;
        }
        let log_probs = activation::log_softmax(logits.clone(), 1);
        let sum = picked(log_probs, chosen, [self.rows, width]);
        Some(sum.mul_scalar(-1.0 / self.rows as f64))
    }
}

/// Sum of the values where `chosen` is 1.
fn picked<const D: usize>(values: Tensor<D>, chosen: Vec<f32>, shape: [usize; D]) -> Tensor<1> {
    let (device, dtype) = (values.device().inner(), values.dtype());
    let chosen = Tensor::<D>::from_data(TensorData::new(chosen, shape), (&device, dtype));
    (values * chosen).sum()
}

/// Positions count real tokens from 0; at padding anything may stand.
fn check_positions(file: &TensorFile, shape: &[usize], mask: &[i64]) -> Result<(), VerifyError> {
    let name = "position_ids";
    if !file.contains(name) {
        return Ok(());
    }
    let (found, positions) = read_integers(file, name)?;
    same_shape(file, name, shape, &found)?;
    let tokens = shape[1];
    for (row, (mask, positions)) in mask.chunks(tokens).zip(positions.chunks(tokens)).enumerate() {
        let mut next = 0;
        for (column, (&real, &position)) in mask.iter().zip(positions).enumerate() {
            if real == 1 && position != next {
                let wanted = format!("{next}, the number of tokens before it");
                let index = row * tokens + column;
                return Err(VerifyError::value(file, name, index, position as f64, wanted));
            }
            next += real;
        }
    }
    Ok(())
}

fn read_labels(
    file: &TensorFile,
    shape: &[usize],
    vocab_size: usize,
) -> Result<Option<Vec<Option<usize>>>, VerifyError> {
    let name = "labels";
    if !file.contains(name) {
        return Ok(None);
    }
    let (found, labels) = read_integers(file, name)?;
    same_shape(file, name, shape, &found)?;
    let mut targets = Vec::with_capacity(labels.len());
    for (index, label) in labels.into_iter().enumerate() {
        targets.push(match usize::try_from(label).ok().filter(|&label| label < vocab_size) {
            None if label == IGNORED => None,
            None => {
                let wanted = format!("{IGNORED} or a token below {vocab_size}");
                return Err(VerifyError::value(file, name, index, label as f64, wanted));
            }
            some => some,
        });
    }
    Ok(Some(targets))
}

type Answers = (Vec<u32>, Option<Vec<usize>>);

fn read_answers(file: &TensorFile, rows: usize, vocab_size: usize) -> Result<Answers, VerifyError> {
    let (ids, labels) = ("answer_token_ids", "answer_labels");
    if !file.contains(ids) {
        return Ok((Vec::new(), None));
    }
    let (shape, answers) = read_indices(file, ids, vocab_size)?;
    if shape.len() != 1 || answers.is_empty() {
        return Err(VerifyError::shape(file.path(), ids, "[answers], at least 1", &shape));
    }
    let answer_labels = if file.contains(labels) {
        let (found, of_rows) = read_indices(file, labels, answers.len())?;
        same_shape(file, labels, &[rows], &found)?;
        Some(of_rows)
    } else {
        None
    };
    Ok((answers.into_iter().map(|id| id as u32).collect(), answer_labels))
}
