//! Tokenised examples as training and prediction read them: batches, and the splits of a task.

use std::collections::HashSet;
use std::sync::Arc;

use burn::tensor::{DType, Device, Tensor, TensorData};
use lrvd_burn::model::NamedModule;
use lrvd_burn::parameters::Group;
use lrvd_burn::train::{Examples, Targets};
use lrvd_core::metrics::mean_and_variance;
use lrvd_models::deberta::Pooling;
use lrvd_models::{Prefixes, ScoredOptions, TokenBatch};

use super::example::{drawn, drawn_by_class};
use super::{At, Label, held_out};
use crate::answers::AnswerSpace;
use crate::error::Burn;
use crate::task::Goal;

/// One example as the model sees it, special tokens included.
#[derive(Debug, Clone, PartialEq)]
pub struct TokenisedExample {
    pub ids: Vec<u32>,
    pub type_ids: Vec<u32>,
    /// Number of the classes that are answers to this one, from the first; all of them if `None`.
    pub choices: Option<usize>,
    /// Tokens of each choice or class, where these themselves are scored.
    pub scored: Option<Arc<[Vec<u32>]>>,
    /// Number of first tokens that every question about the same state shares; 0 where that saves nothing.
    pub prefix: usize,
    pub answer: Answer,
    /// Hash of the row that it was read from; 0 of an example that was not read from one.
    pub row: u64,
}

impl TokenisedExample {
    /// A single text whose answers are all classes of its task, or its own tokens.
    pub fn single(ids: Vec<u32>, answer: impl Into<Answer>) -> Self {
        Self {
            type_ids: vec![0; ids.len()],
            ids,
            choices: None,
            scored: None,
            prefix: 0,
            answer: answer.into(),
            row: 0,
        }
    }

    /// The class that it is of, by its largest share; `None` of a score and of a text.
    fn class(&self) -> Option<usize> {
        self.answer.label()?.class()
    }

    /// Number of tokens that the model reads.
    pub(crate) fn tokens(&self) -> usize {
        self.ids.len() + self.scored.iter().flat_map(|own| own.iter()).map(Vec::len).sum::<usize>()
    }
}

/// The answer that a model should give to an example.
#[derive(Debug, Clone, PartialEq)]
pub enum Answer {
    Label(Label),
    /// Tokens of a text, and the column before each, in which it is predicted.
    Tokens {
        columns: Vec<usize>,
        ids: Vec<u32>,
    },
}

impl Answer {
    /// Answers that are asked for: 1, unless they are tokens.
    pub(crate) fn count(&self) -> usize {
        match self {
            Self::Label(_) => 1,
            Self::Tokens { ids, .. } => ids.len(),
        }
    }

    pub fn label(&self) -> Option<&Label> {
        match self {
            Self::Label(label) => Some(label),
            Self::Tokens { .. } => None,
        }
    }
}

impl From<Label> for Answer {
    fn from(label: Label) -> Self {
        Self::Label(label)
    }
}

/// Examples with what makes batches of them: padding, the width of an answer, a device.
#[derive(Clone, Copy, Debug)]
pub struct TokenExamples<'a> {
    pub examples: &'a [TokenisedExample],
    pub pad_id: u32,
    /// Number of classes; 1 for scores and texts.
    pub labels: usize,
    /// Label smoothing `ε`: of `k` classes the right one is `1 − ε + ε/k` and every other `ε/k` (Szegedy et al. 2016,
    /// arXiv:1512.00567); a label that is there or not is a case of two classes.
    pub smoothing: f64,
    /// Weights of the classes in the loss, `w`: a row counts as `w_y / mean of w_y over its batch`, which divides the loss of a
    /// batch by its sum of weights. Without any, all rows count alike.
    pub weights: &'a [f64],
    /// Unit of numbers.
    pub unit: LabelUnit,
    /// Keys and values of the state that all examples are about.
    pub prefixes: Option<&'a Prefixes>,
    pub device: &'a Device,
    pub dtype: DType,
}

/// Unit of numbers in training, `(label − mean) / deviation`: rates, noise and margins are then those of labels of any unit. By
/// default that of the data.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LabelUnit {
    pub mean: f64,
    pub deviation: f64,
}

