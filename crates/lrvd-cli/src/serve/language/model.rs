//! A saved language model that is asked.

use lrvd_bench::Result;
use lrvd_bench::adapter::{Continuation, Generation, SavedLanguageModel};
use lrvd_bench::data::Content;

use super::card::LanguageCard;
use crate::serve::routes::Limits;
use crate::serve::served::Model;

/// A language model, with what requests get that name no draws and no seed.
pub(crate) struct LanguageModel {
    pub(super) model: SavedLanguageModel,
    pub(super) draws: usize,
    pub(super) seed: u64,
}

impl LanguageModel {
    /// Continues texts by `model`.
    pub(crate) fn new(model: SavedLanguageModel, draws: usize, seed: u64) -> Self {
        Self { model, draws, seed }
    }
}

impl Model for LanguageModel {
    type Card = LanguageCard;

    fn card(&self, limits: &Limits) -> Result<LanguageCard> {
        LanguageCard::new(self, limits)
    }

    fn first(&self) -> (Content, Generation) {
        let prompt = Content::Text { prompt: "first".to_owned(), completion: None };
        let Self { draws, seed, .. } = *self;
        (prompt, Generation { max_tokens: 1, draws, seed, sampling: None })
    }

    fn is_shared(&self, _: Generation) -> bool {
        // A text is then the one of `lrvd generate`, to the bit, and does not wait for the longest of several.
        false
    }

    fn answer(
        &self,
        inputs: &[Content],
        key: Generation,
        go_on: &mut dyn FnMut(usize) -> bool,
    ) -> Result<Vec<Continuation>> {
        self.model.generate_while(inputs, 0, &key, go_on)
    }
}
