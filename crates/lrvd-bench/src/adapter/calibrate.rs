//! Typed questions on labelled rows: metrics by type, and what is fitted for a type: a temperature, and the confidence below
//! which no answer is given.

use std::collections::BTreeMap;

use anyhow::{Context as _, bail};
use lrvd_core::baselines::shrunk_temperature;
use lrvd_core::baselines::temperature::FEWEST_ROWS;
use lrvd_core::metrics::{
    self, NLL_FLOOR, ReliabilityDiagram, RiskCoverage, argmax_rows, expected_level, mean,
};
use lrvd_core::noise::{NoiseKey, Stream, permutation};
use serde::Serialize;

use super::description::{Calibration, Certificate, DESCRIPTION_FILE, Description, Threshold};
use super::evaluate::Evaluation;
use super::saved::SavedClassifier;
use crate::answers::QuestionKind;
use crate::data::Split;
use crate::data::batch::TokenisedExample;
use crate::error::Result;
use crate::method::averaged;

/// Rows of a type from which something is fitted for it: half of them give its temperature.
const FEWEST: usize = 2 * FEWEST_ROWS;

/// Metrics of the answers to typed questions of one type.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct QuestionMetrics {
    pub rows: usize,
    /// Share of the rows whose most probable option has the largest share of the target.
    pub accuracy: f64,
    /// Mean cross-entropy `−Σ_i s_i ln p_i` against the shares of the target, nats.
    pub nll: f64,
    /// Expected calibration error; an answer is right with its share of the target.
    pub ece: f64,
    /// The ECE that a perfectly calibrated model with these probabilities has on average.
    pub ece_floor: f64,
    /// Mean of `Σ_i (p_i − s_i)²`.
    pub brier: f64,
    /// Of scores: the mean distance of the expected level from that of the target.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mean_absolute_error: Option<f64>,
    /// Largest share of the rows, most confident first, of which at most the asked share is answered wrong.
    pub coverage: f64,
}

/// An answer beside its target.
struct Scored {
    probabilities: Vec<f64>,
    shares: Vec<f64>,
    top: f64,
    /// Share of the target that the answer has.
    right: f64,
    confidence: f64,
    is_correct: bool,
}

impl Scored {
    fn new(kind: QuestionKind, probabilities: &[f64], shares: Vec<f64>) -> Result<Self> {
        let n = probabilities.len();
        let [answer, label] = [probabilities, &shares].map(|row| argmax_rows(row, n));
        let answer = answer?[0];
        let label = label?[0];
        Ok(Self {
            top: probabilities[answer],
            right: shares[answer],
            confidence: kind.confidence(probabilities)?,
            is_correct: answer == label,
            probabilities: probabilities.to_vec(),
            shares,
        })
    }

    fn sum(&self, term: impl Fn(f64, f64) -> f64) -> f64 {
        self.probabilities.iter().zip(&self.shares).map(|(&p, &s)| term(p, s)).sum()
    }
}

fn curve(rows: &[Scored]) -> Result<RiskCoverage> {
    let confidence: Vec<f64> = rows.iter().map(|row| row.confidence).collect();
    let correct: Vec<bool> = rows.iter().map(|row| row.is_correct).collect();
    Ok(RiskCoverage::new(&confidence, &correct)?)
}

impl QuestionMetrics {
    fn new(kind: QuestionKind, rows: &[Scored], risk: f64) -> Result<Self> {
        let of = |value: &dyn Fn(&Scored) -> f64| mean(&rows.iter().map(value).collect::<Vec<_>>());
        let top: Vec<f64> = rows.iter().map(|row| row.top).collect();
        let right: Vec<f64> = rows.iter().map(|row| row.right).collect();
        let diagram = ReliabilityDiagram::from_shares(&top, &right)?;
        let distance =
            |row: &Scored| (expected_level(&row.probabilities) - expected_level(&row.shares)).abs();
        let is_score = kind == QuestionKind::Score;
        let covered = curve(rows)?.threshold_for_risk(risk);
        Ok(Self {
            rows: rows.len(),
            accuracy: of(&|row| f64::from(row.is_correct))?,
            // A share of 0 counts nothing, whatever the probability.
            nll: of(&|row| row.sum(|p, s| if s > 0.0 { -s * p.max(NLL_FLOOR).ln() } else { 0.0 }))?,
            ece: diagram.ece(),
            ece_floor: diagram.floor(),
            brier: of(&|row| row.sum(|p, s| (p - s) * (p - s)))?,
            mean_absolute_error: is_score.then(|| of(&distance)).transpose()?,
            coverage: covered.map_or(0.0, |point| point.coverage),
        })
    }
}

/// The shares of the options of a row, of which a model with `width` classes knows as many.
fn shares(example: &TokenisedExample, width: usize) -> Option<Vec<f64>> {
    example.answer.label()?.shares(example.choices.unwrap_or(width))
}

