//! `lrvd serve`

use std::time::Duration;

use lrvd_bench::classify::ClassifyError;

use super::Outcome;
use super::eval::load;
use super::predict::check_limit;
use crate::args::ServeArguments;
use crate::exit::ExitStatus;
use crate::printer::{Format, Printer};
use crate::serve::{Limits, Server};
use crate::signals;

/// Listens, loads, answers until a signal.
pub(super) fn run(arguments: ServeArguments, printer: Printer) -> Outcome {
    // First of all: nothing is loaded for a port that is taken.
    let stop = signals::stop_flag()?;
    let limits = Limits {
        batch_size: arguments.batch_size,
        max_draws: arguments.max_draws,
        max_texts: arguments.max_texts,
        max_bytes: arguments.max_bytes,
        queue: arguments.queue,
        timeout: Duration::from_secs(arguments.timeout as u64),
    };
    let server = Server::open(arguments.address, limits)?;
    let classifier = load(&arguments.classifier)?;
    if classifier.info.has_choices() {
        let (dir, what) = (arguments.classifier.dir, "requests have no place for choices");
        return Err(ClassifyError::OfChoices { dir, what }.into());
    }
    check_limit(&classifier, arguments.abstain_above)?;
    let draws = classifier.draws(arguments.classifier.draws)?;
    if arguments.abstain_above.is_none() {
        classifier.abstention(draws)?;
    }
    let seed = arguments.classifier.seed.unwrap_or(classifier.info.seed);
    let address = format!("http://{}", server.address());
    let started = || {
        printer.data(&match printer.format() {
            Format::Text => address,
            Format::Json => {
                serde_json::json!({ "schema_version": 1, "address": address }).to_string()
            }
        })?;
        Ok(())
    };
    server.run::<Box<dyn std::error::Error>>(
        classifier,
        (draws, seed),
        arguments.abstain_above,
        stop,
        printer,
        started,
    )?;
    Ok(ExitStatus::Done)
}
