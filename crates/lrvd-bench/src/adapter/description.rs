//! The description of an adapter: `lrvd_adapter.json`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context as _, bail};
use lrvd_burn::files::is_file;
use lrvd_core::error::check_range;
use lrvd_core::metrics::RiskCoverage;
use lrvd_models::deberta::{Family, Pooling};
use serde::{Deserialize, Serialize};

use super::hashes::FileHashes;
use crate::answers::{AnswerSpace, QuestionKind, Readout};
use crate::backbone::Backbone;
use crate::data::{Columns, InputLayout, TextReader, Wording};
use crate::error::Result;
use crate::io::{JsonLayout, read_versioned, write_json};
use crate::method::{Intervals, LabelThresholds, Temperatures};
use crate::run::{RowSettings, TrainSettings};
use crate::settings::{BasePrecision, CheckpointChoice, Config, MAX_DRAWS, PredictionDraws};
use crate::task::Goal;
use crate::text::percent;

pub(crate) const DESCRIPTION_FILE: &str = "lrvd_adapter.json";
/// The version that is written, and the only one that is read.
const SCHEMA: u32 = 1;

/// The base model: the first entries of the file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BaseInfo {
    pub schema_version: u32,
    #[serde(rename = "base_model")]
    pub name: String,
    pub weights: BTreeMap<String, String>,
    /// SHA-256 of what else answers depend on; `None` in folders of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hashes: Option<FileHashes>,
}

/// The run that trained the adapter.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunInfo {
    pub max_length: usize,
    pub batch_size: usize,
    pub method: String,
    pub seed: u64,
    /// Rank of every adapted layer at the start; `None` if that is not known.
    pub initial_rank: Option<usize>,
    /// Rank of every adapted layer, by path, also of those that a PEFT file cannot hold.
    pub ranks: BTreeMap<String, usize>,
    pub checkpoint: CheckpointChoice,
    pub step: usize,
    /// Statistic at or above which a rank direction was removed; `None` if ranks were not cut by it.
    pub log_alpha_threshold: Option<f64>,
    pub fan_in_correction: bool,
    pub draws: usize,
}

impl BaseInfo {
    /// Of a model that no run of ours trained.
    pub(super) fn of(backbone: &Backbone) -> Self {
        let name = backbone.location.name.clone();
        let weights = backbone.hashes.clone();
        Self { schema_version: SCHEMA, name, weights, hashes: None }
    }
}

impl RunInfo {
    /// Of a model that no run of ours trained.
    pub(super) fn none(method: &str, max_length: usize, batch_size: usize) -> Self {
        Self {
            max_length,
            batch_size,
            method: method.to_owned(),
            seed: 0,
            initial_rank: None,
            ranks: BTreeMap::new(),
            checkpoint: CheckpointChoice::Last,
            step: 0,
            log_alpha_threshold: None,
            fan_in_correction: false,
            draws: 0,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Description {
    #[serde(flatten)]
    pub base: BaseInfo,
    pub goal: Goal,
    pub layout: InputLayout,
    /// Columns of the training file, for files of the user's own.
    pub columns: Option<Columns>,
    /// Precision of the base, which a language model's answers depend on.
    pub base_precision: BasePrecision,
    /// Pooling of the head of an encoder.
    #[serde(default, skip_serializing_if = "Pooling::is_first")]
    pub pooling: Pooling,
    /// `true` if inputs are pairs of texts; `None` if that is not known.
    pub pairs: Option<bool>,
    #[serde(flatten)]
    pub run: RunInfo,
    #[serde(default)]
    pub prediction_draws: PredictionDraws,
    /// Temperature of the answer, where the method fits one.
    #[serde(default, skip_serializing_if = "Temperatures::is_empty")]
    pub temperatures: Temperatures,
    /// Intervals around predicted numbers.
    #[serde(default, skip_serializing_if = "Intervals::is_empty")]
    pub intervals: Intervals,
    /// Thresholds from which labels are given, of a model that gives several.
    #[serde(default, skip_serializing_if = "LabelThresholds::is_empty")]
    pub thresholds: LabelThresholds,
    /// Thresholds above which no answer is given, by number of draws.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub abstentions: BTreeMap<usize, Abstention>,
    /// Calibrations of typed questions, by type and number of draws.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub calibration: BTreeMap<QuestionKind, BTreeMap<usize, Calibration>>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Abstention {
    /// Largest entropy of an answer that is given, nats.
    pub above: f64,
    /// `true` if the entropy is that at temperature 1: the temperature of the answers was fitted to the same rows.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub untempered: bool,
    /// SHA-256 of the detector of texts unlike those of training that is asked first: such texts have no answer, also among the
    /// rows of the certificate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detector: Option<String>,
    #[serde(default, skip_serializing_if = "FittedTo::is_further")]
    pub fitted_to: FittedTo,
    #[serde(flatten)]
    pub certificate: Certificate,
}

/// Rows that a threshold is fitted to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FittedTo {
    /// The validation rows of the training.
    Validation,
    /// Rows that the training held out.
    HeldOut,
    /// Rows that the training did not have.
    #[default]
    Further,
}

impl FittedTo {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
    fn is_further(&self) -> bool {
        *self == Self::Further
    }

    /// Words between a number and "rows".
    pub const fn describe(self) -> &'static str {
        match self {
            Self::Validation => "validation",
            Self::HeldOut => "held-out",
            Self::Further => "further",
        }
    }
}

/// Calibration of typed questions of one type for a number of draws.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Calibration {
    pub temperature: f64,
    /// Rows that the temperature was fitted to.
    pub rows: usize,
    /// Threshold below which no answer is given; `None` if the rows certify none, and every answer is given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub threshold: Option<Threshold>,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Threshold {
    /// Smallest confidence of an answer that is given.
    pub least: f64,
    #[serde(flatten)]
    pub certificate: Certificate,
}

