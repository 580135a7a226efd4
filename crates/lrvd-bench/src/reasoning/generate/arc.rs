//! Questions with three to five choices in the manner of the AI2 Reasoning Challenge.
//!
//! Easy ones ask which word is of a kind. The others ask which is not, who has what of several, or for an end of
//! an order of three.

use super::teller::{Teller, article};
use super::words::{ANIMALS, CHILDREN, CLOTHES, COLORS, FOODS, NUMBERS, PARTS, PLACES, TOYS};
use crate::reasoning::ChoiceItem;

/// A kind of things: its words, and questions that only they answer; `{name}` is a child's.
type Kind = (&'static [&'static str], &'static [&'static str]);

const KINDS: &[Kind] = &[
    (ANIMALS, &["Which one is an animal?", "What animal did {name} see?"]),
    (TOYS, &["Which one is a toy?", "What toy did {name} get?"]),
    (FOODS, &["Which one can you eat?", "What did {name} eat for lunch?"]),
    (CLOTHES, &["Which one can you wear?", "What did {name} put on?"]),
    (COLORS, &["Which one is a color?", "What color did {name} like?"]),
    (PLACES, &["Which one is a place?", "Where did {name} go?"]),
    (PARTS, &["Which one is a part of you?", "What did {name} wash?"]),
    (NUMBERS, &["Which one is a number?", "How many did {name} have?"]),
];

/// One in twelve rows has three choices, one in twelve five, the others four; one in ten is numbered.
fn shape(teller: &mut Teller) -> (usize, bool) {
    let n_wrong = match teller.draws.index(12) {
        0 => 2,
        1 => 4,
        _ => 3,
    };
    (n_wrong, teller.draws.chance(0.1))
}

/// Which word is of a kind?
pub(super) fn easy(teller: &mut Teller) -> ChoiceItem {
    let (n_wrong, digits) = shape(teller);
    let [(words, questions), other, more] = three_kinds(teller);
    let question = teller.of(questions).replace("{name}", teller.child().0);
    let right = teller.of(words);
    // Of one other kind or of two, so that the odd one out is not always the answer.
    let pool = if teller.coin() { other.0.to_vec() } else { [other.0, more.0].concat() };
    let wrong = teller.several(&pool, n_wrong);
    teller.question(question, right, &wrong, digits)
}

/// A question of one of the three harder forms.
pub(super) fn hard(teller: &mut Teller) -> ChoiceItem {
    match teller.draws.index(3) {
        0 => unlike(teller),
        1 => possession(teller),
        _ => order(teller),
    }
}

/// Which word is not of a kind?
fn unlike(teller: &mut Teller) -> ChoiceItem {
    const NAMES: [&str; 4] = ["an animal", "a toy", "food", "a color"];
    const WORDS: [&[&str]; 4] = [ANIMALS, TOYS, FOODS, COLORS];
    let (n_wrong, digits) = shape(teller);
    let kind = teller.draws.index(4);
    let other = (kind + 1 + teller.draws.index(3)) % 4;
    let question = format!("Which one is not {}?", NAMES[kind]);
    let right = teller.of(WORDS[other]);
    let wrong = teller.several(WORDS[kind], n_wrong);
    teller.question(question, right, &wrong, digits)
}

/// `Lily has a kite. Tim has a ball. What does Tim have?`
fn possession(teller: &mut Teller) -> ChoiceItem {
    let (n_wrong, digits) = shape(teller);
    let n_owners = 2 + usize::from(teller.coin());
    let owners: Vec<&str> =
        teller.several(CHILDREN, n_owners).iter().map(|child| child.0).collect();
    let things = teller.several(TOYS, n_wrong + 1);
    let pairs = owners.iter().zip(&things);
    let told: Vec<String> =
        pairs.map(|(name, toy)| format!("{name} has {} {toy}.", article(toy))).collect();
    let asked = teller.draws.index(n_owners);
    let question = format!("{} What does {} have?", told.join(" "), owners[asked]);
    let right = things[asked];
    let wrong: Vec<&str> = things.into_iter().filter(|toy| *toy != right).collect();
    let wrong = teller.several(&wrong, n_wrong);
    teller.question(question, right, &wrong, digits)
}

/// `The bear is bigger than the dog. The dog is bigger than the bee. Which one is the smallest?`
fn order(teller: &mut Teller) -> ChoiceItem {
    let (n_wrong, digits) = shape(teller);
    let all = teller.several(ANIMALS, n_wrong + 1);
    let (large, middle, small) = (all[0], all[1], all[2]);
    let mut told = [
        format!("The {large} is bigger than the {middle}."),
        format!("The {middle} is bigger than the {small}."),
    ];
    teller.draws.shuffle(&mut told);
    let (asked, right) = teller.of(&[("biggest", 0), ("smallest", 2)]);
    let question = format!("{} {} Which one is the {asked}?", told[0], told[1]);
    let wrong: Vec<&str> = all.iter().copied().filter(|animal| *animal != all[right]).collect();
    teller.question(question, all[right], &wrong, digits)
}

/// Three different kinds.
fn three_kinds(teller: &mut Teller) -> [Kind; 3] {
    let mut kinds = [0; 3];
    let drawn = teller.several(&(0..KINDS.len()).collect::<Vec<_>>(), 3);
    kinds.copy_from_slice(&drawn);
    kinds.map(|kind| KINDS[kind])
}
