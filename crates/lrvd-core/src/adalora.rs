//! The singular triplets that `AdaLoRA` keeps, and when it chooses them.
//!
//! The baseline writes an update as `scaling · B diag(E) A` and takes ranks away by zeroing entries of `E`. This module holds its
//! arithmetic as the reference implementation (PEFT) runs it: smoothed importance of every entry, a score per triplet, a cubic
//! budget, and one global threshold.
//!
//! References: Zhang et al. 2023, arXiv:2303.10512; where publication and implementation differ the implementation is followed,
//! and the difference named.

use std::ops::Bound;

use crate::error::{Error, check_finite, check_length, check_range};

/// The part of the rank that PEFT adds to keep its scaling finite at rank 0.
const RANK_OFFSET: f64 = 1e-5;

/// Settings of `AdaLoRA`, under the names of PEFT's configuration file.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdaLoraConfig {
    /// Rank of every module at the start, `1..`.
    pub init_r: usize,
    /// Average rank at the end, `1..=init_r`.
    pub target_r: usize,
    /// Last step before the budget falls, `0..total_step − tfinal`.
    pub tinit: u32,
    /// **Length** of the final phase, in which the ranks are frozen, `0..total_step`.
    pub tfinal: u32,
    /// Steps between two masks (`deltaT`), `1..`.
    pub delta_t: u32,
    /// Optimizer steps of the run, `1..`.
    pub total_step: u32,
    /// Decay of the smoothed importance, in `(0, 1)`; 0.85 in PEFT.
    pub beta1: f64,
    /// Decay of the smoothed uncertainty, in `(0, 1)`; 0.85 in PEFT.
    pub beta2: f64,
    /// Weight of the penalty on the factors' distance from orthonormal rows in the loss, `0..`; 0.5 in PEFT.
    pub orth_reg_weight: f64,
}

/// Change of the ranks at a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Nothing is zeroed.
    Rest,
    /// A new mask is chosen and applied.
    Choose,
    /// The last mask is applied again.
    Repeat,
}

impl AdaLoraConfig {
    /// Checks the range of every field.
    pub fn check(&self) -> Result<(), Error> {
        check_range("init_r", self.init_r, 1..=u32::MAX as usize)?;
        check_range("target_r", self.target_r, 1..=self.init_r)?;
        check_range("delta_t", self.delta_t, 1..)?;
        check_range("total_step", self.total_step, 1..)?;
        check_range("tfinal", self.tfinal, 0..self.total_step)?;
        check_range("tinit", self.tinit, 0..self.total_step - self.tfinal)?;
        check_range("beta1", self.beta1, (Bound::Excluded(0.0), Bound::Excluded(1.0)))?;
        check_range("beta2", self.beta2, (Bound::Excluded(0.0), Bound::Excluded(1.0)))?;
        check_range("orth_reg_weight", self.orth_reg_weight, 0.0..)
    }

    /// The step at which the last mask is chosen: `total_step − tfinal`, 0 if `tfinal` is longer than the run.
    pub const fn freeze_step(&self) -> u32 {
        self.total_step.saturating_sub(self.tfinal)
    }

    /// `true` if [`AdaLoraAllocator::update`] reads gradients at `step`.
    pub const fn reads_gradients(&self, step: u32) -> bool {
        step < self.freeze_step()
    }

    /// Total rank allowed at `step`, over `n_modules` modules, for a configuration that passed
    /// [`check`](Self::check).
    ///
    /// ```text
    /// t ≤ tinit:                 b0 = init_r · n_modules
    /// t > total_step − tfinal:   bT = target_r · n_modules
    /// between:                   ⌊(b0 − bT)·(1 − (t − tinit)/(total_step − tfinal − tinit))³ + bT⌋
    /// ```
    pub fn budget(&self, step: u32, n_modules: usize) -> usize {
        let first = self.init_r * n_modules;
        let last = self.target_r * n_modules;
        if step <= self.tinit {
            return first;
        }
        if step >= self.freeze_step() {
            // At the freeze step itself the cubic is 0, the same value.
            return last;
        }
        let length = f64::from(self.freeze_step() - self.tinit);
        let remaining = 1.0 - f64::from(step - self.tinit) / length;
        // `powf`, as Python's `**`, so that results next to an integer fall on the same side.
        ((first as f64 - last as f64) * remaining.powf(3.0) + last as f64) as usize
    }

