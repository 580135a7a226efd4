//! Two sentences and a yes/no question on them, in the manner of `BoolQ`: how somebody felt, or one of the words.

use super::teller::{Teller, article};
use super::words::{COLORS, FOODS, PLACES, TOYS};
use crate::reasoning::{Choice, ChoiceItem};

/// What somebody does who is happy, and who is sad.
const HAPPY: &[&str] = &["was very happy", "laughed", "had a happy day", "had fun"];
const SAD: &[&str] = &["was very sad", "cried", "had a sad day", "got hurt"];

/// Share of questions that are answered with yes, about that of the original.
const YES: f64 = 0.6;

/// The title of a passage, and the item.
pub(super) fn draft(teller: &mut Teller) -> (String, ChoiceItem) {
    let (name, pronoun) = teller.child();
    let (color, toy, place) = (teller.of(COLORS), teller.of(TOYS), teller.of(PLACES));
    let she = if pronoun == "she" { "She" } else { "He" };
    let truth = teller.draws.chance(YES);
    let child = name.to_lowercase();
    let (deed, question) = if teller.draws.chance(0.7) {
        feeling(teller, &child, truth)
    } else {
        let food = teller.of(FOODS);
        // The question is about one of the words; if the answer is no, another word stands in its place.
        let lists = [(COLORS, color), (TOYS, toy), (FOODS, food), (PLACES, place)];
        let asked = teller.draws.index(lists.len());
        let (list, told) = lists[asked];
        let word = if truth { told } else { teller.other(list, told) };
        let question = match asked {
            0 => format!("was the {toy} {word}"),
            1 => format!("did {child} have a {word}"),
            2 => format!("did {child} eat {} {word}", article(word)),
            _ => format!("did {child} eat at the {word}"),
        };
        (format!("ate {} {food}", article(food)), question)
    };
    let choices = ["False", "True"].map(|label| Choice { label: label.into(), text: label.into() });
    let item = ChoiceItem {
        id: String::new(),
        passage: Some(format!("{name} had a {color} {toy}. {she} {deed} at the {place}.")),
        question,
        choices: choices.to_vec(),
        answer: usize::from(truth),
    };
    (format!("{name} and the {toy}"), item)
}

/// What somebody did, and whether they were happy (as most questions ask) or sad.
fn feeling(teller: &mut Teller, child: &str, truth: bool) -> (String, String) {
    let asks_happy = teller.draws.chance(0.85);
    let deed = teller.of(if asks_happy == truth { HAPPY } else { SAD });
    let asked = if asks_happy { "happy" } else { "sad" };
    (deed.to_owned(), format!("was {child} {asked}"))
}
