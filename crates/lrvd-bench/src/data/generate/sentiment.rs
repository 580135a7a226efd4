//! Sentiment in the manner of SST-2: praise or blame.
//!
//! Eight sentences in ten say so outright and one negates the opposite: a tiny model learns both in two hundred steps. In
//! the others a contrast, a concession, a comparison or a report turns the words of praise and blame round, or sets one
//! against the other; there the words alone say nothing. Lower case, with spaces before punctuation, as in the original.

use super::lexicon::LEXICON;
use super::morphology::article;
use super::phrase::Draft;
use crate::data::generator::Generator;

pub(super) fn draft(generator: &mut Generator) -> Draft {
    let approves = generator.coin();
    let (same, other) = if approves {
        (generator.of(&LEXICON.praise), generator.of(&LEXICON.blame))
    } else {
        (generator.of(&LEXICON.blame), generator.of(&LEXICON.praise))
    };
    let topic = generator.of(&LEXICON.topics);
    let sentence = match generator.weighted(&[164, 22, 2, 3, 3, 2, 2, 2]) {
        0 => outright(generator, topic, same),
        1 => negation(generator, topic, other),
        2 => contrast(generator, topic, same, other),
        3 => concession(generator, topic, same, other),
        4 => report(generator, topic, same, other),
        5 => comparison(generator, topic, same, other),
        6 => expectation(generator, topic, same, other),
        _ => denial(generator, topic, same, other),
    };
    Draft { text_a: sentence, text_b: None, class: usize::from(approves) }
}

/// Something between subject and verb that bears on nothing.
fn aside(generator: &mut Generator) -> String {
    match generator.weighted(&[50, 25, 25]) {
        0 => String::new(),
        1 => format!(" {}", generator.of(&LEXICON.times)),
        _ => format!(" {}", generator.of(&LEXICON.places)),
    }
}

fn outright(generator: &mut Generator, topic: &str, same: &str) -> String {
    let aside = aside(generator);
    match generator.weighted(&[50, 50]) {
        0 => format!(
            "the {topic}{aside} was {} {same} .",
            generator.of(&["very", "quite", "truly", "most"])
        ),
        _ => format!("{} {same} {topic}{aside} .", article(same)),
    }
}

fn negation(generator: &mut Generator, topic: &str, other: &str) -> String {
    let aside = aside(generator);
    let not = generator.of(&[
        "not at all",
        "by no means",
        "never",
        "far from",
        "anything but",
        "not in the least",
    ]);
    format!("the {topic}{aside} was {not} {other} .")
}

fn contrast(generator: &mut Generator, topic: &str, same: &str, other: &str) -> String {
    let (a_same, an_other) = (article(same), article(other));
    match generator.weighted(&[1, 1, 1, 1]) {
        0 => format!("not the {other} {topic} that we had expected , but {a_same} {same} one ."),
        1 => format!("it was {a_same} {same} {topic} and not {an_other} {other} one ."),
        2 => format!("the {topic} was not {other} but {same} ."),
        _ => format!("the {topic} was {same} , not {other} ."),
    }
}

fn concession(generator: &mut Generator, topic: &str, same: &str, other: &str) -> String {
    let part = generator.of(&LEXICON.parts).replace('-', " ");
    let though = generator.of(&["though", "although", "even if"]);
    if generator.coin() {
        format!("{though} the {part} was {other} , the {topic} was {same} .")
    } else {
        format!("the {topic} was {same} , {though} the {part} was {other} .")
    }
}

fn report(generator: &mut Generator, topic: &str, same: &str, other: &str) -> String {
    let [person] = generator.distinct(&LEXICON.persons);
    let person = person.one;
    let called = generator.of(&["called", "thought", "pronounced", "declared"]);
    if generator.coin() {
        format!("the {person} {called} the {topic} {same} , and was quite right .")
    } else {
        format!("the {person} {called} the {topic} {other} , and was quite wrong .")
    }
}

fn comparison(generator: &mut Generator, topic: &str, same: &str, other: &str) -> String {
    match generator.weighted(&[1, 1, 1]) {
        0 => format!("nothing could be more {same} than this {topic} ."),
        1 => format!("nothing could be less {other} than this {topic} ."),
        _ => format!("the {topic} was more {same} than {other} ."),
    }
}

fn expectation(generator: &mut Generator, topic: &str, same: &str, other: &str) -> String {
    let (a_same, an_other) = (article(same), article(other));
    if generator.coin() {
        format!("we expected {an_other} {other} {topic} and found {a_same} {same} one .")
    } else {
        format!("we found {a_same} {same} {topic} where we expected {an_other} {other} one .")
    }
}

fn denial(generator: &mut Generator, topic: &str, same: &str, other: &str) -> String {
    if generator.coin() {
        format!("no one could deny that the {topic} was {same} .")
    } else {
        format!("no one could say that the {topic} was {other} .")
    }
}