    /// Phase of `step`: a mask every `delta_t` steps after `tinit`, one at the freeze step,
    /// and the same one again at every later step.
    pub const fn phase(&self, step: u32) -> Phase {
        if step > self.freeze_step() {
            Phase::Repeat
        } else if step == self.freeze_step()
            || (step > self.tinit && step.is_multiple_of(self.delta_t))
        {
            Phase::Choose
        } else {
            Phase::Rest
        }
    }
}

/// Scaling of the update: `lora_alpha / (init_r + 1e-5)`, unchanged when ranks are zeroed.
pub fn adalora_scaling(lora_alpha: f64, init_r: usize) -> f64 {
    lora_alpha / (init_r as f64 + RANK_OFFSET)
}

/// Target rank whose budget is nearest to a total rank found by another method:
/// `max(1, round(total_rank / n_modules))`, halves to the even side; 1 without modules.
pub fn matched_target_rank(total_rank: usize, n_modules: usize) -> usize {
    if n_modules == 0 {
        return 1;
    }
    ((total_rank as f64 / n_modules as f64).round_ties_even() as usize).max(1)
}

/// Widths of one adapted module; the rank is the configuration's `init_r` everywhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TripletShape {
    /// Input features: columns of `A`.
    pub d_input: usize,
    /// Output features: rows of `B`.
    pub d_output: usize,
}

/// Moving averages for the entries of one factor.
///
/// With `I = |w·∂L/∂w|` of this step, entry by entry:
///
/// ```text
/// importance  ← beta1·importance  + (1 − beta1)·I
/// uncertainty ← beta2·uncertainty + (1 − beta2)·|I − importance|      (the new importance)
/// score        = importance · uncertainty
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct EntryImportance {
    /// Smoothed importance of every entry.
    pub importance: Vec<f64>,
    /// Smoothed distance of the importance from its average.
    pub uncertainty: Vec<f64>,
}

impl EntryImportance {
    /// All averages 0.
    pub fn zeros(len: usize) -> Self {
        Self { importance: vec![0.0; len], uncertainty: vec![0.0; len] }
    }

    /// Adds one step's importances.
    fn update(&mut self, now: Vec<f64>, config: &AdaLoraConfig) {
        let AdaLoraConfig { beta1, beta2, .. } = *config;
        for ((mean, spread), now) in self.importance.iter_mut().zip(&mut self.uncertainty).zip(now)
        {
            *mean = beta1 * *mean + (1.0 - beta1) * now;
            *spread = beta2 * *spread + (1.0 - beta2) * (now - *mean).abs();
        }
    }

    fn score(&self, entry: usize) -> f64 {
        self.importance[entry] * self.uncertainty[entry]
    }
}

/// Moving averages of the three factors of one module.
#[derive(Clone, Debug, PartialEq)]
pub struct TripletImportance {
    /// Averages of `A`, `[init_r, d_input]`, row-major.
    pub a: EntryImportance,
    /// Averages of `E`, `[init_r]`.
    pub e: EntryImportance,
    /// Averages of `B`, `[d_output, init_r]`, row-major.
    pub b: EntryImportance,
}

impl TripletImportance {
    /// All averages 0.
    pub fn zeros(init_r: usize, shape: TripletShape) -> Self {
        Self {
            a: EntryImportance::zeros(init_r * shape.d_input),
            e: EntryImportance::zeros(init_r),
            b: EntryImportance::zeros(shape.d_output * init_r),
        }
    }