/// The error rate of the answers that a threshold lets through.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Certificate {
    /// Largest error rate on further rows.
    pub target: f64,
    /// Probability, over the rows it was fitted to, that their error rate on further rows is larger than the target.
    pub delta: f64,
    /// Error rate of the answers that are given to the rows it was fitted to.
    pub risk: f64,
    /// Share of these rows that is answered.
    pub coverage: f64,
    /// Rows that the threshold was fitted to.
    pub rows: usize,
}

/// Largest error rate of the answers that are given, and the probability that it is larger all the same.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RiskTarget {
    pub risk: f64,
    pub delta: f64,
}

impl RiskTarget {
    pub const USUAL: Self = Self { risk: 0.05, delta: 0.05 };

    /// Rows below which nothing is certified, even if all are answered right: (1 − risk)^n ≤ delta.
    pub(super) fn fewest_rows(self) -> f64 {
        (self.delta.ln() / (-self.risk).ln_1p()).ceil()
    }
}

impl Certificate {
    /// The smallest confidence from which the answers of `curve` have an error rate of at most `target` with confidence
    /// `1 − delta` ([`RiskCoverage::certified`]), and what is known of them; `None` if no confidence is large enough.
    pub(super) fn of(curve: &RiskCoverage, target: f64, delta: f64) -> Result<Option<(f64, Self)>> {
        let rows = curve.points().last().map_or(0, |all| all.accepted);
        let found = curve.certified(target, delta)?;
        Ok(found.map(|point| {
            let risk = point.risk;
            let coverage = point.coverage;
            (point.threshold, Self { target, delta, risk, coverage, rows })
        }))
    }
}

/// Why `curve` certifies no threshold, in words.
pub(super) fn nothing_certified(curve: &RiskCoverage, target: f64, delta: f64) -> String {
    let confidence = percent(1.0 - delta);
    let Some(all) = curve.points().last() else { return "there are no rows".to_owned() };
    let rows = all.accepted;
    let mut found =
        format!("{} of them are answered wrong ({:.2} %)", all.errors, 100.0 * all.risk);
    if let Some(point) = curve.threshold_for_risk(target) {
        let errors = point.errors;
        let most = point.accepted;
        let _ = write!(found, ", and {errors} of the {most} most confident ones");
    }
    let fewest = RiskTarget { risk: target, delta }.fewest_rows();
    if fewest.is_finite() && rows as f64 <= fewest - 1.0 {
        let _ = write!(found, "; even without an error at least {fewest} rows are needed");
    }
    format!(
        "no threshold has an error rate below {target} with {confidence} % confidence on these {rows} rows: {found}. Allow \
         more errors with `--risk`, or pass more rows"
    )
}

