//! An adapter cut to the ranks that held-out rows need, from any program.

use anyhow::{anyhow, bail};
use lrvd_burn::model::ranks;
use lrvd_burn::peft::{PeftAdapter, peft_from_model};
use lrvd_burn::train::{
    Choice, Examples as _, HeldOutLosses, MIN_HELD_OUT, Prediction, RankSearch, Targets,
    calibrated_losses, choose_ranks,
};
use lrvd_core::metrics::{argmax_rows, mean, sample_sd};
use serde::Serialize;

use super::description::Description;
use super::open::{Adapter, AdapterFiles};
use super::saved::SavedClassifier;
use crate::data::Split;
use crate::error::Result;

/// Two-sided 95 % quantile of the normal distribution.
const Z: f64 = 1.959_963_984_540_054;

/// An adapter after a search for ranks.
#[derive(Clone, Debug)]
pub struct Pruned {
    pub adapter: Adapter,
    pub choice: Choice,
    /// Every module of the adapter, by path.
    pub modules: Vec<PrunedModule>,
    /// Measures on the rows of the search: of classes the accuracy; the loss is in the choice.
    pub measures: Vec<PairedMeasure>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PrunedModule {
    pub path: String,
    pub before: usize,
    pub after: usize,
    /// Factor of the update, alpha over the rank that it was trained with.
    pub scaling: f64,
}

/// Mean of a measure over the same rows before and after, with the 95 % interval of the mean difference
/// `d̄ ± 1.96·s/√n`, `s` the deviation of the rows' differences.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PairedMeasure {
    pub name: &'static str,
    pub before: f64,
    pub after: f64,
    pub difference: f64,
    pub interval: [f64; 2],
}

impl PairedMeasure {
    fn new(name: &'static str, before: &[f64], after: &[f64]) -> Result<Self> {
        let rows: Vec<f64> = before.iter().zip(after).map(|(b, a)| a - b).collect();
        let difference = mean(&rows)?;
        let error = Z * sample_sd(&rows)? / (rows.len() as f64).sqrt();
        Ok(Self {
            name,
            before: mean(before)?,
            after: mean(after)?,
            difference,
            interval: [difference - error, difference + error],
        })
    }
}

/// Losses of the rows, and of classes 1 for every right answer.
struct Answers {
    losses: HeldOutLosses,
    right: Option<Vec<f64>>,
}

impl Answers {
    fn of(logits: &Prediction, targets: &Targets) -> Result<Self> {
        let losses = calibrated_losses(logits, targets)?;
        let right = |classes: Vec<usize>| -> Result<Vec<f64>> {
            let answers = argmax_rows(&logits.first(1).values, logits.width)?;
            Ok(answers.iter().zip(classes).map(|(a, class)| f64::from(*a == class)).collect())
        };
        Ok(Self { losses, right: targets.classes().map(right).transpose()? })
    }
}

impl Adapter {
    /// Cuts this adapter, whose classifier is `classifier`, to the fewest singular directions that are non-inferior to all of them on
    /// `rows`: the mean loss rises by at most `margin`, by a test at 5 %. Every module keeps `min_rank` directions. `tried` gets
    /// the size of each model but the whole one, and that of the whole.
    ///
    /// The adapter is that of [`plain`](Self::plain).
    pub fn prune(
        &self,
        mut classifier: SavedClassifier,
        rows: &Split,
        (margin, min_rank): (f64, usize),
        mut tried: impl FnMut(usize, usize),
    ) -> Result<Pruned> {
        let found = rows.rows();
        if found < MIN_HELD_OUT {
            bail!(
                "{found} rows, expected at least {MIN_HELD_OUT}: fewer cannot show that a smaller rank is enough; `lrvd export \
                 --energy` and `--cap-rank` cut without rows"
            );
        }
        let info = classifier.info.clone();
        let backbone = classifier.backbone.clone();
        let reader = info.reader(&backbone)?;
        let task = reader.prepare(info.goal.clone(), &[], &rows.examples)?;
        let device = classifier.device.clone();
        let examples = task.examples(&task.validation, &device);
        let targets = examples.all_targets()?;
        let rule = RankSearch { margin, min_rank, ..RankSearch::default() };
        let mut whole = classifier.model.clone();
        let before = ranks(&whole);
        let mut first = None;
        let (choice, _) = choose_ranks(&mut whole, &rule, 0, |model, total_rank, of| {
            classifier.model = model.clone();
            let found = Answers::of(&classifier.logits(&examples, 0, 0)?, &targets)?;
            if total_rank < of {
                tried(total_rank, of);
            }
            let losses = found.losses.clone();
            first.get_or_insert(found);
            Ok::<_, anyhow::Error>(losses)
        })?;
        classifier.model = whole.clone();
        let last = Answers::of(&classifier.logits(&examples, 0, 0)?, &targets)?;
        let first = first.ok_or_else(|| anyhow!("no model was measured"))?;
        let [before_losses, after_losses] = [&first, &last].map(|answers| &answers.losses.rows);
        let mut measures = vec![PairedMeasure::new("loss", before_losses, after_losses)?];
        if let Some((before, after)) = first.right.as_ref().zip(last.right.as_ref()) {
            measures.push(PairedMeasure::new("accuracy", before, after)?);
        }

        let own = &self.files.peft;
        let cut = peft_from_model(&whole, &own.config)?;
        let modules = before.into_iter().map(|(path, before)| PrunedModule {
            after: cut.modules.get(&path).map_or(0, |module| module.rank),
            scaling: own.modules.get(&path).map_or(0.0, |module| module.scaling),
            path,
            before,
        });
        let modules = modules.collect();
        let peft = PeftAdapter { base: own.base.clone(), saved: own.saved.clone(), ..cut };
        let description = self.files.description.clone();
        let mut description = description.map(Description::without_thresholds);
        if let Some(description) = &mut description {
            description.run.ranks = ranks(&whole).into_iter().collect();
        }
        let files = AdapterFiles { peft, posterior: None, description };
        Ok(Pruned { adapter: self.with(files), choice, modules, measures })
    }
}
