//! The strict check of an adapter against a model: what the configuration targets and what the file
//! holds must be the same.

use std::collections::{BTreeMap, BTreeSet};

use super::adapter::PeftAdapter;
use super::keys::{Factor, factor_key, saved_key};
use crate::error::Error;
use crate::files::LoadReport;

impl PeftAdapter {
    /// Compares the adapter with the linear layers of a model, given as path, input and output
    /// features.
    ///
    /// Missing are factors of a layer that the configuration targets; unexpected are factors of a
    /// path that is no such layer. Both would make PEFT leave a layer at its initial state without
    /// a word.
    pub fn check_against<S: AsRef<str>>(
        &self,
        layers: &[(S, usize, usize)],
    ) -> Result<LoadReport, Error> {
        let rules = self.config.rules()?;
        let mut report = LoadReport::new("adapter modules");
        let factors = self.config.method.factors();
        let name = |path: &str, factor| factor_key(&self.config.method, path, factor);
        let mut targeted = BTreeSet::new();
        for (path, d_input, d_output) in layers {
            let path = path.as_ref();
            if !rules.targets(path) || !targeted.insert(path) {
                continue;
            }
            let Some(module) = self.modules.get(path) else {
                report.missing.extend(factors.iter().map(|&factor| name(path, factor)));
                continue;
            };
            for (factor, tensor, expected) in [
                (Factor::A, &module.a, [module.rank, *d_input]),
                (Factor::B, &module.b, [*d_output, module.rank]),
            ] {
                report.check_shape(&name(path, factor), &expected, tensor.shape());
            }
            report.applied.extend(factors.iter().map(|&factor| name(path, factor)));
        }
        for path in self.modules.keys().filter(|path| !targeted.contains(path.as_str())) {
            report.unexpected.extend(factors.iter().map(|&factor| name(path, factor)));
        }
        report.into_result()
    }

    /// Compares the modules that are stored whole with the parameters of a model, given as name and
    /// shape.
    ///
    /// Every parameter in a module that PEFT stores whole must be there: a head that was trained
    /// and not saved is the commonest way to lose a classifier.
    pub fn check_saved<S: AsRef<str>, D: AsRef<[usize]>>(
        &self,
        parameters: &[(S, D)],
    ) -> Result<LoadReport, Error> {
        let mut report = LoadReport::new("adapter modules stored whole");
        let expected: BTreeMap<&str, &[usize]> =
            parameters.iter().map(|(name, shape)| (name.as_ref(), shape.as_ref())).collect();
        for (&name, &shape) in expected.iter().filter(|(name, _)| self.config.saves(name)) {
            let key = saved_key(name);
            match self.saved.get(name) {
                None => report.missing.push(key),
                Some(tensor) if report.check_shape(&key, shape, tensor.shape()) => {
                    report.applied.push(key);
                }
                Some(_) => {}
            }
        }
        let unknown = self.saved.keys().filter(|name| !expected.contains_key(name.as_str()));
        report.unexpected.extend(unknown.map(|name| saved_key(name)));
        report.into_result()
    }
}
