//! Runs on classes and scores.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Instant;

use burn::module::Module;
use burn::tensor::DType;
use lrvd_burn::model::AdapterTargets;
use lrvd_burn::train::{
    DrawPolicy, Evaluation, Examples as _, Inputs, LabelledExamples as _, calibrated_losses,
};
use lrvd_models::AutoClassifier;

use super::settings::{ClassSettings, TrainSettings};
use super::task::{Answering, ByDraws, Measures, RunStart, Timed, TrainTask};
use crate::backbone::{Backbone, load_model};
use crate::data::PreparedTask;
use crate::data::batch::{TokenExamples, TokenisedExample};
use crate::error::{Burn, Result};
use crate::eval::{RunContext, Scored, label_number, score_draws, selective_records};
use crate::io::{create_parent, write_json_lines};
use crate::method::{ClassifierMethod, MethodName, RankRequest, Temperatures};
use crate::record::PredictionLine;
use crate::settings::{Config, TargetModules};

impl TrainTask for PreparedTask {
    type Kind = ClassSettings;
    type Model = AutoClassifier;
    type Method = ClassifierMethod;
    type Row = TokenisedExample;
    type Rows<'a> = TokenExamples<'a>;
    type Answers = Scored;

    fn without_rows(settings: &TrainSettings<ClassSettings>, backbone: &Backbone) -> Result<Self> {
        settings.reader(backbone)?.prepare(settings.kind.goal.clone(), &[], &[])
    }

    fn splits(&self) -> [&[TokenisedExample]; 3] {
        [&self.train, &self.holdout, &self.validation]
    }

    fn holding_out(&self, share: f64, drawn_by: Option<u64>) -> Self {
        match drawn_by {
            Some(seed) => self.holding_out_drawn(share, seed),
            None => Self::holding_out(self, share),
        }
    }

    fn rows<'a>(context: &RunContext<'a>, rows: &'a [TokenisedExample]) -> TokenExamples<'a> {
        context.examples(rows)
    }

    fn load(start: &RunStart<'_, Self>) -> Result<AutoClassifier> {
        let RunStart { config, backbone, task, seed, device, .. } = *start;
        let dtype = backbone.stored_as(config.base_precision)?;
        Ok(load_model(backbone, task, config.backbone_dropout, seed, device, dtype)?.0)
    }

    fn build(
        method: MethodName,
        config: &Config,
        request: RankRequest,
    ) -> Result<Box<ClassifierMethod>> {
        method.build(config, request)
    }

    fn evaluate((context, model, method): Answering<'_, Self>) -> Result<Evaluation> {
        let task = context.task;
        let examples = context.examples(&task.validation);
        let logits = method.predict(model, &context.inputs(&examples), 0)?;
        let metrics = score_draws(&logits, task)?.metrics;
        let standard = metrics.standard.values().next().copied();
        let found = [("accuracy", metrics.accuracy), ("standard", standard), ("nll", metrics.nll)];
        let finite = found.into_iter().filter_map(|(name, value)| {
            Some((name.to_owned(), value.filter(|value| value.is_finite())?))
        });
        Ok(Evaluation {
            metric: task.goal.selection.name().to_owned(),
            score: Some(task.goal.score(&metrics)).filter(|score| score.is_finite()),
            metrics: finite.collect(),
        })
    }

    fn held_out((context, model, method): Answering<'_, Self>) -> Result<Vec<f64>> {
        let examples = context.examples(&context.task.holdout);
        let logits = method.predict(model, &context.inputs(&examples), 0)?;
        let all: Vec<usize> = (0..examples.len()).collect();
        Ok(calibrated_losses(&logits, &examples.targets(&all)?)?)
    }

    fn answers(
        (context, model, method): Answering<'_, Self>,
        temperatures: &Temperatures,
        draws: &[usize],
    ) -> Result<Timed<Scored>> {
        let examples = context.examples(&context.task.validation);
        let inputs = context.inputs(&examples);
        let (mut scored, mut seconds) = (BTreeMap::new(), BTreeMap::new());
        // The answer to `asked` draws serves all numbers in `kept`.
        let mut answer = |asked: usize, kept: &[usize]| -> Result<()> {
            let begun = Instant::now();
            let logits = method.predict(model, &inputs, asked)?;
            let logits = temperatures.soften(logits, asked)?;
            let took = begun.elapsed().as_secs_f64();
            for &draws in kept {
                let all = draws == asked;
                let first = (!all).then(|| logits.first(draws));
                let share = if all { 1.0 } else { draws as f64 / asked as f64 };
                let logits = first.as_ref().unwrap_or(&logits);
                scored.insert(draws as u32, score_draws(logits, context.task)?);
                seconds.insert(draws as u32, took * share);
            }
            Ok(())
        };
        answer(0, &[0])?;
        // Each number of draws has a separate temperature, if there is one.
        let nest = method.draws_nest() && temperatures.0.is_empty();
        match draws.iter().max().filter(|_| nest) {
            Some(&most) => answer(most, draws)?,
            None => draws.iter().try_for_each(|&draws| answer(draws, &[draws]))?,
        }
        Ok((scored, seconds))
    }

    fn measures(&self, scored: &ByDraws<Scored>) -> Result<Measures> {
        let reliability = scored.iter().filter_map(|(&k, s)| Some((k, s.reliability.clone()?)));
        Ok(Measures {
            metrics: scored.iter().map(|(&k, s)| (k, s.metrics.clone())).collect(),
            reliability: reliability.collect(),
            selective: selective_records(scored, self)?,
        })
    }

