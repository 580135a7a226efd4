//! Grammatical agreement in the manner of the acceptability corpus: well formed or not.
//!
//! The verb agrees with its subject, which stands beside it in seven sentences of ten: a tiny model learns that in a
//! hundred steps. In the others nouns of either number stand between, or a quantifier or `there` says the number. In every
//! template the right and the wrong form are equally frequent whatever other words occur, so a bag of words learns
//! nothing from one sentence.

use super::lexicon::LEXICON;
use super::morphology::{Noun, capitalised};
use super::phrase::Draft;
use crate::data::generator::Generator;

/// Class ids of the task.
const UNACCEPTABLE: usize = 0;
const ACCEPTABLE: usize = 1;

pub(super) fn draft(generator: &mut Generator) -> Draft {
    let right = generator.coin();
    let sentence = match generator.weighted(&[80, 10, 10]) {
        0 => prepositional(generator, right),
        1 => quantifier(generator, right),
        _ => existential(generator, right),
    };
    let class = if right { ACCEPTABLE } else { UNACCEPTABLE };
    Draft { text_a: capitalised(&sentence), text_b: None, class }
}

/// A predicate whose verb agrees with a subject in this number.
fn predicate(generator: &mut Generator, plural: bool) -> String {
    let be = |one: &'static str, many| if plural { many } else { one };
    match generator.weighted(&[60, 30, 10]) {
        0 => format!("{} {}", be("was", "were"), generator.of(&LEXICON.states)),
        1 => format!("{} very {}", be("is", "are"), generator.of(&LEXICON.states)),
        _ => format!("{} {}", be("has", "have"), generator.act().participle),
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

/// `the friends of the captain were tired`: in one sentence of ten a noun between subject and verb, as often of the
/// other number as of the same.
fn prepositional(generator: &mut Generator, right: bool) -> String {
    let plural = generator.coin();
    let [subject, between] = generator.distinct(&LEXICON.persons);
    let mut sentence = phrase(generator, subject, plural);
    if generator.draws.chance(0.1) {
        let preposition = generator.of(&["of", "near", "behind", "beside", "with", "opposite"]);
        let number = generator.coin();
        sentence = format!("{sentence} {preposition} {}", phrase(generator, between, number));
    }
    format!("{sentence} {}.", predicate(generator, plural == right))
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

/// `there were three sailors in the garden`: the verb agrees with what follows.
fn existential(generator: &mut Generator, right: bool) -> String {
    let plural = generator.coin();
    let [noun] = generator.distinct(&LEXICON.persons);
    let counted = if plural { generator.of(&["two", "three", "many", "some"]) } else { "one" };
    let verb = if plural == right { "were" } else { "was" };
    format!("there {verb} {counted} {} {}.", noun.form(plural), generator.of(&LEXICON.places))
}