impl Description {
    /// Of a model that no run of ours trained.
    pub(super) fn new(base: BaseInfo, goal: Goal, layout: InputLayout, run: RunInfo) -> Self {
        Self {
            base,
            goal,
            layout,
            columns: None,
            base_precision: BasePrecision::F32,
            pooling: Pooling::First,
            pairs: None,
            run,
            prediction_draws: PredictionDraws::default(),
            temperatures: Temperatures::default(),
            intervals: Intervals::default(),
            thresholds: LabelThresholds::default(),
            abstentions: BTreeMap::new(),
            calibration: BTreeMap::new(),
        }
    }

    /// Pooling of the head under transformers' name, of a classifier that has a setting for it.
    pub(crate) fn classifier_pooling(&self) -> Option<&'static str> {
        let family = self.run.ranks.keys().next().and_then(|path| Family::of_module(path));
        let is_stated = family.is_some_and(Family::reads_mean)
            && self.pooling.has_pooler()
            && self.layout.readout() == Readout::Head;
        is_stated.then(|| self.pooling.classifier_pooling())
    }

    pub fn read(dir: &Path) -> Result<Option<Self>> {
        let file = dir.join(DESCRIPTION_FILE);
        // A folder or a link to nothing is a damaged description, and not an adapter without one.
        if file.symlink_metadata().is_ok() && !is_file(&file)? {
            bail!("`{}` is not a file, expected the description of an adapter", file.display());
        }
        if !is_file(&file)? {
            return Ok(None);
        }
        let description: Self = read_versioned(&file, SCHEMA)?;
        description.check(&file)?;
        Ok(Some(description))
    }

    fn check(&self, path: &Path) -> Result<()> {
        let file = path.display();
        let run = &self.run;
        let mut seen = BTreeSet::new();
        if let Some(class) = self.goal.answers.names().iter().find(|class| !seen.insert(*class)) {
            bail!("`{file}`: class `{class}` is there twice, expected distinct classes");
        }
        let wrong = |t: &f64| !(t.is_finite() && *t > 0.0);
        let by_type = self.calibration.values().flatten();
        let by_type = by_type.map(|(draws, own)| (draws, &own.temperature));
        let mut all = self.temperatures.by_draws.iter().chain(by_type);
        if let Some((draws, found)) = all.find(|(_, t)| wrong(t)) {
            bail!(
                "`{file}`: the temperature of {draws} draws is {found}, expected a positive number"
            );
        }
        let mut radii = self.intervals.by_draws.iter();
        if let Some((draws, found)) = radii.find(|(_, r)| !(r.is_finite() && **r >= 0.0)) {
            bail!(
                "`{file}`: the half-width of the interval of {draws} draws is {found}, expected 0 or more"
            );
        }
        let labels = self.goal.answers.width();
        let is_wrong = |all: &&Vec<f64>| {
            all.len() != labels || !all.iter().all(|threshold| (0.0..=1.0).contains(threshold))
        };
        if let Some(found) = self.thresholds.by_draws.values().find(is_wrong) {
            bail!("`{file}`: the thresholds are {found:?}, expected {labels} numbers from 0 to 1");
        }
        for (key, size) in [("batch_size", run.batch_size), ("max_length", run.max_length)] {
            if size == 0 {
                bail!("`{file}`: {key} is 0, expected at least 1");
            }
        }
        check_draws(run.draws).with_context(|| format!("`{file}`"))
    }

    /// Writes the file into `dir`, with its own hash if there are hashes.
    pub fn write(&self, dir: &Path) -> Result<()> {
        let file = dir.join(DESCRIPTION_FILE);
        let mut sealed = self.clone();
        if let Some(hashes) = &mut sealed.base.hashes {
            hashes.seal(&file, self)?;
        }
        write_json(&file, &sealed, JsonLayout::Pretty)
    }

    /// Of an adapter with fewer directions than the one that the thresholds were fitted to: what they certify is of other weights.
    #[must_use]
    pub(super) fn without_thresholds(mut self) -> Self {
        self.abstentions.clear();
        self.calibration
            .values_mut()
            .flat_map(BTreeMap::values_mut)
            .for_each(|own| own.threshold = None);
        self
    }

    /// Of an adapter whose posterior stays behind.
    #[must_use]
    pub(super) fn at_the_mean(mut self) -> Self {
        self.run.draws = 0;
        self.temperatures.by_draws.retain(|draws, _| *draws == 0);
        self.intervals.by_draws.retain(|draws, _| *draws == 0);
        self.thresholds.by_draws.retain(|draws, _| *draws == 0);
        self.abstentions.retain(|draws, _| *draws == 0);
        self.calibration.values_mut().for_each(|own| own.retain(|draws, _| *draws == 0));
        self
    }

    pub(crate) fn reader<'a>(&'a self, backbone: &'a Backbone) -> Result<TextReader<'a>> {
        let architecture = &backbone.architecture;
        let tokenizer = &backbone.tokenizer;
        architecture.reader(tokenizer, &self.goal, &self.layout, self.run.max_length)
    }

    /// The words in which a language model is asked.
    pub(crate) fn wording(&self) -> Option<Wording> {
        self.layout.wording(&self.goal.answers, self.pairs == Some(true))
    }

    /// The temperature of the answers at the mean, where one was fitted.
    pub(crate) fn mean_temperature(&self) -> Option<f64> {
        let kind = match &self.goal.answers {
            AnswerSpace::Question { question } => Some(question.kind),
            _ => None,
        };
        self.temperature(kind, 0)
    }

    /// The temperature of the answers of `draws` draws to questions of this type, where one was fitted.
    pub(super) fn temperature(&self, kind: Option<QuestionKind>, draws: usize) -> Option<f64> {
        let own = kind.and_then(|kind| self.calibration.get(&kind)?.get(&draws));
        let own = own.map(|calibration| calibration.temperature);
        own.or_else(|| self.temperatures.by_draws.get(&draws).copied())
    }
}