impl Default for LabelUnit {
    fn default() -> Self {
        Self { mean: 0.0, deviation: 1.0 }
    }
}

impl LabelUnit {
    /// Mean and deviation of the labels of `rows`; the unit of the data where they are no numbers, or all equal. The mean stays
    /// 0 for a head without a bias, which cannot give it back.
    pub(crate) fn of(rows: &[TokenisedExample], has_bias: bool) -> Self {
        let scores: Vec<f64> = rows.iter().filter_map(|row| row.answer.label()?.score()).collect();
        let Some((center, variance)) = mean_and_variance(&scores).ok().flatten() else {
            return Self::default();
        };
        Self { mean: if has_bias { center } else { 0.0 }, deviation: variance.sqrt() }
    }

    fn standard(self, label: f64) -> f64 {
        (label - self.mean) / self.deviation
    }

    /// Changes the head of `model` so that numbers that it predicts in this unit are in that of `other`.
    pub(crate) fn convert(self, other: Self, model: &mut impl NamedModule) {
        if self == other {
            return;
        }
        let (factor, shift) = (self.deviation / other.deviation, other.standard(self.mean));
        model.visit_parameters_mut(&mut |p| {
            if p.group == Group::Head {
                let values = p.value.flat().mul_scalar(factor);
                let is_bias = p.name.rsplit('.').next() == Some("bias");
                p.value.set_flat(if is_bias { values.add_scalar(shift) } else { values });
            }
        });
    }
}

/// Weight `n / (k n_c)` of each of `classes`, where `n_c` of the `n` rows are of class `c`, and `k` classes have rows.
pub(crate) fn balanced(rows: &[TokenisedExample], classes: usize) -> Vec<f64> {
    let mut counts = vec![0_usize; classes];
    rows.iter().filter_map(TokenisedExample::class).for_each(|class| counts[class] += 1);
    let present = counts.iter().filter(|&&count| count > 0).count();
    let weight = |&count: &usize| rows.len() as f64 / (present * count) as f64;
    counts.iter().map(|count| if *count == 0 { 0.0 } else { weight(count) }).collect()
}

/// As many answers as `labels`, or as the example with most has.
pub(crate) fn widest<'a>(
    labels: usize,
    examples: impl IntoIterator<Item = &'a TokenisedExample>,
) -> usize {
    examples.into_iter().filter_map(|example| example.choices).fold(labels, usize::max)
}

/// The examples at `indices`, of which there is at least one.
fn picked<'a>(all: &'a [TokenisedExample], indices: &[usize]) -> Burn<Vec<&'a TokenisedExample>> {
    if indices.is_empty() {
        return Err(lrvd_burn::Error::other("a batch needs at least one example"));
    }
    let one = |&index: &usize| {
        let absent = || format!("there is no example {index}: there are {}", all.len());
        all.get(index).ok_or_else(|| lrvd_burn::Error::other(absent()))
    };
    indices.iter().map(one).collect()
}

impl<'a> TokenExamples<'a> {
    /// Without smoothing, in the unit of the labels and single precision.
    pub fn new(
        examples: &'a [TokenisedExample],
        pad_id: u32,
        labels: usize,
        device: &'a Device,
    ) -> Self {
        let smoothing = 0.0;
        let prefixes = None;
        let dtype = DType::F32;
        let unit = LabelUnit::default();
        let weights = &[];
        Self { examples, pad_id, labels, smoothing, weights, unit, prefixes, device, dtype }
    }
}

