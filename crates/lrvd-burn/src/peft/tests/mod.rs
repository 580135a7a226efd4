#![allow(clippy::unwrap_used)]

mod config;
mod folder;
mod posterior;
mod rules;

use super::*;
use crate::error::{Error, LoadReport};
use crate::files::HostTensor;

fn names(names: &[&str]) -> TargetModules {
    TargetModules::Names(names.iter().map(|&name| name.to_owned()).collect())
}

fn f32s(shape: &[usize], values: &[f32]) -> HostTensor {
    HostTensor::from_f32(shape, values).unwrap()
}

/// An adapter of these modules alone.
fn adapter(config: PeftConfig, modules: &[(&str, PeftModule)]) -> PeftAdapter {
    let modules = modules.iter().map(|(path, module)| ((*path).to_owned(), module.clone()));
    PeftAdapter {
        config,
        modules: modules.collect(),
        saved: [].into(),
        base: [].into(),
        ignored: Vec::new(),
    }
}

fn report(error: Error) -> LoadReport {
    match error {
        Error::Load(report) => *report,
        other => panic!("{other}"),
    }
}
