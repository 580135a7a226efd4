//! Draws of words; what every grammar tells its stories with.

use lrvd_core::noise::Draws;

use super::words::CHILDREN;
use crate::reasoning::{Choice, ChoiceItem, LETTERS};

/// A source of words.
#[derive(Debug)]
pub(super) struct Teller {
    pub(super) draws: Draws,
}

impl Teller {
    /// True in half of all cases.
    pub(super) fn coin(&mut self) -> bool {
        self.draws.chance(0.5)
    }

    /// One of `items`; the grammars hold no empty list.
    pub(super) fn of<T: Copy + Default>(&mut self, items: &[T]) -> T {
        self.draws.pick(items).copied().unwrap_or_default()
    }

    /// Different elements of `items`, in random order: `n` of them, or all if there are fewer.
    pub(super) fn several<T: Copy>(&mut self, items: &[T], n: usize) -> Vec<T> {
        let mut items = items.to_vec();
        self.draws.shuffle(&mut items);
        items.truncate(n);
        items
    }

    /// Different elements of `items`, none of them in `without`.
    pub(super) fn others<'a>(
        &mut self,
        items: &[&'a str],
        without: &[&str],
        n: usize,
    ) -> Vec<&'a str> {
        let left: Vec<&str> =
            items.iter().copied().filter(|item| !without.contains(item)).collect();
        self.several(&left, n)
    }

    /// A child and its pronoun.
    pub(super) fn child(&mut self) -> (&'static str, &'static str) {
        self.of(CHILDREN)
    }

    /// Names of two different children.
    pub(super) fn two_names(&mut self) -> [&'static str; 2] {
        let index = self.draws.index(CHILDREN.len());
        let step = 1 + self.draws.index(CHILDREN.len() - 1);
        [CHILDREN[index].0, CHILDREN[(index + step) % CHILDREN.len()].0]
    }

    /// A question whose right answer is put at a random place among the wrong ones. Labels are letters; `digits` makes
    /// them digits.
    pub(super) fn question(
        &mut self,
        question: String,
        right: &str,
        wrong: &[&str],
        digits: bool,
    ) -> ChoiceItem {
        let answer = self.draws.index(wrong.len() + 1);
        let mut texts = wrong.to_vec();
        texts.insert(answer, right);
        let label = |i: usize| match LETTERS.get(i) {
            Some(letter) if !digits => (*letter).to_owned(),
            _ => (i + 1).to_string(),
        };
        let choices = texts.iter().enumerate();
        let choices =
            choices.map(|(i, text)| Choice { label: label(i), text: (*text).to_owned() }).collect();
        ChoiceItem { id: String::new(), passage: None, question, choices, answer }
    }
}

/// `an` before a vowel, `a` before anything else.
pub(super) fn article(noun: &str) -> &'static str {
    if noun.starts_with(['a', 'e', 'i', 'o', 'u']) { "an" } else { "a" }
}
