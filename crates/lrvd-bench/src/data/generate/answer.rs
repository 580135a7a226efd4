//! Question answering in the manner of QNLI: does the sentence hold the answer to the question?
//!
//! Every sentence tells of the persons in question. It does not answer where it leaves out what is asked (but tells
//! something else), tells it of another deed in the same sentence, has the persons in other roles, or tells of
//! another deed. Which circumstances occur is equally frequent in both classes, so a bag of words learns nothing.

use super::event::{Difference, Event};
use super::lexicon::LEXICON;
use super::morphology::capitalised;
use super::scribe::{Draft, Scribe};
use crate::data::Label;

/// Class ids of the task.
const ENTAILMENT: usize = 0;
const NOT_ENTAILMENT: usize = 1;

/// What can be asked of an event besides its persons, in the order of [`circumstance`].
const QUESTIONS: [&str; 4] = ["where", "when", "how", "why"];

pub(super) fn draft(scribe: &mut Scribe) -> Draft {
    let answered = scribe.coin();
    let event = Event::draw(scribe);
    let (question, sentence) = if scribe.draws.chance(0.75) {
        about_circumstance(scribe, &event, answered)
    } else {
        about_person(scribe, &event, answered)
    };
    let label = Label::Class(if answered { ENTAILMENT } else { NOT_ENTAILMENT });
    Draft::pair(capitalised(&question), capitalised(&sentence), label)
}

fn circumstance(scribe: &mut Scribe, kind: usize) -> &'static str {
    let list = [&LEXICON.places, &LEXICON.times, &LEXICON.manners, &LEXICON.reasons][kind];
    scribe.of(list)
}

/// `the doctor thanked the widow`, or the same in the passive voice.
fn told(scribe: &mut Scribe, event: &Event) -> String {
    let verb = event.verb[usize::from(scribe.coin())];
    let Event { agent, patient, .. } = event;
    if scribe.coin() {
        format!("{agent} {} {patient}", verb.past)
    } else {
        format!("{patient} was {} by {agent}", verb.participle)
    }
}

/// `where did the doctor thank the widow?`
fn asked(scribe: &mut Scribe, event: &Event, kind: usize) -> String {
    let verb = event.verb[usize::from(scribe.coin())];
    let (question, Event { agent, patient, .. }) = (QUESTIONS[kind], event);
    if scribe.coin() {
        format!("{question} did {agent} {} {patient}?", verb.base)
    } else {
        format!("{question} was {patient} {} by {agent}?", verb.participle)
    }
}

fn about_circumstance(scribe: &mut Scribe, event: &Event, answered: bool) -> (String, String) {
    let mut kinds = [0, 1, 2, 3];
    scribe.draws.shuffle(&mut kinds);
    let [kind, other_kind, third_kind, _] = kinds;
    let question = asked(scribe, event, kind);
    let (answer, other) = (circumstance(scribe, kind), circumstance(scribe, other_kind));
    let third = circumstance(scribe, third_kind);
    let [bystander, _] = scribe.two_persons();
    let act = &scribe.act().past;
    // Two circumstances in every sentence; a bystander with one of them in half of both classes.
    let beside = scribe.coin();
    let reason = if answered { 0 } else { scribe.weighted(&[50, 30, 20]) };
    let subject = match reason {
        1 => event.swapped(),
        2 => event.variant(scribe, Difference::Verb),
        _ => event.clone(),
    };
    let told = told(scribe, &subject);
    let answers = answered || reason > 0;
    let sentence = match (beside, answers) {
        (true, true) => format!("{told} {answer}, and {bystander} {act} {other}."),
        (true, false) => format!("{told} {other}, and {bystander} {act} {answer}."),
        (false, true) => {
            let (first, second) = if scribe.coin() { (answer, other) } else { (other, answer) };
            format!("{told} {first} {second}.")
        }
        (false, false) => {
            let (first, second) = if scribe.coin() { (third, other) } else { (other, third) };
            format!("{told} {first} {second}.")
        }
    };
    (question, sentence)
}

/// `who thanked the widow?`, `whom did the doctor thank?`
fn about_person(scribe: &mut Scribe, event: &Event, answered: bool) -> (String, String) {
    let asks_agent = scribe.coin();
    let verb = event.verb[usize::from(scribe.coin())];
    let Event { agent, patient, .. } = event;
    let question = if asks_agent {
        format!("who {} {patient}?", verb.past)
    } else {
        format!("whom did {agent} {}?", verb.base)
    };
    let place = scribe.of(&LEXICON.places);
    // The wrong sentence has the known person in the other role, or tells of another deed.
    let subject = if answered {
        event.clone()
    } else if scribe.draws.chance(0.7) {
        event.swapped()
    } else {
        event.variant(scribe, Difference::Verb)
    };
    (question, format!("{} {place}.", told(scribe, &subject)))
}