    fn write_predictions(&self, scored: &ByDraws<Scored>, path: &Path) -> Result<()> {
        create_parent(path)?;
        let width = self.labels;
        let uncertain =
            || scored.iter().filter_map(|(&k, s)| Some((k, s, s.uncertainty.as_ref()?)));
        let rows = self.validation_ids.iter().zip(&self.validation).enumerate();
        write_json_lines(
            path,
            rows.map(|(i, (id, example))| PredictionLine {
                id: id.clone(),
                label: label_number(example.label),
                probs: scored
                    .iter()
                    .map(|(&k, s)| (k, s.outputs[i * width..(i + 1) * width].to_vec()))
                    .collect(),
                entropy: uncertain().map(|(k, _, u)| (k, u.predictive_entropy[i])).collect(),
                // A single model agrees with itself: its mean is absent, and so are its values.
                mutual_information: uncertain()
                    .filter(|(_, s, _)| s.metrics.mutual_information.is_some())
                    .map(|(k, _, u)| (k, u.mutual_information[i]))
                    .collect(),
            }),
        )
    }

    fn draws_nest(method: &ClassifierMethod) -> bool {
        method.draws_nest()
    }

    fn targets(model: &AutoClassifier, targets: &TargetModules) -> AdapterTargets {
        let mut targets = targets.layers();
        if let (AutoClassifier::LlamaScore(_), AdapterTargets::Names(names)) = (model, &mut targets)
            && names.len() > 1
        {
            // A model that predicts a number has no head over the vocabulary.
            names.retain(|name| name != "lm_head");
        }
        targets
    }

    /// Rejects a policy of draws that the method or the task has no use for, by one question.
    ///
    /// It is asked under a cascade that decides everything: a method that follows the policy answers without a draw, and
    /// its logits say so.
    fn check(
        start: &RunStart<'_, Self>,
        model: &AutoClassifier,
        method: &ClassifierMethod,
    ) -> Burn<()> {
        let (config, task, policy) = (start.config, start.task, start.config.prediction);
        let (draws, first) = (start.method.draws(config), task.validation.first());
        let (Some(setting), Some(first)) = (policy.asked(), first) else { return Ok(()) };
        let Some(&draws) = draws.iter().max() else { return Ok(()) };
        let examples = TokenExamples {
            examples: std::slice::from_ref(first),
            pad_id: task.pad_id,
            labels: task.labels,
            device: start.device,
            dtype: DType::F32,
        };
        let cascade = if task.goal.is_regression() { policy.cascade } else { Some(0.0) };
        let policy = DrawPolicy { cascade, ..policy };
        let inputs = Inputs { policy, kind: config.prediction_draws, ..Inputs::new(&examples) };
        let answer = method.predict(&model.clone().valid(), &inputs, draws)?;
        if cascade.is_some() && answer.made.is_none() {
            return Err(lrvd_burn::Error::Argument(format!(
                "`{setting}` is for draws that a seed addresses one by one, and the method has others"
            )));
        }
        Ok(())
    }

    fn finish(
        context: &RunContext<'_>,
        model: &mut AutoClassifier,
        method: &mut ClassifierMethod,
        name: MethodName,
    ) -> Result<Temperatures> {
        context.fitted(|data| {
            method.finish(model, data)?;
            if !name.is_tempered() {
                return Ok(Temperatures::default());
            }
            Ok(Temperatures::fit(method, model, data, &name.draws(context.config))?)
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use lrvd_burn::train::Logits;

    use super::*;
    use crate::data::Label;
    use crate::io::read_lines;
    use crate::task::Goal;

    #[test]
    fn uncertainty_is_written_for_every_number_of_draws() {
        let goal = Goal::classification("tone", ["a", "b", "c"].map(String::from).to_vec());
        let example = TokenisedExample {
            ids: vec![1],
            type_ids: vec![0],
            choices: None,
            label: Label::Class(1),
        };
        let task = PreparedTask {
            validation: vec![example],
            validation_ids: vec!["first".to_owned()],
            ..PreparedTask::without_examples(goal)
        };
        // Without draws two members that contradict each other; one draw; two draws that agree.
        let (b, c) = ([0.0, 9.0, 0.0], [0.0, 0.0, 9.0]);
        let answers = [(0, [b, c].concat()), (1, b.to_vec()), (2, [b, b].concat())];
        let scored =
            answers.map(|(k, logits)| (k, score_draws(&Logits::new(logits, 1, 3), &task).unwrap()));
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new").join("predictions.jsonl");
        task.write_predictions(&BTreeMap::from(scored), &path).unwrap();
        let lines: Vec<PredictionLine> = read_lines(&path).unwrap();
        let [line] = lines.as_slice() else { panic!("one example") };
        assert_eq!((line.id.as_str(), line.label), ("first", 1.0));
        assert_eq!(line.entropy.keys().copied().collect::<Vec<_>>(), [0, 1, 2]);
        assert!(line.entropy[&0] > 0.6 && line.entropy[&1] < 0.1);
        // A single model has no members that could disagree.
        assert_eq!(line.mutual_information.keys().copied().collect::<Vec<_>>(), [0, 2]);
        assert!(line.mutual_information[&0] > 0.6 && line.mutual_information[&2] < 1e-12);

        // Answered at the mean: no mutual information, where a cascade spared the draws.
        let spared = Logits { made: Some(vec![0]), ..Logits::new([b, b].concat(), 1, 3) };
        let scored = score_draws(&spared, &task).unwrap();
        assert_eq!(scored.metrics.mutual_information, None);
        task.write_predictions(&BTreeMap::from([(2, scored)]), &path).unwrap();
        let lines: Vec<PredictionLine> = read_lines(&path).unwrap();
        assert!(lines[0].mutual_information.is_empty() && lines[0].entropy.len() == 1);
    }
}