impl Examples for TokenExamples<'_> {
    type Input = TokenBatch;

    fn len(&self) -> usize {
        self.examples.len()
    }

    fn size(&self, index: usize) -> usize {
        self.examples[index].tokens()
    }

    fn input(&self, indices: &[usize]) -> Burn<TokenBatch> {
        let mut rows: Vec<(&[u32], &[u32])> = Vec::with_capacity(indices.len());
        let picked = picked(self.examples, indices)?;
        for (example, &index) in picked.iter().zip(indices) {
            let (expected, found) = (example.ids.len(), example.type_ids.len());
            if expected != found {
                return Err(lrvd_burn::Error::other(format!(
                    "example {index} has {expected} token ids but {found} segment ids"
                )));
            }
            rows.push((&example.ids, &example.type_ids));
        }
        let mut batch = TokenBatch::padded(&rows, self.pad_id, self.device, self.dtype);
        let columns = picked.iter().filter_map(|example| match &example.answer {
            Answer::Tokens { columns, .. } => Some(columns.clone()),
            Answer::Label(_) => None,
        });
        batch.columns = columns.collect();
        let scored = |example: &&TokenisedExample| {
            let options = example.scored.clone()?;
            Some(ScoredOptions { prompt: example.ids.len(), options })
        };
        if picked.iter().any(|example| example.scored.is_some()) {
            batch.scored = picked.iter().map(scored).collect();
        }
        let answers = picked.iter().map(|example| example.choices.unwrap_or(self.labels));
        if let ([example], Some(known)) = (&picked[..], self.prefixes)
            && example.prefix > 0
        {
            batch.prefix = Some((example.ids[..example.prefix].to_vec(), known.clone()));
        }
        Ok(batch.with_answer_mask(&answers.collect::<Vec<_>>(), self.labels))
    }

    fn targets(&self, indices: &[usize]) -> Burn<Targets> {
        let picked = picked(self.examples, indices)?;
        let Some(first) = picked[0].answer.label() else {
            return self.tokens(&picked, indices);
        };
        // Classes and shares of them may be in one batch.
        let is_like = |label: &&Label| match first {
            Label::Class(_) | Label::Shares(_) => {
                matches!(label, Label::Class(_) | Label::Shares(_))
            }
            Label::Set(_) => matches!(label, Label::Set(_)),
            Label::Score(_) => matches!(label, Label::Score(_)),
        };
        let width = if let Label::Score(_) = first { 1 } else { self.labels };
        let mut values = vec![0.0_f32; picked.len() * width];
        let weight = |example: &&TokenisedExample| self.weights.get(example.class()?).copied();
        let weights: Vec<f64> = picked.iter().filter_map(weight).collect();
        for ((row, example), &index) in values.chunks_mut(width).zip(picked).zip(indices) {
            match example.answer.label().filter(is_like) {
                Some(Label::Class(class)) => {
                    let answers = example.choices.unwrap_or(width);
                    row[..answers].fill((self.smoothing / answers as f64) as f32);
                    row[*class] += (1.0 - self.smoothing) as f32;
                }
                Some(Label::Shares(shares)) => {
                    let even = self.smoothing / shares.len() as f64;
                    for (target, share) in row.iter_mut().zip(shares) {
                        *target = (even + (1.0 - self.smoothing) * share) as f32;
                    }
                }
                Some(Label::Set(labels)) => {
                    row.fill((self.smoothing / 2.0) as f32);
                    for &label in labels {
                        row[label] = (1.0 - self.smoothing / 2.0) as f32;
                    }
                }
                Some(Label::Score(score)) => {
                    row[0] = self.unit.standard(*score) as f32;
                }
                None => return Err(mixed(index)),
            }
        }
        let mean = weights.iter().sum::<f64>() / weights.len().max(1) as f64;
        for (row, weight) in values.chunks_mut(width).zip(&weights) {
            for target in row {
                *target *= (weight / mean) as f32;
            }
        }
        let data = TensorData::new(values, [indices.len(), width]);
        let values = Tensor::from_data(data, (self.device, self.dtype));
        Ok(match first {
            Label::Class(_) | Label::Shares(_) => Targets::Classes(values),
            Label::Set(_) => Targets::Labels(values),
            Label::Score(_) => Targets::Scores(values),
        })
    }

    fn answers(&self, index: usize) -> usize {
        self.examples[index].answer.count()
    }
}

impl TokenExamples<'_> {
    fn tokens(&self, picked: &[&TokenisedExample], indices: &[usize]) -> Burn<Targets> {
        let mut all = Vec::new();
        let mut per_row = Vec::with_capacity(picked.len());
        for (example, &index) in picked.iter().zip(indices) {
            let Answer::Tokens { ids, .. } = &example.answer else { return Err(mixed(index)) };
            all.extend(ids.iter().map(|&id| i64::from(id)));
            per_row.push(ids.len());
        }
        let n = all.len();
        let ids = Tensor::from_data(TensorData::new(all, [n]), self.device);
        Ok(Targets::Tokens { ids, per_row })
    }
}

