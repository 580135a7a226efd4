//! Questions with three to five choices in the manner of the AI2 Reasoning Challenge.
//!
//! Easy ones ask which word is of a kind, with one word of each kind to choose from. The others ask which is not, who
//! has what, or for an end of an order of three.

use super::choices::{Order, article};
use super::words::{ANIMALS, CHILDREN, CLOTHES, COLORS, FOODS, TOYS};
use crate::data::generator::Generator;
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
fn shape(generator: &mut Generator) -> (usize, bool) {
    let n_choices = match generator.draws.index(12) {
        0 => 3,
        1 => 5,
        _ => 4,
    };
    (n_choices, generator.draws.chance(0.1))
}

/// Which word is of a kind?
pub(super) fn easy(generator: &mut Generator) -> ChoiceItem {
    let (n_choices, digits) = shape(generator);
    let mut kinds = generator.several(&[0, 1, 2, 3, 4], n_choices);
    kinds.sort_unstable();
    let texts: Vec<&str> = kinds.iter().map(|kind| generator.of(KINDS[*kind].0)).collect();
    let asked = generator.draws.index(n_choices);
    let question = generator.of(KINDS[kinds[asked]].2).replace("{name}", generator.child().0);
    let (right, order) = (texts[asked], generator.order());
    generator.question(question, texts, right, order, digits)
}

/// A question of one of the three harder forms.
pub(super) fn hard(generator: &mut Generator) -> ChoiceItem {
    match generator.draws.index(3) {
        0 => unlike(generator),
        1 => possession(generator),
        _ => size(generator),
    }
}

/// Which word is not of a kind? The choices always stand in random order.
fn unlike(generator: &mut Generator) -> ChoiceItem {
    let (n_choices, digits) = shape(generator);
    let kind = generator.draws.index(KINDS.len());
    let other = (kind + 1 + generator.draws.index(KINDS.len() - 1)) % KINDS.len();
    let right = generator.of(KINDS[other].0);
    let mut texts = generator.several(KINDS[kind].0, n_choices - 1);
    texts.push(right);
    let question = format!("Which one is not {}?", KINDS[kind].1);
    generator.question(question, texts, right, Order::Shuffled, digits)
}

/// `Lily has a kite. Tim has a ball. What does Tim have?`
fn possession(generator: &mut Generator) -> ChoiceItem {
    let (n_choices, digits) = shape(generator);
    let n_owners = 2 + usize::from(generator.coin());
    let owners = generator.several(CHILDREN, n_owners);
    let toys = generator.several(TOYS, n_choices);
    let pairs = owners.iter().zip(&toys);
    let told: Vec<String> =
        pairs.map(|((name, _), toy)| format!("{name} has {} {toy}.", article(toy))).collect();
    let asked = generator.draws.index(n_owners);
    let question = format!("{} What does {} have?", told.join(" "), owners[asked].0);
    let (right, order) = (toys[asked], generator.order());
    generator.question(question, toys, right, order, digits)
}

/// `The bear is bigger than the dog. The dog is bigger than the bee. Which one is the smallest?`
fn size(generator: &mut Generator) -> ChoiceItem {
    let (n_choices, digits) = shape(generator);
    let animals = generator.several(ANIMALS, n_choices);
    let (large, middle, small) = (animals[0], animals[1], animals[2]);
    let mut told = [
        format!("The {large} is bigger than the {middle}."),
        format!("The {middle} is bigger than the {small}."),
    ];
    let order = generator.order();
    if order == Order::Shuffled {
        generator.draws.shuffle(&mut told);
    }
    let (asked, right) = if generator.coin() { ("biggest", large) } else { ("smallest", small) };
    let question = format!("{} {} Which one is the {asked}?", told[0], told[1]);
    generator.question(question, animals, right, order, digits)
}
