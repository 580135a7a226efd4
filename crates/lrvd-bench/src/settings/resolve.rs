//! The resolution of settings: default, preset, file, options, then facts of the data and of the model for what is not set.
//!
//! Every value records its [`Origin`]. `lrvd train`, `lrvd data check`, `lrvd config` and the suites resolve their settings here.

use std::fmt::{Display, Write as _};

use anyhow::{bail, ensure};
use lrvd_core::schedule::KlDivisor;
use lrvd_models::deberta::Pooling;
use serde_json::{Value, json};

use super::config::{BasePrecision, CheckpointChoice, Config, field};
use super::layers::{Layers, Origin, TASK, evaluate_every, unusable};
use super::names::{Preset, TargetModules, Training};
use super::table::below;
use crate::error::Result;

/// Settings that follow from the model, the data or other settings where they are not given.
pub(super) const FOLLOWING: [&str; 9] = [
    "accumulation",
    "checkpoint",
    "epochs",
    "evaluate_every",
    "head_learning_rate",
    "max_length",
    "pooling",
    "steps",
    "target_modules",
];

/// Fewest examples of a micro-batch that is made by default.
const MICRO_BATCH: usize = 8;

/// Facts of a model that settings follow from.
pub trait ModelFacts {
    /// Longest input of typed questions.
    fn question_length(&self) -> usize;
    /// Input of the head.
    fn pooling(&self) -> Pooling;
    /// Storage of its base, in place of `set` if it cannot be stored so.
    fn base_precision(&self, set: BasePrecision) -> BasePrecision;
    /// Names in this model of the layers that `targets` name in another kind of model.
    fn target_modules(&self, targets: &TargetModules) -> TargetModules;
}

/// Facts that settings follow from where they are not set.
#[derive(Clone, Copy, Default)]
pub struct Facts<'a> {
    /// `true` if the rows are typed questions.
    pub has_questions: bool,
    /// The model, if there is one.
    pub model: Option<&'a dyn ModelFacts>,
    /// Batches of a pass over the rows that are trained on.
    pub batches: Option<usize>,
    /// `true` if the validation rows may choose the model that is kept, since nothing else reads them.
    pub chooses_model: bool,
    /// Input of the head in place of the model's own.
    pub pooling: Option<Pooling>,
    /// `true` if the model is trained on a CPU.
    pub on_cpu: bool,
}

/// Settings of a run, checked, with the origin of each.
#[derive(Clone, Debug, PartialEq)]
pub struct Resolved {
    pub config: Config,
    /// Every setting in the order of its section: key, value, origin.
    pub settings: Vec<(String, Value, Origin)>,
}

impl Resolved {
    /// Origin of the setting `key`.
    pub fn origin(&self, key: &str) -> Option<Origin> {
        self.settings.iter().find(|(known, ..)| known == key).map(|(.., origin)| *origin)
    }

    /// The settings as a file for `--config` of `training`, every one of them that has a value in them or in `base`, the
    /// preset that the file is read over. Those that follow from what a run is of, and were not given, are comments.
    pub fn to_toml(&self, training: Training, base: &Config) -> Result<String> {
        let mut all = self.config.document()?;
        name_absent(&mut all, &base.document()?);
        all[TASK] = training.name().into();
        let mut text = String::new();
        for (key, value, origin) in &self.settings {
            if FOLLOWING.contains(&&**key) && !origin.is_given() {
                all.as_object_mut().map(|all| all.remove(key));
                // The rows decide these.
                let is_open =
                    self.config.epochs.is_some() && ["steps", "evaluate_every"].contains(&&**key);
                if value.is_null() || is_open {
                    continue;
                }
                if text.is_empty() {
                    text.push_str(
                        "# The model, the data or another setting decides what is not set:\n",
                    );
                }
                let _ = writeln!(text, "# {key} = {value} # {}", origin.name());
            }
        }
        let unusable = |error: &dyn Display| unusable("preset", &self.config.preset, error);
        let table = toml::Value::try_from(all).map_err(|error| unusable(&error))?;
        Ok(text + &toml::to_string(&table).map_err(|error| unusable(&error))?)
    }
}