fn mixed(index: usize) -> lrvd_burn::Error {
    lrvd_burn::Error::other(format!("example {index} mixes classes, scores and texts in one batch"))
}

#[derive(Clone, Debug)]
pub struct PreparedTask {
    pub goal: Goal,
    pub labels: usize,
    pub train: Vec<TokenisedExample>,
    /// Examples kept out of training, by which ranks are cut or to which something is fitted afterwards.
    pub holdout: Vec<TokenisedExample>,
    pub validation: Vec<TokenisedExample>,
    pub validation_ids: Vec<String>,
    /// `true` if the validation examples were drawn from the rows of the training file.
    pub drawn_validation: bool,
    /// Places of the validation rows in their files; none where they come from no file.
    pub validation_places: Vec<At>,
    /// Unit of numbers in training.
    pub unit: LabelUnit,
    pub pad_id: u32,
    /// Tokens that stand for the classes, for a language model; empty for an encoder.
    pub answers: Vec<u32>,
    /// Remarks on the encoding for a reader of the results, one sentence each.
    pub notes: Vec<String>,
}

impl PreparedTask {
    /// `true` if a language model answers by a head like an encoder's: a number, and classes or labels where it reads the last
    /// token and not the words of a prompt.
    pub(crate) fn has_decoder_head(&self, pooling: Pooling) -> bool {
        match self.goal.answers {
            AnswerSpace::Score => true,
            AnswerSpace::Classes { .. } | AnswerSpace::Labels { .. } => {
                pooling == Pooling::Last && self.answers.is_empty()
            }
            _ => false,
        }
    }

    pub fn without_examples(goal: Goal) -> Self {
        Self {
            labels: goal.answers.width(),
            goal,
            train: Vec::new(),
            holdout: Vec::new(),
            validation: Vec::new(),
            validation_ids: Vec::new(),
            drawn_validation: false,
            validation_places: Vec::new(),
            unit: LabelUnit::default(),
            pad_id: 0,
            answers: Vec::new(),
            notes: Vec::new(),
        }
    }

    pub(crate) fn examples<'a>(
        &self,
        examples: &'a [TokenisedExample],
        device: &'a Device,
    ) -> TokenExamples<'a> {
        let Self { pad_id, labels, .. } = *self;
        TokenExamples::new(examples, pad_id, labels, device)
    }

    /// Number of training examples that [`holding_out`](Self::holding_out) keeps out.
    pub(crate) fn held_out_rows(&self, share: f64, seed: u64) -> usize {
        held_out(self.train.iter().collect(), share, seed, |row| row.class()).1.len()
    }

    /// Cuts the validation rows to `most`, in their order: of each class its share, and one row while there is room. They are
    /// drawn once, the same ones for every seed.
    pub(crate) fn limit_validation(&mut self, most: usize) {
        fn kept<T: Clone>(all: &mut Vec<T>, rows: &[usize]) {
            *all = rows.iter().filter_map(|&row| all.get(row).cloned()).collect();
        }
        let all = self.validation.len();
        let class = |&row: &usize| self.validation[row].class();
        let (_, rows) = drawn_by_class((0..all).collect(), all.saturating_sub(most), 0, class);
        // Of more classes than there is room for each had kept a row.
        let rows = drawn(rows, most, 0).0;
        kept(&mut self.validation, &rows);
        kept(&mut self.validation_ids, &rows);
        kept(&mut self.validation_places, &rows);
    }

    /// A note on the validation rows that are also trained on.
    pub(crate) fn shared_rows(&self) -> Option<String> {
        let known: HashSet<u64> = self.train.iter().map(|example| example.row).collect();
        let all = self.validation.len();
        let shared = self.validation.iter().filter(|example| known.contains(&example.row)).count();
        (shared > 0).then(|| {
            format!(
                "{shared} of {all} validation rows are also training rows: their metrics are not those of new rows"
            )
        })
    }

    /// A copy with `share` of the training examples kept out of training, drawn by class and by `seed`.
    #[must_use]
    pub fn holding_out(&self, share: f64, seed: u64) -> Self {
        let mut task = self.clone();
        let train = std::mem::take(&mut task.train);
        (task.train, task.holdout) = held_out(train, share, seed, TokenisedExample::class);
        task
    }
}

