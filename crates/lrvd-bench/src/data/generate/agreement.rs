//! Grammatical agreement in the manner of the acceptability corpus: well formed or not.
//!
//! The verb agrees with a subject that stands apart from it, with nouns of either number between; reflexives,
//! quantifiers, participles and questions follow the same plan. In every template the right and the wrong
//! form are equally frequent whatever other words occur, so a bag of words learns nothing from one sentence.

use super::lexicon::LEXICON;
use super::morphology::{Noun, capitalised};
use super::phrase::Draft;
use crate::data::generator::Generator;

/// Class ids of the task.
const UNACCEPTABLE: usize = 0;
const ACCEPTABLE: usize = 1;

pub(super) fn draft(generator: &mut Generator) -> Draft {
    let right = generator.coin();
    let sentence = match generator.weighted(&[60, 12, 10, 8, 8, 8, 8]) {
        0 => prepositional(generator, right),
        1 => relative_clause(generator, right),
        2 => quantifier(generator, right),
        3 => reflexive(generator, right),
        4 => existential(generator, right),
        5 => question(generator, right),
        _ => participle(generator, right),
    };
    let class = if right { ACCEPTABLE } else { UNACCEPTABLE };
    Draft { text_a: capitalised(&sentence), text_b: None, class }
}

/// A predicate whose verb agrees with a subject in this number.
fn predicate(generator: &mut Generator, plural: bool) -> String {
    let be = |one: &'static str, many| if plural { many } else { one };
    match generator.weighted(&[40, 15, 20, 25]) {
        0 => format!("{} {}", be("was", "were"), generator.of(&LEXICON.states)),
        1 => format!("{} very {}", be("is", "are"), generator.of(&LEXICON.states)),
        2 => format!("{} {}", be("has", "have"), generator.act().participle),
        _ => format!("{} {}", generator.act().present(plural), generator.of(&LEXICON.places)),
    }
}

/// `the [adjective] noun`.
fn phrase(generator: &mut Generator, noun: &Noun, plural: bool) -> String {
    let noun = noun.form(plural);
    if generator.draws.chance(0.35) {
        format!("the {} {noun}", generator.of(&LEXICON.epithets))
    } else {
        format!("the {noun}")
    }
}

/// `the friends of the captain were tired`: two, one or, for an easy start, no nouns between subject and verb;
/// half of them differ in number from the subject.
fn prepositional(generator: &mut Generator, right: bool) -> String {
    let plural = generator.coin();
    let [subject, first, second] = generator.distinct(&LEXICON.persons);
    let mut sentence = phrase(generator, subject, plural);
    let between = [first, second];
    for noun in &between[..generator.weighted(&[75, 17, 8])] {
        let preposition = generator.of(&["of", "near", "behind", "beside", "with", "opposite"]);
        let number = generator.coin();
        sentence = format!("{sentence} {preposition} {}", phrase(generator, noun, number));
    }
    format!("{sentence} {}.", predicate(generator, plural == right))
}

/// `the letters that the captain lost were …`, `the doctor who thanked the ladies was …`.
fn relative_clause(generator: &mut Generator, right: bool) -> String {
    let plural = generator.coin();
    let [subject, other] = generator.distinct(&LEXICON.persons);
    let subject = phrase(generator, subject, plural);
    let number = generator.coin();
    let other = phrase(generator, other, number);
    let deed = &generator.deed().past;
    let clause = match generator.weighted(&[40, 30, 30]) {
        0 => format!("who {deed} {other}"),
        1 => format!("whom {other} {deed}"),
        _ => format!("{other} {deed} {}", generator.of(&LEXICON.times)),
    };
    format!("{subject} {clause} {}.", predicate(generator, plural == right))
}

