//! A base model with an adapter on it: what classifiers and language models share, and the answers of a classifier.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{anyhow, bail};
use burn::tensor::{DType, Device};
use lrvd_burn::model::NamedModule;
use lrvd_burn::peft::{POSTERIOR_FILE, attach_peft, attach_posterior};
use lrvd_burn::sampling::{Draws, Pass};
use lrvd_burn::train::{ClassAnswer, DrawPolicy, Inputs, PassWatch, Prediction, ScoreAnswer};
use lrvd_models::tokenizer::TextTokenizer;
use lrvd_models::{AutoModel, Prefixes};

use super::description::{Description, check_draws};
use super::open::{Adapter, OpenOptions};
use crate::answers::{AnswerSpace, MOST_OPTIONS};
use crate::backbone::{Backbone, Head, ModelLocation, load_model};
use crate::data::batch::{TokenExamples, TokenisedExample, widest};
use crate::data::{Columns, Cut, CutInputs, Input, Label, TextColumns, TextReader};
use crate::error::{Burn, Error, Kind, Result, kind_of};
use crate::method::softened;
use crate::run::NO_CASCADE;
use crate::settings::BasePrecision;
use crate::text::quoted;
use crate::unused::Unused;

/// Rule by which answers are withheld, as it is asked for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum AbstainBy {
    /// What was fitted: the threshold, and the detector that it was fitted with.
    Fitted,
    /// An entropy above this, nats.
    Above(f64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sampler {
    Mean,
    Posterior,
    Dropout,
}

pub struct SavedModel<M, I> {
    pub info: I,
    /// Remarks for a reader, one sentence each: that the run of the model is not finished, or a file of it has changed.
    pub warnings: Vec<String>,
    /// The folder that was loaded: the adapter's, or the base model's.
    pub(super) dir: PathBuf,
    pub(super) sampler: Sampler,
    pub(super) policy: DrawPolicy,
    /// The longest input that was asked for.
    pub(super) max_length: Option<usize>,
    /// Inputs that were longer than the longest that is read, if they are counted.
    cut: Option<Mutex<CutInputs>>,
    pub(super) model: M,
    pub(super) backbone: Arc<Backbone>,
    /// Tokenizer in the folder of the adapter of a language model, in place of the base's.
    pub(super) tokenizer: Option<TextTokenizer>,
    pub(super) device: Device,
}

impl<M, I> SavedModel<M, I> {
    /// `model` of `backbone` without an adapter, or with one that is in its weights; `dir` is what it is called.
    pub(super) fn bare(
        info: I,
        dir: &Path,
        backbone: Arc<Backbone>,
        model: M,
        device: &Device,
    ) -> Self {
        Self {
            info,
            warnings: backbone.location.note.iter().cloned().collect(),
            dir: dir.to_owned(),
            sampler: Sampler::Mean,
            policy: DrawPolicy::default(),
            max_length: None,
            cut: None,
            model,
            backbone,
            tokenizer: None,
            device: device.clone(),
        }
    }

    pub fn folder(&self) -> &Path {
        &self.dir
    }

    pub fn base_name(&self) -> &str {
        &self.backbone.location.name
    }

    pub fn has_posterior(&self) -> bool {
        self.sampler == Sampler::Posterior
    }

    /// The number of draws that is `asked` for, or without one the `usual` number if there is something to draw from.
    pub(super) fn possible_draws(&self, asked: Option<usize>, usual: usize) -> Result<usize> {
        let can = self.sampler != Sampler::Mean;
        let draws = asked.unwrap_or(if can { usual } else { 0 });
        if draws > 0 && !can {
            bail!(
                "{draws} draws need a posterior, and `{}` has no `{POSTERIOR_FILE}`",
                self.dir.display()
            );
        }
        if let (0, Some(setting)) = (draws, self.policy.needs_draws()) {
            let what = format!("`{setting}` needs draws: pass `--draws K`");
            return Err(lrvd_burn::Error::other(what).into());
        }
        check_draws(draws)?;
        Ok(draws)
    }
}

impl<M: NamedModule, I> SavedModel<M, I> {
    pub(super) fn of(
        info: I,
        adapter: &Adapter,
        backbone: Arc<Backbone>,
        mut model: M,
        device: &Device,
    ) -> Result<Self> {
        attach_peft(&mut model, &adapter.files.peft, false)?;
        let mut saved = Self::bare(info, &adapter.folder, backbone, model, device);
        if let Some(posterior) = &adapter.files.posterior {
            attach_posterior(&mut saved.model, posterior)?;
            saved.sampler = Sampler::Posterior;
        }
        saved.warnings.extend(adapter.warnings.iter().cloned());
        saved.max_length = adapter.options.max_length;
        Ok(saved)
    }
}

pub(crate) fn no_head<T: AsRef<str>>(adapter: &Path, names: impl IntoIterator<Item = T>) -> Error {
    let dir = adapter.display();
    let names = quoted(names);
    anyhow!("neither the adapter `{dir}` nor the base model has {names}")
}

const WINDOW: usize = 32;
const KEPT_LOGITS: usize = 1 << 23;

pub type SavedClassifier = SavedModel<AutoModel, Description>;

#[derive(Clone, Debug, PartialEq)]
pub enum RowAnswer {
    Class {
        /// Probabilities in label order, averaged over the draws.
        probabilities: Vec<f64>,
        /// The most probable class; ties go to the lowest.
        class: usize,
        /// Entropy of the probabilities, nats.
        entropy: f64,
        /// Mutual information between answer and weights, nats; `None` without draws.
        mutual_information: Option<f64>,
        /// Draws that the answer is averaged over; 0 at the mean.
        draws: usize,
    },
    /// Labels that are independent of each other.
    Labels {
        /// Probability of each label, in label order, averaged over the draws.
        probabilities: Vec<f64>,
        /// Labels from their thresholds on.
        given: Vec<usize>,
        /// Sum of the entropies of the labels, nats.
        entropy: f64,
        /// Sum of the mutual information between labels and weights, nats; `None` without draws.
        mutual_information: Option<f64>,
        /// Draws that the answer is averaged over; 0 at the mean.
        draws: usize,
    },
    Score {
        score: f64,
        /// Interval that holds the number with a probability of 95 % or more ([`Intervals`](crate::method::Intervals)); `None`
        /// where none was fitted for this number of draws.
        interval: Option<[f64; 2]>,
        /// Standard deviation over the draws, which leaves out the noise of the numbers; `None` below two draws.
        draws_deviation: Option<f64>,
    },
}

impl SavedClassifier {
    /// Loads a PEFT folder, the output of a training run, or one of its checkpoints.
    pub fn load(
        dir: &Path,
        options: &OpenOptions,
        policy: DrawPolicy,
        device: &Device,
    ) -> Result<Self> {
        Self::on(&Adapter::open(dir, options, device)?, policy, None, device)
    }

    /// The classifier of an opened adapter; `precision` takes the place of the one that the base was held in.
    pub fn on(
        adapter: &Adapter,
        policy: DrawPolicy,
        precision: Option<BasePrecision>,
        device: &Device,
    ) -> Result<Self> {
        policy.check()?;
        let (backbone, changed) = adapter.base()?;
        let info = adapter.classifier(&backbone)?;
        let peft = &adapter.files.peft;
        if policy.cascade.is_some()
            && let AnswerSpace::Labels { .. } = info.goal.answers
        {
            bail!("{NO_CASCADE}");
        }
        let task = info.reader(&backbone)?.prepare(info.goal.clone(), &[], &[])?;
        let dtype = backbone.stored_as(precision.unwrap_or(info.base_precision))?;
        let head = Head::Adapters(&peft.saved);
        let (model, fresh) = load_model(
            &backbone,
            &task,
            (info.pooling, &head),
            false,
            info.run.seed,
            device,
            dtype,
        )?;
        let model = model.untied_for(peft.saved.keys().map(String::as_str));
        let absent: Vec<&String> =
            fresh.iter().filter(|name| !peft.saved.contains_key(*name)).collect();
        if !absent.is_empty() {
            return Err(no_head(&adapter.folder, absent));
        }
        let mut saved = Self { policy, ..Self::of(info, adapter, backbone, model, device)? };
        let rate = peft.config.lora_dropout;
        if saved.sampler == Sampler::Mean && saved.info.run.draws > 0 && rate > 0.0 {
            saved.model.visit_layers_mut(&mut |_, layer| {
                layer.edit(|adapter| adapter.dropout = rate);
            });
            saved.sampler = Sampler::Dropout;
        }
        saved.warnings.extend(changed);
        if let Some(own) = TextTokenizer::find(&adapter.folder)?
            && !own.has_ids_of(&saved.backbone.tokenizer)
        {
            let mut unused = Unused::default();
            unused.add("the adapter's tokenizer", format_args!("`{}`", own.file().display()));
            saved.warnings.extend(unused.notes(adapter.options.strict)?);
        }
        let Description { temperatures, intervals, .. } = &saved.info;
        if temperatures.by_draws.is_empty() && intervals.by_draws.is_empty() {
            saved.warnings.extend(temperatures.describe().or(intervals.describe()));
        }
        #[cfg(feature = "int8")]
        if adapter.options.packing == Some(lrvd_burn::ops::Packing::Integer) {
            let note = "`--int8`: temperatures and thresholds were fitted to answers in single precision, unless with `--int8`, too";
            saved.warnings.push(note.to_owned());
        }
        let stated = adapter.files.description.as_ref();
        let (stated, most) =
            (stated.map_or(0, |info| info.run.max_length), saved.info.run.max_length);
        if stated > most && adapter.options.max_length.is_none() {
            saved.warnings.push(format!(
                "the description says that texts have up to {stated} tokens, but the model has positions for {most}: longer \
                 texts are cut there"
            ));
        }
        Ok(saved)
    }

    pub(crate) fn merged(folder: &Path, info: &Description, device: &Device) -> Result<Self> {
        let backbone = Arc::new(Backbone::open(ModelLocation::of_folder(folder))?);
        let task = info.reader(&backbone)?.prepare(info.goal.clone(), &[], &[])?;
        let head = Head::Adapters(&BTreeMap::new());
        let single = DType::F32.into();
        let (model, fresh) =
            load_model(&backbone, &task, (info.pooling, &head), false, 0, device, single)?;
        if !fresh.is_empty() {
            return Err(no_head(folder, fresh));
        }
        Ok(Self::bare(info.clone(), folder, backbone, model, device))
    }

    pub(super) fn logits(
        &self,
        examples: &TokenExamples<'_>,
        draws: usize,
        seed: u64,
    ) -> Burn<Prediction> {
        self.logits_while(examples, draws, seed, None)
    }

    /// As [`Self::logits`], until `watch` ends it.
    pub(super) fn logits_while(
        &self,
        examples: &TokenExamples<'_>,
        draws: usize,
        seed: u64,
        watch: PassWatch<'_>,
    ) -> Burn<Prediction> {
        let kind = self.info.prediction_draws;
        let inputs = Inputs {
            examples,
            batch_size: self.info.run.batch_size,
            draws: Draws { count: draws, seed },
            scheme: kind.scheme(),
            fresh: kind.is_fresh(),
            policy: self.policy,
            watch,
        };
        match self.sampler {
            Sampler::Mean | Sampler::Posterior => inputs.predict(&self.model),
            Sampler::Dropout => {
                inputs.predict_with(&self.model, |key| Pass::mean().with_adapter_dropout(key))
            }
        }
    }

    /// `true` if the draws of an answer do not depend on its place in a batch.
    pub fn is_batch_free(&self, draws: usize) -> bool {
        let is_fresh = self.info.prediction_draws.is_fresh();
        draws == 0 || (self.sampler == Sampler::Posterior && !is_fresh)
    }

    pub fn draws(&self, asked: Option<usize>) -> Result<usize> {
        let draws = self.possible_draws(asked, self.info.run.draws)?;
        let thresholds = &self.info.thresholds.by_draws;
        if !thresholds.is_empty() && !thresholds.contains_key(&draws) {
            let (dir, known) =
                (self.dir.display(), quoted(thresholds.keys().map(usize::to_string)));
            bail!(
                "no thresholds of labels were fitted for {draws} draws in `{dir}`: pass `--draws` with one of {known}"
            );
        }
        let fitted = &self.info.temperatures.by_draws;
        if !fitted.is_empty() && !fitted.contains_key(&draws) {
            let dir = self.dir.display();
            let known = quoted(fitted.keys().map(usize::to_string));
            bail!(
                "no temperature was fitted for {draws} draws in `{dir}`: pass `--draws` with one of {known}"
            );
        }
        Ok(draws)
    }

    /// The columns of the training, or the usual ones: `text`, `label`, and `pair` where it was trained on pairs.
    pub fn columns(&self) -> TextColumns {
        let pair = (self.info.pairs == Some(true)).then(|| "pair".to_owned());
        let usual = || TextColumns { pair, ..TextColumns::default() };
        self.info.columns.as_ref().and_then(Columns::labelled).cloned().unwrap_or_else(usual)
    }

    /// Answers `inputs` at the posterior mean (`draws = 0`) or averaged over draws of the kind that the classifier was evaluated
    /// with, which `seed` addresses. `first` is the number of inputs before these, for errors.
    pub fn predict(
        &self,
        inputs: &[Input],
        draws: usize,
        seed: u64,
        first: usize,
    ) -> Result<Vec<RowAnswer>> {
        self.predict_while(inputs, draws, seed, first, None)
    }

    /// As [`Self::predict`], until `watch` ends it with [`Kind::Stopped`].
    pub fn predict_while(
        &self,
        inputs: &[Input],
        draws: usize,
        seed: u64,
        first: usize,
        watch: PassWatch<'_>,
    ) -> Result<Vec<RowAnswer>> {
        self.on_examples(inputs, first, None, |examples| {
            self.answers(self.logits_while(examples, draws, seed, watch)?, draws)
        })
    }

    pub(super) fn answers(&self, logits: Prediction, draws: usize) -> Result<Vec<RowAnswer>> {
        if self.info.goal.answers == AnswerSpace::Score {
            let score = |a: ScoreAnswer| RowAnswer::Score {
                score: a.score,
                interval: self.info.intervals.around(a.score, draws),
                draws_deviation: a.deviation,
            };
            return Ok(logits.scores()?.into_iter().map(score).collect());
        }
        if let AnswerSpace::Labels { .. } = self.info.goal.answers {
            return self.labels(logits, draws);
        }
        // What the draws disagree about is theirs, whatever the temperature.
        let information: Vec<Option<f64>> =
            logits.classes()?.into_iter().map(|answer| answer.mutual_information).collect();
        let kind = match &self.info.goal.answers {
            AnswerSpace::Question { question } => Some(question.kind),
            _ => None,
        };
        let temperatures = vec![self.info.temperature(kind, draws); logits.rows];
        let logits = softened(logits, &temperatures)?;
        let made = |row: usize| logits.draws_per_example.as_ref().map_or(draws, |made| made[row]);
        let answer = |(row, a): (usize, ClassAnswer)| RowAnswer::Class {
            probabilities: a.probabilities,
            class: a.class,
            entropy: a.entropy,
            mutual_information: information[row].filter(|_| made(row) > 0),
            draws: made(row),
        };
        Ok(logits.classes()?.into_iter().enumerate().map(answer).collect())
    }

    fn labels(&self, logits: Prediction, draws: usize) -> Result<Vec<RowAnswer>> {
        let width = logits.width;
        let logits = logits.per_label();
        // What the draws disagree about is theirs, whatever the temperature.
        let raw = logits.classes()?;
        let temperatures = vec![self.info.temperature(None, draws); logits.rows];
        let soft = softened(logits, &temperatures)?.classes()?;
        let thresholds = self.info.thresholds.of(draws, width);
        let answer = |(soft, raw): (&[ClassAnswer], &[ClassAnswer])| {
            let probabilities: Vec<f64> = soft.iter().map(|label| label.probabilities[0]).collect();
            let given = probabilities.iter().zip(&thresholds).enumerate();
            let given = given.filter(|(_, (p, threshold))| p >= threshold);
            let information = raw.iter().map(|label| label.mutual_information.unwrap_or(0.0));
            RowAnswer::Labels {
                given: given.map(|(label, _)| label).collect(),
                entropy: soft.iter().map(|label| label.entropy).sum(),
                mutual_information: (draws > 0).then(|| information.sum()),
                draws,
                probabilities,
            }
        };
        Ok(soft.chunks(width).zip(raw.chunks(width)).map(answer).collect())
    }

    /// Number of inputs to ask about at once: enough to find texts of like length, or one batch where draws depend on it.
    pub fn window(&self, draws: usize) -> usize {
        let batch = self.info.run.batch_size;
        if !self.is_batch_free(draws) {
            return batch;
        }
        // Every draw's logits are kept until the answers are taken from them.
        let most = KEPT_LOGITS / (draws.max(1) * self.info.goal.answers.width());
        (WINDOW * batch).min(most).max(batch)
    }

    pub(crate) fn mean_logits(&self, inputs: &[Input]) -> Result<Vec<f64>> {
        self.on_examples(inputs, 0, None, |examples| Ok(self.logits(examples, 0, 0)?.values))
    }

    pub(super) fn on_examples<T>(
        &self,
        inputs: &[Input],
        first: usize,
        prefixes: Option<&Prefixes>,
        ask: impl FnOnce(&TokenExamples<'_>) -> Result<T>,
    ) -> Result<T> {
        let reader = self.info.reader(&self.backbone)?;
        let (mut examples, cut): (Vec<_>, Vec<_>) =
            self.encode(&reader, inputs, first)?.into_iter().unzip();
        if prefixes.is_some() {
            for ((example, input), cut) in examples.iter_mut().zip(inputs).zip(cut) {
                example.prefix = reader.shared(input, &example.ids, cut)?;
            }
        }
        let labels = widest(self.info.goal.answers.width(), &examples);
        let examples = TokenExamples::new(&examples, reader.pad_id, labels, &self.device);
        ask(&TokenExamples { prefixes, ..examples })
    }

    fn encode(
        &self,
        reader: &TextReader<'_>,
        inputs: &[Input],
        first: usize,
    ) -> Result<Vec<(TokenisedExample, Cut)>> {
        let encode = |(i, input): (usize, &Input)| {
            let (example, cut) = self.encode_one(reader, input, first + i + 1)?;
            if let Some(counted) = self.cut.as_ref().filter(|_| cut != Cut::Nothing) {
                let length = reader.measure(input)?.0;
                counted.lock().unwrap_or_else(PoisonError::into_inner).add(length);
            }
            Ok((example, cut))
        };
        inputs.iter().enumerate().map(encode).collect()
    }

    /// Input `number` without a target: the label is not read in prediction.
    fn encode_one(
        &self,
        reader: &TextReader<'_>,
        input: &Input,
        number: usize,
    ) -> Result<(TokenisedExample, Cut)> {
        match self.unsuited(input) {
            Some(reason) => Err(Kind::Input.mark(anyhow!("input {number} {reason}"))),
            None => reader.encode(input, Label::Class(0)),
        }
    }

    /// From now on inputs are counted that are longer than the longest that is read.
    pub fn count_cut(&mut self) {
        self.cut.get_or_insert_default();
    }

    /// Remark on the number of inputs longer than the longest that is read; `None` if none was, or they are not counted.
    pub fn cut_note(&self) -> Option<String> {
        let cut = *self.cut.as_ref()?.lock().unwrap_or_else(PoisonError::into_inner);
        let (limit, CutInputs { count, longest }) = (self.info.run.max_length, cut);
        (count > 0).then(|| {
            let inputs = if count == 1 { "input was" } else { "inputs were" };
            format!(
                "{count} {inputs} cut at {limit} tokens; the longest has {longest}. `--max-length` sets another length"
            )
        })
    }

    /// For each of `inputs` why the classifier cannot answer it, if it cannot.
    pub fn unreadable(&self, inputs: &[Input], first: usize) -> Result<Vec<Option<Error>>> {
        let reader = self.info.reader(&self.backbone)?;
        let one = |(i, input): (usize, &Input)| match self.encode_one(&reader, input, first + i + 1)
        {
            Err(error) if kind_of(&error) == Some(Kind::Input) => Ok(Some(error)),
            read => read.map(|_| None),
        };
        inputs.iter().enumerate().map(one).collect()
    }

    /// Kind of an input that the classifier was not trained on.
    fn unsuited(&self, input: &Input) -> Option<String> {
        let kind = |pair: bool| if pair { "a pair (`text` and `pair`)" } else { "a single text" };
        let pair = input.pair.is_some();
        let found = input.choices.len();
        let most = match input.kind {
            Some(_) => MOST_OPTIONS,
            None => self.info.goal.answers.width(),
        };
        let (found, expected) = match (&self.info.goal.answers, self.info.pairs) {
            (AnswerSpace::Question { .. }, _) if input.kind.is_some() => return None,
            (_, Some(expected)) if expected != pair => {
                (format!("is {}", kind(pair)), kind(expected).to_owned())
            }
            (AnswerSpace::Choice { .. } | AnswerSpace::Questions { .. }, _) => {
                if (2..=most).contains(&found) {
                    return None;
                }
                (format!("has {found} choices"), format!("questions with 2 to {most}"))
            }
            _ if found > 0 => (format!("has {found} choices"), "texts without choices".to_owned()),
            _ => return None,
        };
        Some(format!("{found}, the classifier was trained on {expected}"))
    }

    /// The numbers of draws for which everything was fitted that was fitted for any, with the thresholds of classes where these are
    /// `asked` for; `None` if nothing was.
    pub fn fitted_draws(&self, asked: Option<AbstainBy>) -> Option<BTreeSet<usize>> {
        let info = &self.info;
        let abstains = asked == Some(AbstainBy::Fitted);
        let keys = [
            info.temperatures.by_draws.keys().copied().collect(),
            info.abstentions.keys().copied().filter(|_| abstains).collect(),
            info.thresholds.by_draws.keys().copied().collect(),
        ];
        let by_type = info.calibration.values().map(|own| own.keys().copied().collect());
        let all = keys.into_iter().chain(by_type).filter(|own: &BTreeSet<usize>| !own.is_empty());
        all.reduce(|a, b| &a & &b)
    }

    /// Draws of an answer where no number is asked for: none, unless what was fitted is for one other number.
    pub fn usual_draws(&self, asked: Option<AbstainBy>) -> usize {
        let fitted = self.fitted_draws(asked).unwrap_or_default();
        match fitted.first() {
            Some(&only) if fitted.len() == 1 => only,
            _ => 0,
        }
    }

    /// Value `fitted` for the answers of `draws` draws; `None` if there is none for any number of draws.
    pub(super) fn fitted<'a, T>(
        &self,
        fitted: &'a BTreeMap<usize, T>,
        what: &str,
        draws: usize,
    ) -> Result<Option<&'a T>> {
        let spared = self.policy.needs_draws().is_some();
        let found = fitted.get(&draws).filter(|_| !spared);
        if found.is_none() && !fitted.is_empty() {
            let dir = self.dir.display();
            let known = quoted(fitted.keys().map(usize::to_string));
            bail!(
                "no {what} was fitted for the answers of {draws} draws with these options in `{dir}`, only for {known} draws: \
                 pass `--draws`, or run `lrvd abstain fit` with these options"
            );
        }
        Ok(found)
    }
}

