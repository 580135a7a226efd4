//! One run of a plan: trained, or made from the answers of other runs.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use anyhow::bail;
use burn::tensor::Device;
use lrvd_burn::train::Prediction;
use lrvd_core::adalora::matched_target_rank;

use super::data::{OodSet, ReadyTask, layout, ood_answers, ood_records};
use super::grid::Matching;
use super::plan::{Experiment, Plan};
use super::runs::PlannedRun;
use crate::adapter::keep;
use crate::answers::AnswerSpace;
use crate::backbone::Backbone;
use crate::data::{Columns, PreparedTask, SplitName, TextColumns};
use crate::error::Result;
use crate::eval::{RunContext, Scored, measures, score_draws, selective_records};
use crate::io::{JsonLayout, read_lines, write_json};
use crate::memory::Sizes;
use crate::method::RankRequest;
use crate::progress::Event;
use crate::record::{
    CheckpointRecord, Checkpoints, ParameterCounts, PredictionLine, RankBudget, RunRecord,
    SplitRecord,
};
use crate::run::{
    ADAPTER_DIR, ByDraws, Finished, LAST_PREDICTIONS, RECORD_FILE, RowSettings, Run, RunPlace,
    RunStart, TrainSettings,
};

/// A run with the records of those that it needs.
pub(super) type Records = Vec<(PlannedRun, RunRecord)>;

pub(super) struct RunInput<'a> {
    pub run: &'a PlannedRun,
    pub needed: &'a Records,
    pub plan: &'a Plan,
    pub backbone: &'a Backbone,
    pub device: &'a Device,
    pub task: &'a ReadyTask,
    /// Output folder of the plan.
    pub out: &'a Path,
    pub stop: &'a AtomicBool,
}

