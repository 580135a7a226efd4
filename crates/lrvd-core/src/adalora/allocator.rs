//! The state machine that a training loop calls once per step.

use super::config::{AdaLoraConfig, Phase};
use super::importance::{TripletImportance, TripletShape, mask_to_budget};
use super::state::{AdaLoraState, check_finite, check_len, factor_lengths};
use crate::error::{Error, check_length};

/// Parameter and gradient of one factor.
#[derive(Clone, Copy, Debug)]
pub struct EntryValues<'a, T> {
    /// Values after the optimiser step.
    pub parameter: &'a [T],
    /// Gradient of that step, after clipping.
    pub gradient: &'a [T],
}

/// Values of the three factors of one module.
#[derive(Clone, Copy, Debug)]
pub struct TripletValues<'a, T> {
    /// `A`, `[init_r, d_input]`, row-major.
    pub a: EntryValues<'a, T>,
    /// `E`, `[init_r]`.
    pub e: EntryValues<'a, T>,
    /// `B`, `[d_output, init_r]`, row-major.
    pub b: EntryValues<'a, T>,
}

/// What the allocator decided at one step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Allocation {
    /// Total rank allowed at this step.
    pub budget: usize,
    /// The last mask chosen, by module: `true` for a triplet that stays. `None` before the first.
    pub mask: Option<Vec<Vec<bool>>>,
    /// Whether `E` must be set to 0 now wherever `mask` is `false`.
    pub masked_now: bool,
}

impl Allocation {
    /// Triplets in force, over all modules; `None` before the first mask, when all are.
    pub fn total_rank(&self) -> Option<usize> {
        let mask = self.mask.as_ref()?;
        Some(mask.iter().flatten().filter(|&&keep| keep).count())
    }
}

