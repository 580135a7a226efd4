//! Token ids and masks of one padded batch, as every model here reads them.

use std::any::Any;
use std::sync::{Arc, Mutex, PoisonError};

use burn::tensor::{DType, Device, Int, Tensor, TensorData};
use lrvd_burn::adapter::repeat_for_members;
use lrvd_burn::sampling::Pass;

/// Added to the logit of an answer that a row does not have. Finite, since a value that is not a number is an error
/// everywhere, and so low that its probability is 0 in double precision, also under a temperature of 100.
pub(crate) const MASKED_LOGIT: f32 = -1e6;

/// The options of a row that are scored by their texts, behind a prompt of `prompt` tokens without padding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScoredOptions {
    /// Tokens of the row.
    pub prompt: usize,
    /// Tokens of each option, at least one.
    pub options: Arc<[Vec<u32>]>,
}

/// Caches of texts that several batches start with, computed once for each pass.
#[derive(Clone, Debug, Default)]
pub struct Prefixes(Arc<Mutex<Vec<Prefix>>>);

/// Tokens, pass, and the model's cache of them.
type Prefix = (Vec<u32>, Pass, Box<dyn Any + Send>);

impl Prefixes {
    /// Cache of `ids` in this pass; `read` computes it the first time.
    pub(crate) fn get_or_read<T: Clone + Send + 'static>(
        &self,
        ids: &[u32],
        pass: &Pass,
        read: impl FnOnce() -> T,
    ) -> T {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut known = all.iter().filter(|(own, of, _)| own == ids && of == pass);
        if let Some(kept) = known.find_map(|(.., kept)| kept.downcast_ref::<T>()) {
            return kept.clone();
        }
        let kept = read();
        all.push((ids.to_vec(), *pass, Box::new(kept.clone())));
        kept
    }
}

/// One padded batch, all tensors `[batch, tokens]` but for [`answer_mask`](Self::answer_mask).
#[derive(Clone, Debug)]
pub struct TokenBatch {
    /// Token ids.
    pub ids: Tensor<2, Int>,
    /// Segment ids; read only by checkpoints with a segment table.
    pub type_ids: Tensor<2, Int>,
    /// 1 for tokens, 0 for padding, in the model's float type.
    pub mask: Tensor<2>,
    /// Added to the logits, `[batch, answers]`, where not every row has every answer; see
    /// [`with_answer_mask`](Self::with_answer_mask).
    pub answer_mask: Option<Tensor<2>>,
    /// Columns of each row whose next token a language model predicts; empty for a classifier.
    pub columns: Vec<Vec<usize>>,
    /// Of each row the options that are [scored](crate::llama::LlamaForCausalLm::option_logits), none where it is answered
    /// otherwise; empty if all are.
    pub scored: Vec<Option<ScoredOptions>>,
    /// Of a single row without padding: its first tokens, where other batches start with them, too. A language model reads them
    /// once for all of these, in passes whose noise allows it.
    pub prefix: Option<(Vec<u32>, Prefixes)>,
}

impl TokenBatch {
    /// Batch in which every row has every answer.
    pub const fn new(ids: Tensor<2, Int>, type_ids: Tensor<2, Int>, mask: Tensor<2>) -> Self {
        Self {
            ids,
            type_ids,
            mask,
            answer_mask: None,
            columns: Vec::new(),
            scored: Vec::new(),
            prefix: None,
        }
    }

    /// Rows of token ids and segment ids, padded on the right to the longest row with `pad_id`, segment
    /// 0 and mask 0.
    pub fn padded(rows: &[(&[u32], &[u32])], pad_id: u32, device: &Device, dtype: DType) -> Self {
        let length = rows.iter().map(|(ids, _)| ids.len()).max().unwrap_or(0);
        let shape = [rows.len(), length];
        let fill = |of: &dyn Fn(usize, usize) -> u32| -> TensorData {
            let cells = (0..rows.len()).flat_map(|row| (0..length).map(move |i| (row, i)));
            TensorData::new(cells.map(|(row, i)| i64::from(of(row, i))).collect::<Vec<_>>(), shape)
        };
        let ids = fill(&|row, i| rows[row].0.get(i).copied().unwrap_or(pad_id));
        let type_ids = fill(&|row, i| rows[row].1.get(i).copied().unwrap_or(0));
        let mask = fill(&|row, i| u32::from(i < rows[row].0.len()));
        let [ids, type_ids] = [ids, type_ids].map(|data| Tensor::from_data(data, device));
        let mask = Tensor::from_data(mask.convert::<f32>(), (device, dtype));
        Self::new(ids, type_ids, mask)
    }

    /// This batch with a mask by which row `i` has the first `answers[i]` of `width` answers.
    ///
    /// ```text
    /// logits[i, k] + (0 if k < answers[i], else −10⁶)
    /// ```
    #[must_use]
    pub fn with_answer_mask(self, answers: &[usize], width: usize) -> Self {
        if answers.iter().all(|&own| own >= width) {
            return self;
        }
        let row = |&own: &usize| (0..width).map(move |k| if k < own { 0.0 } else { MASKED_LOGIT });
        let values: Vec<f32> = answers.iter().flat_map(row).collect();
        let data = TensorData::new(values, [answers.len(), width]);
        let device = self.mask.device();
        let dtype = self.mask.dtype();
        Self { answer_mask: Some(Tensor::from_data(data, (&device, dtype))), ..self }
    }

    /// `times` copies of the batch, one after the other.
    #[must_use]
    pub fn repeat(&self, times: usize) -> Self {
        if times == 1 {
            return self.clone();
        }
        Self {
            ids: repeat_for_members(self.ids.clone(), times),
            type_ids: repeat_for_members(self.type_ids.clone(), times),
            mask: repeat_for_members(self.mask.clone(), times),
            answer_mask: self.answer_mask.clone().map(|mask| repeat_for_members(mask, times)),
            columns: vec![&self.columns[..]; times].concat(),
            scored: vec![&self.scored[..]; times].concat(),
            prefix: None,
        }
    }

    /// Batch of the rows `rows`, without scored options.
    pub(crate) fn rows(&self, rows: &[usize]) -> Self {
        let at: Vec<i64> = rows.iter().map(|&row| row as i64).collect();
        let at = Tensor::from_data(TensorData::new(at, [rows.len()]), &self.mask.device());
        let columns = rows.iter().filter_map(|&row| self.columns.get(row).cloned());
        Self {
            ids: self.ids.clone().select(0, at.clone()),
            type_ids: self.type_ids.clone().select(0, at.clone()),
            mask: self.mask.clone().select(0, at.clone()),
            answer_mask: self.answer_mask.clone().map(|mask| mask.select(0, at)),
            columns: columns.collect(),
            scored: Vec::new(),
            prefix: None,
        }
    }
}

/// Indices on the device of `like`.
pub(crate) fn indices<const D: usize>(
    places: impl Iterator<Item = usize>,
    like: &Tensor<D>,
) -> Tensor<1, Int> {
    let places: Vec<i32> = places.map(|place| place as i32).collect();
    Tensor::from_ints(places.as_slice(), &like.device().inner())
}
