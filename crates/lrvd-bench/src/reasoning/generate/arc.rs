//! Questions with three to five choices in the manner of the AI2 Reasoning Challenge.
//!
//! Easy ones ask which word is of a kind, with one word of each kind to choose from. The others ask which is not, who
//! has what, or for an end of an order of three.

use super::teller::{Order, Teller, article};
use super::words::{ANIMALS, CHILDREN, CLOTHES, COLORS, FOODS, TOYS};
use crate::reasoning::ChoiceItem;

/// A kind of things: its words, what it is called, and questions that only they answer; `{name}` is a child's.
type Kind = (&'static [&'static str], &'static str, &'static [&'static str]);

/// In the order in which choices stand.
const KINDS: [Kind; 5] = [
    (ANIMALS, "an animal", &["Which one is an animal?", "What animal did {name} see?"]),
    (TOYS, "a toy", &["Which one is a toy?", "What toy did {name} get?"]),
    (FOODS, "food", &["Which one can you eat?", "What did {name} eat for lunch?"]),
    (CLOTHES, "for you to wear", &["Which one can you wear?", "What did {name} put on?"]),
    (COLORS, "a color", &["Which one is a color?", "What color did {name} like?"]),
];

/// Number of choices, and whether they are numbered: one row in twelve has three choices, one in twelve five, the
/// others four; one in ten is numbered.
fn shape(teller: &mut Teller) -> (usize, bool) {
    let n_choices = match teller.draws.index(12) {
        0 => 3,
        1 => 5,
        _ => 4,
    };
    (n_choices, teller.draws.chance(0.1))
}

/// Which word is of a kind?
pub(super) fn easy(teller: &mut Teller) -> ChoiceItem {
    let (n_choices, digits) = shape(teller);
    let mut kinds = teller.several(&[0, 1, 2, 3, 4], n_choices);
    kinds.sort_unstable();
    let texts: Vec<&str> = kinds.iter().map(|kind| teller.of(KINDS[*kind].0)).collect();
    let asked = teller.draws.index(n_choices);
    let question = teller.of(KINDS[kinds[asked]].2).replace("{name}", teller.child().0);
    let (right, order) = (texts[asked], teller.order());
    teller.question(question, texts, right, order, digits)
}

/// A question of one of the three harder forms.
pub(super) fn hard(teller: &mut Teller) -> ChoiceItem {
    match teller.draws.index(3) {
        0 => unlike(teller),
        1 => possession(teller),
        _ => size(teller),
    }
}

/// Which word is not of a kind? The choices always stand in random order.
fn unlike(teller: &mut Teller) -> ChoiceItem {
    let (n_choices, digits) = shape(teller);
    let kind = teller.draws.index(KINDS.len());
    let other = (kind + 1 + teller.draws.index(KINDS.len() - 1)) % KINDS.len();
    let right = teller.of(KINDS[other].0);
    let mut texts = teller.several(KINDS[kind].0, n_choices - 1);
    texts.push(right);
    let question = format!("Which one is not {}?", KINDS[kind].1);
    teller.question(question, texts, right, Order::Shuffled, digits)
}

/// `Lily has a kite. Tim has a ball. What does Tim have?`
fn possession(teller: &mut Teller) -> ChoiceItem {
    let (n_choices, digits) = shape(teller);
    let n_owners = 2 + usize::from(teller.coin());
    let owners = teller.several(CHILDREN, n_owners);
    let toys = teller.several(TOYS, n_choices);
    let pairs = owners.iter().zip(&toys);
    let told: Vec<String> =
        pairs.map(|((name, _), toy)| format!("{name} has {} {toy}.", article(toy))).collect();
    let asked = teller.draws.index(n_owners);
    let question = format!("{} What does {} have?", told.join(" "), owners[asked].0);
    let (right, order) = (toys[asked], teller.order());
    teller.question(question, toys, right, order, digits)
}

/// `The bear is bigger than the dog. The dog is bigger than the bee. Which one is the smallest?`
fn size(teller: &mut Teller) -> ChoiceItem {
    let (n_choices, digits) = shape(teller);
    let animals = teller.several(ANIMALS, n_choices);
    let (large, middle, small) = (animals[0], animals[1], animals[2]);
    let mut told = [
        format!("The {large} is bigger than the {middle}."),
        format!("The {middle} is bigger than the {small}."),
    ];
    let order = teller.order();
    if order == Order::Shuffled {
        teller.draws.shuffle(&mut told);
    }
    let (asked, right) = if teller.coin() { ("biggest", large) } else { ("smallest", small) };
    let question = format!("{} {} Which one is the {asked}?", told[0], told[1]);
    teller.question(question, animals, right, order, digits)
}