#[cfg(test)]
mod tests {
    use lrvd_burn::train::{Bucketing, OrderConfig, Ordered, negative_log_likelihood};

    use super::*;

    fn example(length: u32, label: Label) -> TokenisedExample {
        let type_ids = (0..length).map(|i| u32::from(i > 1)).collect();
        let ids = (1..=length).map(|i| 10 * i).collect();
        TokenisedExample { type_ids, ..TokenisedExample::single(ids, label) }
    }

    fn examples<'a>(examples: &'a [TokenisedExample], device: &'a Device) -> TokenExamples<'a> {
        TokenExamples::new(examples, 7, 3, device)
    }

    #[test]
    fn rows_are_padded_to_the_longest_of_the_batch_only() {
        let device = Device::flex();
        let all: Vec<_> =
            [9, 2, 4].into_iter().enumerate().map(|(i, n)| example(n, Label::Class(i))).collect();
        let examples = examples(&all, &device);
        let batch = examples.batch(&[2, 1]).unwrap();
        let numbers = |data: TensorData| data.iter::<i64>().collect::<Vec<_>>();
        assert_eq!((batch.targets.rows(), batch.tokens, batch.input.ids.dims()), (2, 6, [2, 4]));
        assert_eq!(numbers(batch.input.ids.into_data()), [10, 20, 30, 40, 10, 20, 7, 7]);
        assert_eq!(numbers(batch.input.type_ids.into_data()), [0, 0, 1, 1, 0, 0, 0, 0]);
        assert_eq!(numbers(batch.input.mask.into_data()), [1, 1, 1, 1, 1, 1, 0, 0]);
        let Targets::Classes(one_hot) = batch.targets else { panic!("classes") };
        assert_eq!(numbers(one_hot.into_data()), [0, 0, 1, 0, 1, 0]);
        assert!(batch.input.answer_mask.is_none());
    }

    #[test]
    fn answers_that_an_example_does_not_have_are_barred_and_get_no_smoothed_target() {
        let device = Device::flex();
        let choices = |choices| TokenisedExample { choices, ..example(2, Label::Class(1)) };
        let all = [choices(Some(2)), choices(Some(3)), choices(None)];
        let examples = TokenExamples { smoothing: 0.25, ..examples(&all, &device) };
        let barred = |indices: &[usize]| {
            let barred = examples.input(indices).unwrap().answer_mask?;
            Some(barred.into_data().iter::<f64>().map(|value| value < 0.0).collect::<Vec<_>>())
        };
        assert_eq!(barred(&[1, 2]), None);
        let own = [false, false, false, false, false, true];
        assert_eq!(barred(&[2, 0]), Some(own.to_vec()));
        let targets = examples.targets(&[0, 2]).unwrap();
        let Targets::Classes(targets) = targets else { panic!("classes") };
        let third = 0.25_f32 / 3.0;
        let expected = [0.125, 0.875, 0.0, third, 0.75 + third, third];
        assert_eq!(targets.into_data().iter::<f32>().collect::<Vec<_>>(), expected);
    }

