//! Sentiment in the manner of SST-2: does the writer approve?
//!
//! Six sentences in ten say so outright. In the others a negation, a contrast, a concession, a comparison or a
//! report turns the words of praise and blame round, or sets one against the other; there the words alone say
//! nothing. Lower case, with spaces before punctuation, as in the original.

use super::lexicon::LEXICON;
use super::morphology::article;
use super::scribe::{Draft, Scribe};

pub(super) fn draft(scribe: &mut Scribe) -> Draft {
    let approves = scribe.coin();
    let (same, other) = if approves {
        (scribe.of(&LEXICON.praise), scribe.of(&LEXICON.blame))
    } else {
        (scribe.of(&LEXICON.blame), scribe.of(&LEXICON.praise))
    };
    let topic = scribe.of(&LEXICON.topics);
    let sentence = match scribe.weighted(&[105, 10, 14, 14, 10, 8, 7, 7]) {
        0 => outright(scribe, topic, same),
        1 => negation(scribe, topic, other),
        2 => contrast(scribe, topic, same, other),
        3 => concession(scribe, topic, same, other),
        4 => report(scribe, topic, same, other),
        5 => comparison(scribe, topic, same, other),
        6 => expectation(scribe, topic, same, other),
        _ => denial(scribe, topic, same, other),
    };
    Draft::single(sentence, usize::from(approves))
}

/// Something between subject and verb that bears on nothing.
fn aside(scribe: &mut Scribe) -> String {
    match scribe.weighted(&[50, 25, 25]) {
        0 => String::new(),
        1 => format!(" {}", scribe.of(&LEXICON.times)),
        _ => format!(" {}", scribe.of(&LEXICON.places)),
    }
}

fn outright(scribe: &mut Scribe, topic: &str, same: &str) -> String {
    let aside = aside(scribe);
    match scribe.weighted(&[50, 50]) {
        0 => format!(
            "the {topic}{aside} was {} {same} .",
            scribe.of(&["very", "quite", "truly", "most"])
        ),
        _ => format!("{} {same} {topic}{aside} .", article(same)),
    }
}

fn negation(scribe: &mut Scribe, topic: &str, other: &str) -> String {
    let aside = aside(scribe);
    let not = scribe.of(&[
        "not at all",
        "by no means",
        "never",
        "far from",
        "anything but",
        "not in the least",
    ]);
    format!("the {topic}{aside} was {not} {other} .")
}

fn contrast(scribe: &mut Scribe, topic: &str, same: &str, other: &str) -> String {
    let (a_same, an_other) = (article(same), article(other));
    match scribe.weighted(&[1, 1, 1, 1]) {
        0 => format!("not the {other} {topic} that we had expected , but {a_same} {same} one ."),
        1 => format!("it was {a_same} {same} {topic} and not {an_other} {other} one ."),
        2 => format!("the {topic} was not {other} but {same} ."),
        _ => format!("the {topic} was {same} , not {other} ."),
    }
}

fn concession(scribe: &mut Scribe, topic: &str, same: &str, other: &str) -> String {
    let part = scribe.of(&LEXICON.parts).replace('-', " ");
    let though = scribe.of(&["though", "although", "even if"]);
    if scribe.coin() {
        format!("{though} the {part} was {other} , the {topic} was {same} .")
    } else {
        format!("the {topic} was {same} , {though} the {part} was {other} .")
    }
}

fn report(scribe: &mut Scribe, topic: &str, same: &str, other: &str) -> String {
    let [person] = scribe.distinct(&LEXICON.persons);
    let person = person.one;
    let called = scribe.of(&["called", "thought", "pronounced", "declared"]);
    if scribe.coin() {
        format!("the {person} {called} the {topic} {same} , and was quite right .")
    } else {
        format!("the {person} {called} the {topic} {other} , and was quite wrong .")
    }
}

fn comparison(scribe: &mut Scribe, topic: &str, same: &str, other: &str) -> String {
    match scribe.weighted(&[1, 1, 1]) {
        0 => format!("nothing could be more {same} than this {topic} ."),
        1 => format!("nothing could be less {other} than this {topic} ."),
        _ => format!("the {topic} was more {same} than {other} ."),
    }
}

fn expectation(scribe: &mut Scribe, topic: &str, same: &str, other: &str) -> String {
    let (a_same, an_other) = (article(same), article(other));
    if scribe.coin() {
        format!("we expected {an_other} {other} {topic} and found {a_same} {same} one .")
    } else {
        format!("we found {a_same} {same} {topic} where we expected {an_other} {other} one .")
    }
}

fn denial(scribe: &mut Scribe, topic: &str, same: &str, other: &str) -> String {
    if scribe.coin() {
        format!("no one could deny that the {topic} was {same} .")
    } else {
        format!("no one could say that the {topic} was {other} .")
    }
}