/// Chooses the triplets that stay, step by step.
///
/// Call [`update`](Self::update) once per optimiser step, after the step and before the gradients are cleared,
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

    /// Updates the averages with one step and returns what to set to zero.
    ///
    /// Before the freeze step (`total_step − tfinal`) the averages are updated from `modules`. From the freeze step
    /// on `modules` is not read and may be empty ([`AdaLoraConfig::reads_gradients`]): the last mask is chosen
    /// from the averages of the step before.
    ///
    /// # Errors
    ///
    /// Values that do not fit the shapes, an importance that is not finite, or a step past the freeze step without an earlier
    /// mask. The state is then unchanged.
    pub fn update<T: Copy + Into<f64>>(
        &mut self,
        step: u32,
        modules: &[TripletValues<'_, T>],
    ) -> Result<Allocation, Error> {
        if self.config.reads_gradients(step) {
            self.check_values(modules)?;
            for (triplet, values) in self.state.modules.iter_mut().zip(modules) {
                triplet.a.update(importances(values.a), &self.config);
                triplet.e.update(importances(values.e), &self.config);
                triplet.b.update(importances(values.b), &self.config);
            }
        }
        let budget = self.config.budget(step, self.shapes.len());
        let phase = self.config.phase(step);
        if phase == Phase::Choose {
            self.state.mask = Some(mask_to_budget(&self.scores(), budget));
        } else if phase == Phase::Repeat && self.state.mask.is_none() {
            let last = self.config.freeze_step();
            let reason =
                format!("has not been chosen at step {step}, after the last masking step {last}");
            return Err(Error::undefined("mask", reason));
        }
        let masked_now = phase != Phase::Rest;
        Ok(Allocation { budget, mask: self.state.mask.clone(), masked_now })
    }

    fn check_values<T: Copy + Into<f64>>(
        &self,
        modules: &[TripletValues<'_, T>],
    ) -> Result<(), Error> {
        check_length("modules", modules.len(), self.shapes.len())?;
        for (module, (values, &shape)) in modules.iter().zip(&self.shapes).enumerate() {
            let lengths = factor_lengths(self.config.init_r, shape);
            for ((name, expected), entries) in
                lengths.into_iter().zip([values.a, values.e, values.b])
            {
                check_len(module, name, expected, entries.parameter.len())?;
                check_len(module, name, expected, entries.gradient.len())?;
                check_finite(module, name, importances(entries))?;
            }
        }
        Ok(())
    }
}

/// `|w·∂L/∂w|` entry by entry.
fn importances<T: Copy + Into<f64>>(values: EntryValues<'_, T>) -> impl Iterator<Item = f64> {
    let pairs = values.parameter.iter().zip(values.gradient);
    pairs.map(|(&parameter, &gradient)| (parameter.into() * gradient.into()).abs())
}

#[cfg(test)]
pub(super) mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::adalora::config::tests::RECORDED;
    use crate::noise::{NoiseKey, fill_normal};

    pub(in crate::adalora) const SHAPES: [TripletShape; 2] =
        [TripletShape { d_input: 3, d_output: 2 }, TripletShape { d_input: 2, d_output: 5 }];

    /// Rank 2, masks at steps 2 and 4 (freeze), budget 4, 4, 2 (⌊2·(2/3)³ + 2⌋), …
    pub(in crate::adalora) fn small() -> AdaLoraConfig {
        AdaLoraConfig {
            init_r: 2,
            target_r: 1,
            tinit: 1,
            tfinal: 2,
            delta_t: 2,
            total_step: 6,
            ..RECORDED
        }
    }

    /// Parameters and gradients of both modules, distinct by step.
    fn values_at<T: From<f32>>(step: u32) -> Vec<[Vec<T>; 6]> {
        let key = NoiseKey::new(11).at_step(step);
        SHAPES
            .iter()
            .zip(0..)
            .map(|(&shape, module)| {
                let lengths = factor_lengths(2, shape).map(|(_, len)| len);
                let mut stream = 0;
                [0, 0, 1, 1, 2, 2].map(|factor| {
                    let mut values = vec![0.0f32; lengths[factor]];
                    fill_normal(key.for_module(module).on_stream(stream), 0, &mut values);
                    stream += 1;
                    values.into_iter().map(T::from).collect()
                })
            })
            .collect()
    }

    fn triplets<T>(values: &[[Vec<T>; 6]]) -> Vec<TripletValues<'_, T>> {
        values
            .iter()
            .map(|[a, da, e, de, b, db]| TripletValues {
                a: EntryValues { parameter: a, gradient: da },
                e: EntryValues { parameter: e, gradient: de },
                b: EntryValues { parameter: b, gradient: db },
            })
            .collect()
    }

    fn run<T: Copy + Into<f64> + From<f32>>(
        allocator: &mut AdaLoraAllocator,
        steps: std::ops::Range<u32>,
    ) -> Vec<Allocation> {
        steps
            .map(|step| allocator.update(step, &triplets(&values_at::<T>(step))).unwrap())
            .collect()
    }

    #[test]
    fn single_precision_input_is_widened_exactly() {
        let mut single = AdaLoraAllocator::new(small(), SHAPES.to_vec()).unwrap();
        let mut double = single.clone();
        assert_eq!(run::<f32>(&mut single, 0..6), run::<f64>(&mut double, 0..6));
        assert_eq!(single.state(), double.state());
    }

    #[test]
    fn a_resumed_run_ends_in_the_same_state() {
        let mut whole = AdaLoraAllocator::new(small(), SHAPES.to_vec()).unwrap();
        let actions = run::<f32>(&mut whole, 0..6);
        for cut in 0..6 {
            let mut head = AdaLoraAllocator::new(small(), SHAPES.to_vec()).unwrap();
            run::<f32>(&mut head, 0..cut);
            let mut tail =
                AdaLoraAllocator::from_state(small(), SHAPES.to_vec(), head.state().clone())
                    .unwrap();
            assert_eq!(run::<f32>(&mut tail, cut..6), actions[cut as usize..]);
            assert_eq!(tail.state(), whole.state());
        }
    }

    #[test]
    fn the_frozen_phase_reads_no_values() {
        let mut allocator = AdaLoraAllocator::new(small(), SHAPES.to_vec()).unwrap();
        run::<f32>(&mut allocator, 0..4);
        let frozen = allocator.update::<f32>(4, &[]).unwrap();
        assert_eq!(allocator.update::<f32>(5, &[]).unwrap(), frozen);
        assert_eq!(frozen.total_rank(), Some(2));
    }

    #[test]
    fn mistakes_are_errors_and_change_nothing() {
        let mut allocator = AdaLoraAllocator::new(small(), SHAPES.to_vec()).unwrap();
        run::<f32>(&mut allocator, 0..1);
        let before = allocator.state().clone();
        let mut values = values_at::<f32>(1);
        let count = allocator.update(1, &triplets(&values)[..1]);
        assert_eq!(count, Err(Error::length("modules", 1, 2)));
        values[1][5].pop();
        let length = allocator.update(1, &triplets(&values));
        assert_eq!(length, Err(Error::length("B of module 1", 9, 10)));
        values[1][5].push(f32::INFINITY);
        let infinite = allocator.update(1, &triplets(&values)).unwrap_err();
        assert!(matches!(infinite, Error::Entry { name, index: 9, .. } if name == "B of module 1"));
        assert_eq!(allocator.state(), &before);
        let missed = allocator.update::<f32>(5, &[]);
        let reason = "has not been chosen at step 5, after the last masking step 4";
        assert_eq!(missed, Err(Error::undefined("mask", reason)));
    }
}