impl TrainSettings {
    /// The description of a model of the run after `step` steps, of which it is the `checkpoint`.
    pub(super) fn description(&self, step: usize, checkpoint: CheckpointChoice) -> Description {
        let base = self.base();
        let run = self.run(step, checkpoint);
        let RowSettings { columns, layout, pairs, goal, .. } = &self.rows;
        let Config { base_precision, prediction_draws, .. } = self.experiment;
        Description {
            columns: columns.clone(),
            base_precision,
            pooling: self.method.pooling(&self.experiment),
            pairs: (goal.answers != AnswerSpace::Tokens).then_some(*pairs),
            prediction_draws,
            ..Description::new(base, goal.clone(), layout.clone(), run)
        }
    }

    fn base(&self) -> BaseInfo {
        BaseInfo {
            schema_version: SCHEMA,
            name: self.model.clone(),
            weights: self.weights.clone(),
            hashes: Some(FileHashes { base: self.base_files.clone(), ..FileHashes::default() }),
        }
    }

    fn run(&self, step: usize, checkpoint: CheckpointChoice) -> RunInfo {
        let config = &self.experiment;
        RunInfo {
            max_length: config.max_length,
            batch_size: config.evaluation_batch_size,
            method: self.method.name(),
            seed: self.seed,
            initial_rank: Some(config.initial_rank),
            // Filled in when a model is read back.
            ranks: BTreeMap::new(),
            checkpoint,
            step,
            log_alpha_threshold: self.method.threshold(config),
            fan_in_correction: config.prune.fan_in_correction,
            draws: self.method.draws(config).into_iter().max().unwrap_or(0),
        }
    }
}

