//! Out-of-distribution scores of a saved classifier: which one tells other texts apart best, and how unlike the texts of
//! training an input is.
//!
//! Separate rows fit, choose and report: the reference rows fit the distance, the selection rows choose the score, the report
//! rows give the area that is reported, and calibrate `p`. The end of a training has no other texts to choose by: its score is the
//! distance to the training rows, calibrated by rows that neither trained nor chose the model.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{anyhow, bail};
use lrvd_burn::files::{HostTensor, WeightStore, is_file, write_safetensors};
use lrvd_burn::peft::WEIGHTS_FILE;
use lrvd_burn::train::Examples as _;
use lrvd_core::metrics::{Aurocs, ClassDistance, ClassMoments, conformal_p, free_energy};
use lrvd_core::noise::{NoiseKey, Stream, permutation};
use serde::{Deserialize, Serialize};

use super::saved::{RowAnswer, SavedClassifier};
use crate::answers::AnswerSpace;
use crate::data::batch::TokenExamples;
use crate::data::{Example, Input, Split};
use crate::error::Result;
use crate::io::{parse_versioned, sha256_file};
use crate::method::Inputs;
use crate::method::linear::features;

const FILE: &str = "lrvd_ood.safetensors";
const HEADER: &str = "lrvd";
const SCHEMA: u32 = 1;
const CALIBRATION: &str = "calibration";
const MEANS: &str = "distance.means";
const ROOT: &str = "distance.root";
/// Rows of the distribution that each of the distance, the choice and the calibration needs: `p` falls to .05 from 19 on.
pub(super) const FEWEST: usize = 20;
/// Rows of other texts that the choice and the report need each.
const FEWEST_OUTSIDE: usize = 10;

/// Share of the texts like those of training that counts as outside, where no other is asked for.
pub const OUTSIDE: f64 = 0.05;

/// A number that is larger for inputs unlike the texts of training.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OodScore {
    Entropy,
    /// 1 less the largest probability.
    MaximumProbability,
    /// [`free_energy`] of the logits, nats.
    Energy,
    /// Mutual information between answer and weights, nats; needs draws.
    MutualInformation,
    /// Squared distance of the features to the nearest class mean ([`ClassDistance`]), at the posterior mean.
    Distance,
}

