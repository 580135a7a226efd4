//! Grammatical agreement in the manner of the acceptability corpus: is the sentence well formed?
//!
//! The verb agrees with a subject that stands apart from it, with nouns of either number between; reflexives,
//! quantifiers, participles and questions follow the same plan. In every template the right and the wrong
//! form are equally frequent whatever other words occur, so a bag of words learns nothing from one sentence.

use super::lexicon::LEXICON;
use super::morphology::{Noun, capitalised};
use super::scribe::{Draft, Scribe};

/// Class ids of the task.
const UNACCEPTABLE: usize = 0;
const ACCEPTABLE: usize = 1;

pub(super) fn draft(scribe: &mut Scribe) -> Draft {
    let right = scribe.coin();
    let sentence = match scribe.weighted(&[60, 12, 10, 8, 8, 8, 8]) {
        0 => prepositional(scribe, right),
        1 => relative_clause(scribe, right),
        2 => quantifier(scribe, right),
        3 => reflexive(scribe, right),
        4 => existential(scribe, right),
        5 => question(scribe, right),
        _ => participle(scribe, right),
    };
    Draft::single(capitalised(&sentence), if right { ACCEPTABLE } else { UNACCEPTABLE })
}

/// A predicate whose verb agrees with a subject in this number.
fn predicate(scribe: &mut Scribe, plural: bool) -> String {
    let be = |one: &'static str, many| if plural { many } else { one };
    match scribe.weighted(&[40, 15, 20, 25]) {
        0 => format!("{} {}", be("was", "were"), scribe.of(&LEXICON.states)),
        1 => format!("{} very {}", be("is", "are"), scribe.of(&LEXICON.states)),
        2 => format!("{} {}", be("has", "have"), scribe.act().participle),
        _ => format!("{} {}", scribe.act().present(plural), scribe.of(&LEXICON.places)),
    }
}

/// `the [adjective] noun`.
fn phrase(scribe: &mut Scribe, noun: &Noun, plural: bool) -> String {
    let noun = noun.form(plural);
    if scribe.draws.chance(0.35) {
        format!("the {} {noun}", scribe.of(&LEXICON.epithets))
    } else {
        format!("the {noun}")
    }
}

/// `the friends of the captain were tired`: two, one or, for an easy start, no nouns between subject and verb;
/// half of them differ in number from the subject.
fn prepositional(scribe: &mut Scribe, right: bool) -> String {
    let plural = scribe.coin();
    let [subject, first, second] = scribe.distinct(&LEXICON.persons);
    let mut sentence = phrase(scribe, subject, plural);
    let between = [first, second];
    for noun in &between[..scribe.weighted(&[75, 17, 8])] {
        let preposition = scribe.of(&["of", "near", "behind", "beside", "with", "opposite"]);
        let number = scribe.coin();
        sentence = format!("{sentence} {preposition} {}", phrase(scribe, noun, number));
    }
    format!("{sentence} {}.", predicate(scribe, plural == right))
}

/// `the letters that the captain lost were …`, `the doctor who thanked the ladies was …`.
fn relative_clause(scribe: &mut Scribe, right: bool) -> String {
    let plural = scribe.coin();
    let [subject, other] = scribe.distinct(&LEXICON.persons);
    let subject = phrase(scribe, subject, plural);
    let number = scribe.coin();
    let other = phrase(scribe, other, number);
    let deed = &scribe.deed().past;
    let clause = match scribe.weighted(&[40, 30, 30]) {
        0 => format!("who {deed} {other}"),
        1 => format!("whom {other} {deed}"),
        _ => format!("{other} {deed} {}", scribe.of(&LEXICON.times)),
    };
    format!("{subject} {clause} {}.", predicate(scribe, plural == right))
}

