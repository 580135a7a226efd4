//! Rows that a run keeps out of training: how many, what is fitted to them, and what their evaluation takes.

use lrvd_burn::train::MIN_HELD_OUT;

use super::MethodName;
use crate::answers::AnswerSpace;
use crate::data::PreparedTask;
use crate::data::batch::TokenisedExample;
use crate::settings::{Config, holdout_share};

/// Rows that something is fitted to after training.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FittedRows {
    /// Nothing is fitted. Rows that were held out choose ranks.
    #[default]
    None,
    /// Rows that were held out.
    Holdout,
    /// Rows of the validation split. Held-out rows choose ranks alone.
    Validation,
}

impl FittedRows {
    /// These rows of `task`. A fit that reads no rows gets the held-out ones.
    pub(crate) fn of(self, task: &PreparedTask) -> &[TokenisedExample] {
        match self {
            Self::Validation => &task.validation,
            Self::Holdout | Self::None => &task.holdout,
        }
    }

    /// Rows of `task` that neither trained nor chose the model of a run with `method`, whose fits read the rows `fitted`; they may
    /// have fitted its temperature. The validation rows, or where these choose the model those that were held out for the
    /// temperature alone.
    pub(crate) fn fresh(
        method: MethodName,
        config: &Config,
        fitted: Self,
        task: &PreparedTask,
    ) -> Self {
        let holdout_is_fresh = fitted == Self::Holdout && !method.chooses_by_holdout(config);
        if !config.chooses_model() {
            if task.validation.is_empty() { Self::None } else { Self::Validation }
        } else if holdout_is_fresh && !task.holdout.is_empty() {
            Self::Holdout
        } else {
            Self::None
        }
    }
}

impl MethodName {
    /// `true` if held-out rows choose ranks or a prior.
    pub(crate) fn chooses_by_holdout(self, config: &Config) -> bool {
        self.search(config).is_some() || (self.can().holdout)(config) > 0.0
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
        answers: &AnswerSpace,
    ) -> Self {
        let own = (method.can().holdout)(config);
        let tempered = method.is_tempered() && *answers != AnswerSpace::Score;
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

impl Holdout {
    /// `true` if the validation rows may also choose the model that is kept: nothing is fitted to them (a temperature, the
    /// intervals of numbers, the thresholds of labels), and all models of the run have the same ranks and noise.
    pub(crate) fn leaves_choice(self, method: MethodName, answers: &AnswerSpace) -> bool {
        let can = method.can();
        let fits = matches!(answers, AnswerSpace::Score | AnswerSpace::Labels { .. });
        let is_free = match self.fitted {
            FittedRows::Holdout => true,
            FittedRows::None => !fits,
            FittedRows::Validation => false,
        };
        // A fit behind the training, but for the temperature, is to the last model.
        is_free && can.saved && can.steps && !can.prunes && !can.budget
    }
}

/// Costs of the evaluations of a run, in forward passes of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EvaluationWork {
    /// Of all steps: forward, and backward as twice that.
    steps: usize,
    /// Of the evaluations of one validation row: at the start and every `evaluate_every` steps; at the end at the mean and at
    /// every draw, and again for the best model and for a temperature.
    row: usize,
}

impl EvaluationWork {
    /// Fewest rows that are left by default, of rows that were drawn from the training file and of a file's own: by 1,000
    /// rows an accuracy has a standard error of at most .016.
    const FEWEST: [usize; 2] = [1_000, 10_000];

    pub(crate) fn new(method: MethodName, config: &Config) -> Self {
        let answers = 1 + method.draws(config).iter().sum::<usize>();
        let models = 1 + usize::from(config.chooses_model());
        let fits = 1 + usize::from(method.is_tempered());
        let evaluations = 1 + config.steps.div_ceil(config.evaluate_every);
        let steps = 3 * config.steps.saturating_mul(config.batch_size);
        Self { steps, row: evaluations + answers * models * fits }
    }

    /// Share of the run that evaluations of so many rows take.
    pub(crate) fn share(self, rows: usize) -> f64 {
        let evaluations = (rows * self.row) as f64;
        evaluations / (evaluations + self.steps as f64)
    }

    /// Share of the run that one more forward pass of so many rows takes, beside evaluations of `evaluated` rows.
    pub(crate) fn share_of_pass(self, rows: usize, evaluated: usize) -> f64 {
        let others = (self.steps + evaluated * self.row) as f64;
        rows as f64 / (rows as f64 + others)
    }

    /// Most rows that one more forward pass takes a tenth of the run with, beside evaluations of `evaluated` rows, though not
    /// fewer than 1,000.
    pub(crate) fn rows_of_pass(self, evaluated: usize) -> usize {
        ((self.steps + evaluated * self.row) / 9).max(Self::FEWEST[0])
    }

