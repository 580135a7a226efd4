//! A run of the experiment: trained, or made from the answers of other runs.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use anyhow::bail;
use burn::tensor::Device;
use lrvd_burn::train::Logits;
use lrvd_core::adalora::matched_target_rank;

use super::plan::{Experiment, Plan};
use super::runs::PlannedRun;
use super::task::{OodSet, ReadyTask, ood_answers, ood_records, wording};
use crate::adapter::keep;
use crate::backbone::Backbone;
use crate::data::{PreparedTask, QuestionForm, TextColumns};
use crate::error::Result;
use crate::eval::{RunContext, Scored, measures, score_draws, selective_records};
use crate::io::{JsonLayout, read_lines, write_json};
use crate::method::RankRequest;
use crate::progress::ProgressSink;
use crate::record::{
    CheckpointRecord, Checkpoints, ParameterCounts, PredictionLine, RankBudget, RunRecord,
};
use crate::run::{
    ADAPTER_DIR, ByDraws, ClassSettings, Finished, LAST_PREDICTIONS, RECORD_FILE, RowSettings, Run,
    RunPlace, RunStart, TrainSettings,
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
    /// Output folder of the experiment.
    pub out: &'a Path,
    pub stop: &'a AtomicBool,
}

impl RunInput<'_> {
    fn experiment(&self) -> &Experiment {
        &self.plan.experiments[self.run.experiment]
    }

    fn folder(&self) -> PathBuf {
        self.out.join(self.run.folder())
    }

    /// Trains it; `None` if a stop request ended it after a checkpoint. `position` is that among all runs, from 1.
    pub(super) fn train(
        &self,
        position: (usize, usize),
        sink: &mut dyn ProgressSink,
    ) -> Result<Option<RunRecord>> {
        let Self { run, backbone, device, .. } = *self;
        let ReadyTask { prepared: task, ood, .. } = self.task;
        let (folder, config, request) = (self.folder(), &self.experiment().config, self.request());
        let (method, seed) = (run.method, run.seed);
        let start = RunStart { config, backbone, task, method, request, seed, device };
        let training = Run::new(start, self.stop, run.label(), position);
        let begun = training.open(&folder)?;
        let place = RunPlace {
            out: self.out,
            folder: &folder,
            budget: self.budget(request),
            layout: JsonLayout::Compact,
        };
        training.complete(begun, &place, sink, |trained, finished, sink| {
            let Finished { record, answers, temperatures, .. } = &mut *finished;
            if !ood.is_empty() {
                let draws = answers.keys().map(|&draws| draws.max(1) as usize).sum::<usize>();
                let total = draws * ood.iter().map(OodSet::rows).sum::<usize>();
                let ask = |context: &RunContext<'_>| {
                    ood_answers(
                        context,
                        (run.method, &trained, temperatures),
                        answers,
                        ood,
                        &folder,
                    )
                };
                let Some(found) = training.watched(sink, total, ask)? else { return Ok(None) };
                record.ood = found;
            }
            if let Some(settings) = self.kept()? {
                let (context, adapter) = (training.context(), folder.join(ADAPTER_DIR));
                keep(&settings, trained, finished, &context, &adapter)?;
            }
            Ok(Some(()))
        })
    }

    /// The rank that the run is asked for, given the runs that it is matched to.
    ///
    /// AdaLoRA takes the average rank of BayesLoRA with its seed; LoRA takes the lower median over all seeds, one uniform rank.
    fn request(&self) -> RankRequest {
        let rank = |(_, record): &(PlannedRun, RunRecord)| {
            let last = record.checkpoints.last.as_ref()?;
            let modules = record.rank_budget.n_modules as usize;
            Some(matched_target_rank(last.total_rank as usize, modules))
        };
        let mut ranks: Vec<usize> = self.needed.iter().filter_map(rank).collect();
        ranks.sort_unstable();
        match ranks.get(ranks.len().saturating_sub(1) / 2) {
            Some(&median) => RankRequest::Average(median),
            // Nothing to match: the customary half of the initial rank.
            None => self.run.method.request(self.experiment().config.initial_rank, None),
        }
    }

    /// What the adapter of the run is described by; `None` where none is kept.
    fn kept(&self) -> Result<Option<TrainSettings>> {
        let Self { run, plan, backbone, .. } = *self;
        let (task, config) = (self.task, &self.experiment().config);
        if !plan.keep || !run.method.can().saved {
            return Ok(None);
        }
        let goal = task.prepared.goal.clone();
        let architecture = &backbone.architecture;
        let (columns, wording, questions) = if run.task.is_question() {
            let Some(form) = QuestionForm::of(run.task, config.prompt) else { return Ok(None) };
            let wording = architecture.question_wording(form, goal.n_labels(), false);
            (Some(TextColumns::usual_questions()), wording, Some(form))
        } else {
            (None, wording(run.task, architecture, config)?, None)
        };
        let (train, validation) = (&task.data.train.files, &task.data.validation.files);
        let files = train.iter().chain(validation);
        let rows = RowSettings::Classes(ClassSettings {
            validation_split: None,
            columns,
            wording,
            questions,
            question: None,
            pairs: run.task.is_pair(),
            goal,
        });
        let data = files.map(|file| (file.path.clone(), file.sha256.clone())).collect();
        let (method, config) = ((run.method, None), config.clone());
        let settings =
            TrainSettings::new(backbone, (rows, data), method, run.seed, &plan.device, config);
        Ok(Some(settings))
    }

    fn budget(&self, request: RankRequest) -> RankBudget {
        let can = self.run.method.can();
        let (requested, note) = match request {
            RankRequest::Average(rank) if self.experiment().matches => {
                (Some(rank), "matched to BayesLoRA")
            }
            RankRequest::Average(rank) => (Some(rank), "half the settings' rank"),
            RankRequest::Initial if can.prunes && !can.budget => (None, "learnt"),
            RankRequest::Initial => (None, "the settings' rank"),
        };
        let initial_rank = match request {
            RankRequest::Average(rank) if !can.prunes => rank,
            _ => self.experiment().config.initial_rank,
        };
        RankBudget::new(initial_rank, requested, note)
    }

    /// Makes the row from its members, which are the runs that it needs: averages their answers, to the task and to what
    /// they were shown besides.
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
            // One after another: the largest.
            peak_memory_bytes: records().map(|r| r.peak_memory_bytes).max().flatten(),
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
    /// Members give logarithms of probabilities, which differ from their logits by a constant of each example: the
    /// probabilities are the same. A score is averaged as it is.
    fn averaged(&self, name: &str, task: &PreparedTask) -> Result<ByDraws<Scored>> {
        let regression = task.goal.is_regression();
        let value = |p: f64| if regression { p } else { p.max(f64::MIN_POSITIVE).ln() };
        // One member after another, and each row by row.
        let mut members: ByDraws<Vec<f64>> = BTreeMap::new();
        for (part, _) in self.needed {
            for line in read_lines::<PredictionLine>(&self.out.join(part.folder()).join(name))? {
                for (draws, answer) in line.probs {
                    members.entry(draws).or_default().extend(answer.into_iter().map(value));
                }
            }
        }
        let (rows, width) = (task.validation.len(), task.labels);
        let score = |(draws, all)| Ok((draws, score_draws(&Logits::new(all, rows, width), task)?));
        members.into_iter().map(score).collect()
    }
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