    /// Score of every triplet.
    ///
    /// ```text
    /// S[i] = s(E[i]) + mean_j s(A[i,j]) + mean_k s(B[k,i]),    s = importance · uncertainty
    /// ```
    pub fn scores(&self) -> Vec<f64> {
        let rank = self.e.importance.len();
        let d_input = self.a.importance.len() / rank.max(1);
        let d_output = self.b.importance.len() / rank.max(1);
        (0..rank)
            .map(|i| {
                let row: f64 = (0..d_input).map(|j| self.a.score(i * d_input + j)).sum();
                let column: f64 = (0..d_output).map(|k| self.b.score(k * rank + i)).sum();
                self.e.score(i) + row / d_input as f64 + column / d_output as f64
            })
            .collect()
    }
}

/// Mask of the triplets that stay when the total rank must fall to `budget`.
///
/// ```text
/// k = n − budget,   threshold = k-th smallest of the n scores,   keep[i] = score[i] > threshold
/// ```
///
/// Ties at the threshold are all masked, as in PEFT: fewer than `budget` triplets may stay (early in a run,
/// when many scores are still equal). For `budget ≥ n` nothing is masked; PEFT raises an error there.
///
/// `scores` holds one list per module; the result has the same lengths, `true` for a triplet that stays. Scores
/// are ordered by their total order, in which NaN is above every number.
pub fn mask_to_budget(scores: &[Vec<f64>], budget: usize) -> Vec<Vec<bool>> {
    let mut sorted: Vec<f64> = scores.iter().flatten().copied().collect();
    let n_masked = sorted.len().saturating_sub(budget);
    if n_masked == 0 {
        return scores.iter().map(|module| vec![true; module.len()]).collect();
    }
    let (_, threshold, _) = sorted.select_nth_unstable_by(n_masked - 1, f64::total_cmp);
    let threshold = *threshold;
    scores
        .iter()
        .map(|module| module.iter().map(|score| score.total_cmp(&threshold).is_gt()).collect())
        .collect()
}

/// Values of one module at a step, row-major: of `A [init_r, d_input]`, `E [init_r]` and `B [d_output, init_r]` the values after
/// the optimizer step, and the gradient of that step after clipping.
pub type TripletValues<'a> = [[&'a [f64]; 2]; 3];

/// Chooses the triplets that stay, step by step.
///
/// Call [`update`](Self::update) once per optimizer step, after the step and before the gradients are cleared,
/// with the step counted from 0. Between two masks of the reduction phase zeroed entries of `E` are trained like
/// any other and may grow back; after the freeze step they are zeroed at every step.
#[derive(Clone, Debug)]
pub struct AdaLoraAllocator {
    config: AdaLoraConfig,
    shapes: Vec<TripletShape>,
    state: AdaLoraState,
}

impl AdaLoraAllocator {
    /// An allocator at the start of a run.
    pub fn new(config: AdaLoraConfig, shapes: Vec<TripletShape>) -> Result<Self, Error> {
        // Before anything of the configured size is allocated.
        config.check()?;
        let modules =
            shapes.iter().map(|&shape| TripletImportance::zeros(config.init_r, shape)).collect();
        Self::from_state(config, shapes, AdaLoraState { modules, mask: None })
    }

    /// An allocator that continues from a [`state`](Self::state).
    pub fn from_state(
        config: AdaLoraConfig,
        shapes: Vec<TripletShape>,
        state: AdaLoraState,
    ) -> Result<Self, Error> {
        config.check()?;
        state.check(config.init_r, &shapes)?;
        Ok(Self { config, shapes, state })
    }

    /// The configuration.
    pub const fn config(&self) -> &AdaLoraConfig {
        &self.config
    }

    /// Everything needed to continue later.
    pub const fn state(&self) -> &AdaLoraState {
        &self.state
    }

    /// Score of every triplet, by module; see [`TripletImportance::scores`].
    pub fn scores(&self) -> Vec<Vec<f64>> {
        self.state.modules.iter().map(TripletImportance::scores).collect()
    }