    /// Most rows whose evaluations take a tenth of the run, though not fewer than [`FEWEST`](Self::FEWEST).
    pub(crate) fn rows(self, drawn_validation: bool) -> usize {
        let [drawn, own] = Self::FEWEST;
        (self.steps / (9 * self.row)).max(if drawn_validation { drawn } else { own })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::{CheckpointChoice, Preset};

    #[test]
    fn one_tenth_serves_where_nothing_else_is_chosen_by_it() {
        let default = Preset::Default.config();
        let classes = AnswerSpace::Classes { names: ["a", "b"].map(str::to_owned).to_vec() };
        let of = |name: &str, config: &Config, drawn: bool, is_regression: bool| {
            let method = MethodName::from_name(name).unwrap();
            let answers = if is_regression { &AnswerSpace::Score } else { &classes };
            let Holdout { share, fitted } = Holdout::new(method, config, 1000, drawn, answers);
            (share, fitted)
        };
        let drawn = |name: &str, config: &Config| of(name, config, true, false);
        let none = FittedRows::None;
        let holdout = FittedRows::Holdout;
        let validation = FittedRows::Validation;
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
        // The best model is kept where that takes no rows from anything.
        let leaves = |name: &str, config: &Config, drawn: bool, answers: &AnswerSpace| {
            let method = MethodName::from_name(name).unwrap();
            Holdout::new(method, config, 1000, drawn, answers).leaves_choice(method, answers)
        };
        let held = Config { holdout: 0.1, ..default.clone() };
        assert!(leaves("lora+ts", &default, false, &classes));
        assert!(leaves("lora", &default, true, &classes));
        assert!(leaves("lora", &default, true, &AnswerSpace::Tokens));
        assert!(leaves("lora+ts", &held, true, &classes));
        assert!(leaves("lora", &held, true, &AnswerSpace::Score));
        assert!(!leaves("lora+ts", &default, true, &classes));
        assert!(!leaves("lora", &default, false, &AnswerSpace::Score));
        assert!(!leaves("bayeslora", &default, false, &classes));
        // Too few rows choose nothing, and are trained on.
        let few = Holdout::new(MethodName::BAYES_LORA, &default, 990, true, &classes);
        assert_eq!((few.share, few.fitted), (0.0, none));
        let given = Config { holdout: 0.3, ..default.clone() };
        assert_eq!(drawn("lora+ts", &given), (0.3, holdout));
        assert_eq!(drawn("lora", &given), (0.3, holdout));
        // At most 5000 rows.
        let lora = MethodName::LORA.tempered();
        let many = Holdout::new(lora, &default, 1_000_000, false, &classes);
        assert_eq!((many.share * 1e6).round(), 5000.0);
    }

    #[test]
    fn rows_that_chose_nothing_are_those_of_validation_or_else_of_the_temperature() {
        let row = || vec![TokenisedExample::single(vec![1], crate::data::Label::Class(0))];
        let goal = crate::task::Goal::classification("c", vec!["a".to_owned(), "b".to_owned()]);
        let empty = PreparedTask::without_examples(goal);
        let task = PreparedTask { validation: row(), holdout: row(), ..empty.clone() };
        let last = Preset::Default.config();
        let best = Config { checkpoint: CheckpointChoice::Best, ..last.clone() };
        let of = |name: &str, config: &Config, fitted, task: &PreparedTask| {
            FittedRows::fresh(MethodName::from_name(name).unwrap(), config, fitted, task)
        };
        let (held, validation) = (FittedRows::Holdout, FittedRows::Validation);
        assert_eq!(of("lora+ts", &last, validation, &task), validation);
        assert_eq!(of("lora+ts", &best, held, &task), held);
        assert_eq!(of("bayeslora+ts", &last, held, &task), validation);
        // The held-out rows chose the ranks, or were held out for nothing that says what they did.
        assert_eq!(of("bayeslora+ts", &best, held, &task), FittedRows::None);
        assert_eq!(of("lora", &best, FittedRows::None, &task), FittedRows::None);
        assert_eq!(of("lora+ts", &last, validation, &empty), FittedRows::None);
        assert_eq!(of("lora+ts", &best, held, &empty), FittedRows::None);
    }

    /// 270,000 of 300,000 rows in batches of 32: one epoch, and 20 steps.
    #[test]
    fn evaluations_take_a_tenth_of_a_run_unless_that_leaves_too_few_rows() {
        let of = |name: &str, steps| {
            let evaluate_every = crate::settings::evaluate_every(steps);
            let config = Config { steps, evaluate_every, ..Preset::Default.config() };
            EvaluationWork::new(MethodName::from_name(name).unwrap(), &config)
        };
        // 3·32·8,438 passes; 12 evaluations with those at the ends, then the mean for answers and temperature.
        let epoch = of("lora+ts", 8_438);
        assert_eq!(epoch, EvaluationWork { steps: 810_048, row: 14 });
        assert_eq!((epoch.rows(true), epoch.rows(false)), (6_428, 10_000));
        assert!(epoch.share(6_428) <= 0.1 && epoch.share(6_429) > 0.1);
        assert_eq!((epoch.share(30_000) * 100.0).round(), 34.0);
        // Ten draws beside the mean, twice.
        assert_eq!(of("bayeslora+ts", 8_438).row, 34);
        assert_eq!(of("lora", 20), EvaluationWork { steps: 1_920, row: 12 });
        assert_eq!((of("lora", 20).rows(true), of("lora", 20).rows(false)), (1_000, 10_000));
    }
}
