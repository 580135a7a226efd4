//! Which methods are of a kind? Twenty-five methods cannot have twenty-five colours, but six families can.

use super::names::match_key;

/// What stands behind a name for temperature scaling on top of a method.
const TEMPERED: &str = "+ts";

/// Beginnings of method names, letters and digits only, in the order in which they are tried.
const BEGINNINGS: [(&str, Family); 23] = [
    ("bayeslora", Family::LowRank),
    ("lrvd", Family::LowRank),
    ("loraens", Family::Ensemble),
    ("ens", Family::Ensemble),
    ("deepens", Family::Ensemble),
    ("batchens", Family::Ensemble),
    ("mcd", Family::Ensemble),
    ("bbb", Family::Variance),
    ("bayesbybackprop", Family::Variance),
    ("blob", Family::Variance),
    ("scalabl", Family::Variance),
    ("clora", Family::Variance),
    ("lap", Family::PostHoc),
    ("llla", Family::PostHoc),
    ("lla", Family::PostHoc),
    ("swag", Family::PostHoc),
    ("multiswag", Family::PostHoc),
    ("tfb", Family::PostHoc),
    ("temperature", Family::PostHoc),
    ("lora", Family::Point),
    ("adalora", Family::Point),
    ("map", Family::Point),
    ("mle", Family::Point),
];

/// What a method does about not knowing its weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Family {
    /// One set of weights.
    Point,
    /// Several sets of weights, or several thinnings of one.
    Ensemble,
    /// A distribution over weights, learnt with them.
    Variance,
    /// Something fitted around weights that are already trained.
    PostHoc,
    /// Low-rank variational dropout: a distribution over rank directions.
    LowRank,
    /// A name that is not known here.
    Other,
}

impl Family {
    /// The family of a method, by its name in print.
    pub(crate) fn of(method: &str) -> Self {
        if method.to_lowercase().ends_with(TEMPERED) {
            return Self::PostHoc;
        }
        let key = match_key(method);
        BEGINNINGS
            .iter()
            .find(|(beginning, _)| key.starts_with(beginning))
            .map_or(Self::Other, |(_, family)| *family)
    }

    /// The heading in print.
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

    /// Colour of the style sheet.
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
    use crate::method::MethodName;

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

    /// A new method of the registry that lands here needs its beginning in the list above.
    #[test]
    fn no_registered_method_is_without_a_family() {
        for method in MethodName::all().chain(MethodName::all().map(MethodName::tempered)) {
            assert_ne!(Family::of(&method.name()), Family::Other, "{method}");
        }
    }
}
