//! Phrases of the lexicon, and what a grammar makes of them.

use super::lexicon::LEXICON;
use super::morphology::{Noun, Verb};
use crate::data::generator::Generator;

/// An example before label noise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Draft {
    pub(super) text_a: String,
    pub(super) text_b: Option<String>,
    pub(super) class: usize,
}

impl Generator {
    /// Two different persons, each `the [adjective] noun`, in the singular.
    pub(super) fn two_persons(&mut self) -> [String; 2] {
        let [first, second] = self.distinct(&LEXICON.persons);
        let [old, young] = self.distinct(&LEXICON.epithets);
        [self.described(first, old), self.described(second, young)]
    }

    /// `the noun`, or in four of ten cases `the adjective noun`.
    fn described(&mut self, noun: &Noun, epithet: &str) -> String {
        if self.draws.chance(0.4) {
            format!("the {epithet} {}", noun.one)
        } else {
            format!("the {}", noun.one)
        }
    }

    /// A verb without an object.
    pub(super) fn act(&mut self) -> &'static Verb {
        let [verb] = self.distinct(&LEXICON.acts);
        verb
    }

    /// A verb between two persons.
    pub(super) fn deed(&mut self) -> &'static Verb {
        let [verb] = self.distinct(&LEXICON.deeds);
        verb
    }
}
