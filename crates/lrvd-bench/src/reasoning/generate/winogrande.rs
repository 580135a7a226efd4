//! Twin sentences in the manner of `WinoGrande`: a few words differ, and with them who or what fills the blank.

use super::choices::{Order, article};
use super::words::{ANIMALS, TOYS};
use crate::data::generator::Generator;
use crate::reasoning::{Choice, ChoiceItem};

/// What only an animal is, and what only a thing is.
const ALIVE: &[&str] = &["hungry", "sleepy", "scared", "very kind", "sick"];
const LIFELESS: &[&str] = &["broken", "made of wood", "made of paper", "full of sand"];

/// A sentence about two children (`{0}`, `{1}`), its end where the first fills the blank, and where the second does.
const ROLES: &[[&str; 3]] = &[
    ["{0} helped {1} because", "_ was kind.", "_ was hurt."],
    ["{0} hugged {1} because", "_ wanted to be nice.", "_ was sad."],
    ["{0} ran after {1} but", "_ was too slow.", "_ was too fast."],
    ["{0} gave {1} a {toy} because", "_ had two of them.", "_ did not have one."],
    ["{0} took the {toy} from {1} and then", "_ said sorry.", "_ started to cry."],
    ["{0} asked {1} for help because", "_ was too small.", "_ was big and strong."],
    ["{0} asked {1} for the {toy} because", "_ wanted to play.", "_ was done with it."],
    ["{0} showed {1} the {toy} and", "_ was proud of it.", "_ liked to look at it."],
    ["{0} could not find {1} because", "_ did not look well.", "_ was hiding."],
    ["{0} said thank you to {1} because", "_ got a gift.", "_ gave a gift."],
];

/// Two items with the same options: one is answered with the first of them, the other with the second.
pub(super) fn twins(generator: &mut Generator) -> [ChoiceItem; 2] {
    let (sentences, [first, second]) =
        if generator.coin() { of_kinds(generator) } else { of_roles(generator) };
    // The same for both twins; the twins themselves stand in either order.
    let turned = generator.order() == Order::Shuffled;
    let options = if turned { [second, first] } else { [first, second] };
    let twin = |fills: usize| ChoiceItem {
        id: String::new(),
        passage: None,
        question: sentences[fills].clone(),
        choices: ["1", "2"]
            .iter()
            .zip(options)
            .map(|(label, text)| Choice { label: (*label).to_owned(), text: text.to_owned() })
            .collect(),
        answer: usize::from((fills == 1) != turned),
    };
    if generator.coin() { [twin(1), twin(0)] } else { [twin(0), twin(1)] }
}

/// `Lily saw a dog and a ball. The _ was hungry.`
fn of_kinds(generator: &mut Generator) -> ([String; 2], [&'static str; 2]) {
    let (name, _) = generator.child();
    let (animal, toy) = (generator.of(ANIMALS), generator.of(TOYS));
    let (alive, lifeless) = (generator.of(ALIVE), generator.of(LIFELESS));
    let [animal_too, toy_too] = [animal, toy].map(|noun| format!("{} {noun}", article(noun)));
    let verb = generator.of(&["saw", "found", "had"]);
    let both = if generator.coin() {
        format!("{name} {verb} {animal_too} and {toy_too}.")
    } else {
        format!("{name} {verb} {toy_too} and {animal_too}.")
    };
    let ending = |state| format!("{both} The _ was {state}.");
    ([ending(alive), ending(lifeless)], [animal, toy])
}

/// `Tim helped Mia because _ was kind.`
fn of_roles(generator: &mut Generator) -> ([String; 2], [&'static str; 2]) {
    let [start, first, second] = generator.of(ROLES);
    let names = generator.two_names();
    let start = start
        .replace("{0}", names[0])
        .replace("{1}", names[1])
        .replace("{toy}", generator.of(TOYS));
    ([first, second].map(|end| format!("{start} {end}")), names)
}
