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

    /// An element of `items` other than `told`, which is not the only one.
    pub(super) fn other(&mut self, items: &[&'static str], told: &'static str) -> &'static str {
        let left: Vec<&str> = items.iter().copied().filter(|item| *item != told).collect();
        self.of(&left)
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

    /// How the choices of a row stand: in three of four cases in the order of its grammar.
    ///
    /// A tiny model learns from the question which place is likely; for the rest it has to find the answer among
    /// the choices.
    pub(super) fn order(&mut self) -> Order {
        if self.draws.chance(0.75) { Order::Given } else { Order::Shuffled }
    }

    /// A question with these choices, in this order or shuffled. Labels are letters; `digits` makes them digits.
    pub(super) fn question(
        &mut self,
        question: String,
        mut texts: Vec<&str>,
        right: &str,
        order: Order,
        digits: bool,
    ) -> ChoiceItem {
        if order == Order::Shuffled {
            self.draws.shuffle(&mut texts);
        }
        let answer = texts.iter().position(|text| *text == right).unwrap_or_default();
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

/// How the choices of a row stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    /// As the grammar names them.
    Given,
    /// In random order.
    Shuffled,
}

/// `an` before a vowel, `a` before anything else.
pub(super) fn article(noun: &str) -> &'static str {
    if noun.starts_with(['a', 'e', 'i', 'o', 'u']) { "an" } else { "a" }
}
