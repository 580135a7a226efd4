//! A saved classifier that is asked.

use lrvd_bench::Result;
use lrvd_bench::adapter::SavedClassifier;
use lrvd_bench::data::Input;

use super::answer::Found;
use super::card::{ClassifierCard, Drawn};
use crate::serve::routes::Limits;
use crate::serve::served::Model;

/// A classifier, with what requests get that name no draws and no seed.
pub(crate) struct Classifier {
    saved: SavedClassifier,
    drawn: Drawn,
    limit: Option<f64>,
}

impl Classifier {
    /// Withholds answers above the entropy `limit` in place of the classifier's own, and reads at most `batch_size`
    /// texts in one pass.
    pub(crate) fn new(
        mut saved: SavedClassifier,
        draws: usize,
        seed: u64,
        limit: Option<f64>,
        batch_size: usize,
    ) -> Self {
        // One call is one pass.
        saved.info.run.batch_size = batch_size;
        Self { saved, drawn: Drawn { draws, seed }, limit }
    }
}

impl Model for Classifier {
    type Card = ClassifierCard;

    fn card(&self, limits: &Limits) -> Result<ClassifierCard> {
        Ok(ClassifierCard::new(&self.saved, self.drawn, self.limit, limits))
    }

    fn first(&self) -> (Input, Drawn) {
        let info = &self.saved.info;
        let pair = (info.pairs == Some(true)).then(|| "second".to_owned());
        let choices =
            if info.has_choices() { vec!["one".to_owned(), "other".to_owned()] } else { vec![] };
        (Input { pair, choices, ..Input::text("first") }, self.drawn)
    }

    fn is_shared(&self, key: Drawn) -> bool {
        self.saved.is_batch_free(key.draws)
    }

    fn answer(
        &self,
        inputs: &[Input],
        key: Drawn,
        _go_on: &mut dyn FnMut(usize) -> bool,
    ) -> Result<Vec<Found>> {
        let found = self.saved.predict(inputs, key.draws, key.seed, 0)?;
        let beside =
            |(prediction, input): (_, &Input)| Found { prediction, choices: input.choices.clone() };
        Ok(found.into_iter().zip(inputs).map(beside).collect())
    }
}