/// `each of the sailors was …`, `both of the sailors were …`: the noun is plural throughout.
fn quantifier(generator: &mut Generator, right: bool) -> String {
    let plural = generator.coin();
    let head = if plural {
        generator.of(&["both", "many", "several", "all", "two", "most"])
    } else {
        generator.of(&["each", "one", "every one", "the eldest", "neither", "the last"])
    };
    let [noun] = generator.distinct(&LEXICON.persons);
    let nouns = phrase(generator, noun, true);
    format!("{head} of {nouns} {}.", predicate(generator, plural == right))
}

/// `the friends of the queen blamed themselves`: the reflexive refers to the subject, not to the last noun.
fn reflexive(generator: &mut Generator, right: bool) -> String {
    // Which pronouns are in question varies, so that none of them is a sign of either class.
    let (subject, wrong) = match generator.weighted(&[1, 1, 1]) {
        0 => (0, 1 + generator.draws.index(2)),
        1 => (1, 2 * generator.draws.index(2)),
        _ => (2, generator.draws.index(2)),
    };
    let pronoun = ["himself", "herself", "themselves"][if right { subject } else { wrong }];
    let noun_of = |generator: &mut Generator, kind: usize| {
        let [man] = generator.distinct(&LEXICON.men);
        let [woman] = generator.distinct(&LEXICON.women);
        let [person] = generator.distinct(&LEXICON.persons);
        phrase(generator, [man, woman, person][kind], kind == 2)
    };
    // The noun beside the subject fits the pronoun that would be wrong for the subject.
    let (head, other) = (noun_of(generator, subject), noun_of(generator, wrong));
    let preposition = generator.of(&["of", "near", "behind", "beside", "opposite"]);
    let verb = &generator.deed().past;
    format!("{head} {preposition} {other} {verb} {pronoun} {}.", generator.of(&LEXICON.times))
}

/// `there were three letters beside the box`: the verb agrees with what follows.
fn existential(generator: &mut Generator, right: bool) -> String {
    let (plural, other) = (generator.coin(), generator.coin());
    let (noun, beside) = (generator.object(), generator.object());
    let counted = if plural { generator.of(&["two", "three", "many", "some"]) } else { "one" };
    let verb = if plural == right { "were" } else { "was" };
    let (noun, beside) = (noun.form(plural), beside.form(other));
    let preposition = generator.of(&["beside", "behind", "among", "near"]);
    let place = generator.of(&LEXICON.places);
    format!("there {verb} {counted} {noun} {preposition} the {beside} {place}.")
}

/// `Was the friend of the sailors asleep?`
fn question(generator: &mut Generator, right: bool) -> String {
    let (plural, other) = (generator.coin(), generator.coin());
    let [subject, beside] = generator.distinct(&LEXICON.persons);
    let (subject, beside) = (phrase(generator, subject, plural), phrase(generator, beside, other));
    let preposition = generator.of(&["of", "near", "behind", "beside"]);
    let verb = match (generator.coin(), plural == right) {
        (true, true) => "were",
        (true, false) => "was",
        (false, true) => "are",
        (false, false) => "is",
    };
    format!("{verb} {subject} {preposition} {beside} {}?", generator.of(&LEXICON.states))
}

/// `the sailors had forgotten …` against `the sailors forgotten …`: the auxiliary decides the form.
fn participle(generator: &mut Generator, right: bool) -> String {
    let [mut subject, mut object] = generator.two_persons();
    // Where past and participle are spelt alike there is nothing to tell apart.
    let mut verb = generator.deed();
    while verb.past == verb.participle {
        verb = generator.deed();
    }
    let auxiliary = generator.coin();
    let form = if auxiliary == right { &verb.participle } else { &verb.past };
    if generator.coin() {
        std::mem::swap(&mut subject, &mut object);
    }
    let adverb = generator.of(&["", "never ", "already ", "often ", "long ago "]);
    let auxiliary = if auxiliary { "had " } else { "" };
    let time = generator.of(&LEXICON.times);
    format!("{subject} {auxiliary}{adverb}{form} {object} {time}.")
}
