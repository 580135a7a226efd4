//! Children of the stories, and questions with their choices.

use super::words::CHILDREN;
use crate::data::generator::Generator;
use crate::reasoning::{Choice, ChoiceItem, LETTERS};

impl Generator {
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
