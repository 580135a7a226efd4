//! Beginnings of sentences with four ways to go on, in the manner of `OpenBookQA`.
//!
//! The facts are few, so a model meets them all in training; what is new in validation are the wrong choices.

use super::teller::Teller;
use crate::reasoning::ChoiceItem;

/// Beginnings, the one right end, and a topic; ends of the same topic never stand beside each other.
type Fact = (&'static [&'static str], &'static str, u8);

const FACTS: &[Fact] = &[
    (&["When you are hungry, you want to", "At lunch you", "With your mouth you"], "eat", 0),
    (&["A thirsty dog wants some", "A cat likes to drink"], "milk", 0),
    (&["On your birthday you get a", "A sweet thing to eat is a"], "cake", 0),
    (&["When you are tired, you want to", "In bed you", "At night you"], "sleep", 1),
    (&["You sleep in a", "When you are sick, you stay in"], "bed", 1),
    (&["In the night you see the", "When it is dark, you see the"], "moon", 2),
    (&["In the day you see the", "It is hot under the"], "sun", 2),
    (&["When it rains, you get", "A fish is always", "If you fall in the lake, you are"], "wet", 3),
    (&["A fish can", "In the lake you can"], "swim", 3),
    (&["A boat is on the", "A fish lives in the"], "water", 3),
    (&["A bird can", "With wings you can", "A bee can"], "fly", 4),
    (&["A frog can", "To get over a rock you"], "jump", 4),
    (&["A bunny has long", "You hear with your"], "ears", 5),
    (&["You see with your", "When you sleep, you close your"], "eyes", 5),
    (&["You smell with your", "In the cold you get a red"], "nose", 5),
    (&["On your feet you wear", "When you go out, you put on your"], "shoes", 6),
    (&["On your head you wear a", "In the sun you need a"], "hat", 6),
    (&["A dog says", "When you hear a dog, it says"], "woof", 7),
    (&["A cat says", "When you hear a cat, it says"], "meow", 7),
    (&["A cow says", "When you hear a cow, it says"], "moo", 7),
    (&["A duck says", "When you hear a duck, it says"], "quack", 7),
    (&["Ice is", "Snow is"], "cold", 8),
    (&["Fire is", "Soup on the stove is"], "hot", 8),
    (&["Grass is", "A frog is"], "green", 9),
    (&["The sky is", "Water looks"], "blue", 9),
    (&["When you lose your toy, you feel", "A boy who cries is"], "sad", 10),
    (&["When you get a gift, you feel", "A girl who smiles is"], "happy", 10),
    (&["A story is in a", "At school you read a"], "book", 11),
    (&["To draw you need a", "You write with a"], "pen", 11),
    (&["You kick a", "A round toy is a"], "ball", 12),
    (&["A bird lives in a", "Leaves grow on a"], "tree", 13),
    (&["In the garden you see a", "A bee likes a"], "flower", 13),
];

/// A beginning, its right end, and three ends of other topics.
pub(super) fn draft(teller: &mut Teller) -> ChoiceItem {
    let (starts, right, topic) = FACTS[teller.draws.index(FACTS.len())];
    let start = teller.of(starts);
    let apart: Vec<&str> = FACTS.iter().filter(|fact| fact.2 != topic).map(|fact| fact.1).collect();
    let wrong = teller.others(&apart, excluded(start), 3);
    teller.question(start.to_owned(), right, &wrong, false)
}

/// Ends of other topics that would do as well.
fn excluded(start: &str) -> &'static [&'static str] {
    const ALSO: &[(&str, &[&str])] = &[
        ("A fish lives in the", &["bed"]),
        ("A sweet thing to eat is a", &["flower"]),
        ("If you fall in the lake, you are", &["cold", "sad", "blue"]),
        ("A boy who cries is", &["wet", "cold", "hot"]),
        ("A girl who smiles is", &["wet", "cold", "hot"]),
        ("When it rains, you get", &["cold", "sad", "hot"]),
        ("When you lose your toy, you feel", &["cold", "hot", "blue", "wet"]),
        ("When you get a gift, you feel", &["cold", "hot", "blue", "wet"]),
        ("In the sun you need a", &["tree", "bed"]),
        ("A frog can", &["swim", "eat", "sleep"]),
        ("A fish can", &["jump", "eat", "sleep"]),
        ("A bird can", &["eat", "sleep", "swim"]),
        ("A bee can", &["eat", "sleep"]),
        ("In the lake you can", &["jump", "eat"]),
        ("In bed you", &["jump", "eat"]),
        ("At night you", &["eat"]),
        ("At lunch you", &["sleep", "jump"]),
        ("When you are hungry, you want to", &["sleep"]),
        ("When you are tired, you want to", &["eat"]),
        ("With your mouth you", &["sleep"]),
        ("To get over a rock you", &["fly"]),
        ("In the garden you see a", &["ball", "book"]),
        ("A bee likes a", &["tree", "cake"]),
        ("On your birthday you get a", &["book", "ball", "hat", "flower", "pen"]),
        ("A fish is always", &["cold", "blue", "green", "happy"]),
        ("A frog is", &["wet", "cold"]),
        ("Snow is", &["wet"]),
        ("Ice is", &["wet", "blue"]),
        ("Water looks", &["wet", "cold", "green"]),
        ("Soup on the stove is", &["wet", "green"]),
        ("You kick a", &["tree", "book"]),
        ("In the night you see the", &["tree", "bed", "water", "flower"]),
        ("When it is dark, you see the", &["tree", "bed", "water"]),
        ("In the day you see the", &["tree", "bed", "water", "flower"]),
        ("It is hot under the", &["hat", "bed", "tree"]),
        ("A thirsty dog wants some", &["water"]),
        ("A cat likes to drink", &["water"]),
        ("At school you read a", &["pen"]),
        ("A story is in a", &["bed"]),
        ("When you are sick, you stay in", &["water"]),
        ("You sleep in a", &["tree", "book"]),
        ("A bird lives in a", &["bed", "book"]),
        ("A boat is on the", &["tree", "bed"]),
        ("With wings you can", &["jump", "swim"]),
        ("When you go out, you put on your", &["hat"]),
        ("In the cold you get a red", &["hat", "ears"]),
        ("A bunny has long", &["shoes"]),
    ];
    ALSO.iter().find(|(known, _)| *known == start).map_or(&[], |(_, ends)| ends)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn every_beginning_belongs_to_one_fact_and_leaves_three_wrong_ends() {
        let mut known = HashSet::new();
        let ends: HashSet<&str> = FACTS.iter().map(|fact| fact.1).collect();
        assert_eq!(ends.len(), FACTS.len());
        for (starts, _, topic) in FACTS {
            for start in *starts {
                assert!(known.insert(*start), "{start}");
                let apart = FACTS.iter().filter(|fact| fact.2 != *topic).map(|fact| fact.1);
                assert!(apart.filter(|end| !excluded(start).contains(end)).count() >= 3, "{start}");
                assert!(excluded(start).iter().all(|end| ends.contains(end)), "{start}");
            }
        }
    }
}
