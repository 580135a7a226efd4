//! Stages of a run: training alone, or training, cut and refinement of a search for ranks.

use std::collections::BTreeMap;
use std::time::Instant;

use super::choice::{HeldOutLosses, compared, point};
use super::config::TrainConfig;
use super::data::Model;
use super::fit::{Loop, Outcome, Stage};
use super::method::Method;
use super::order::Ordered;
use super::run::Run;
use super::search::{RankSearch, choose_ranks};
use super::state::{CutModel, RankCause};
use super::step::Phase;
use super::watch::{Event, Observer};
use crate::error::Error;
use crate::model::{NamedModule, trainable_counts};
use crate::parameters::Group;
use crate::prune::set_relevance;

impl<M: Model, T: Method<M> + ?Sized> Run<M, T> {
    /// Trains to the last step, the end of the patience, or until `observer` asks to stop.
    pub fn fit<O: Observer<M, T>>(
        &mut self,
        batches: &mut Ordered<'_, M::Input>,
        observer: &mut O,
    ) -> Result<Outcome, O::Error> {
        let setup = self.setup()?;
        match (Loop { run: self, setup, batches, observer, stops: false }).complete() {
            Err(error) if O::is_stop(&error) => Ok(Outcome::Stopped),
            ended => ended,
        }
    }
}

impl<M, T, O> Loop<'_, '_, M, T, O>
where
    M: Model,
    T: Method<M> + ?Sized,
    O: Observer<M, T>,
{
    fn complete(&mut self) -> Result<Outcome, O::Error> {
        if let Some(position) = self.run.state.position {
            self.batches.seek(position)?;
        }
        if self.run.state.journal.rank_events.is_empty() {
            self.record_ranks(RankCause::Start, 0);
        }
        let trained = match self.run.search {
            Some(rule) => self.search(&rule)?,
            None => self.train(&self.first(self.run.config.steps, Phase::Whole))?,
        };
        if trained == Outcome::Finished {
            self.checkpoint()?;
            if !self.is_evaluated() {
                self.evaluate()?;
            }
        }
        Ok(trained)
    }

    /// Trains, cuts and refines until the end, a stop request or an error.
    fn search(&mut self, rule: &RankSearch) -> Result<Outcome, O::Error> {
        let TrainConfig { steps, warmup_ratio, .. } = self.run.config;
        if self.run.state.journal.choice.is_none() {
            let stage = self.first(steps + rule.refine_steps, Phase::Mean);
            if self.train(&stage)? == Outcome::Stopped {
                return Ok(Outcome::Stopped);
            }
            self.cut(rule)?;
        }
        let start = self.run.state.journal.choice.as_ref().map_or(steps, |choice| choice.step);
        let schedule = rule.schedule(warmup_ratio).map_err(Error::from)?;
        let (peak, patience, until) = (rule.refine_rate, None, start + rule.refine_steps);
        let phase = Phase::Posterior { kl_weight: self.run.state.kl_weight.unwrap_or_default() };
        let ended =
            self.train(&Stage { until, end: until, patience, schedule, start, peak, phase })?;
        if ended == Outcome::Finished {
            self.accept_or_revert_refinement(rule)?;
        }
        Ok(ended)
    }

    /// Rotates and cuts the whole model, and prepares the refinement.
    fn cut(&mut self, rule: &RankSearch) -> Result<(), O::Error> {
        self.checkpoint()?;
        let clock = Instant::now();
        let mut whole = self.run.state.model.clone();
        let step = self.run.state.done;
        let (choice, losses) = choose_ranks(&mut whole, rule, step, |model, total_rank, of| {
            let found = self.held_out(model)?;
            if total_rank < of {
                self.tell(&Event::Searching { total_rank, of });
            }
            Ok::<_, O::Error>(found)
        })?;
        set_relevance(&mut whole, rule.log_alpha, rule.statistic)?;
        let entries = trainable_counts(&whole).adapter.max(1);
        let n_train = self.batches.n_train();
        let unit = self.batches.score_variance()?.unwrap_or(1.0);
        self.note(choice.to_string());
        let state = &mut self.run.state;
        state.kl_weight = Some(2.0 * rule.noise * unit * n_train as f64 / entries as f64);
        // The moments belong to another basis, and the head to another model.
        state.optimizer.reset();
        state.model = whole.clone();
        // The best model is one of those after the cut.
        (state.best, state.journal.candidates) = (None, 0);
        state.journal.choice = Some(choice);
        state.cut = Some(CutModel { model: whole, whole: losses });
        self.record_ranks(RankCause::Choice, step);
        self.warn_if_empty();
        self.run.state.journal.train_seconds += clock.elapsed().as_secs_f64();
        Ok(())
    }

    /// Keeps the refined means if they are non-inferior to the whole model, else those of the cut.
    fn accept_or_revert_refinement(&mut self, rule: &RankSearch) -> Result<(), O::Error> {
        if rule.refine_steps == 0 {
            self.run.state.cut = None;
        }
        if self.run.state.cut.is_none() {
            return Ok(());
        }
        self.checkpoint()?;
        let clock = Instant::now();
        let margin = rule.margin;
        let refined = self.run.state.model.clone();
        let HeldOutLosses { rows: losses, measure } = self.held_out(&refined)?;
        let Some(CutModel { model, whole }) = self.run.state.cut.take() else { return Ok(()) };
        let Some(choice) = &mut self.run.state.journal.choice else { return Ok(()) };
        let found = point(choice.total_rank(), &losses, &whole)?;
        choice.refined = Some(found);
        let keeps = measure.shows(&losses) && found.upper <= margin;
        let compared = compared(&found, measure, margin);
        self.note(if keeps {
            format!("the refined means pass the test at 5 %: {compared}")
        } else if measure.shows(&losses) {
            format!("the means of before the refinement stay, with its variances: {compared}")
        } else {
            "the held-out rows do not show what the refinement does: it fits the variances alone"
                .to_owned()
        });
        if !keeps {
            self.run.state.model = with_variances(model, &refined);
        }
        self.run.state.journal.train_seconds += clock.elapsed().as_secs_f64();
        Ok(())
    }

    fn held_out(&mut self, model: &M) -> Result<HeldOutLosses, O::Error> {
        self.observer.held_out(&model.valid(), &self.run.method)
    }
}

/// `model` with the noise parameters of `other`, which has its shapes.
fn with_variances<M: NamedModule>(mut model: M, other: &M) -> M {
    let mut noise = BTreeMap::new();
    other.visit_parameters(&mut |p| {
        if p.group == Group::LogVariance {
            noise.insert(p.name.to_owned(), p.value.flat());
        }
    });
    model.visit_parameters_mut(&mut |p| {
        if let Some(values) = noise.remove(p.name) {
            p.value.set_flat(values);
        }
    });
    model
}
