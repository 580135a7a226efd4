//! Decisions of `AdaLoRA`, step by step, and their comparison.

use std::collections::BTreeMap;

use lrvd_burn::adalora::AdaLora;
use lrvd_burn::adapter::LowRankAdapter;
use lrvd_burn::host::values;
use lrvd_burn::model::AdaptedModel;
use lrvd_core::adalora::{AdaLoraConfig, Allocation, Phase};

use super::super::{Comparison, Entry, Limit, Precision, Values, VerifyError, bound};

/// Decisions of a run, in the model's order of modules.
pub(super) struct Decisions {
    paths: Vec<String>,
    config: AdaLoraConfig,
    budget: Vec<f64>,
    masked_now: Vec<bool>,
    /// Kept triplets by step and module.
    mask: Vec<Vec<Vec<bool>>>,
    /// Singular values that are not 0, by step and module.
    nonzero: Vec<Vec<Vec<bool>>>,
    /// Scores at the steps that chose a mask, by step of the loop from 0, as every table here.
    scores: BTreeMap<usize, Vec<Vec<f64>>>,
}

impl Decisions {
    pub(super) fn new(paths: &[String], config: AdaLoraConfig) -> Self {
        Self {
            paths: paths.to_vec(),
            config,
            budget: Vec::new(),
            masked_now: Vec::new(),
            mask: Vec::new(),
            nonzero: Vec::new(),
            scores: BTreeMap::new(),
        }
    }

    /// Takes in what was decided at `step` of the schedule, after it was applied to the model.
    ///
    /// The schedule may begin later than at 0: where in the loop this is, is how often it was called.
    pub(super) fn record(
        &mut self,
        step: u32,
        made: &Allocation,
        allocator: &AdaLora,
        model: &impl AdaptedModel,
    ) {
        let t = self.budget.len();
        self.budget.push(made.budget as f64);
        self.masked_now.push(made.masked_now);
        let all = || vec![vec![true; self.config.init_r]; self.paths.len()];
        self.mask.push(made.mask.clone().unwrap_or_else(all));
        if self.config.phase(step) == Phase::Choose {
            self.scores.insert(t, allocator.scores());
        }
        let mut nonzero = Vec::new();
        model.visit_layers(&mut |_, layer| {
            if let Some(e) = layer.low_rank().and_then(LowRankAdapter::singular_values) {
                nonzero.push(values(e.val()).iter().map(|&e| e != 0.0).collect());
            }
        });
        self.nonzero.push(nonzero);
    }

    /// The triplets that the last mask keeps, by module path.
    pub(super) fn kept(&self) -> BTreeMap<&str, Vec<bool>> {
        let Some(last) = self.mask.last() else { return BTreeMap::new() };
        self.paths.iter().map(String::as_str).zip(last.iter().cloned()).collect()
    }

    /// Compares everything that a folder records of the decisions.
    pub(super) fn compare(&self, comparison: &mut Comparison<'_>) -> Result<(), VerifyError> {
        let section = comparison.folder.get("adalora")?;
        let order = self.order(&section.get("modules")?)?;
        let steps = self.mask.len();
        let cells = |table: &[Vec<Vec<bool>>]| {
            let flags = table.iter().flat_map(|row| order.iter().flat_map(|&m| row[m].clone()));
            Values::new([steps, order.len(), self.config.init_r], Values::flags(flags).values)
        };
        let counts = |row: &Vec<Vec<bool>>| -> Vec<f64> {
            order.iter().map(|&m| row[m].iter().filter(|&&kept| kept).count() as f64).collect()
        };
        let ranks: Vec<Vec<f64>> = self.mask.iter().map(counts).collect();
        let tables = [
            ("budget", Values::list(self.budget.clone())),
            ("masked_now", Values::flags(self.masked_now.iter().copied())),
            ("mask", cells(&self.mask)),
            ("nonzero_E", cells(&self.nonzero)),
            ("rank", Values::new([steps, order.len()], ranks.concat())),
        ];
        for (name, found) in &tables {
            comparison.required(name, found, Limit::EXACT)?;
        }
        let limit = score_limit(comparison, &section)?;
        for (t, scores) in &self.scores {
            let found = order.iter().flat_map(|&m| scores[m].clone()).collect();
            let found = Values::new([order.len(), self.config.init_r], found);
            comparison.required(&format!("score.{t}"), &found, limit)?;
        }
        self.compare_lists(comparison, &section, &order, &ranks)
    }

    /// The lists that repeat the tensors in `expected.json`.
    fn compare_lists(
        &self,
        comparison: &mut Comparison<'_>,
        section: &Entry<'_>,
        order: &[usize],
        ranks: &[Vec<f64>],
    ) -> Result<(), VerifyError> {
        let steps: Vec<f64> = self.scores.keys().map(|&t| t as f64).collect();
        let totals: Vec<f64> = ranks.iter().map(|row| row.iter().sum()).collect();
        for (key, found) in [("masking_steps", steps), ("total_rank_at_each_step", totals)] {
            if let Some(entry) = section.find(key) {
                comparison.numbers(&entry, &found, Limit::EXACT)?;
            }
        }
        if let (Some(entry), Some(last)) = (section.find("final_ranks"), ranks.last()) {
            let stated = entry.entries()?;
            let named = order.iter().zip(last);
            let found: BTreeMap<String, f64> =
                named.map(|(&m, &rank)| (format!("{}.lora_E", self.paths[m]), rank)).collect();
            let mut same = stated.len() == found.len();
            for (name, rank) in stated {
                same &= found.get(name) == Some(&rank.finite()?);
            }
            comparison.exact(entry.path(), same, None);
        }
        Ok(())
    }

    /// For each module of the folder, its place in the model's order.
    fn order(&self, modules: &Entry<'_>) -> Result<Vec<usize>, VerifyError> {
        let mut order = Vec::new();
        for entry in modules.list()? {
            let name = entry.text()?;
            let path = name.strip_suffix(".lora_E").unwrap_or(name);
            let place = self.paths.iter().position(|known| known == path);
            let place = place.filter(|place| !order.contains(place));
            order.push(place.ok_or_else(|| entry.wrong("an adapted module, named once"))?);
        }
        if order.len() != self.paths.len() {
            return Err(modules.wrong(format!("all {} adapted modules", self.paths.len())));
        }
        Ok(order)
    }
}

/// Scores are products of averages of gradients, so they have the gradients' relative error.
fn score_limit(comparison: &Comparison<'_>, section: &Entry<'_>) -> Result<Limit, VerifyError> {
    let entry = match comparison.precision {
        Precision::F32 => section.get("score_tolerance_relative_f32")?,
        Precision::F64 => comparison.folder.get("tolerances")?.get("grad_norm")?.get("rtol_f64")?,
    };
    Ok(Limit::Relative(bound(&entry)?))
}