pub(super) fn check_draws(draws: usize) -> Result<()> {
    Ok(check_range("draws", draws, 0..=MAX_DRAWS)?)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn a_description_with_a_value_out_of_range_is_an_error() {
        let from = |text: &str| -> Value { serde_json::from_str(text).unwrap() };
        let run = from(include_str!("cases/run.json"));
        let read = |own: &Value, change: &dyn Fn(&mut Value)| {
            let dir = tempfile::tempdir().unwrap();
            let mut info = run.clone();
            info.as_object_mut().unwrap().extend(own.as_object().unwrap().clone());
            change(&mut info);
            std::fs::write(dir.path().join(DESCRIPTION_FILE), info.to_string()).unwrap();
            let read = Description::read(dir.path());
            read.map(Option::unwrap).map_err(|error| format!("{error:#}"))
        };
        for own in [include_str!("cases/texts.json"), include_str!("cases/classes.json")] {
            let own = from(own);
            assert_eq!(read(&own, &|_| {}).unwrap().run.draws, 10_000);
            let twice = json!({"classes": {"names": ["bad", "bad"]}});
            for (place, value, expected) in [
                ("/later", json!(1), "unknown field `later`"),
                ("/batch_size", json!(0), "batch_size is 0, expected at least 1"),
                ("/max_length", json!(0), "max_length is 0, expected at least 1"),
                ("/draws", json!(10_001), "`draws` is 10001, outside 0..=10000"),
                ("/goal/answers", twice, "class `bad` is there twice, expected distinct classes"),
                ("/goal/answers", json!("sounds"), "unknown variant `sounds`"),
                ("/layout", json!({"prompt": {"answers": []}}), "missing field `template`"),
                (
                    "/temperatures",
                    json!({"rows": 50, "by_draws": {"3": 0.0}}),
                    "the temperature of 3 draws is 0, expected a positive number",
                ),
                (
                    "/intervals",
                    json!({"rows": 50, "by_draws": {"3": -1.5}}),
                    "the half-width of the interval of 3 draws is -1.5, expected 0 or more",
                ),
            ] {
                let change = |info: &mut Value| match info.pointer_mut(place) {
                    Some(field) => *field = value.clone(),
                    None => info[&place[1..]] = value.clone(),
                };
                let error = read(&own, &change).unwrap_err();
                let is_named = error.contains("lrvd_adapter.json`: ");
                assert!(is_named && error.contains(expected), "{place} {value}: {error}");
            }
        }
    }

    /// The command of the report: 10,000 rows, of which 3,962 are answered wrong, at a risk of .05.
    #[test]
    fn a_model_that_is_wrong_on_two_fifths_certifies_nothing_and_says_so() {
        let confidence: Vec<f64> = (0..10_000).map(|row| f64::from(10_000 - row)).collect();
        let correct: Vec<bool> =
            (0..10_000).map(|row| (row + 1) * 3962 / 10_000 == row * 3962 / 10_000).collect();
        let curve = RiskCoverage::new(&confidence, &correct).unwrap();
        assert_eq!(Certificate::of(&curve, 0.05, 0.05).unwrap(), None);
        let words = nothing_certified(&curve, 0.05, 0.05);
        assert_eq!(
            words,
            "no threshold has an error rate below 0.05 with 95 % confidence on these 10000 rows: 3962 of them are answered \
             wrong (39.62 %), and 0 of the 2 most confident ones. Allow more errors with `--risk`, or pass more rows"
        );
        let few = RiskCoverage::new(&[0.9; 58], &[true; 58]).unwrap();
        assert_eq!(Certificate::of(&few, 0.05, 0.05).unwrap(), None);
        let words = nothing_certified(&few, 0.05, 0.05);
        assert!(words.contains("even without an error at least 59 rows are needed"), "{words}");
        let enough = RiskCoverage::new(&[0.9; 59], &[true; 59]).unwrap();
        assert!(Certificate::of(&enough, 0.05, 0.05).unwrap().is_some());
    }

    #[test]
    fn a_threshold_has_its_certificate_beside_it_and_nothing_else() {
        let certificate = r#""target":0.05,"delta":0.1,"risk":0.01,"coverage":0.75,"rows":200}"#;
        let above = format!(r#"{{"above":0.3,{certificate}"#);
        let least =
            format!(r#"{{"temperature":1.5,"rows":180,"threshold":{{"least":0.8,{certificate}}}"#);
        let abstention = |text: &str| serde_json::from_str::<Abstention>(text);
        let calibration = |text: &str| serde_json::from_str::<Calibration>(text);
        let found = [
            serde_json::to_string(&abstention(&above).unwrap()),
            serde_json::to_string(&calibration(&least).unwrap()),
        ];
        assert_eq!(found.map(Result::unwrap), [above.clone(), least.clone()]);
        for (from, to) in [("\"rows\":200", "\"rows\":200,\"later\":1"), (",\"risk\":0.01", "")] {
            assert!(abstention(&above.replace(from, to)).is_err(), "{from}");
            assert!(calibration(&least.replace(from, to)).is_err(), "{from}");
        }
    }
}
