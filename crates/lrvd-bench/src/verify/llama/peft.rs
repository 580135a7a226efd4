//! A PEFT adapter on a language model: logits, answers, gradients, merged weights.

use lrvd_burn::peft::{PeftAdapter, attach_peft};
use lrvd_burn::sampling::Pass;

use super::Base;
use super::batch::Batch;
use super::model::at_tokens;
use crate::verify::model::host;
use crate::verify::peft::{NO_CHANGE, base_limit, check_adapter, check_method};
use crate::verify::{Comparison, VerifyError};

pub(in crate::verify) fn verify(comparison: &mut Comparison<'_>) -> Result<(), VerifyError> {
    let folder = comparison.folder;
    comparison.check_model()?;
    let adapter = PeftAdapter::read(folder.dir.join("adapter"))?;
    check_method(folder, &adapter, false)?;
    let Base { config, mut model, device, dtype, .. } =
        Base::load(&folder.dir.join("base"), comparison.options)?;
    let batch = Batch::read(&folder.dir, &config)?;
    batch.check_description(comparison)?;
    comparison.note_unread(config.unrecognised());
    let (input, pass) = (batch.upload(&device, dtype), Pass::mean());

    let base_logits = model.forward(&input, &pass);
    let width = config.vocab_size;
    if comparison.has("base_logits") {
        let limit = base_limit(folder, comparison.precision)?;
        let real = |index| batch.real_entry(index, width);
        comparison.tensor_where("base_logits", &host(base_logits.clone()), limit, real)?;
    }
    attach_peft(&mut model, &adapter, true)?;
    let logits = model.forward(&input, &pass);
    at_tokens(comparison, "logits", &logits, &batch)?;
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
    comparison.found(&found)?;
    check_adapter(comparison, &model, &adapter, loss, None)
}