/// `none` for what is absent and there in `base`, as the files have it; nothing for what is absent in both.
fn name_absent(value: &mut Value, base: &Value) {
    if let Value::Object(map) = value {
        map.retain(|name, value| !(value.is_null() && base[name].is_null()));
        map.iter_mut().for_each(|(name, value)| name_absent(value, &base[name]));
    } else if value.is_null() {
        *value = "none".into();
    }
}

/// Steps of so many passes over the rows, of `batches` steps each.
pub(crate) fn steps_of(epochs: f64, batches: usize) -> usize {
    ((epochs * batches as f64).ceil() as usize).max(1)
}

impl Layers {
    /// Settings by these layers and `facts`.
    ///
    /// A file or an option is above every fact. Of `steps` and `epochs` the one in the higher layer is taken.
    pub fn resolve(mut self, facts: &Facts<'_>) -> Result<Resolved> {
        if let Some(model) = facts.model {
            self.fit_model(model, facts)?;
        }
        if self.derives {
            self.derive(facts)?;
        } else if !self.document["epochs"].is_null() {
            bail!("setting `epochs` is set: the length of these runs is a number of `steps`");
        }
        let config = self.read()?.checked()?;
        config.check_use(self.training)?;
        let mut settings = Vec::new();
        self.list("", &config.document()?, &mut settings);
        Ok(Resolved { config, settings })
    }

    /// Settings by these layers alone.
    pub fn finish(self) -> Result<Config> {
        Ok(self.resolve(&Facts::default())?.config)
    }

    /// Writes what the model decides in place of what is not given, with null for whatever is there.
    fn fit_model(&mut self, model: &dyn ModelFacts, facts: &Facts<'_>) -> Result<()> {
        let Config { base_precision, target_modules, .. } = self.read()?;
        let length = facts.has_questions.then(|| model.question_length());
        let pooling = facts.pooling.unwrap_or_else(|| model.pooling());
        let targets = model.target_modules(&target_modules);
        for (key, from, to) in [
            ("max_length", Value::Null, json!(length)),
            ("pooling", Value::Null, json!(pooling)),
            ("base_precision", json!(base_precision), json!(model.base_precision(base_precision))),
            ("target_modules", json!(target_modules), json!(targets)),
        ] {
            if from != to && !self.is_given(key) {
                self.put(key, to, Origin::Model);
            }
        }
        Ok(())
    }

    fn derive(&mut self, facts: &Facts<'_>) -> Result<()> {
        self.derive_steps(facts)?;
        self.derive_head_rate()?;
        self.derive_micro_batches(facts)?;
        // The last of a number of steps is the one that was asked for.
        let is_open = !self.document["epochs"].is_null();
        if is_open && facts.chooses_model && self.origin("checkpoint") == Origin::Default {
            self.put("checkpoint", json!(CheckpointChoice::Best), Origin::Data);
        }
        // The evaluations that end a training also choose its model.
        if self.document["patience"].is_u64() && !self.is_given("checkpoint") {
            self.put("checkpoint", json!(CheckpointChoice::Best), self.origin("patience"));
        }
        if let (Some(steps), false) = (self.count("steps"), self.is_given("evaluate_every")) {
            self.put("evaluate_every", evaluate_every(steps).into(), Origin::Default);
        }
        Ok(())
    }

    /// Keeps the ratio of the head's rate to that of the adapters, which the preset has.
    fn derive_head_rate(&mut self) -> Result<()> {
        let rate = "learning_rate";
        let head = "head_learning_rate";
        if !self.is_given(rate) || self.is_given(head) || self.training != Training::Classifier {
            return Ok(());
        }
        let Config { preset, learning_rate, .. } = self.read()?;
        let usual = Preset::named(&preset)?.config();
        let own = usual.head_learning_rate * (learning_rate / usual.learning_rate);
        self.put(head, json!(own), Origin::Default);
        Ok(())
    }