impl Evaluation {
    /// Metrics by number of draws and type of question; nothing without typed questions. The coverage is that at the error rate
    /// `risk`, without a confidence bound.
    pub fn by_type(
        &self,
        risk: f64,
    ) -> Result<BTreeMap<u32, BTreeMap<QuestionKind, QuestionMetrics>>> {
        let width = self.task.labels;
        let mut found = BTreeMap::new();
        for (&draws, scored) in &self.scored {
            let mut rows: BTreeMap<QuestionKind, Vec<Scored>> = BTreeMap::new();
            let outputs = scored.outputs.chunks_exact(width);
            for ((kind, example), row) in self.kinds.iter().zip(&self.task.validation).zip(outputs)
            {
                if let (Some(kind), Some(shares)) = (*kind, shares(example, width)) {
                    let scored = Scored::new(kind, &row[..shares.len()], shares)?;
                    rows.entry(kind).or_default().push(scored);
                }
            }
            let metrics = |(kind, rows): (QuestionKind, Vec<Scored>)| {
                Ok((kind, QuestionMetrics::new(kind, &rows, risk)?))
            };
            let by_type: BTreeMap<_, _> = rows.into_iter().map(metrics).collect::<Result<_>>()?;
            if !by_type.is_empty() {
                found.insert(draws, by_type);
            }
        }
        Ok(found)
    }
}

/// Fits, for each type of question in `labelled` and the answers of `draws` draws, a temperature to half of the rows, which
/// `seed` draws, and to the other half the smallest confidence from which answers have an error rate of at most `target`
/// with confidence `1 − delta` ([`RiskCoverage::certified`]). Writes both into the classifier's folder, where
/// `SavedClassifier::decide` finds them after the next load. A type whose rows certify no threshold gets a temperature alone.
///
/// The rows are others for each: a threshold on confidences that were fitted to its own rows has no certificate.
pub fn fit_decisions(
    classifier: &SavedClassifier,
    labelled: &Split,
    (draws, seed): (usize, u64),
    target: f64,
    delta: f64,
) -> Result<BTreeMap<QuestionKind, Calibration>> {
    classifier.check_unseen(labelled)?;
    let dir = classifier.folder();
    let Some(mut info) = Description::read(dir)? else {
        bail!("`{}` has no `{DESCRIPTION_FILE}`, which stores fitted values", dir.display());
    };
    let mut by_type: BTreeMap<QuestionKind, Vec<usize>> = BTreeMap::new();
    for (row, example) in labelled.examples.iter().enumerate() {
        if let Some(kind) = example.input.kind {
            by_type.entry(kind).or_default().push(row);
        }
    }
    if let Some((kind, rows)) = by_type.iter().find(|(_, rows)| rows.len() < FEWEST) {
        bail!(
            "{} questions of the type `{kind}`, expected at least {FEWEST}: half of them give the temperature, which needs \
             {FEWEST_ROWS}, the others the threshold",
            rows.len()
        );
    }
    let reader = classifier.info.reader(&classifier.backbone)?;
    let task = reader.prepare(classifier.info.goal.clone(), &[], &labelled.examples)?;
    let examples = task.examples(&task.validation, &classifier.device);
    let logits = averaged(classifier.logits(&examples, draws, seed)?)?;
    let width = task.labels;
    let row_of = |row: usize| &logits.values[row * width..(row + 1) * width];
    let mut found = BTreeMap::new();
    for (kind, rows) in by_type {
        let order = permutation(NoiseKey::new(seed).on_stream(Stream::DATA), rows.len());
        let (first, second) = order.split_at(rows.len() / 2);
        let mut values = Vec::new();
        let mut targets = Vec::new();
        for row in first.iter().map(|&i| rows[i]) {
            values.extend_from_slice(row_of(row));
            let mut own = shares(&task.validation[row], width).unwrap_or_default();
            own.resize(width, 0.0);
            targets.extend(own);
        }
        let temperature = shrunk_temperature(&values, width, &targets)?
            .with_context(|| format!("{} rows are too few for a temperature", first.len()))?;
        let answer = |&i: &usize| {
            let row = rows[i];
            let cooled: Vec<f64> = row_of(row).iter().map(|value| value / temperature).collect();
            let probabilities = metrics::softmax(&cooled, width)?;
            let shares = shares(&task.validation[row], width).unwrap_or_default();
            Scored::new(kind, &probabilities[..shares.len()], shares)
        };
        let answers = second.iter().map(answer).collect::<Result<Vec<_>>>()?;
        let certified = Certificate::of(&curve(&answers)?, target, delta)?;
        let threshold = certified.map(|(least, certificate)| Threshold { least, certificate });
        let calibration = Calibration { temperature, rows: first.len(), threshold };
        info.calibration.entry(kind).or_default().insert(draws, calibration);
        found.insert(kind, calibration);
    }
    info.write(dir)?;
    classifier.certified_by(labelled)?;
    Ok(found)
}