impl RunInput<'_> {
    fn experiment(&self) -> &Experiment {
        &self.plan.experiments[self.run.experiment]
    }

    fn folder(&self) -> PathBuf {
        self.out.join(&self.run.folder)
    }

    /// Trains it; `None` if a stop request ended it after a checkpoint. `position` is that among all runs, from 1.
    pub(super) fn train(
        &self,
        position: (usize, usize),
        sink: &mut dyn FnMut(&Event),
    ) -> Result<Option<RunRecord>> {
        let Self { run, backbone, device, .. } = *self;
        let ReadyTask { prepared: task, ood, .. } = self.task;
        let folder = self.folder();
        let request = self.request()?;
        let start = RunStart {
            config: &self.experiment().config,
            backbone,
            task,
            method: run.method,
            request,
            seed: run.seed,
            device,
        };
        let training = Run::new(start, self.stop, run.label(), position);
        training.memory_note()?.into_iter().for_each(|note| sink(&Event::Note(note)));
        let begun = training.open(&folder)?;
        let place = RunPlace {
            out: &run.experiment_folder(self.out),
            folder: &folder,
            budget: self.budget(request),
            layout: JsonLayout::Compact,
        };
        training.complete(begun, &place, sink, |trained, finished, context, sink| {
            let Finished { record, answers, temperatures, .. } = &mut *finished;
            if !ood.is_empty() {
                let draws = answers.keys().map(|&draws| draws.max(1) as usize).sum::<usize>();
                let total = draws * ood.iter().map(OodSet::rows).sum::<usize>();
                let model = (run.method, &trained, &*temperatures);
                let ask =
                    |context: &RunContext<'_>| ood_answers(context, model, answers, ood, &folder);
                record.ood = training.watched(sink, total, ask)?;
            }
            if let Some(settings) = self.saved_settings()? {
                keep(&settings, trained, finished, context, &folder.join(ADAPTER_DIR))?;
            }
            Ok(())
        })
    }

    /// The requested rank, by the [`Matching`] to the runs that this one needs.
    fn request(&self) -> Result<RankRequest> {
        let Self { run, backbone, .. } = *self;
        let Experiment { config, matching, .. } = self.experiment();
        let records = || self.needed.iter().map(|(_, record)| record);
        let (Some(matching), Some(first)) = (matching, records().next()) else {
            // Without matching: the usual half of the initial rank.
            return Ok(run.method.request(config.initial_rank, None));
        };
        Ok(RankRequest::Average(match matching {
            Matching::Parameters => {
                let mut sizes = Sizes::new(&backbone.architecture, config);
                // A model of scores has no `lm_head`, which is the last layer.
                sizes.layers.truncate(first.rank_budget.n_modules as usize);
                let of_one = sizes.trained(run.method, Some(1))?;
                nearest_rank(first.trainable_parameters.trained(), of_one)
            }
            Matching::MedianRank => {
                let last = records().filter_map(|record| record.checkpoints.last.as_ref());
                let totals = last.map(|last| last.total_rank as usize).collect();
                median_rank(totals, first.rank_budget.n_modules as usize)
            }
        }))
    }

    /// Settings that describe the adapter of the run; `None` if it is not saved.
    fn saved_settings(&self) -> Result<Option<TrainSettings>> {
        let Self { run, plan, backbone, .. } = *self;
        let task = self.task;
        let config = &self.experiment().config;
        if !plan.keep || !run.method.can().saved {
            return Ok(None);
        }
        let goal = task.prepared.goal.clone();
        let Some(layout) = layout(run.task, &backbone.architecture, config)? else {
            return Ok(None);
        };
        let columns = TextColumns::usual_questions;
        let columns = run.task.is_question().then(|| Columns::Labelled(columns()));
        let pairs = run.task.is_pair();
        let rows = RowSettings { validation_split: None, columns, layout, pairs, goal };
        let hashes = |split: &SplitRecord| {
            split.files.iter().map(|file| (file.path.clone(), file.sha256.clone())).collect()
        };
        let splits =
            [(SplitName::Train, &task.data.train), (SplitName::Validation, &task.data.validation)];
        let data = splits.map(|(name, split)| (name.to_string(), hashes(split))).into();
        let settings = TrainSettings::new(
            backbone,
            (rows, data),
            (run.method, None),
            run.seed,
            &plan.device,
            config.clone(),
        );
        Ok(Some(settings))
    }

    fn budget(&self, request: RankRequest) -> RankBudget {
        let can = self.run.method.can();
        let matched = self.needed.first().zip(self.experiment().matching);
        let (requested, note) = match (request, matched) {
            (RankRequest::Average(rank), Some(((other, _), matching))) => {
                let what = match matching {
                    Matching::Parameters => "parameters",
                    Matching::MedianRank => "rank",
                };
                (Some(rank), format!("{what} matched to {}", other.method))
            }
            (RankRequest::Average(rank), None) => (Some(rank), "half the settings' rank".into()),
            (RankRequest::Initial, _) if can.prunes && !can.budget => (None, "learnt".into()),
            (RankRequest::Initial, _) => (None, "the settings' rank".into()),
        };
        let initial_rank = match request {
            RankRequest::Average(rank) if !can.prunes => rank,
            _ => self.experiment().config.initial_rank,
        };
        RankBudget::new(initial_rank, requested, &note)
    }

    /// Makes the row from its members, which are the runs that it needs: averages their answers to the task and to other
    /// sets.
    ///
    /// With draws, a member's answer is the average of its draws: mutual information is that between
    /// members.
    pub(super) fn combine(&self) -> Result<()> {
        let ReadyTask { prepared, ood, .. } = self.task;
        let folder = self.folder();
        let scored = self.averaged(LAST_PREDICTIONS, prepared)?;
        prepared.write_predictions(&scored, &folder.join(LAST_PREDICTIONS))?;
        let ask = |task: &PreparedTask, file: &str, _| self.averaged(file, task).map(Some);
        let ood = ood_records(ood, &scored, &folder, ask)?;
        let records = || self.needed.iter().map(|(_, record)| record);
        let Some(first) = records().next() else {
            bail!("{}: no member has finished", self.run.method.entry().name);
        };
        let largest = records().max_by_key(|record| record.peak_memory_bytes).unwrap_or(first);
        let selective = selective_records(&scored, prepared)?;
        let (metrics, reliability) = measures(&scored);
        let last = first.checkpoints.last.as_ref();
        let last = last.map(|last| CheckpointRecord {
            reliability,
            selective,
            metrics,
            predict_seconds: sum_seconds(records()),
            statistics: None,
            energy: BTreeMap::new(),
            ..last.clone()
        });
        let record = RunRecord {
            checkpoints: Checkpoints { last, best: None, candidates: 0 },
            train_seconds: records().map(|r| r.train_seconds).sum(),
            evaluate_seconds: records().map(|r| r.evaluate_seconds).sum(),
            trainable_parameters: records()
                .map(|record| record.trainable_parameters)
                .fold(ParameterCounts::default(), std::ops::Add::add),
            // Members are trained one after another.
            peak_memory_bytes: largest.peak_memory_bytes,
            start_memory_bytes: largest.start_memory_bytes,
            ood,
            fitted: BTreeMap::new(),
            history: Vec::new(),
            rank_events: Vec::new(),
            choice: None,
            method: self.run.method.name(),
            seed: self.run.seed,
            ..first.clone()
        };
        write_json(&folder.join(RECORD_FILE), &record, JsonLayout::Compact)
    }

    /// The members' answers in their files `name`, averaged, by number of draws.
    ///
    /// The files have probabilities. Their logarithms differ from the logits by a constant of each example, which changes no
    /// probability. A score is averaged unchanged.
    fn averaged(&self, name: &str, task: &PreparedTask) -> Result<ByDraws<Scored>> {
        let regression = task.goal.answers == AnswerSpace::Score;
        let value = |p: f64| if regression { p } else { p.max(f64::MIN_POSITIVE).ln() };
        // Members one after another, each row by row.
        let mut members: ByDraws<Vec<f64>> = BTreeMap::new();
        for (part, _) in self.needed {
            for line in read_lines::<PredictionLine>(&self.out.join(&part.folder).join(name))? {
                for (draws, answer) in line.probs {
                    members.entry(draws).or_default().extend(answer.into_iter().map(value));
                }
            }
        }
        let score = |(draws, all)| {
            let answers = Prediction::new(all, task.validation.len(), task.labels);
            Ok((draws, score_draws(&answers, task)?))
        };
        members.into_iter().map(score).collect()
    }
}