/// `each of the sailors was …`, `both of the sailors were …`: the noun is plural throughout.
fn quantifier(scribe: &mut Scribe, right: bool) -> String {
    let plural = scribe.coin();
    let head = if plural {
        scribe.of(&["both", "many", "several", "all", "two", "most"])
    } else {
        scribe.of(&["each", "one", "every one", "the eldest", "neither", "the last"])
    };
    let [noun] = scribe.distinct(&LEXICON.persons);
    let nouns = phrase(scribe, noun, true);
    format!("{head} of {nouns} {}.", predicate(scribe, plural == right))
}

/// `the friends of the queen blamed themselves`: the reflexive refers to the subject, not to the last noun.
fn reflexive(scribe: &mut Scribe, right: bool) -> String {
    // Which pronouns are in question varies, so that none of them is a sign of either class.
    let (subject, wrong) = match scribe.weighted(&[1, 1, 1]) {
        0 => (0, 1 + scribe.draws.index(2)),
        1 => (1, 2 * scribe.draws.index(2)),
        _ => (2, scribe.draws.index(2)),
    };
    let pronoun = ["himself", "herself", "themselves"][if right { subject } else { wrong }];
    let noun_of = |scribe: &mut Scribe, kind: usize| {
        let [man] = scribe.distinct(&LEXICON.men);
        let [woman] = scribe.distinct(&LEXICON.women);
        let [person] = scribe.distinct(&LEXICON.persons);
        phrase(scribe, [man, woman, person][kind], kind == 2)
    };
    // The noun beside the subject fits the pronoun that would be wrong for the subject.
    let (head, other) = (noun_of(scribe, subject), noun_of(scribe, wrong));
    let preposition = scribe.of(&["of", "near", "behind", "beside", "opposite"]);
    let verb = &scribe.deed().past;
    format!("{head} {preposition} {other} {verb} {pronoun} {}.", scribe.of(&LEXICON.times))
}

/// `there were three letters beside the box`: the verb agrees with what follows.
fn existential(scribe: &mut Scribe, right: bool) -> String {
    let (plural, other) = (scribe.coin(), scribe.coin());
    let (noun, beside) = (scribe.object(), scribe.object());
    let counted = if plural { scribe.of(&["two", "three", "many", "some"]) } else { "one" };
    let verb = if plural == right { "were" } else { "was" };
    let (noun, beside) = (noun.form(plural), beside.form(other));
    let preposition = scribe.of(&["beside", "behind", "among", "near"]);
    let place = scribe.of(&LEXICON.places);
    format!("there {verb} {counted} {noun} {preposition} the {beside} {place}.")
}

/// `Was the friend of the sailors asleep?`
fn question(scribe: &mut Scribe, right: bool) -> String {
    let (plural, other) = (scribe.coin(), scribe.coin());
    let [subject, beside] = scribe.distinct(&LEXICON.persons);
    let (subject, beside) = (phrase(scribe, subject, plural), phrase(scribe, beside, other));
    let preposition = scribe.of(&["of", "near", "behind", "beside"]);
    let verb = match (scribe.coin(), plural == right) {
        (true, true) => "were",
        (true, false) => "was",
        (false, true) => "are",
        (false, false) => "is",
    };
    format!("{verb} {subject} {preposition} {beside} {}?", scribe.of(&LEXICON.states))
}

/// `the sailors had forgotten …` against `the sailors forgotten …`: the auxiliary decides the form.
fn participle(scribe: &mut Scribe, right: bool) -> String {
    let [mut subject, mut object] = scribe.two_persons();
    // Where past and participle are spelt alike there is nothing to tell apart.
    let mut verb = scribe.deed();
    while verb.past == verb.participle {
        verb = scribe.deed();
    }
    let auxiliary = scribe.coin();
    let form = if auxiliary == right { &verb.participle } else { &verb.past };
    if scribe.coin() {
        std::mem::swap(&mut subject, &mut object);
    }
    let adverb = scribe.of(&["", "never ", "already ", "often ", "long ago "]);
    let auxiliary = if auxiliary { "had " } else { "" };
    let time = scribe.of(&LEXICON.times);
    format!("{subject} {auxiliary}{adverb}{form} {object} {time}.")
}
