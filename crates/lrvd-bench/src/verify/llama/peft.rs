//! A PEFT adapter on a language model: logits, answers, gradients, merged weights.

use lrvd_burn::peft::{PeftAdapter, attach_peft};
use lrvd_burn::sampling::Pass;

use super::Base;
use super::batch::Batch;
use super::model::at_tokens;
use crate::verify::compare::Comparison;
use crate::verify::deberta::{check_scalars, note_unknown};
use crate::verify::error::VerifyError;
use crate::verify::folder::Folder;
use crate::verify::model::host;
use crate::verify::peft::{NO_CHANGE, check_gradients, check_merged, check_method, check_modules};
use crate::verify::report::{VerifyOptions, VerifyReport};

pub(in crate::verify) fn verify(
    folder: &Folder,
    options: &VerifyOptions<'_>,
) -> Result<VerifyReport, VerifyError> {
    let mut comparison = Comparison::open(folder, options.precision)?;
    comparison.check_complete()?;
    comparison.require("logits")?;
    let adapter = PeftAdapter::read(folder.dir.join("adapter"))?;
    check_method(folder, &adapter, false)?;
    let Base { config, mut model, device, dtype, .. } =
        Base::load(&folder.dir.join("base"), options)?;
    let batch = Batch::read(&folder.dir, &config)?;
    batch.check_description(&mut comparison)?;
    note_unknown(&mut comparison, config.unrecognised());
    let (input, pass) = (batch.upload(&device, dtype), Pass::mean());

    let base_logits = model.forward(&input, &pass);
    let width = config.vocab_size;
    if comparison.has("base_logits") {
        // Most folders state no tolerance for it; it is the same computation as `logits`.
        let limit = folder
            .tolerance("base_logits", options.precision)
            .or_else(|_| folder.tolerance("logits", options.precision))?;
        let real = |index| batch.real_entry(index, width);
        comparison.tensor_where("base_logits", &host(base_logits.clone()), limit, real)?;
    }
    attach_peft(&mut model, &adapter, true)?;
    let logits = model.forward(&input, &pass);
    at_tokens(&mut comparison, "logits", &logits, &batch)?;
    if let Some(entry) = folder.find("adapter_changes_logits_by") {
        let (base, adapted) = (host(base_logits).values, host(logits).values);
        let pairs = base.iter().zip(&adapted).enumerate();
        let change = pairs
            .filter(|(index, _)| batch.real_entry(*index, width))
            .map(|(_, (base, adapted))| (base - adapted).abs());
        comparison.rounded(&entry, change.fold(0.0, f64::max), NO_CHANGE)?;
    }
    let mut found = Vec::new();
    let mut loss = None;
    if !batch.answers.is_empty() {
        let answers = model.answer_logits(&input, &batch.answers, &pass);
        loss = batch.answer_loss(&answers);
        found.push(("answer_logits", host(answers)));
        found.extend(loss.clone().map(|loss| ("loss", host(loss))));
    }
    for (name, values) in &found {
        if comparison.has(name) {
            comparison.tolerated(name, values)?;
        }
    }
    check_scalars(&mut comparison, &found)?;
    check_modules(&mut comparison, &adapter)?;
    check_merged(&mut comparison, &model, &adapter)?;
    check_gradients(&mut comparison, &model, &adapter, loss, None)?;
    comparison.finish()
}