/// The rank, at least 1, whose parameters are nearest to `parameters`: `of_one` for each.
fn nearest_rank(parameters: u64, of_one: usize) -> usize {
    ((parameters as f64 / of_one.max(1) as f64).round_ties_even() as usize).max(1)
}

/// The median of the average ranks of runs whose ranks sum to `totals`, of an even number the mean of the middle two; a whole
/// rank, at least 1.
fn median_rank(mut totals: Vec<usize>, modules: usize) -> usize {
    totals.sort_unstable();
    let middle = totals.len().saturating_sub(1) / 2;
    let twice: usize = [middle, totals.len() / 2].iter().filter_map(|&i| totals.get(i)).sum();
    matched_target_rank(twice, 2 * modules)
}

fn sum_seconds<'a>(records: impl Iterator<Item = &'a RunRecord>) -> ByDraws<f64> {
    let mut sums = BTreeMap::new();
    for last in records.filter_map(|record| record.checkpoints.last.as_ref()) {
        for (&draws, seconds) in &last.predict_seconds {
            *sums.entry(draws).or_insert(0.0) += seconds;
        }
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backbone::Architecture;
    use crate::method::MethodName;
    use crate::settings::Preset;

    /// DeBERTa-v3-base has 12·(4·(768 + 768) + 2·(768 + 3,072)) of one rank with LoRA; AdaLoRA and BayesLoRA have
    /// one more in each of the 72 modules.
    #[test]
    fn a_rank_has_the_same_size_whatever_the_method_starts_with() {
        let config = Preset::PaperGlue.config();
        let sizes = Sizes::new(&Architecture::deberta_v3_base().unwrap(), &config);
        let of_one = MethodName::FIRST_TABLE.map(|method| sizes.trained(method, Some(1)).unwrap());
        assert_eq!(of_one, [165_888, 165_960, 165_960]);
    }

    /// LoRA on the shipped encoder has 13,824 parameters a rank; the sizes are those of two runs of BayesLoRA.
    #[test]
    fn sizes_are_matched_by_the_nearest_whole_rank_and_medians_are_means_of_two() {
        for (parameters, expected) in [(20_766, 2), (62_113, 4), (41_440, 3), (6_000, 1), (0, 1)] {
            let rank = nearest_rank(parameters, 13_824);
            assert_eq!(rank, expected, "{parameters}");
            let apart = |rank: usize| (rank * 13_824).abs_diff(parameters as usize);
            assert!((1..9).all(|other| apart(rank) <= apart(other)), "{parameters}");
        }
        // Of 24 modules: average ranks 1 and 4, whose mean is 2.5 (halves to the even side), and 1, 2, 9.
        assert_eq!(
            [vec![24, 96], vec![216, 24, 48], vec![30], vec![]].map(|t| median_rank(t, 24)),
            [2, 2, 1, 1]
        );
    }
}