    /// Cuts the batches of classifiers on a CPU into micro-batches, which need less padding and memory: products of so many rows
    /// reach its speed, where a device needs larger ones. A divergence that is divided by a batch would change with it.
    fn derive_micro_batches(&mut self, facts: &Facts<'_>) -> Result<()> {
        let Config { batch_size, kl_divisor, .. } = self.read()?;
        let key = "accumulation";
        let is_open = self.origin(key) == Origin::Default && self.training == Training::Classifier;
        if !facts.on_cpu || !is_open || kl_divisor != KlDivisor::NTrain {
            return Ok(());
        }
        let fits =
            |parts: &usize| batch_size.is_multiple_of(*parts) && batch_size / parts >= MICRO_BATCH;
        if let Some(parts) = [4, 2].into_iter().find(fits) {
            self.put(key, parts.into(), Origin::Device);
        }
        Ok(())
    }

    /// Takes `steps` or `epochs`, and the steps of the latter where the rows are known.
    fn derive_steps(&mut self, facts: &Facts<'_>) -> Result<()> {
        let [steps, epochs] = ["steps", "epochs"].map(|key| self.origin(key));
        if self.document["epochs"].is_null() {
            ensure!(steps.is_given(), "setting `epochs` is none: set `steps`");
            return Ok(());
        }
        ensure!(
            !steps.is_given() || steps != epochs,
            "settings `steps` and `epochs` are both set: leave out either"
        );
        if steps.is_given() && (!epochs.is_given() || steps == Origin::Option) {
            self.put("epochs", Value::Null, Origin::Default);
        } else if let (Some(batches), Some(passes)) =
            (facts.batches, self.document["epochs"].as_f64())
        {
            let exact = steps_of(passes, batches);
            let usual = self.training.steps();
            let bounded = exact.clamp(*usual.start(), *usual.end());
            let taken = if epochs.is_given() { exact } else { bounded };
            self.put("steps", taken.into(), Origin::Data);
        }
        Ok(())
    }

    fn list(&self, key: &str, value: &Value, found: &mut Vec<(String, Value, Origin)>) {
        match value {
            Value::Object(map) if field(key).is_some_and(|field| !field.fields.is_empty()) => {
                map.iter().for_each(|(name, value)| self.list(&below(key, name), value, found));
            }
            _ if key == "preset" => {}
            _ => found.push((key.to_owned(), value.clone(), self.origin(key))),
        }
    }
}

#[cfg(test)]
mod tests {
    use lrvd_models::deberta::ADAPTER_TARGETS;

    use super::*;

    struct Facts40;

    impl ModelFacts for Facts40 {
        fn question_length(&self) -> usize {
            40
        }

        fn pooling(&self) -> Pooling {
            Pooling::Mean
        }

        fn base_precision(&self, _: BasePrecision) -> BasePrecision {
            BasePrecision::F32
        }

        fn target_modules(&self, _: &TargetModules) -> TargetModules {
            TargetModules::names(["query", "value"])
        }
    }

