//! The kinds of folders, and who recomputes each.

use std::path::Path;

use super::{Comparison, EXPECTED, Folder, VerifyError, VerifyOptions, VerifyReport};
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
    let kind = folder.get("kind")?.text()?;
    let check: fn(&mut Comparison<'_>) -> Result<(), VerifyError> = match kind {
        "deberta_sequence_classification" => deberta::verify,
        "relative_position_buckets" => buckets::verify,
        "llama_causal_lm" => llama::verify,
        "peft_lora_llama" => llama::verify_peft,
        "peft_lora_deberta" => |comparison| peft::verify(comparison, false),
        "peft_adalora_deberta" => |comparison| peft::verify(comparison, true),
        "train_lora" => |comparison| train::verify(comparison, false),
        "train_adalora" => |comparison| train::verify(comparison, true),
        "bayes_forward" => bayes::verify_forward,
        "bayes_kl" => bayes::verify_divergence,
        "bayes_gauge" => bayes::verify_gauge,
        "bayes_energy" => bayes::verify_energy,
        "bayes_monte_carlo" => bayes::verify_monte_carlo,
        "calibration" => bayes::verify_calibration,
        "tokenizer" => return tokenizer::verify(folder, options),
        other => return Err(VerifyError::unsupported(format!("kind `{other}`"))),
    };
    let mut comparison = Comparison::open(folder, options)?;
    check(&mut comparison)?;
    comparison.finish()
}