impl OodScore {
    const ALL: [Self; 5] = [
        Self::Entropy,
        Self::MaximumProbability,
        Self::Energy,
        Self::MutualInformation,
        Self::Distance,
    ];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Entropy => "entropy",
            Self::MaximumProbability => "maximum probability",
            Self::Energy => "energy",
            Self::MutualInformation => "mutual information",
            Self::Distance => "feature distance",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OodRow {
    /// Area under the receiver operating characteristic on the selection rows, by which the score is chosen.
    pub selection: f64,
    /// The area on the report rows.
    pub auroc: f64,
    /// 95 % interval of the area, within 0 and 1 ([`Aurocs::interval`]).
    pub interval: (f64, f64),
    /// The area less that of the entropy on the report rows.
    pub over_entropy: f64,
    /// Its 95 % interval ([`Aurocs::difference_interval`]); 0 and 0 of the entropy.
    pub over_entropy_interval: (f64, f64),
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OodReport {
    pub schema_version: u32,
    /// SHA-256 of the adapter's weights.
    pub adapter: String,
    pub score: OodScore,
    pub draws: usize,
    /// Seed of the draws and of the split into rows.
    pub seed: u64,
    pub reference_rows: usize,
    /// In and out of distribution.
    pub selection_rows: [usize; 2],
    pub report_rows: [usize; 2],
    /// Empty where no score was chosen: there were no other texts.
    pub scores: BTreeMap<OodScore, OodRow>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct OodDetector {
    pub report: OodReport,
    /// The score of the report rows of the distribution.
    calibration: Vec<f64>,
    distance: Option<ClassDistance>,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Oddness {
    pub score: f64,
    /// [`conformal_p`]: of inputs of the distribution at most a share `a` has a `p` of at most `a`.
    pub p: f64,
}

/// Compares the scores of `draws` draws, which `seed` addresses, on rows of the distribution, `labelled`, and on others, `outside`.
/// The distance is fitted to `reference`, which may be the training rows, or else to a third of `labelled`.
pub fn fit_ood(
    classifier: &SavedClassifier,
    labelled: &Split,
    reference: Option<&Split>,
    outside: &[Input],
    draws: usize,
    seed: u64,
) -> Result<OodDetector> {
    if !matches!(
        classifier.info.goal.answers,
        AnswerSpace::Classes { .. } | AnswerSpace::Question { .. }
    ) {
        bail!(
            "an out-of-distribution score is for a classifier of texts, and this one has no fixed classes"
        );
    }
    classifier.check_unseen(labelled)?;
    let ordered = |n: usize| permutation(NoiseKey::new(seed).on_stream(Stream::DATA), n);
    let mut inside: Vec<&Example> =
        ordered(labelled.rows()).into_iter().map(|row| &labelled.examples[row]).collect();
    let reference: Vec<&Example> = match reference {
        Some(split) => split.examples.iter().collect(),
        None => inside.split_off(inside.len() - inside.len() / 3),
    };
    let selected = [inside.len() / 2, outside.len() / 2];
    let reported = [inside.len() - selected[0], outside.len() - selected[1]];
    for (what, rows, fewest) in [
        ("the distance", reference.len(), FEWEST),
        ("the choice of a score", selected[0], FEWEST),
        ("the choice of a score", selected[1], FEWEST_OUTSIDE),
    ] {
        if rows < fewest {
            bail!(
                "{} labelled rows and {} other texts leave {rows} for {what}, expected at least {fewest}: pass at least {} \
                 labelled rows, or {} and `--reference` with at least {FEWEST}, and at least {} other texts",
                labelled.rows(),
                outside.len(),
                3 * FEWEST,
                2 * FEWEST,
                2 * FEWEST_OUTSIDE,
            );
        }
    }
    let inputs = |rows: &[&Example]| rows.iter().map(|row| row.input.clone()).collect::<Vec<_>>();
    let distance = classifier.distance(&reference)?;

    let known: Vec<OodScore> = OodScore::ALL
        .into_iter()
        .filter(|score| *score != OodScore::MutualInformation || draws > 0)
        .collect();
    let scored =
        |inputs: &[Input]| classifier.ood_scores(inputs, &known, Some(&distance), draws, seed, 0);
    let within = scored(&inputs(&inside))?;
    let others: Vec<Input> =
        ordered(outside.len()).into_iter().map(|row| outside[row].clone()).collect();
    let beyond = scored(&others)?;
    let parts = |scores: &[Vec<f64>], at: usize| -> (Vec<Vec<f64>>, Vec<Vec<f64>>) {
        scores.iter().map(|values| (values[..at].to_vec(), values[at..].to_vec())).unzip()
    };
    let ((inside_selected, inside_reported), (outside_selected, outside_reported)) =
        (parts(&within, selected[0]), parts(&beyond, selected[1]));
    let chosen = Aurocs::new(&inside_selected, &outside_selected)?;
    let report = Aurocs::new(&inside_reported, &outside_reported)?;
    // The first of equals, so that the entropy stays where nothing is better.
    let best = (0..known.len())
        .rev()
        .max_by(|&a, &b| chosen.areas[a].total_cmp(&chosen.areas[b]))
        .unwrap_or(0);
    let row = |(i, score): (usize, &OodScore)| {
        let row = OodRow {
            selection: chosen.areas[i],
            auroc: report.areas[i],
            interval: report.interval(i),
            over_entropy: report.difference(i, 0).0,
            over_entropy_interval: report.difference_interval(i, 0),
        };
        (*score, row)
    };
    Ok(OodDetector {
        report: OodReport {
            schema_version: SCHEMA,
            adapter: String::new(),
            score: known[best],
            draws,
            seed,
            reference_rows: reference.len(),
            selection_rows: selected,
            report_rows: reported,
            scores: known.iter().enumerate().map(row).collect(),
        },
        calibration: inside_reported[best].clone(),
        distance: (known[best] == OodScore::Distance).then_some(distance),
    })
}

impl OodReport {
    /// That of the detector beside the adapter in `folder`, if there is one.
    pub fn find(folder: &Path) -> Result<Option<Self>> {
        Ok(OodDetector::find(folder)?.map(|detector| detector.report))
    }
}

impl OodDetector {
    /// The distance to the class means of `reference`, calibrated by the rows with the features `calibrating`. `reference` has the
    /// features of training rows and their classes.
    pub(super) fn of_distance(
        (features, classes): (&[f64], &[usize]),
        calibrating: &[f64],
        seed: u64,
    ) -> Result<Self> {
        let width = features.len() / classes.len().max(1);
        let mut moments = ClassMoments::new(width);
        moments.add(features, classes)?;
        let distance = moments.distance()?;
        let calibration = distance.distances(calibrating)?;
        let report = OodReport {
            schema_version: SCHEMA,
            adapter: String::new(),
            score: OodScore::Distance,
            draws: 0,
            seed,
            reference_rows: classes.len(),
            selection_rows: [0; 2],
            report_rows: [calibration.len(), 0],
            scores: BTreeMap::new(),
        };
        Ok(Self { report, calibration, distance: Some(distance) })
    }

    /// `true` for each of the rows of the calibration that counts as outside at [`OUTSIDE`].
    pub(super) fn calibrating_outside(&self) -> Vec<bool> {
        let is_outside = |&score: &f64| conformal_p(&self.calibration, score) <= OUTSIDE;
        self.calibration.iter().map(is_outside).collect()
    }

    /// Writes the detector beside the adapter in `folder`, where [`find`](Self::find) finds it.
    pub fn write(&self, folder: &Path) -> Result<()> {
        let file = folder.join(FILE);
        let mut tensors = BTreeMap::new();
        let mut keep = |name: &str, shape: &[usize], values: &[f64]| -> Result<()> {
            tensors.insert(name.to_owned(), HostTensor::from_f64(shape, values)?);
            Ok(())
        };
        keep(CALIBRATION, &[self.calibration.len()], &self.calibration)?;
        if let Some(distance) = &self.distance {
            let width = distance.width();
            keep(MEANS, &[distance.means().len() / width, width], distance.means())?;
            keep(ROOT, &[width, width], distance.root())?;
        }
        let adapter = sha256_file(&folder.join(WEIGHTS_FILE))?;
        let header = serde_json::to_string(&OodReport { adapter, ..self.report.clone() })?;
        write_safetensors(file, &tensors, &BTreeMap::from([(HEADER.to_owned(), header)]))?;
        Ok(())
    }

    pub fn read(folder: &Path) -> Result<Self> {
        let Some(found) = Self::find(folder)? else {
            bail!("`{}` is not there: run `lrvd ood fit` first", folder.join(FILE).display());
        };
        Ok(found)
    }

    /// SHA-256 of the detector beside the adapter in `folder`, if there is one.
    pub(super) fn hash(folder: &Path) -> Result<Option<String>> {
        let path = folder.join(FILE);
        is_file(&path)?.then(|| sha256_file(&path)).transpose()
    }

    /// The detector beside the adapter in `folder`, if there is one.
    pub fn find(folder: &Path) -> Result<Option<Self>> {
        let path = folder.join(FILE);
        if !is_file(&path)? {
            return Ok(None);
        }
        let file = WeightStore::open(&path)?;
        let header = file.metadata().get(HEADER);
        let header =
            header.ok_or_else(|| anyhow!("`{}` has no header `{HEADER}`", path.display()))?;
        let report: OodReport = parse_versioned(&path, header, SCHEMA)?;
        if report.adapter != sha256_file(&folder.join(WEIGHTS_FILE))? {
            bail!(
                "`{}` was fitted to other weights than those in `{WEIGHTS_FILE}`: run `lrvd ood fit` again",
                path.display()
            );
        }
        let values = |name: &str| -> Result<Vec<f64>> { Ok(file.read(name)?.to_f64()?) };
        let distance = match file.shape(ROOT) {
            Some(&[width, _]) => {
                Some(ClassDistance::from_parts(values(MEANS)?, values(ROOT)?, width)?)
            }
            _ if report.score == OodScore::Distance => {
                bail!("`{}` has no `{ROOT}`", path.display())
            }
            _ => None,
        };
        Ok(Some(Self { calibration: values(CALIBRATION)?, distance, report }))
    }

    /// Scores `inputs`; `first` is the number of inputs before these, for errors.
    pub fn score(
        &self,
        classifier: &SavedClassifier,
        inputs: &[Input],
        first: usize,
    ) -> Result<Vec<Oddness>> {
        let OodReport { score, draws, seed, .. } = self.report;
        let distance = self.distance.as_ref();
        let found = classifier.ood_scores(inputs, &[score], distance, draws, seed, first)?;
        let odd = |&score: &f64| Oddness { score, p: conformal_p(&self.calibration, score) };
        Ok(found.concat().iter().map(odd).collect())
    }
}

impl SavedClassifier {
    fn ood_scores(
        &self,
        inputs: &[Input],
        scores: &[OodScore],
        distance: Option<&ClassDistance>,
        draws: usize,
        seed: u64,
        first: usize,
    ) -> Result<Vec<Vec<f64>>> {
        let is_answered = scores.iter().any(|score| *score != OodScore::Distance);
        let window = self.window(draws);
        let mut found = vec![Vec::with_capacity(inputs.len()); scores.len()];
        for (number, inputs) in inputs.chunks(window).enumerate() {
            self.on_examples(inputs, first + number * window, None, |examples| {
                let mut energy = Vec::new();
                let mut answers = Vec::new();
                if is_answered {
                    let logits = self.logits(examples, draws, seed)?;
                    if scores.contains(&OodScore::Energy) {
                        energy = free_energy(&logits.values, logits.members(), logits.width)?;
                    }
                    answers = self.answers(logits, draws)?;
                }
                for (score, found) in scores.iter().zip(&mut found) {
                    match (score, distance) {
                        (OodScore::Energy, _) => found.extend_from_slice(&energy),
                        (OodScore::Distance, Some(distance)) => {
                            found.extend(distance.distances(&self.features(examples)?.0)?);
                        }
                        (OodScore::Distance, None) => bail!("no distance is fitted"),
                        _ => found.extend(answers.iter().map(|answer| of_answer(*score, answer))),
                    }
                }
                Ok(())
            })?;
        }
        Ok(found)
    }

    /// The distance to the class means of `rows`, read in windows: a large table needs little memory.
    fn distance(&self, rows: &[&Example]) -> Result<ClassDistance> {
        let window = self.window(0);
        let mut moments: Option<ClassMoments> = None;
        for (number, rows) in rows.chunks(window).enumerate() {
            let classes: Vec<usize> = rows.iter().filter_map(|row| row.label.class()).collect();
            let inputs: Vec<Input> = rows.iter().map(|row| row.input.clone()).collect();
            let (features, width) =
                self.on_examples(&inputs, number * window, None, |examples| {
                    self.features(examples)
                })?;
            moments.get_or_insert_with(|| ClassMoments::new(width)).add(&features, &classes)?;
        }
        let moments = moments.ok_or_else(|| anyhow!("no rows to fit the distance to"))?;
        Ok(moments.distance()?)
    }

    /// Features that the head reads of every example at the posterior mean, `[examples, width]`, and the width.
    fn features(&self, examples: &TokenExamples<'_>) -> Result<(Vec<f64>, usize)> {
        let batch_size = self.info.run.batch_size;
        let inputs = Inputs { batch_size, ..Inputs::new(examples) };
        let found = features(&self.model, &inputs)?;
        let width = found.len() / examples.len().max(1);
        Ok((found, width))
    }
}

/// Score of the answer; 0 where it does not apply.
fn of_answer(score: OodScore, answer: &RowAnswer) -> f64 {
    let RowAnswer::Class { probabilities, class, entropy, mutual_information, .. } = answer else {
        return 0.0;
    };
    match score {
        OodScore::MaximumProbability => 1.0 - probabilities[*class],
        OodScore::MutualInformation => mutual_information.unwrap_or(0.0),
        _ => *entropy,
    }
}
