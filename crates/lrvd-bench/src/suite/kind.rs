//! The two suites.

use std::path::PathBuf;

use super::profile::Profile;
use super::task::SuiteTask;
use crate::backbone::{Architecture, ModelLocation, locate_model};
use crate::error::Result;
use crate::reasoning::ReasoningSet;
use crate::settings::{MethodName, Preset};
use crate::task::GlueTask;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Suite {
    /// GLUE, the paper's first table: with an encoder, or in words with a language model.
    Glue,
    /// Multiple-choice questions with a language model: its uncertainty tables.
    Reasoning,
}

impl Suite {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Glue => "glue",
            Self::Reasoning => "reasoning",
        }
    }

    pub fn task(self, name: &str) -> Result<SuiteTask> {
        Ok(match self {
            Self::Glue => SuiteTask::Glue(name.parse::<GlueTask>()?),
            Self::Reasoning => SuiteTask::Reasoning(name.parse::<ReasoningSet>()?),
        })
    }

    /// The preset called `name`, if it belongs to the suite.
    pub fn preset(self, name: &str) -> Option<Preset> {
        self.presets().iter().copied().find(|preset| preset.name() == name)
    }

    pub const fn presets(self) -> &'static [Preset] {
        match self {
            Self::Glue => &Preset::ALL,
            Self::Reasoning => &[
                Preset::DefaultReasoning,
                Preset::ConstantWeightReasoning,
                Preset::PaperReasoning,
                Preset::AuthorLlm,
                Preset::BlobCompat,
            ],
        }
    }

    /// The settings where none are named: the recommended ones.
    pub const fn default_preset(self) -> Preset {
        self.presets()[0]
    }

    /// Tasks where none are named; `real_text` if there is a data folder.
    pub(super) fn tasks(self, profile: Profile, real_text: bool) -> Vec<SuiteTask> {
        use GlueTask::{Cola, Mnli, Mrpc, Qnli, Qqp, Rte, Sst2};
        let glue = |tasks: &[GlueTask]| tasks.iter().copied().map(SuiteTask::Glue).collect();
        let sets = |sets: &[ReasoningSet]| sets.iter().copied().map(SuiteTask::Reasoning).collect();
        match (self, profile) {
            (Self::Glue, Profile::Quick) if real_text => glue(&[Cola, Sst2, Mrpc, Qnli]),
            // What the tiny model learns in so few steps; the generated RTE takes longer.
            (Self::Glue, Profile::Quick) => glue(&[Cola, Sst2]),
            (Self::Glue, Profile::Paper) => glue(&[Cola, Mnli, Mrpc, Qnli, Qqp, Rte, Sst2]),
            // The one that the tiny Llama learns in minutes.
            (Self::Reasoning, Profile::Quick) => sets(&[ReasoningSet::Obqa]),
            (Self::Reasoning, Profile::Paper) => sets(&ReasoningSet::ALL),
        }
    }

    /// Methods where none are named: in the quick reasoning profile those that cost one run each, one of
    /// every kind.
    pub(super) fn methods(self, profile: Profile) -> Vec<MethodName> {
        let all = || MethodName::all().chain([MethodName::LORA.tempered()]);
        match (self, profile) {
            (Self::Glue, _) => MethodName::FIRST_TABLE.to_vec(),
            (Self::Reasoning, Profile::Paper) => all().collect(),
            (Self::Reasoning, Profile::Quick) => {
                all().filter(|method| QUICK_REASONING.contains(&method.key().as_str())).collect()
            }
        }
    }

    /// Seeds where none are named.
    pub(super) fn seeds(self, profile: Profile) -> Vec<u64> {
        match (self, profile) {
            (_, Profile::Paper) => vec![1, 2, 3],
            (_, Profile::Quick) => vec![1, 2],
        }
    }

    /// The pretrained model where none is named.
    pub(crate) fn model(self, profile: Profile) -> Result<ModelLocation> {
        let shipped =
            |name: &str| ModelLocation { name: format!("{name} (shipped)"), folder: shipped(name) };
        Ok(match (self, profile) {
            (Self::Glue, Profile::Quick) => shipped("deberta-v3-nano"),
            (Self::Reasoning, Profile::Quick) => shipped("stories260K"),
            (Self::Glue, Profile::Paper) => locate_model("microsoft/deberta-v3-base")?,
            (Self::Reasoning, Profile::Paper) => locate_model("meta-llama/Llama-2-7b-hf")?,
        })
    }

    /// Name and sizes of the paper's model, which need none of its files.
    pub(super) fn published_sizes(self) -> Result<(String, Architecture)> {
        let (name, sizes) = match self {
            Self::Glue => ("DeBERTa-v3-base, sizes as published", Architecture::deberta_v3_base()?),
            Self::Reasoning => ("Llama-2-7B, sizes as published", Architecture::llama_2_7b()?),
        };
        Ok((name.to_owned(), sizes))
    }

    /// Whether LoRA and AdaLoRA are given BayesLoRA's rank, as the paper's first table does.
    pub(super) const fn matches_ranks(self) -> bool {
        matches!(self, Self::Glue)
    }
}

/// Methods of the quick reasoning profile, by their keys.
const QUICK_REASONING: [&str; 7] =
    ["lora", "lora+ts", "laplace", "blob", "tfb", "adalora", "bayeslora"];

/// A shipped checkpoint: beside the program if it was installed with its assets, else in the source
/// tree it was built from.
fn shipped(name: &str) -> PathBuf {
    let relative = PathBuf::from("assets").join(name);
    let source = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(&relative);
    let beside = std::env::current_exe()
        .ok()
        .and_then(|exe| exe.parent().map(|folder| folder.join(&relative)))
        .filter(|folder| folder.is_dir());
    beside.unwrap_or(source)
}