    #[test]
    fn facts_decide_what_is_not_set_and_every_value_has_an_origin() {
        let facts = Facts { has_questions: true, model: Some(&Facts40), ..Facts::default() };
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("run.toml");
        std::fs::write(&file, "batch_size = 7\nsteps = 30\n[prune]\nmin_rank = 2\n").unwrap();
        let mut layers = Layers::new(None, None, Some(&file)).unwrap();
        layers.assign("patience=2").unwrap();
        layers.set("learning_rate", 0.25).unwrap();
        let found = layers.clone().resolve(&facts).unwrap();
        let config = &found.config;
        assert_eq!((config.max_length, config.pooling), (40, Pooling::Mean));
        assert_eq!(config.target_modules, TargetModules::names(["query", "value"]));
        assert_eq!((config.evaluate_every, config.checkpoint), (3, CheckpointChoice::Best));
        // 1e-2 · .25/1e-3: the head keeps its ratio.
        assert!((config.head_learning_rate - 2.5).abs() < 1e-12);
        for (key, origin) in [
            ("max_length", Origin::Model),
            ("pooling", Origin::Model),
            ("target_modules", Origin::Model),
            ("batch_size", Origin::File),
            ("prune.min_rank", Origin::File),
            ("learning_rate", Origin::Option),
            ("checkpoint", Origin::Option),
            ("kl_weight", Origin::Preset),
            ("evaluate_every", Origin::Default),
            ("lora_alpha", Origin::Default),
        ] {
            assert_eq!(found.origin(key), Some(origin), "{key}");
        }
        assert_eq!(found.origin("preset"), None);
        let text = found.to_toml(layers.training, config).unwrap();
        assert!(text.contains("\n# target_modules = [\"query\",\"value\"] # model\n"), "{text}");
        std::fs::write(&file, text).unwrap();
        let again =
            Layers::new(None, None, Some(&file)).unwrap().resolve(&Facts::default()).unwrap();
        assert_eq!(again.config.target_modules, TargetModules::names(ADAPTER_TARGETS));
        assert_eq!((again.config.batch_size, again.config.checkpoint), (7, CheckpointChoice::Best));
        // A value that is set is used as it is, also if it is that of the preset.
        let names = ADAPTER_TARGETS.map(|name| format!("{name:?}")).join(",");
        layers.assign(&format!("target_modules=[{names}]")).unwrap();
        layers.assign("max_length=128").unwrap();
        let found = layers.resolve(&facts).unwrap();
        assert_eq!(found.config.target_modules, TargetModules::names(ADAPTER_TARGETS));
        assert_eq!(found.config.max_length, 128);
    }

    #[test]
    fn the_best_model_is_kept_where_nothing_else_reads_the_validation_rows() {
        let of = |preset, chooses_model, set: &[&str]| {
            let layers = Layers::new(None, Some(preset), None).unwrap();
            let sets: Vec<String> = set.iter().map(ToString::to_string).collect();
            let layers = layers.apply(&[], None, &sets).unwrap();
            let found = layers.resolve(&Facts { chooses_model, ..Facts::default() }).unwrap();
            (found.config.checkpoint, found.origin("checkpoint").unwrap())
        };
        let [last, best] = [CheckpointChoice::Last, CheckpointChoice::Best];
        assert_eq!(of(Preset::Default, false, &[]), (last, Origin::Default));
        assert_eq!(of(Preset::Default, true, &[]), (best, Origin::Data));
        assert_eq!(of(Preset::Default, true, &["epochs=2"]), (best, Origin::Data));
        assert_eq!(of(Preset::Default, true, &["steps=9"]), (last, Origin::Default));
        assert_eq!(of(Preset::Default, true, &["checkpoint=last"]), (last, Origin::Option));
        assert_eq!(of(Preset::Default, false, &["patience=2"]), (best, Origin::Option));
        assert_eq!(of(Preset::AuthorGlue, false, &[]), (best, Origin::Preset));
    }