    /// Updates the averages with one step. Unless the phase is [`Phase::Rest`], `E` must be set to 0 wherever the mask of the
    /// [state](Self::state) is `false`.
    ///
    /// Before the freeze step (`total_step − tfinal`) the averages are updated from `modules`. From the freeze step
    /// on `modules` is not read and may be empty ([`AdaLoraConfig::reads_gradients`]): the last mask is chosen
    /// from the averages of the step before.
    ///
    /// # Errors
    ///
    /// Values that do not fit the shapes, an importance that is not finite, or a step past the freeze step without an earlier
    /// mask. The state is then unchanged.
    pub fn update(&mut self, step: u32, modules: &[TripletValues<'_>]) -> Result<Phase, Error> {
        if self.config.reads_gradients(step) {
            let importances = self.importances(modules)?;
            for (triplet, [a, e, b]) in self.state.modules.iter_mut().zip(importances) {
                triplet.a.update(a, &self.config);
                triplet.e.update(e, &self.config);
                triplet.b.update(b, &self.config);
            }
        }
        let phase = self.config.phase(step);
        if phase == Phase::Choose {
            let budget = self.config.budget(step, self.shapes.len());
            self.state.mask = Some(mask_to_budget(&self.scores(), budget));
        } else if phase == Phase::Repeat && self.state.mask.is_none() {
            let last = self.config.freeze_step();
            let reason =
                format!("has not been chosen at step {step}, after the last masking step {last}");
            return Err(Error::undefined("mask", reason));
        }
        Ok(phase)
    }

    /// `|w·∂L/∂w|` of the entries of A, E and B, by module.
    fn importances(&self, modules: &[TripletValues<'_>]) -> Result<Vec<[Vec<f64>; 3]>, Error> {
        check_length("modules", modules.len(), self.shapes.len())?;
        let of_module = |(module, (values, &shape)): (usize, (&TripletValues<'_>, _))| {
            let mut found = [Vec::new(), Vec::new(), Vec::new()];
            let named = parts(self.config.init_r, shape, module).into_iter().zip(values);
            for (found, ((name, expected), [parameter, gradient])) in found.iter_mut().zip(named) {
                check_length(&name, parameter.len(), expected)?;
                check_length(&name, gradient.len(), expected)?;
                let product = |(w, g): (&f64, &f64)| (w * g).abs();
                *found = parameter.iter().zip(*gradient).map(product).collect();
                check_finite(&name, found)?;
            }
            Ok(found)
        };
        modules.iter().zip(&self.shapes).enumerate().map(of_module).collect()
    }
}

/// Everything a resumed run needs: the averages and the last mask.
#[derive(Clone, Debug, PartialEq)]
pub struct AdaLoraState {
    /// Moving averages, by module.
    pub modules: Vec<TripletImportance>,
    /// The last mask, by module.
    pub mask: Option<Vec<Vec<bool>>>,
}

impl AdaLoraState {
    /// Checks that every list has the length that the shapes need, and every average is finite.
    fn check(&self, init_r: usize, shapes: &[TripletShape]) -> Result<(), Error> {
        for shape in shapes {
            let limit = u32::MAX as usize;
            check_range("d_input", shape.d_input, 1..=limit)?;
            check_range("d_output", shape.d_output, 1..=limit)?;
        }
        check_length("state", self.modules.len(), shapes.len())?;
        for (module, (triplet, &shape)) in self.modules.iter().zip(shapes).enumerate() {
            let factors = [&triplet.a, &triplet.e, &triplet.b];
            for ((name, expected), entries) in parts(init_r, shape, module).into_iter().zip(factors)
            {
                for average in [&entries.importance, &entries.uncertainty] {
                    check_length(&name, average.len(), expected)?;
                    check_finite(&name, average)?;
                }
            }
        }
        if let Some(mask) = &self.mask {
            check_length("mask", mask.len(), shapes.len())?;
            for (module, mask) in mask.iter().enumerate() {
                check_length(&part("mask", module), mask.len(), init_r)?;
            }
        }
        Ok(())
    }
}

/// Names and lengths of `A`, `E` and `B`, in the order in which the factors are visited.
fn parts(rank: usize, shape: TripletShape, module: usize) -> [(String, usize); 3] {
    [("A", rank * shape.d_input), ("E", rank), ("B", shape.d_output * rank)]
        .map(|(name, length)| (part(name, module), length))
}

fn part(name: &str, module: usize) -> String {
    format!("{name} of module {module}")
}
