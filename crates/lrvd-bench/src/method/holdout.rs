//! Rows that a run keeps out of training: how many, and what is fitted to them.

use lrvd_burn::train::MIN_HELD_OUT;

use super::MethodName;
use crate::data::PreparedTask;
use crate::data::batch::TokenisedExample;
use crate::settings::{Config, holdout_share};

/// Rows that something is fitted to after training.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FittedRows {
    /// Nothing is fitted. Rows that were held out choose ranks.
    #[default]
    None,
    /// Those that were held out.
    Holdout,
    /// Those of the validation split. Rows that were held out choose ranks alone.
    Validation,
}

impl FittedRows {
    /// Those rows of `task`. A fit that reads no rows gets the held-out ones.
    pub(crate) fn of(self, task: &PreparedTask) -> &[TokenisedExample] {
        match self {
            Self::Validation => &task.validation,
            Self::Holdout | Self::None => &task.holdout,
        }
    }
}

/// Share of the training rows that is held out, drawn by class and by the seed of the run, and the rows of the fit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Holdout {
    pub share: f64,
    pub fitted: FittedRows,
}

impl Holdout {
    /// Holdout of a run with `method` on `rows` training rows.
    ///
    /// The setting `holdout`, where it is not 0. Otherwise what a method needs: Laplace's prior its setting, a
    /// temperature and a search for ranks [`holdout_share`]. A temperature alone is fitted to the validation rows where these
    /// were drawn from the training file (`drawn_validation`) and the model is not chosen by them (`checkpoint`, `patience`).
    /// Rows that choose ranks then fit nothing, and none are held out for that if they would be too few
    /// ([`MIN_HELD_OUT`]). Scores have no temperature.
    pub fn new(
        method: MethodName,
        config: &Config,
        rows: usize,
        drawn_validation: bool,
        is_regression: bool,
    ) -> Self {
        let own = (method.can().holdout)(config);
        let tempered = method.is_tempered() && !is_regression;
        let is_enough = holdout_share(rows) * rows as f64 >= MIN_HELD_OUT as f64;
        let searches = is_enough && method.search(config).is_some();
        let usual = |is_needed: bool| if is_needed { holdout_share(rows) } else { 0.0 };
        if config.holdout > 0.0 {
            Self { share: config.holdout, fitted: FittedRows::Holdout }
        } else if own > 0.0 {
            Self { share: own.max(usual(tempered)), fitted: FittedRows::Holdout }
        } else if tempered && drawn_validation && !config.chooses_model() {
            Self { share: usual(searches), fitted: FittedRows::Validation }
        } else if tempered {
            Self { share: usual(true), fitted: FittedRows::Holdout }
        } else {
            Self { share: usual(searches), fitted: FittedRows::None }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::{CheckpointChoice, Preset};

    #[test]
    fn one_tenth_serves_where_nothing_else_is_chosen_by_it() {
        let default = Preset::Default.config();
        let of = |name: &str, config: &Config, drawn: bool, is_regression: bool| {
            let method = MethodName::from_name(name).unwrap();
            let Holdout { share, fitted } =
                Holdout::new(method, config, 1000, drawn, is_regression);
            (share, fitted)
        };
        let drawn = |name: &str, config: &Config| of(name, config, true, false);
        let (none, holdout, validation) =
            (FittedRows::None, FittedRows::Holdout, FittedRows::Validation);
        assert_eq!(drawn("lora", &default), (0.0, none));
        assert_eq!(drawn("lora+ts", &default), (0.0, validation));
        // Validation rows of a separate file, and of a suite, are not fitted to.
        assert_eq!(of("lora+ts", &default, false, false), (0.1, holdout));
        assert_eq!(of("lora+ts", &default, true, true), (0.0, none));
        // Ranks are chosen by a tenth.
        assert_eq!(drawn("bayeslora", &default), (0.1, none));
        assert_eq!(drawn("bayeslora+ts", &default), (0.1, validation));
        assert_eq!(of("bayeslora+ts", &default, false, false), (0.1, holdout));
        // Rows that chose the model do not fit its temperature.
        let patient = Config { patience: Some(2), ..default.clone() };
        let best = Config { checkpoint: CheckpointChoice::Best, ..default.clone() };
        for config in [patient, best] {
            assert_eq!(drawn("lora+ts", &config), (0.1, holdout));
        }
        // Too few rows choose nothing, and are trained on.
        let few = Holdout::new(MethodName::BAYES_LORA, &default, 990, true, false);
        assert_eq!((few.share, few.fitted), (0.0, none));
        let given = Config { holdout: 0.3, ..default.clone() };
        assert_eq!(drawn("lora+ts", &given), (0.3, holdout));
        assert_eq!(drawn("lora", &given), (0.3, holdout));
        // At most 5000 rows.
        let lora = MethodName::LORA.tempered();
        let many = Holdout::new(lora, &default, 1_000_000, false, false);
        assert_eq!((many.share * 1e6).round(), 5000.0);
    }
}