    #[test]
    fn batches_of_classifiers_on_a_cpu_are_cut_into_micro_batches() {
        let of = |training, on_cpu, set: &str| {
            let layers = Layers::new(Some(training), None, None).unwrap();
            let sets: Vec<String> = set.split(' ').map(str::to_owned).collect();
            let layers = layers.apply(&[], None, &sets).unwrap();
            let found = layers.resolve(&Facts { on_cpu, ..Facts::default() }).unwrap();
            (found.config.accumulation, found.origin("accumulation").unwrap())
        };
        let [by_default, device] = [Origin::Default, Origin::Device];
        let classifier = |set| of(Training::Classifier, true, set);
        assert_eq!(classifier("batch_size=32"), (4, device));
        assert_eq!(classifier("batch_size=36"), (4, device));
        assert_eq!(classifier("batch_size=16"), (2, device));
        assert_eq!(classifier("batch_size=33"), (1, by_default));
        assert_eq!(classifier("batch_size=8"), (1, by_default));
        assert_eq!(classifier("accumulation=1"), (1, Origin::Option));
        assert_eq!(classifier("kl_divisor=batch kl_weight=1"), (1, by_default));
        assert_eq!(of(Training::Classifier, false, "batch_size=32"), (1, by_default));
        assert_eq!(of(Training::Language, true, "batch_size=32"), (1, by_default));
    }

    /// Steps of runs with so many batches in an epoch.
    #[test]
    fn epochs_are_steps_with_a_floor_and_a_ceiling_by_default() {
        let of = |training, batches, set: &[&str]| {
            let layers = Layers::new(Some(training), None, None).unwrap();
            let sets: Vec<String> = set.iter().map(ToString::to_string).collect();
            let layers = layers.apply(&[], None, &sets)?;
            let found = layers.resolve(&Facts { batches, ..Facts::default() })?;
            let Config { epochs, steps, evaluate_every, .. } = found.config;
            Ok::<_, crate::error::Error>((
                epochs,
                steps,
                evaluate_every,
                found.origin("steps").unwrap(),
            ))
        };
        let classes = |batches: usize, set: &[&str]| of(Training::Classifier, Some(batches), set);
        let data = Origin::Data;
        assert_eq!(classes(10, &[]).unwrap(), (Some(3.0), 500, 50, data));
        assert_eq!(classes(1000, &[]).unwrap(), (Some(3.0), 3000, 300, data));
        assert_eq!(classes(100_000, &[]).unwrap(), (Some(3.0), 10_000, 1000, data));
        assert_eq!(of(Training::Language, Some(10), &[]).unwrap(), (Some(3.0), 100, 10, data));
        // What is set is taken as it is.
        assert_eq!(classes(10, &["epochs=2.05"]).unwrap(), (Some(2.05), 21, 2, data));
        assert_eq!(classes(10, &["steps=7"]).unwrap(), (None, 7, 1, Origin::Option));
        assert_eq!(classes(10, &["epochs=none", "steps=7"]).unwrap().1, 7);
        for (set, expected) in [
            (
                &["steps=7", "epochs=2"][..],
                "settings `steps` and `epochs` are both set: leave out either",
            ),
            (&["epochs=none"], "setting `epochs` is none: set `steps`"),
            (&["epochs=0"], "setting `epochs` is 0, expected above 0 and at most 1000000"),
        ] {
            assert_eq!(classes(10, set).unwrap_err().to_string(), expected);
        }
        let suite = Layers::over(&Config::default()).unwrap();
        let suite = suite.apply(&[], None, &["epochs=2".to_owned()]).unwrap();
        assert!(suite.finish().unwrap_err().to_string().starts_with("setting `epochs` is set: "));
    }

    #[test]
    fn sizes_of_a_language_model_follow_from_the_data() {
        let layers = Layers::new(Some(Training::Language), Some(Preset::Default), None).unwrap();
        let found = layers.resolve(&Facts::default()).unwrap();
        assert_eq!((found.config.max_length, found.config.batch_size), (1024, 8));
        assert_eq!(found.origin("max_length"), Some(Origin::Data));
        assert_eq!(found.origin("log_variance.learning_rate_factor"), Some(Origin::Data));
        // The noise keeps its pace: 2 · 1e-3 = 4 · 5e-4.
        assert!((found.config.log_variance.learning_rate_factor - 4.0).abs() < 1e-12);
    }
}
