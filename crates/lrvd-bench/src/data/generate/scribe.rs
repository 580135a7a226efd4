//! Draws words; what every grammar writes with.

use lrvd_core::noise::Draws;

use super::lexicon::LEXICON;
use super::morphology::{Noun, Verb};
use crate::data::Label;

/// An example before label noise.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Draft {
    pub(super) text_a: String,
    pub(super) text_b: Option<String>,
    pub(super) label: Label,
}

impl Draft {
    pub(super) fn single(text: String, class: usize) -> Self {
        Self { text_a: text, text_b: None, label: Label::Class(class) }
    }

    pub(super) fn pair(text_a: String, text_b: String, label: Label) -> Self {
        Self { text_a, text_b: Some(text_b), label }
    }
}

/// A source of words.
#[derive(Debug)]
pub(super) struct Scribe {
    pub(super) draws: Draws,
}

impl Scribe {
    /// True in half of all cases.
    pub(super) fn coin(&mut self) -> bool {
        self.draws.chance(0.5)
    }

    /// One of `items`; the grammars hold no empty list.
    pub(super) fn of<T: Copy + Default>(&mut self, items: &[T]) -> T {
        self.draws.pick(items).copied().unwrap_or_default()
    }

    /// An index, with these relative frequencies.
    pub(super) fn weighted(&mut self, weights: &[usize]) -> usize {
        let mut left = self.draws.index(weights.iter().sum());
        for (index, weight) in weights.iter().enumerate() {
            if left < *weight {
                return index;
            }
            left -= weight;
        }
        0
    }

    /// Elements at `N` different places of `items`, which holds at least that many.
    pub(super) fn distinct<'a, T, const N: usize>(&mut self, items: &'a [T]) -> [&'a T; N] {
        let mut taken = [usize::MAX; N];
        for i in 0..N {
            let mut index = self.draws.index(items.len());
            while taken[..i].contains(&index) {
                index = self.draws.index(items.len());
            }
            taken[i] = index;
        }
        taken.map(|index| &items[index])
    }

    /// A thing or an animal.
    pub(super) fn object(&mut self) -> &'static Noun {
        let list = if self.draws.chance(0.7) { &LEXICON.things } else { &LEXICON.animals };
        let [noun] = self.distinct(list);
        noun
    }

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