#[cfg(all(test, feature = "flex"))]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::collections::BTreeMap;

    use burn::backend::{BackendTensor, DispatchTensorKind};
    use burn::module::{Module, ModuleVisitor, Param, ParamId};
    use burn::tensor::Tensor;
    use lrvd_models::deberta::Pooling;

    use super::super::language::SavedLanguageModel;
    use super::super::open::Base;
    use super::*;
    use crate::data::PreparedTask;
    use crate::task::Goal;

    /// Addresses of the values of every parameter in memory.
    #[derive(Default)]
    struct Places(BTreeMap<ParamId, usize>);

    impl ModuleVisitor for Places {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            if param.shape().num_elements() == 0 {
                return;
            }
            let DispatchTensorKind::Flex(BackendTensor::Float(values)) =
                param.base().into_dispatch().kind
            else {
                panic!("a parameter that the CPU holds in another way");
            };
            self.0.insert(param.id, values.bytes().as_ptr() as usize);
        }
    }

    /// Number of parameters at one place in both models; the others are in different places.
    fn shared(a: &impl Module, b: &impl Module) -> usize {
        let [mut a_places, mut b_places] = [Places::default(), Places::default()];
        a.visit(&mut a_places);
        b.visit(&mut b_places);
        let alike = a_places.0.iter().filter(|(id, _)| b_places.0.contains_key(*id));
        for (id, place) in alike.clone() {
            assert_eq!(b_places.0[id], *place);
        }
        let both = alike.count();
        let apart = |places: &Places| places.0.len() - both;
        assert!(apart(&a_places) + apart(&b_places) > 0, "heads and adapters are not shared");
        both
    }

    fn base(name: &str) -> Base {
        Base::open(&format!("{}/assets/{name}", env!("CARGO_MANIFEST_DIR")), None).unwrap()
    }

    fn adapter(base: &Base, name: &str) -> Result<Adapter> {
        let folder = format!("../lrvd-cli/tests/cli/pins/adapters/{name}");
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
        Adapter::open_on(base, &folder, &OpenOptions::default())
    }

    fn classifier(adapter: &Adapter, precision: Option<BasePrecision>) -> Result<SavedClassifier> {
        SavedClassifier::on(adapter, DrawPolicy::default(), precision, &Device::flex())
    }

    #[test]
    fn adapters_of_one_base_share_the_memory_of_its_weights() {
        let (nano, stories) = (base("deberta-v3-nano"), base("stories260K"));
        let parameters = |model: &AutoModel| {
            let mut places = Places::default();
            model.visit(&mut places);
            places.0.len()
        };
        let encoder = || classifier(&adapter(&nano, "encoder").unwrap(), None).unwrap();
        let [a, b] = [encoder(), encoder()];
        let texts = [Input::text("a fine film")];
        assert_eq!(a.predict(&texts, 2, 7, 0).unwrap(), b.predict(&texts, 2, 7, 0).unwrap());
        let both = shared(&a.model, &b.model);
        assert!(both > 20 && both < parameters(&a.model), "{both}");
        // The weights outlive the adapters that they came with.
        drop(a);
        assert_eq!(shared(&encoder().model, &b.model), both);
        let alone = base("deberta-v3-nano");
        let alone = classifier(&adapter(&alone, "encoder").unwrap(), None).unwrap();
        assert_eq!(shared(&alone.model, &b.model), 0);

        let worded = classifier(&adapter(&stories, "worded").unwrap(), None).unwrap();
        let language = adapter(&stories, "language").unwrap();
        let language = SavedLanguageModel::on(&language, None, &Device::flex()).unwrap();
        assert!(shared(&worded.model, &language.model) > 20);
    }

    /// A number needs no head over the vocabulary, and classes need one: the decoder is shared in every order.
    #[test]
    fn models_of_every_kind_share_a_base_under_different_heads() {
        let load = |base: &Base, goal: Goal, pooling| {
            let task = PreparedTask::without_examples(goal);
            let task = PreparedTask { answers: vec![5, 6], ..task };
            let device = Device::flex();
            let precision = BasePrecision::F32.precision();
            load_model(&base.0, &task, (pooling, &Head::New), false, 3, &device, precision)
                .unwrap()
                .0
        };
        let classes =
            |n: usize| Goal::classification("c", (0..n).map(|class| class.to_string()).collect());
        let stories = base("stories260K");
        let first = Pooling::default();
        let score = load(&stories, Goal::new("s", AnswerSpace::Score), first);
        let [words, again] = [classes(2), Goal::new("s", AnswerSpace::Score)]
            .map(|goal| load(&stories, goal, first));
        assert!(shared(&score, &words) > 20 && shared(&words, &again) == shared(&score, &again));
        let nano = base("deberta-v3-nano");
        let [two, three] =
            [(2, first), (3, Pooling::Mean)].map(|(n, pooling)| load(&nano, classes(n), pooling));
        assert!(shared(&two, &three) > 20);
    }

    /// A loop of links stands for a folder that may not be searched.
    #[cfg(unix)]
    #[test]
    fn a_folder_that_cannot_be_seen_is_not_one_without_an_adapter() {
        let folder = tempfile::tempdir().unwrap();
        let looped = folder.path().join("loop");
        std::os::unix::fs::symlink(&looped, &looped).unwrap();
        let found = Adapter::open(&looped, &OpenOptions::default(), &Device::flex());
        let error = found.unwrap_err().to_string();
        assert!(error.starts_with("cannot look at `"), "{error}");
    }

    #[test]
    fn an_adapter_of_another_base_is_an_error_of_its_kind() {
        let (nano, stories) = (base("deberta-v3-nano"), base("stories260K"));
        let error = |adapter: Result<Adapter>, precision| {
            let error = classifier(&adapter.unwrap(), precision).err().unwrap();
            assert_eq!(kind_of(&error), Some(Kind::OtherBase), "{error:#}");
            format!("{error:#}")
        };
        let other = error(adapter(&stories, "encoder"), None);
        assert!(other.contains("has other weights than the adapter was trained on"), "{other}");
        classifier(&adapter(&nano, "encoder").unwrap(), None).unwrap();
        let held = error(adapter(&nano, "encoder"), Some(BasePrecision::Q8));
        assert!(held.contains("`f32`") && held.contains("`q8`"), "{held}");
        let none = adapter(&nano, ".").unwrap_err().to_string();
        assert!(none.contains("holds no adapter of a finished run"), "{none}");
    }
}
