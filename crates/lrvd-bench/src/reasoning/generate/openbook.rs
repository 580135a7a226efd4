//! Beginnings of sentences with four ways to go on, in the manner of `OpenBookQA`.
//!
//! The facts are few, so a model meets them all in training. One way to go on is of each kind: something to do, a thing,
//! how something is, a sound; the question tells the kind, and with it often the place.

use crate::data::generator::Generator;
use crate::reasoning::ChoiceItem;

/// Beginnings, and the one right end.
type Fact = (&'static [&'static str], &'static str);

const FACTS: [&[Fact]; 4] = [
    &[
        (&["When you are hungry, you want to", "At lunch you", "With your mouth you"], "eat"),
        (&["When you are tired, you want to", "In bed you", "At night you"], "sleep"),
        (&["A fish can", "In the lake you can"], "swim"),
        (&["A bird can", "With wings you can", "A bee can"], "fly"),
        (&["A frog can", "To get over a rock you"], "jump"),
    ],
    &[
        (&["A thirsty dog wants some", "A cat likes to drink"], "milk"),
        (&["On your birthday you get a", "A sweet thing to eat is a"], "cake"),
        (&["You sleep in a", "When you are sick, you stay in"], "bed"),
        (&["In the night you see the", "When it is dark, you see the"], "moon"),
        (&["In the day you see the", "It is hot under the"], "sun"),
        (&["A boat is on the", "A fish lives in the"], "water"),
        (&["A bunny has long", "You hear with your"], "ears"),
        (&["You see with your", "When you sleep, you close your"], "eyes"),
        (&["You smell with your", "In the cold you get a red"], "nose"),
        (&["On your feet you wear", "When you go out, you put on your"], "shoes"),
        (&["On your head you wear a", "In the sun you need a"], "hat"),
        (&["A story is in a", "At school you read a"], "book"),
        (&["To draw you need a", "You write with a"], "pen"),
        (&["You kick a", "A round toy is a"], "ball"),
        (&["A bird lives in a", "Leaves grow on a"], "tree"),
        (&["In the garden you see a", "A bee likes a"], "flower"),
    ],
    &[
        (
            &["When it rains, you get", "A fish is always", "If you fall in the lake, you are"],
            "wet",
        ),
        (&["Ice is", "Snow is"], "cold"),
        (&["Fire is", "Soup on the stove is"], "hot"),
        (&["Grass is", "A frog is"], "green"),
        (&["The sky is", "Water looks"], "blue"),
        (&["When you lose your toy, you feel", "A boy who cries is"], "sad"),
        (&["When you get a gift, you feel", "A girl who smiles is"], "happy"),
    ],
    &[
        (&["A dog says", "When you hear a dog, it says"], "woof"),
        (&["A cat says", "When you hear a cat, it says"], "meow"),
        (&["A cow says", "When you hear a cow, it says"], "moo"),
        (&["A duck says", "When you hear a duck, it says"], "quack"),
    ],
];

/// A beginning, its right end, and an end of every other kind.
pub(super) fn draft(generator: &mut Generator) -> ChoiceItem {
    let kind = generator.draws.index(FACTS.len());
    let (starts, right) = FACTS[kind][generator.draws.index(FACTS[kind].len())];
    let start = generator.of(starts);
    let mut ends = FACTS.map(|facts| facts[generator.draws.index(facts.len())].1);
    ends[kind] = right;
    let order = generator.order();
    generator.question(start.to_owned(), ends.to_vec(), right, order, false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn every_beginning_and_every_end_belongs_to_one_fact() {
        let mut known = HashSet::new();
        for (starts, end) in FACTS.concat() {
            assert!(known.insert(end), "{end}");
            assert!(starts.iter().all(|start| known.insert(start)), "{starts:?}");
        }
    }
}
