//! Padded batches of token ids, and what a model should answer to them.

use anyhow::{Context, Result, ensure};
use burn::tensor::{DType, Device, Int, Tensor, TensorData};
use lrvd_burn::files::WeightStore;
use lrvd_burn::train::{Targets, TokenTargets, negative_log_likelihood};
use lrvd_models::TokenBatch;
use lrvd_models::deberta::{DebertaConfig, ProblemType};

use crate::case::{Case, Limit, Values};

/// Where everything is computed.
pub(crate) fn device() -> Device {
    Device::flex()
}

/// The batches of a folder, `[steps, rows, tokens]`; outside of training runs there is one step.
pub(crate) struct Inputs {
    file: WeightStore,
    dtype: DType,
    pub(crate) steps: usize,
    pub(crate) rows: usize,
    pub(crate) tokens: usize,
    /// 1 for tokens, 0 for padding.
    pub(crate) mask: Vec<i64>,
}

impl Inputs {
    /// Reads `inputs.safetensors`, which may hold ids, a mask and the tensors `others`.
    pub(crate) fn read(case: &Case, others: &[&str]) -> Result<Self> {
        let file = case.inputs(&[&["input_ids", "attention_mask"], others].concat())?;
        let ids = file.read("input_ids")?;
        let (steps, rows, tokens) = match *ids.shape() {
            [rows, tokens] => (1, rows, tokens),
            [steps, rows, tokens] => (steps, rows, tokens),
            ref other => anyhow::bail!("`input_ids` has shape {other:?}"),
        };
        let mask = file.read("attention_mask")?.to_i64()?;
        ensure!(mask.len() == steps * rows * tokens, "`attention_mask` has another shape");
        ensure!(mask.iter().all(|m| (0..=1).contains(m)), "`attention_mask` is not 0 or 1");
        Ok(Self { file, dtype: case.dtype, steps, rows, tokens, mask })
    }

    /// Compares what the folder says about the lengths of rows.
    pub(crate) fn describe(&self, case: &mut Case) -> Result<()> {
        let lengths = self.mask.chunks(self.tokens).map(|row| row.iter().sum::<i64>() as f64);
        case.described("lengths", &lengths.collect::<Vec<_>>(), Limit::EXACT)?;
        case.described("padded_length", &[self.tokens as f64], Limit::EXACT)
    }

    /// Whether the entry at a row-major index of `[rows, tokens, width]` is no padding.
    pub(crate) fn is_real(&self, index: usize, width: usize) -> bool {
        self.mask[index / width] == 1
    }

    /// Compares `[rows, tokens, width]` where it is no padding, if it is recorded.
    pub(crate) fn compare(&self, case: &mut Case, name: &str, found: Tensor<3>) -> Result<()> {
        let width = found.dims()[2];
        let found = Values::of(found).keeping(|index| self.is_real(index, width));
        if case.has(name) { case.tolerated(name, &found) } else { Ok(()) }
    }

    /// The batch of a step.
    pub(crate) fn batch(&self, step: usize) -> Result<TokenBatch> {
        let (rows, tokens) = (self.rows, self.tokens);
        let cells = step * rows * tokens..(step + 1) * rows * tokens;
        let ints = |values: &[i64]| {
            let data = TensorData::new(values[cells.clone()].to_vec(), [rows, tokens]);
            Tensor::<2, Int>::from_data(data, &device())
        };
        let ids = ints(&self.file.read("input_ids")?.to_i64()?);
        let type_ids = match self.integers("token_type_ids")? {
            Some(types) => ints(&types),
            None => ids.zeros_like(),
        };
        let mask: Vec<f64> = self.mask[cells.clone()].iter().map(|&m| m as f64).collect();
        let mask = self.floats(mask, [rows, tokens]);
        Ok(TokenBatch::new(ids, type_ids, mask))
    }

    /// What a classifier should answer in a step; none without labels.
    pub(crate) fn targets(&self, step: usize, config: &DebertaConfig) -> Result<Option<Targets>> {
        if !self.file.contains("labels") {
            return Ok(None);
        }
        let labels = Values::read(&self.file, "labels")?.values;
        let labels = &labels[step * self.rows..(step + 1) * self.rows];
        Ok(Some(match config.problem() {
            ProblemType::Classification => self.classes(labels, config.num_labels())?,
            ProblemType::Regression => {
                Targets::Scores(self.floats(labels.to_vec(), [self.rows, 1]))
            }
        }))
    }

    /// The text with the columns whose next token is labelled, and those tokens; none without labels.
    pub(crate) fn text(&self) -> Result<Option<(TokenBatch, Targets)>> {
        let Some(labels) = self.integers("labels")? else { return Ok(None) };
        let asked = |row: &[i64]| (1..row.len()).filter(|&t| row[t] >= 0).map(|t| t - 1).collect();
        let columns: Vec<Vec<usize>> = labels.chunks(self.tokens).map(asked).collect();
        let next = |(row, columns): (&[i64], &Vec<usize>)| -> Vec<i64> {
            columns.iter().map(|t| row[t + 1]).collect()
        };
        let ids = labels.chunks(self.tokens).zip(&columns).map(next).collect::<Vec<_>>().concat();
        if ids.is_empty() {
            return Ok(None);
        }
        let per_row = columns.iter().map(Vec::len).collect();
        let n = ids.len();
        let ids = Tensor::<1, Int>::from_data(TensorData::new(ids, [n]), &device());
        let text = TokenBatch { columns, ..self.batch(0)? };
        Ok(Some((text, Targets::Tokens(TokenTargets { ids, per_row }))))
    }

    /// The tokens that may be the answer, and which of them is right, if both are recorded.
    pub(crate) fn answers(&self) -> Result<(Vec<u32>, Option<Targets>)> {
        let ids = self.integers("answer_token_ids")?.unwrap_or_default();
        let labels = self.integers("answer_labels")?;
        let labels = labels.map(|l| l.into_iter().map(|l| l as f64).collect::<Vec<_>>());
        let targets = labels.map(|labels| self.classes(&labels, ids.len())).transpose()?;
        Ok((ids.into_iter().map(|id| id as u32).collect(), targets))
    }

    fn classes(&self, labels: &[f64], classes: usize) -> Result<Targets> {
        let mut one_hot = vec![0.0; self.rows * classes];
        for (row, &label) in labels.iter().enumerate() {
            ensure!((0.0..classes as f64).contains(&label), "label {label} of {classes} classes");
            one_hot[row * classes + label as usize] = 1.0;
        }
        Ok(Targets::Classes(self.floats(one_hot, [self.rows, classes])))
    }

    fn integers(&self, name: &str) -> Result<Option<Vec<i64>>> {
        let tensor = self.file.contains(name).then(|| self.file.read(name)).transpose()?;
        tensor.map(|t| t.to_i64().with_context(|| format!("tensor `{name}`"))).transpose()
    }

    fn floats(&self, values: Vec<f64>, shape: [usize; 2]) -> Tensor<2> {
        let data = TensorData::new(values, shape).convert_dtype(self.dtype);
        Tensor::from_data(data, (&device(), self.dtype))
    }
}

/// Mean over the answers of the negative log-likelihood, as in training.
pub(crate) fn mean_loss(logits: Tensor<2>, targets: &Targets) -> Tensor<1> {
    // Multiplied, not divided: Burn's gradient of a division rounds the reciprocal to single precision.
    negative_log_likelihood(logits, targets).mul_scalar(1.0 / targets.answers() as f64)
}
