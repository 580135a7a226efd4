//! Families of methods in print: twenty-five methods cannot have twenty-five colours, but six families can.

use super::names::match_key;
pub(crate) use crate::settings::Family;
use crate::settings::MethodName;

/// What stands behind a name for temperature scaling on top of a method.
const TEMPERED: &str = "+ts";

/// Beginnings of names that published tables give to methods, letters and digits only, in the order in
/// which they are tried where the registry has no such name.
const BEGINNINGS: [(&str, Family); 12] = [
    ("bayeslora", Family::LowRank),
    ("ens", Family::Ensemble),
    ("deepens", Family::Ensemble),
    ("batchens", Family::Ensemble),
    ("bayesbybackprop", Family::Variance),
    ("blob", Family::Variance),
    ("lap", Family::PostHoc),
    ("llla", Family::PostHoc),
    ("lla", Family::PostHoc),
    ("swag", Family::PostHoc),
    ("temperature", Family::PostHoc),
    ("mle", Family::Point),
];

impl Family {
    /// The family of a method, by its name in print.
    pub(crate) fn of(method: &str) -> Self {
        if method.to_lowercase().ends_with(TEMPERED) {
            return Self::PostHoc;
        }
        if let Some(known) = MethodName::from_name(method) {
            return known.entry().family;
        }
        let key = match_key(method);
        BEGINNINGS
            .iter()
            .find(|(beginning, _)| key.starts_with(beginning))
            .map_or(Self::Other, |(_, family)| *family)
    }

    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Point => "Point estimates",
            Self::Ensemble => "Ensembles and dropout",
            Self::Variance => "Learnt weight variances",
            Self::PostHoc => "Fitted around a trained adapter",
            Self::LowRank => "Low-rank variational dropout",
            Self::Other => "Others",
        }
    }

    pub(crate) fn colour(self) -> usize {
        match self {
            Self::Point => 0,
            Self::Ensemble => 3,
            Self::Variance => 1,
            Self::PostHoc => 4,
            Self::LowRank => 2,
            Self::Other => 5,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_find_their_family() {
        let cases = [
            ("LoRA", Family::Point),
            ("LoRA+TS", Family::PostHoc),
            ("LoRA-Ensemble", Family::Ensemble),
            ("ENS-10", Family::Ensemble),
            ("C-LoRA", Family::Variance),
            ("SWAG-LoRA", Family::PostHoc),
            ("BayesLoRA expanded", Family::LowRank),
            ("<b>", Family::Other),
            ("", Family::Other),
        ];
        for (name, family) in cases {
            assert_eq!(Family::of(name), family, "{name}");
        }
    }
}
