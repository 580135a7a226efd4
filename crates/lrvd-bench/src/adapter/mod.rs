//! Trained adapters: what is in their folder, where they are found, what they answer.

mod abstain;
mod calibrate;
mod certify;
mod compare;
mod decide;
mod description;
mod encoder_only;
mod evaluate;
mod hashes;
mod inspect;
mod keep;
mod language;
mod ood;
mod open;
mod prune;
mod saved;
mod seen;
mod sets;
mod wrong;

pub use abstain::{Abstaining, JudgedAnswer, Reason, Withheld};
pub use calibrate::{QuestionMetrics, fit_decisions};
pub use certify::fit_abstention;
pub use compare::{ComparedModel, compare_models};
pub use decide::Decided;
pub use description::{
    Abstention, BaseInfo, Calibration, Certificate, Description, FittedTo, RiskTarget, RunInfo,
    Threshold,
};
pub use evaluate::{AskedRows, Evaluation, InputRow, Inputs, evaluate, read_inputs, stream_inputs};
pub use hashes::FileHashes;
pub(crate) use inspect::low_scale;
pub use inspect::{
    AdapterReport, BaseReport, LoraConfig, ModelCheck, ModuleReport, check_model, inspect_adapter,
    inspect_base, is_base,
};
pub(crate) use keep::{Kept, keep};
pub use language::{
    Continuation, ContinuedToken, Generation, NEW_TOKENS, Prompt, SavedLanguageModel, ScoredToken,
};
pub use ood::{OUTSIDE, Oddness, OodDetector, OodReport, OodRow, OodScore, fit_ood};
pub(crate) use open::CARD_FILE;
pub use open::{Adapter, AdapterFiles, Base, OpenOptions, named_at};
pub use prune::{PairedMeasure, Pruned, PrunedModule};
pub(crate) use saved::no_head;
pub use saved::{AbstainBy, RowAnswer, SavedClassifier};
pub use seen::{RowUse, SeenRows};
pub use sets::LabelSets;
pub(crate) use wrong::suspects;
pub use wrong::{Suspects, Wrong, WrongRow};

const PEFT_CONFIG: &str = "adapter_config.json";
/// Classifier of an adapter of an encoder alone, under its names in the whole model.
pub(crate) const HEAD_FILE: &str = "lrvd_head.safetensors";
