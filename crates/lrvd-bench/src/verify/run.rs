//! The kinds of folders, and who recomputes each.

use std::path::Path;

use super::error::VerifyError;
use super::folder::{EXPECTED, Folder};
use super::report::{VerifyOptions, VerifyReport};
use super::{bayes, buckets, checkpoint, deberta, llama, peft, tokenizer, train};

/// Recomputes the folder `dir` and compares.
///
/// A fixture has an `expected.json`, whose `kind` says what is recomputed. A folder without one is
/// a checkpoint (`config.json`) or an adapter (`adapter_config.json`): it is read in full, checked
/// for values that are not finite, and run on a small built-in input.
///
/// # Errors
///
/// [`VerifyError::Unsupported`] for a kind, key or value that is not there; any other
/// [`VerifyError`] for a folder that is broken or contradicts itself, naming the file and the
/// entry or tensor. A recorded value that differs is no error: its check does not hold.
pub fn verify(dir: &Path, options: VerifyOptions<'_>) -> Result<VerifyReport, VerifyError> {
    let options = &options;
    if !dir.join(EXPECTED).is_file() {
        return if llama::is_llama(dir) {
            llama::verify_checkpoint(dir, options)
        } else if dir.join("config.json").is_file() {
            checkpoint::verify_model(dir, options)
        } else if dir.join("adapter_config.json").is_file() {
            checkpoint::verify_adapter(dir, options)
        } else {
            Err(VerifyError::Nothing { dir: dir.to_path_buf() })
        };
    }
    let folder = &Folder::open(dir)?;
    match folder.get("kind")?.text()? {
        "deberta_sequence_classification" => deberta::verify(folder, options),
        "relative_position_buckets" => buckets::verify(folder, options),
        "llama_causal_lm" => llama::verify(folder, options),
        "peft_lora_llama" => llama::verify_peft(folder, options),
        "peft_lora_deberta" => peft::verify(folder, options, false),
        "peft_adalora_deberta" => peft::verify(folder, options, true),
        "train_lora" => train::verify(folder, options, false),
        "train_adalora" => train::verify(folder, options, true),
        "bayes_forward" => bayes::verify_forward(folder, options),
        "bayes_kl" => bayes::verify_divergence(folder, options),
        "bayes_gauge" => bayes::verify_gauge(folder, options),
        "bayes_energy" => bayes::verify_energy(folder, options),
        "bayes_monte_carlo" => bayes::verify_monte_carlo(folder, options),
        "calibration" => bayes::verify_calibration(folder, options),
        "tokenizer" => tokenizer::verify(folder, options),
        other => Err(VerifyError::unsupported(format!("kind `{other}`"))),
    }
}
