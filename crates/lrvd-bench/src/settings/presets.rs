//! What a run starts from: a preset, which is some tables of `presets.toml` over the defaults, and a file.

use std::path::Path;

use anyhow::bail;
use lrvd_models::llama::BLOCK_TARGETS;

use super::config::Config;
use super::layers::{Layers, Origin, TASK, read_table, unusable};
use super::names::{Preset, Training};
use crate::error::Result;
use crate::text::UnknownName;

const PRESETS: &str = include_str!("presets.toml");
/// Peak rate of the adapter means of a language model on texts.
const LANGUAGE_RATE: f64 = 5e-4;
/// Passes over the rows by default: the presets have the length of a paper's runs.
const EPOCHS: f64 = 3.0;
/// Steps of a run of which the rows are not known.
const STEPS: usize = 1000;
/// Rank of an adapter by default; the other presets have the ranks of their publications.
const RANK: usize = 8;

impl Preset {
    const fn tables(self) -> &'static [&'static str] {
        match self {
            Self::ConstantWeight => &[],
            Self::Default => &["held-out-rows", "default"],
            Self::PaperGlue => &["paper-glue"],
            Self::AuthorGlue => &["author-glue"],
            Self::PaperReasoning => &["reasoning", "paper-reasoning"],
            Self::AuthorLlm => &["reasoning", "author-llm"],
            Self::BlobCompat => &["reasoning", "blob-compat"],
        }
    }

    /// Tables of the preset for the reasoning sets.
    const fn reasoning_tables(self) -> &'static [&'static str] {
        match self {
            Self::ConstantWeight => &["reasoning"],
            Self::Default => &["reasoning", "held-out-rows"],
            other => other.tables(),
        }
    }

    pub fn config(self) -> Config {
        self.read(self.tables())
    }

    /// Settings for the reasoning sets: the published lengths and rates of a language model.
    pub fn reasoning_config(self) -> Config {
        self.read(self.reasoning_tables())
    }

    fn read(self, tables: &[&str]) -> Config {
        let read = self.layers(tables).and_then(Layers::finish);
        read.unwrap_or_else(|error| unreachable!("presets.toml: {error:#}"))
    }

    /// The defaults with the changes of `tables`.
    fn layers(self, tables: &[&str]) -> Result<Layers> {
        let mut presets = PRESETS.parse::<toml::Table>()?;
        let mut layers = Layers::over(&Config::default())?;
        for table in tables.iter().filter_map(|name| presets.remove(*name)) {
            layers.write("", table, Origin::Preset)?;
        }
        layers.document["preset"] = self.name().into();
        Ok(layers)
    }
}

impl Training {
    pub(super) fn presets() -> impl Iterator<Item = (Self, Preset)> {
        Self::ALL.into_iter().flat_map(|training| Preset::ALL.map(|preset| (training, preset)))
    }
}

impl Layers {
    /// Starts from `preset` for `training`, or from those that `file` names, or from the default ones, with `epochs = 3`
    /// (`default` also with `initial_rank = 8`); then applies `file`.
    pub fn new(
        training: Option<Training>,
        preset: Option<Preset>,
        file: Option<&Path>,
    ) -> Result<Self> {
        let mut table = match file {
            Some(file) => read_table(file)?,
            None => toml::Table::new(),
        };
        let named = take(&mut table, "preset", Preset::named)?;
        let preset = preset.or(named).unwrap_or_default();
        let named = take(&mut table, TASK, Training::named)?;
        let training = match (training, named) {
            (Some(expected), Some(found)) if expected != found => {
                let (found, expected) = (found.name(), expected.name());
                bail!("the settings file is for the task `{found}`, and this is `{expected}`");
            }
            (expected, found) => expected.or(found).unwrap_or_default(),
        };
        let mut layers = preset.layers(preset.tables())?;
        layers.training = training;
        layers.derives = true;
        if training == Training::Language {
            layers.fit_texts(&preset.config())?;
        }
        layers.put("epochs", EPOCHS.into(), Origin::Default);
        layers.put("steps", STEPS.into(), Origin::Default);
        if preset == Preset::Default {
            layers.put("initial_rank", RANK.into(), Origin::Default);
        }
        layers.apply(&[table], None, &[])
    }

    /// Settings for a language model that is trained on texts: every layer of its blocks, longer inputs in smaller batches, a
    /// lower rate under a looser clip. The noise keeps its pace in `preset`.
    fn fit_texts(&mut self, preset: &Config) -> Result<()> {
        let pace = preset.log_variance.learning_rate_factor * preset.learning_rate;
        let targets: Vec<toml::Value> = BLOCK_TARGETS.iter().map(|name| (*name).into()).collect();
        for (key, value) in [
            ("target_modules", targets.into()),
            ("learning_rate", LANGUAGE_RATE.into()),
            ("log_variance.learning_rate_factor", (pace / LANGUAGE_RATE).into()),
            ("batch_size", 8.into()),
            ("evaluation_batch_size", 8.into()),
            ("max_length", 1024.into()),
            ("gradient_clip", 1.0.into()),
        ] {
            self.write(key, value, Origin::Data)?;
        }
        Ok(())
    }
}

/// Value of `key` in the file, if there is one.
fn take<T>(
    table: &mut toml::Table,
    key: &str,
    named: impl Fn(&str) -> Result<T, UnknownName>,
) -> Result<Option<T>> {
    let Some(value) = table.remove(key) else { return Ok(None) };
    let found = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    named(&found).map(Some).map_err(|reason| unusable(key, &found, reason))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_table_is_part_of_a_preset_and_every_preset_of_tables() {
        let tables: toml::Table = PRESETS.parse().unwrap();
        let glue = Preset::ALL.into_iter().flat_map(|preset| {
            assert_eq!(preset.config().preset, preset.name());
            preset.tables()
        });
        let reasoning = Preset::REASONING.into_iter().flat_map(|preset| {
            assert_eq!(preset.reasoning_config().preset, preset.name());
            preset.reasoning_tables()
        });
        let used: BTreeSet<&str> = glue.chain(reasoning).copied().collect();
        assert!(used.into_iter().eq(tables.keys()));
    }

    /// The published shares of a run, in its steps.
    #[test]
    fn ranks_are_pruned_at_the_published_steps() {
        for (preset, expected) in [
            (Preset::ConstantWeight, &[1000, 2000, 3000][..]),
            (Preset::PaperReasoning, &[1000, 2000, 3000]),
            (Preset::AuthorLlm, &[200, 400, 600, 800]),
        ] {
            let config = preset.reasoning_config();
            let schedule = config.prune_schedule().unwrap();
            let due = (0..=config.steps as u64).filter(|&done| schedule.is_due(done));
            assert_eq!(due.collect::<Vec<_>>(), expected, "{preset:?}");
        }
        let author = Preset::AuthorLlm.config();
        assert_eq!(author.training(0).check().unwrap().warmup_steps(), 200);
    }
}
