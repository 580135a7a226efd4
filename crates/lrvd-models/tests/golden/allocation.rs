//! Decisions of AdaLoRA, step by step.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use burn::tensor::DType;
use lrvd_burn::adalora::AdaLora;
use lrvd_burn::adapter::LowRankAdapter;
use lrvd_burn::host::values;
use lrvd_burn::model::NamedModule;
use lrvd_core::adalora::{AdaLoraConfig, Allocation, Phase};

use crate::case::{Case, Limit, Values};
use crate::json::Json;

/// Decisions of a run, in the model's order of modules.
pub(crate) struct Decisions {
    paths: Vec<String>,
    config: AdaLoraConfig,
    budget: Vec<f64>,
    masked_now: Vec<bool>,
    /// Kept triplets by step and module.
    mask: Vec<Vec<Vec<bool>>>,
    /// Singular values that are not 0, by step and module.
    nonzero: Vec<Vec<Vec<bool>>>,
    /// Scores at the steps that chose a mask.
    scores: BTreeMap<usize, Vec<Vec<f64>>>,
}

impl Decisions {
    pub(crate) fn new(paths: &[String], config: AdaLoraConfig) -> Self {
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

    /// Takes in what was decided at `step` of the schedule, after it was applied to the model. All tables count
    /// steps of the loop from 0; the schedule may start later.
    pub(crate) fn record(
        &mut self,
        step: u32,
        made: &Allocation,
        allocator: &AdaLora,
        model: &impl NamedModule,
    ) {
        if self.config.phase(step) == Phase::Choose {
            self.scores.insert(self.budget.len(), allocator.scores());
        }
        self.budget.push(made.budget as f64);
        self.masked_now.push(made.masked_now);
        let all = || vec![vec![true; self.config.init_r]; self.paths.len()];
        self.mask.push(made.mask.clone().unwrap_or_else(all));
        let mut nonzero = Vec::new();
        model.visit_layers(&mut |_, layer| {
            if let Some(e) = layer.low_rank().and_then(LowRankAdapter::singular_values) {
                nonzero.push(values(e.val()).iter().map(|&e| e != 0.0).collect());
            }
        });
        self.nonzero.push(nonzero);
    }

    /// The triplets that the last mask keeps, by module path.
    pub(crate) fn kept(&self) -> BTreeMap<&str, &Vec<bool>> {
        let last = self.mask.last().into_iter().flatten();
        self.paths.iter().map(String::as_str).zip(last).collect()
    }

    /// Compares everything that a folder records of the decisions.
    pub(crate) fn compare(&self, case: &mut Case) -> Result<()> {
        let section = case.json.at(&["adalora"])?.clone();
        // The folder's modules as places in the model's order.
        let place = |entry: &serde_json::Value| -> Result<usize> {
            let path = entry.text()?.trim_end_matches(".lora_E");
            let place = self.paths.iter().position(|known| known == path);
            place.with_context(|| format!("`adalora.modules`: `{path}` is not adapted"))
        };
        let order =
            section.at(&["modules"])?.list()?.iter().map(place).collect::<Result<Vec<_>>>()?;
        ensure!(order.len() == self.paths.len(), "`adalora.modules` are not all adapted ones");

        let (steps, modules, rank) = (self.mask.len(), order.len(), self.config.init_r);
        let cells = |table: &[Vec<Vec<bool>>]| {
            let flags = table.iter().flat_map(|row| order.iter().flat_map(|&m| row[m].clone()));
            Values::flags(&[steps, modules, rank], flags)
        };
        let count = |row: &Vec<Vec<bool>>, m: usize| row[m].iter().filter(|&&k| k).count() as f64;
        let ranks: Vec<f64> =
            self.mask.iter().flat_map(|row| order.iter().map(|&m| count(row, m))).collect();
        for (name, found) in [
            ("budget", Values::list(self.budget.clone())),
            ("masked_now", Values::flags(&[steps], self.masked_now.iter().copied())),
            ("mask", cells(&self.mask)),
            ("nonzero_E", cells(&self.nonzero)),
            ("rank", Values::new(&[steps, modules], ranks.clone())),
        ] {
            case.tensor(name, &found, Limit::EXACT)?;
        }
        // Scores are products of averages of gradients and have the gradients' relative error.
        let limit = match case.dtype {
            DType::F64 => case.json.at(&["tolerances", "grad_norm", "rtol_f64"])?.number()?,
            _ => section.at(&["score_tolerance_relative_f32"])?.number()?,
        };
        for (t, scores) in &self.scores {
            let found = order.iter().flat_map(|&m| scores[m].clone()).collect();
            let found = Values::new(&[modules, rank], found);
            case.tensor(&format!("score.{t}"), &found, Limit::Relative(limit))?;
        }
        let masking: Vec<f64> = self.scores.keys().map(|&t| t as f64).collect();
        let totals: Vec<f64> = ranks.chunks(modules).map(|row| row.iter().sum()).collect();
        for (key, found) in [("masking_steps", masking), ("total_rank_at_each_step", totals)] {
            if let Ok(entry) = section.at(&[key]) {
                case.numbers(&format!("adalora.{key}"), entry, &found, Limit::EXACT)?;
            }
        }
        if let Ok(entry) = section.at(&["final_ranks"]) {
            let stated: BTreeMap<&str, usize> = entry
                .entries()?
                .into_iter()
                .map(|(name, rank)| Ok((name.trim_end_matches(".lora_E"), rank.count()?)))
                .collect::<Result<_>>()?;
            let kept = self.kept();
            let found =
                kept.iter().map(|(path, flags)| (*path, flags.iter().filter(|&&k| k).count()));
            case.statement("adalora.final_ranks", stated == found.collect(), String::new());
        }
        Ok(())
    }
}
