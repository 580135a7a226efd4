//! `lrvd methods` and `lrvd devices`

use lrvd_bench::method::MethodName;
use lrvd_burn::device::{self, DeviceReport};
use serde::Serialize;
use serde_json::json;

use super::Outcome;
use super::table::words;
use crate::exit::ExitStatus;
use crate::printer::Printer;
use crate::rows::Row;

/// A method as it is listed.
#[derive(Serialize)]
struct Listed {
    /// Name for `--method` and `--methods`.
    method: String,
    name: String,
    learns: &'static str,
    /// `true` if answers may be averaged over draws.
    draws: bool,
    /// `true` if `lrvd train` saves its adapter; `lrvd bench` has all methods.
    train: bool,
    /// `true` if it trains a language model on texts.
    texts: bool,
    summary: &'static str,
    source: &'static str,
}

impl Listed {
    fn new(method: MethodName) -> Self {
        let entry = method.entry();
        let can = method.can();
        Self {
            method: method.key(),
            name: method.name(),
            learns: method.learns(),
            draws: can.draws,
            train: can.saved,
            texts: method.is_for_language(),
            summary: entry.summary,
            source: entry.source,
        }
    }

    fn cells(&self) -> Vec<String> {
        let yes = |is: bool| if is { "yes" } else { "-" }.to_owned();
        let about = format!("{} ({})", self.summary, self.source);
        let [draws, train, texts] = [self.draws, self.train, self.texts].map(yes);
        vec![self.method.clone(), self.learns.to_owned(), draws, train, texts, about]
    }
}

/// Prints the table of methods.
pub(super) fn methods(printer: Printer) -> Outcome {
    let all: Vec<Listed> = MethodName::all().map(Listed::new).collect();
    let body = json!({ "methods": all });
    printer.report_rows(
        "methods",
        &body,
        |_| Row::each(&all),
        |_| {
            let header = ["method", "learns", "draws", "train", "texts", "summary"];
            words(&header, all.iter().map(Listed::cells).collect())
        },
    )?;
    Ok(ExitStatus::Done)
}

/// Prints the devices that can be used, and why others cannot.
pub(super) fn devices(printer: Printer) -> Outcome {
    let all = device::list();
    let body = json!({ "devices": all });
    printer.report_rows(
        "devices",
        &body,
        |_| Row::each(&all),
        |_| {
            let row = |found: &DeviceReport| {
                let usable = if found.usable { "yes" } else { "no" };
                let about = found.reason.as_ref().or(found.part.as_ref());
                let about = about.cloned().unwrap_or_else(|| "-".to_owned());
                vec![found.device.clone(), usable.to_owned(), about]
            };
            words(&["device", "usable", "part or reason"], all.iter().map(row).collect())
        },
    )?;
    Ok(ExitStatus::Done)
}
