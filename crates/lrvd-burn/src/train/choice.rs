//! Held-out rows choose among the models that one run passes through.
//!
//! ```text
//! after every candidate step:  keep the model, and its loss on every held-out row
//! after the last of them:      take up the fewest ranks within the tolerance of the smallest loss
//! ```
//!
//! A rank that went too early comes back with the model that had it, and so do the optimiser's moments.

use std::fmt;

use lrvd_core::prune::{PathTolerance, RankPath};

use super::error::TrainError;
use super::fit::Observer;
use super::method::Method;
use super::model::Model;
use super::progress::Event;
use super::state::{Candidate, CandidateInfo, Choice, ChoicePoint, TrainState};

/// Notes the model as a candidate; after the last one, takes up the chosen one. `true` if it did.
pub(super) fn look<M, T, O>(
    state: &mut TrainState<M>,
    method: &mut T,
    observer: &mut O,
    kl_weight: f64,
    steps: usize,
) -> Result<bool, O::Error>
where
    M: Model,
    T: Method<M> + ?Sized,
    O: Observer<M, T>,
{
    let Some(tolerance) = method.chooses() else { return Ok(false) };
    let step = state.done;
    let losses = observer.held_out(&state.model.clone().valid(), method)?;
    let losses = losses.filter(|losses| !losses.is_empty()).ok_or(TrainError::NoHeldOut)?;
    let (ranks, removed) = (method.ranks(&state.model), state.journal.removed.clone());
    let info = CandidateInfo { step, kl_weight, ranks, removed, losses };
    let (model, optimizer) = (state.model.clone(), state.optimizer.clone());
    state.candidates.push(Candidate { model, optimizer, info });
    if (step + 1..=steps).any(|done| method.is_candidate(done, steps)) {
        return Ok(false);
    }
    let candidates = std::mem::take(&mut state.candidates);
    let choice = choose(&candidates, tolerance)?;
    observer.event(&Event::Note(choice.to_string()));
    if let Some(Candidate { model, optimizer, info }) = candidates.into_iter().nth(choice.chosen) {
        (state.model, state.optimizer) = (model, optimizer);
        state.journal.removed = info.removed;
    }
    method.settle(choice.point().step);
    state.journal.choice = Some(choice);
    Ok(true)
}

fn choose<M>(candidates: &[Candidate<M>], tolerance: PathTolerance) -> Result<Choice, TrainError> {
    let total = |info: &CandidateInfo| info.ranks.values().sum::<usize>();
    let ranks: Vec<usize> = candidates.iter().map(|c| total(&c.info)).collect();
    let losses: Vec<f64> = candidates.iter().flat_map(|c| c.info.losses.clone()).collect();
    let RankPath { points, best, chosen } = RankPath::new(&ranks, &losses, tolerance)?;
    let points = candidates.iter().zip(points).map(|(candidate, point)| ChoicePoint {
        step: candidate.info.step,
        kl_weight: candidate.info.kl_weight,
        total_rank: point.rank,
        loss: point.loss,
        standard_error: point.standard_error,
    });
    Ok(Choice { points: points.collect(), best, chosen })
}

impl Choice {
    /// The chosen candidate.
    pub fn point(&self) -> &ChoicePoint {
        &self.points[self.chosen]
    }
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (chosen, best) = (self.point(), &self.points[self.best]);
        write!(
            f,
            "held-out rows choose rank {} at KL weight {:.2e}, step {}: loss {:.4}",
            chosen.total_rank, chosen.kl_weight, chosen.step, chosen.loss,
        )?;
        if self.chosen == self.best {
            write!(f, ", the smallest of {}", self.points.len())?;
        } else {
            write!(
                f,
                ", the smallest of {} is {:.4} at rank {}, apart by {:.1} standard errors",
                self.points.len(),
                best.loss,
                best.total_rank,
                (chosen.loss - best.loss) / chosen.standard_error.max(f64::MIN_POSITIVE),
            )?;
        }
        // Along a path that is long enough the loss turns before its end.
        if self.best + 1 == self.points.len() {
            write!(
                f,
                "; it still fell at the end of the path, so that more steps, or a number for `kl_weight`, may leave a better \
                 model"
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loss_that_still_fell_is_told() {
        let points = [(8, 0.75), (4, 0.5), (2, 0.625)].map(|(total_rank, loss)| ChoicePoint {
            step: 10,
            kl_weight: 0.125,
            total_rank,
            loss,
            standard_error: 0.25,
        });
        let told = |best, chosen, n: usize| {
            Choice { points: points[..n].to_vec(), best, chosen }.to_string()
        };
        let start = "held-out rows choose rank 4 at KL weight 1.25e-1, step 10: loss 0.5000";
        assert_eq!(told(1, 1, 3), format!("{start}, the smallest of 3"));
        assert!(told(1, 2, 3).ends_with("is 0.5000 at rank 4, apart by 0.5 standard errors"));
        assert!(told(1, 1, 2).starts_with(&format!("{start}, the smallest of 2; it still fell")));
    }
}