    /// `CrossEntropyLoss(weight=w)` of `PyTorch` on the same logits and classes.
    #[test]
    fn the_loss_of_a_batch_is_divided_by_its_sum_of_weights() {
        let device = Device::flex();
        let all = [0, 0, 1, 2].map(|class| example(2, Label::Class(class)));
        let weights = balanced(&all, 3);
        assert_eq!(weights, [2.0 / 3.0, 4.0 / 3.0, 4.0 / 3.0]);
        let examples = TokenExamples { weights: &weights, ..examples(&all, &device) };
        let targets = examples.targets(&[0, 1, 3]).unwrap();
        let logits = Tensor::<2>::from_floats(
            [[1.0, 0.0, -1.0], [0.0, 2.0, 0.5], [0.25, -0.5, 1.0]],
            &device,
        );
        let loss = negative_log_likelihood(logits, &targets).into_data().iter::<f64>().sum::<f64>();
        assert!((loss / 3.0 - 0.942_478_291_096_036_5).abs() < 1e-6, "{loss}");
        // The micro-batches of a step are one batch: two rows of the frequent class, and one of each of the others.
        for accumulation in [1, 2, 4] {
            let config = OrderConfig {
                bucketing: Bucketing::FileOrder,
                accumulation,
                ..OrderConfig::shuffled(4)
            };
            let step = Ordered::new(&examples, config, 1).unwrap().next_step().unwrap();
            let shares = step.iter().flat_map(|batch| match &batch.targets {
                Targets::Classes(shares) => shares.to_data().iter::<f32>().collect::<Vec<_>>(),
                other => panic!("{other:?}"),
            });
            let mut present: Vec<f32> = shares.filter(|share| *share > 0.0).collect();
            present.sort_by(f32::total_cmp);
            assert_eq!(present, [2.0 / 3.0, 2.0 / 3.0, 4.0 / 3.0, 4.0 / 3.0]);
        }
        // A class without a row has no weight, and is none of the classes that share the loss.
        assert_eq!(balanced(&all[..3], 3), [0.75, 1.5, 0.0]);
    }

    #[test]
    fn labels_are_there_or_not_and_smoothed_as_two_classes() {
        let device = Device::flex();
        let all = [vec![], vec![0, 2], vec![0, 1, 2]].map(|own| example(2, Label::Set(own)));
        let labels = |smoothing: f64| {
            let examples = TokenExamples { smoothing, ..examples(&all, &device) };
            let Targets::Labels(found) = examples.targets(&[0, 1, 2]).unwrap() else {
                panic!("labels")
            };
            found.into_data().iter::<f64>().collect::<Vec<_>>()
        };
        assert_eq!(labels(0.0), [0.0, 0.0, 0.0, 1.0, 0.0, 1.0, 1.0, 1.0, 1.0]);
        assert_eq!(labels(0.25)[2..5], [0.125, 0.875, 0.125]);
        let mixed = [example(2, Label::Set(vec![0])), example(2, Label::Class(0))];
        let error = examples(&mixed, &device).targets(&[0, 1]).unwrap_err().to_string();
        assert_eq!(error, "example 1 mixes classes, scores and texts in one batch");
    }

    #[test]
    fn what_does_not_fit_is_named() {
        let device = Device::flex();
        let mut all = vec![
            example(3, Label::Score(1.5)),
            example(2, Label::Score(0.0)),
            example(2, Label::Class(0)),
        ];
        let scores = examples(&all, &device).targets(&[1, 0]).unwrap();
        let Targets::Scores(scores) = scores else { panic!("scores") };
        assert_eq!(scores.into_data().iter::<f64>().collect::<Vec<_>>(), [0.0, 1.5]);
        let failed = |all: &[_], indices: &[usize]| {
            examples(all, &device).batch(indices).unwrap_err().to_string()
        };
        assert_eq!(failed(&all, &[0, 2]), "example 2 mixes classes, scores and texts in one batch");
        assert_eq!(failed(&all, &[3]), "there is no example 3: there are 3");
        assert_eq!(failed(&all, &[]), "a batch needs at least one example");
        all[1].type_ids.pop();
        assert_eq!(failed(&all, &[0, 1]), "example 1 has 2 token ids but 1 segment ids");
    }

    #[test]
    fn labels_have_the_same_standard_values_in_every_unit() {
        for (factor, shift) in [(1.0, 0.0), (0.1, 0.5), (1000.0, -2e4)] {
            let rows = [1.0, 3.0, 5.0, 7.0].map(|y| example(2, Label::Score(factor * y + shift)));
            // A deviation of √5 around 4.
            let unit = LabelUnit::of(&rows, true);
            let found = unit.standard(factor * 9.0 + shift);
            assert!((found - 5.0_f64.sqrt()).abs() < 1e-9, "{unit:?}");
            assert_eq!(LabelUnit::of(&rows, false).mean, 0.0);
        }
        assert_eq!(LabelUnit::of(&[example(2, Label::Score(1.5))], true), LabelUnit::default());
        assert_eq!(LabelUnit::of(&[example(2, Label::Class(1))], true), LabelUnit::default());
    }
}
