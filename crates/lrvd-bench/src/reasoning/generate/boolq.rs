//! Two sentences and a yes/no question on them, in the manner of `BoolQ`.

use super::teller::{Teller, article};
use super::words::{COLORS, FOODS, PLACES, TOYS};
use crate::reasoning::{Choice, ChoiceItem};

/// The title of a passage, and the item.
pub(super) fn draft(teller: &mut Teller) -> (String, ChoiceItem) {
    let (name, pronoun) = teller.child();
    let (color, toy) = (teller.of(COLORS), teller.of(TOYS));
    let (place, food) = (teller.of(PLACES), teller.of(FOODS));
    let she = if pronoun == "she" { "She" } else { "He" };
    let with_food = format!("{} {food}", article(food));
    let passage = format!("{name} had a {color} {toy}. {she} ate {with_food} at the {place}.");
    let truth = teller.coin();
    // The question is about one of the words; if the answer is no, another word stands in its place.
    let lists = [(COLORS, color), (TOYS, toy), (FOODS, food), (PLACES, place)];
    let asked = teller.draws.index(lists.len());
    let (list, told) = lists[asked];
    let other = teller.others(list, &[told], 1);
    let word = if truth { told } else { other.first().copied().unwrap_or(told) };
    let child = name.to_lowercase();
    let question = match asked {
        0 => format!("was the {toy} {word}"),
        1 => format!("did {child} have a {word}"),
        2 => format!("did {child} eat {} {word}", article(word)),
        _ => format!("did {child} eat at the {word}"),
    };
    let choices = ["False", "True"].map(|label| Choice { label: label.into(), text: label.into() });
    let item = ChoiceItem {
        id: String::new(),
        passage: Some(passage),
        question,
        choices: choices.to_vec(),
        answer: usize::from(truth),
    };
    (format!("{name} and the {toy}"), item)
}
