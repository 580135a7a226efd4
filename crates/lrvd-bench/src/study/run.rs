//! The runs of a study, arm by arm.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;

use serde::Serialize;
use serde_json::json;

use super::error::StudyError;
use super::evidence::Evidence;
use super::options::StudyOptions;
use super::page;
use super::verdict::Judgement;
use crate::progress::{Event, ProgressSink};
use crate::run::OutputFolder;
use crate::suite::{DryRun, Suite, generated_data, planned, run_suite_with};

/// Operations per second of the estimate: those that the shipped tiny DeBERTa would make on two cores of a
/// server, at a third of a second for a step of 32, if its embeddings were multiplied like other weights.
const ASSUMED_FLOPS: f64 = 1e11;

/// A claim with what was found of it.
#[derive(Clone, Debug, Serialize)]
pub struct ClaimOutcome {
    /// Short name.
    pub id: &'static str,
    /// The sentence.
    pub sentence: &'static str,
    /// Who says so.
    pub source: &'static str,
    /// The verdict and its numbers.
    #[serde(flatten)]
    pub judgement: Judgement,
}

/// How a study ended.
#[derive(Clone, Debug, Serialize)]
pub struct StudyOutcome {
    /// Its name.
    pub study: &'static str,
    /// Whether every run is there; otherwise `--resume` goes on.
    pub complete: bool,
    /// Runs that are there.
    pub finished: usize,
    /// Runs that there will be.
    pub planned: usize,
    /// The claims, judged by the runs that are there.
    pub claims: Vec<ClaimOutcome>,
    /// The page.
    pub page: PathBuf,
    /// Every number.
    pub table: PathBuf,
    /// The images.
    pub figures: Vec<PathBuf>,
    /// Headings and rows of the page's table.
    pub rows: Vec<Vec<String>>,
}

/// What a study would take.
#[derive(Clone, Debug, Serialize)]
pub struct StudyPlan {
    /// Its name.
    pub study: &'static str,
    /// The question.
    pub question: &'static str,
    /// Trainings.
    pub runs: usize,
    /// Optimiser steps of each.
    pub steps: usize,
    /// Estimated seconds of all.
    pub seconds: f64,
    /// Operations per second that are assumed.
    pub assumed_flops: f64,
    /// The arms, each with its plan.
    pub arms: Vec<(String, DryRun)>,
}

impl StudyPlan {
    /// The plan as a person reads it.
    pub fn render_text(&self) -> String {
        let mut text = format!("study {}: {}\n\n", self.study, self.question);
        for (label, plan) in &self.arms {
            let _ = writeln!(text, "  {label}");
            for run in &plan.runs {
                let _ = writeln!(text, "    {run}");
            }
        }
        let _ = writeln!(
            text,
            "\n{} runs of {} steps; about {:.0} minutes at an assumed {:.0} GFLOP/s (two cores) and the full \
             length; shorter texts take less, what the study measures of trained models comes on top",
            self.runs,
            self.steps,
            (self.seconds / 60.0).max(1.0),
            self.assumed_flops / 1e9,
        );
        text
    }
}

/// What `options` would train.
///
/// # Errors
///
/// [`StudyError`] naming the arm and what is missing or wrong.
pub fn plan_study(options: &StudyOptions) -> Result<StudyPlan, StudyError> {
    let arms = options
        .arms()?
        .iter()
        .map(|arm| {
            let failed =
                |source| StudyError::Arm { arm: arm.label.clone(), source: Box::new(source) };
            Ok((arm.label.clone(), planned(options.suite(arm)?).map_err(failed)?))
        })
        .collect::<Result<Vec<_>, StudyError>>()?;
    let operations = |plan: &DryRun| {
        let time = &plan.time;
        (time.training + time.evaluation) * 3600.0 * time.assumed_flops
    };
    Ok(StudyPlan {
        study: options.study.name,
        question: options.study.question,
        runs: arms.iter().map(|(_, plan)| plan.runs.len()).sum(),
        steps: options.steps(),
        seconds: arms.iter().map(|(_, plan)| operations(plan)).sum::<f64>() / ASSUMED_FLOPS,
        assumed_flops: ASSUMED_FLOPS,
        arms,
    })
}

/// Trains all arms, and writes table, images and page into `options.out`.
///
/// # Errors
///
/// [`StudyError`]; what was finished before stays on disk and `--resume` goes on from there.
pub fn run_study(
    options: &StudyOptions,
    stop: &AtomicBool,
    sink: &mut dyn ProgressSink,
) -> Result<StudyOutcome, StudyError> {
    let study = options.study;
    // Whatever can be refused is refused before the first run.
    let plan = plan_study(options)?;
    let arms = options.arms()?;
    let mut folder = OutputFolder::look(&options.out, options.resume)?;
    let settings = json!({
        "study": study.name,
        "size": options.size.name(),
        "steps": options.steps(),
        "model": options.model,
        "data_dir": options.data_dir,
        "set": options.set,
    });
    folder.check(&settings)?;
    folder.claim()?;
    if options.data_dir.is_none() {
        generated_data(Suite::Glue, &mut folder, sink)?;
    }
    folder.begin(&settings)?;
    let mut evidence = Evidence::new(arms.clone());
    let (mut finished, mut complete, mut before) = (0, true, 0);
    for (arm, (_, own)) in arms.iter().zip(&plan.arms) {
        let mut sink = ArmSink { sink: &mut *sink, arm: &arm.label, before, runs: plan.runs };
        let outcome =
            run_suite_with(options.suite(arm)?, study.analysis, stop, &mut sink).map_err(
                |source| StudyError::Arm { arm: arm.label.clone(), source: Box::new(source) },
            )?;
        finished += outcome.finished;
        before += own.runs.len();
        for (record, measured) in outcome.runs {
            evidence.add(&arm.label, &record, measured);
        }
        if !outcome.complete {
            complete = false;
            break;
        }
    }
    let claims = study.claims.iter().map(|claim| ClaimOutcome {
        id: claim.id,
        sentence: claim.sentence,
        source: claim.source,
        judgement: (claim.judge)(&evidence),
    });
    let outcome = StudyOutcome {
        study: study.name,
        complete,
        finished,
        planned: plan.runs,
        claims: claims.collect(),
        page: options.file(".md"),
        table: options.file(".csv"),
        figures: study.figures.iter().map(|f| options.file(&format!("-{}.svg", f.name))).collect(),
        rows: page::rows(study, &evidence),
    };
    page::write(options, &plan, &evidence, &outcome)?;
    Ok(outcome)
}

/// Says which arm a run belongs to, and counts over all of them.
struct ArmSink<'a> {
    sink: &'a mut dyn ProgressSink,
    arm: &'a str,
    before: usize,
    runs: usize,
}

impl ProgressSink for ArmSink<'_> {
    fn event(&mut self, event: &Event) {
        let named = |label: &str| format!("{} / {label}", self.arm);
        let event = match event.clone() {
            Event::RunStarted { index, label, steps, done, .. } => Event::RunStarted {
                index: self.before + index,
                runs: self.runs,
                label: named(&label),
                steps,
                done,
            },
            Event::RunFinished { label, summary, seconds } => {
                Event::RunFinished { label: named(&label), summary, seconds }
            }
            other => other,
        };
        self.sink.event(&event);
    }
}
