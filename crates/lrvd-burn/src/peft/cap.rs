//! An adapter at a smaller largest rank, for servers that allow no more.

use std::collections::BTreeMap;

use lrvd_core::gauge::singular_factors;

use super::adapter::{PeftAdapter, PeftModule};
use super::convert::{check_shapes, describe, exact_alpha, floats, module_error};
use crate::error::Error;

/// What a smaller largest rank cost.
#[derive(Debug, Clone, PartialEq)]
pub struct CapReport {
    /// `‖ΔW − ΔW'‖ / ‖ΔW‖` of every module that was cut, by path.
    pub errors: BTreeMap<String, f64>,
    /// The same of all modules together.
    pub error: f64,
}

impl PeftAdapter {
    /// The adapter as plain `LoRA` with no module above `rank`: those above keep their largest singular directions.
    ///
    /// # Formula
    ///
    /// ```text
    /// ΔW = Σ_k ς_k · outer(u_k, v_k)  →  Σ_{k < rank} ς_k · outer(u_k, v_k)
    /// error = √(Σ_{k ≥ rank} ς_k² / Σ_k ς_k²)
    /// ```
    ///
    /// No update of that rank is nearer to the module's (Eckart, Young 1936). Factors of modules that are cut are rounded
    /// once, to single precision (double where they were double); scales stay.
    pub fn capped(&self, rank: usize) -> Result<(Self, CapReport), Error> {
        let mut adapter = self.to_lora()?;
        let mut errors = BTreeMap::new();
        let (mut lost, mut whole) = (0.0, 0.0);
        for (path, module) in &mut adapter.modules {
            check_shapes(path, module)?;
            let failed = |source| module_error(path, &source);
            let a = module.a.to_f64().map_err(failed)?;
            let b = module.b.transpose2().and_then(|b| b.to_f64()).map_err(failed)?;
            let unfit = |found: String| {
                Error::module(path, "factors", "numbers that can be decomposed", found)
            };
            let (d_input, d_output) = (module.d_input(), module.d_output());
            let turned = singular_factors(&a, &b, module.rank).map_err(|e| unfit(e.to_string()))?;
            let energy = |values: &[f64]| -> f64 {
                module.scaling.powi(2) * values.iter().map(|value| value * value).sum::<f64>()
            };
            let total = energy(&turned.values);
            whole += total;
            if module.rank <= rank {
                continue;
            }
            let gone = energy(&turned.values[rank..]);
            lost += gone;
            errors.insert(path.clone(), relative(gone, total));
            let kept = |values: &[f64], width: usize, dtype| {
                floats(dtype, &[rank, width], &values[..rank * width]).map_err(failed)
            };
            let a = kept(&turned.a, d_input, module.a.dtype())?;
            let b = kept(&turned.b, d_output, module.b.dtype())?.transpose2().map_err(failed)?;
            *module =
                PeftModule::lora(a, b, module.scaling, module.initial_rank).map_err(failed)?;
        }
        let config = &mut adapter.config;
        if config.r > rank && rank > 0 {
            let root = if config.use_rslora { (config.r as f64).sqrt() } else { config.r as f64 };
            config.lora_alpha = exact_alpha(config.lora_alpha / root, rank);
            config.use_rslora = false;
            config.r = rank;
        }
        adapter.config = describe(&adapter.config, &adapter.modules);
        Ok((adapter, CapReport { errors, error: relative(lost, whole) }))
    }
}

/// A root of a share; 0 of nothing.
fn relative(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { (part / whole).sqrt() } else { 0.0 }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::files::HostTensor;
    use crate::peft::{PeftConfig, TargetModules};

    fn module(rank: usize, d_input: usize, d_output: usize) -> PeftModule {
        // No sine of multiples: such a matrix has rank 2.
        let wave = |n: usize, turn: f32| -> Vec<f32> {
            (0..n).map(|i| ((i * i) as f32 * turn + 1.0).sin()).collect()
        };
        let a = HostTensor::from_f32(&[rank, d_input], &wave(rank * d_input, 0.7)).unwrap();
        let b = HostTensor::from_f32(&[d_output, rank], &wave(rank * d_output, 1.3)).unwrap();
        PeftModule::lora(a, b, 2.0, 6).unwrap()
    }

    #[test]
    fn what_is_cut_is_what_the_error_says() {
        let targets = TargetModules::Names(vec!["q".to_owned(), "v".to_owned()]);
        let adapter = PeftAdapter {
            config: PeftConfig::lora(6, 12.0, targets),
            modules: [("h.q".to_owned(), module(5, 9, 7)), ("h.v".to_owned(), module(2, 4, 8))]
                .into(),
            saved: BTreeMap::new(),
            ignored: Vec::new(),
        };
        let (capped, report) = adapter.capped(3).unwrap();
        let ranks: Vec<usize> = capped.modules.values().map(|module| module.rank).collect();
        assert_eq!((ranks, capped.config.r), (vec![3, 2], 3));
        assert_eq!(capped.config.lora_alpha, 6.0, "the scale stays 2");
        assert_eq!(capped.modules["h.v"], adapter.modules["h.v"]);
        let (old, new) = (&adapter.modules["h.q"], &capped.modules["h.q"]);
        let (old, new) = (old.delta().unwrap(), new.delta().unwrap());
        let norm = |values: &[f64]| values.iter().map(|v| v * v).sum::<f64>().sqrt();
        let apart: Vec<f64> = old.iter().zip(&new).map(|(o, n)| o - n).collect();
        let expected = norm(&apart) / norm(&old);
        assert!((report.errors["h.q"] - expected).abs() < 1e-6, "{report:?}, expected {expected}");
        assert!(expected > 0.01 && report.error < expected, "the other module lost nothing");
        // Enough room changes nothing but the description.
        let (same, none) = adapter.capped(5).unwrap();
        assert_eq!((same.modules, none.error, none.errors.len()), (adapter.modules, 0.0, 0));
    }
}
