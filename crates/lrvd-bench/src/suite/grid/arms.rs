//! Arms: settings side by side, each a run of its suite, compared in pairs by task and seed.
//!
//! ```toml
//! preset = "constant-weight"      # of every arm that names no other
//! tasks = ["sst2"]
//! seeds = [1, 2, 3]
//!
//! [settings]                      # of every arm
//! steps = 1000
//!
//! [[arm]]
//! name = "w = 0.03"
//! method = "bayeslora"
//! settings = { kl_weight = 0.03 } # of this arm
//!
//! [[arm]]
//! name = "LoRA"
//! method = "lora"
//!
//! [[compare]]                     # left out: every arm less the first, in accuracy, NLL, ECE and rank
//! arms = ["w = 0.03", "LoRA"]     # the first less the second
//! metrics = ["nll"]               # as in table-last.csv
//! margin = 0.02                   # the claim is "not worse by 0.02" instead of "different"
//! ```

use std::path::Path;

use anyhow::{anyhow, bail};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{Profile, Suite, SuiteOptions, arm_folder};
use crate::error::{Error, Result};
use crate::method::MethodName;
use crate::report::Claim;
use crate::text::UnknownName;

/// Metrics of comparisons that name none.
const METRICS: [&str; 4] = ["accuracy", "nll", "ece", "rank"];

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Arms {
    preset: Option<String>,
    #[serde(default)]
    tasks: Vec<String>,
    #[serde(default)]
    seeds: Vec<u64>,
    #[serde(default)]
    settings: toml::Table,
    arm: Vec<Arm>,
    #[serde(default)]
    compare: Vec<Compare>,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Arm {
    name: String,
    method: String,
    preset: Option<String>,
    #[serde(default)]
    settings: toml::Table,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Compare {
    arms: [String; 2],
    #[serde(default)]
    metrics: Vec<String>,
    margin: Option<f64>,
}

impl Arms {
    pub fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| anyhow!("cannot read `{}`: {source}", path.display()))?;
        let arms: Self = toml::from_str(&text).map_err(|source| {
            Error::new(source).context(format!("`{}` is not TOML", path.display()))
        })?;
        if arms.arm.is_empty() {
            bail!("setting `arm` cannot be `[]`: expected at least one arm");
        }
        for (place, arm) in arms.arm.iter().enumerate() {
            let name = &arm.name;
            if !name.starts_with(|c: char| c.is_ascii_alphanumeric()) {
                bail!(
                    "arm `{name}`: its name is that of a folder, expected to start with a letter of A to Z or a digit"
                );
            }
            let own = arm_folder(name);
            match arms.arm[..place].iter().find(|before| arm_folder(&before.name) == own) {
                Some(before) if before.name == *name => bail!("arm `{name}` is given twice"),
                Some(before) => bail!(
                    "arms `{}` and `{name}` have one folder, `{}`: give one of them another name",
                    before.name,
                    own.display()
                ),
                None => {}
            }
        }
        arms.claims()?;
        Ok(arms)
    }

    /// The comparisons, each in one metric.
    pub(in crate::suite) fn claims(&self) -> Result<Vec<Claim>, UnknownName> {
        let names = || self.arm.iter().map(|arm| arm.name.as_str());
        let pair = |of: &str| [of.to_owned(), self.arm[0].name.clone()];
        let default = || {
            let rest = self.arm.iter().skip(1);
            rest.map(|arm| Compare { arms: pair(&arm.name), metrics: Vec::new(), margin: None })
        };
        let compare =
            if self.compare.is_empty() { default().collect() } else { self.compare.clone() };
        let mut claims = Vec::new();
        for Compare { arms: [of, from], metrics, margin } in &compare {
            if let Some(unknown) = [of, from].into_iter().find(|name| names().all(|n| n != *name)) {
                return Err(UnknownName::new("arm", unknown, names()));
            }
            let named = metrics.iter().map(String::as_str);
            let metrics = if metrics.is_empty() { METRICS.to_vec() } else { named.collect() };
            for metric in metrics {
                claims.push(Claim::new(of, from, metric, *margin)?);
            }
        }
        Ok(claims)
    }

    /// Preset of the arms that name no other.
    pub(in crate::suite) fn preset(&self, suite: Suite) -> &str {
        self.preset.as_deref().unwrap_or(suite.default_preset().name())
    }

    /// Settings of the folder that holds all arms.
    pub(in crate::suite) fn settings(&self, suite: Suite) -> Value {
        json!({
            "suite": suite.name(),
            "arms": self.arm,
            "settings": self.settings,
            "preset": self.preset,
        })
    }

    /// The options of every arm, not resolved.
    pub(in crate::suite) fn experiments(
        &self,
        options: &SuiteOptions,
    ) -> Result<Vec<SuiteOptions>> {
        let suite = options.suite;
        let model = match &options.model {
            Some(model) => model.clone(),
            None => suite.model(Profile::Quick)?.folder.display().to_string(),
        };
        let tasks = match &options.tasks[..] {
            [] => self.tasks.iter().map(|name| suite.task(name)).collect::<Result<_>>()?,
            given => given.to_vec(),
        };
        let seeds = if options.seeds.is_empty() { &self.seeds } else { &options.seeds };
        let of = |arm: &Arm| {
            let preset = arm.preset.as_deref().unwrap_or(self.preset(suite));
            Ok(SuiteOptions {
                arm: Some(arm.name.clone()),
                // All rows, and only the settings of the file.
                profile: Profile::Paper,
                preset: suite.preset(preset)?,
                methods: vec![MethodName::named(&arm.method)?],
                tasks: tasks.clone(),
                seeds: seeds.clone(),
                model: Some(model.clone()),
                patches: vec![self.settings.clone(), arm.settings.clone()],
                out: options.out.join(arm_folder(&arm.name)),
                ..options.clone()
            })
        };
        self.arm.iter().map(of).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::DryRun;
    use super::*;

    #[test]
    fn the_files_of_the_results_pages_are_valid() {
        let files = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/results/arms");
        let paths: Vec<_> = std::fs::read_dir(files).unwrap().map(|e| e.unwrap().path()).collect();
        assert_eq!(paths.len(), 12);
        for path in paths {
            let arms = Arms::read(&path).unwrap();
            let reasoning = path.ends_with("table-4.toml");
            let suite = if reasoning { Suite::Reasoning } else { Suite::Glue };
            let options = SuiteOptions::new(suite, Profile::Quick, "unused".into());
            let plans = DryRun::of(&options, Some(&arms)).unwrap();
            let tasks = if reasoning { 6 } else { 1 };
            let ranks: Vec<_> = plans.iter().map(|plan| plan.settings.initial_rank).collect();
            assert!(!reasoning || ranks == [8, 8, 12, 14, 16, 20], "{ranks:?}");
            for plan in &plans {
                let settings = &plan.settings;
                let lengths = (settings.steps, settings.train_rows, settings.evaluate_every);
                let quick = lengths == (1000, Some(8000), 1000);
                assert!(reasoning || quick, "{} {:?}: {lengths:?}", path.display(), plan.arm);
                assert_eq!(plan.runs.len(), tasks * arms.seeds.len());
            }
        }
    }
}
