//! Paraphrase in the manner of MRPC, question pairs in the manner of QQP, graded similarity in the manner of STS-B.
//!
//! Equivalent sentences differ in voice, order or verb; sentences that are not equivalent differ so as well, and
//! one in six only in who did it to whom: the same words in other roles.

use super::event::{Difference, Event, Wording, two_wordings};
use super::morphology::capitalised;
use super::scribe::{Draft, Scribe};
use crate::data::Label;

/// How often unequal events differ in what, in [`DIFFERENCES`] order.
const WEIGHTS: [usize; 6] = [16, 20, 20, 20, 10, 14];
const DIFFERENCES: [Difference; 6] = [
    Difference::Roles,
    Difference::Agent,
    Difference::Patient,
    Difference::Verb,
    Difference::Time,
    Difference::Negation,
];

/// Two sentences; class 1 if they tell the same event.
pub(super) fn draft(scribe: &mut Scribe) -> Draft {
    let equivalent = scribe.coin();
    let mut event = Event::draw(scribe);
    event.negated = scribe.draws.chance(0.15);
    let other = partner(scribe, &event, equivalent);
    let [first, second] = two_wordings(scribe);
    let label = Label::Class(usize::from(equivalent));
    Draft::pair(event.sentence(first), other.sentence(second), label)
}

/// The same event, or one that differs.
fn partner(scribe: &mut Scribe, event: &Event, equivalent: bool) -> Event {
    if equivalent {
        return event.clone();
    }
    let difference = DIFFERENCES[scribe.weighted(&WEIGHTS)];
    event.variant(scribe, difference)
}

/// What a question asks for: its wording in the active and in the passive voice begins with these.
const ASKED: [[&str; 2]; 4] = [
    ["why", "for what reason"],
    ["how", "in what way"],
    ["with what purpose", "to what end"],
    ["how often", "how many times"],
];

/// Two questions; class 1 if they ask the same.
pub(super) fn question_draft(scribe: &mut Scribe) -> Draft {
    let duplicate = scribe.coin();
    let event = Event::draw(scribe);
    let asked = scribe.draws.index(ASKED.len());
    let [first, second] = two_wordings(scribe);
    // A fifth of the unequal pairs ask something else about the same event.
    let elsewhere = !duplicate && scribe.draws.chance(0.2);
    let other_asked = if elsewhere {
        (asked + 1 + scribe.draws.index(ASKED.len() - 1)) % ASKED.len()
    } else {
        asked
    };
    let other = if elsewhere || duplicate {
        event.clone()
    } else {
        let weights = [55, 15, 15, 15];
        let difference = DIFFERENCES[scribe.weighted(&weights)];
        event.variant(scribe, difference)
    };
    let text_a = question(scribe, &event, asked, first);
    let text_b = question(scribe, &other, other_asked, second);
    Draft::pair(text_a, text_b, Label::Class(usize::from(duplicate)))
}

fn question(scribe: &mut Scribe, event: &Event, asked: usize, wording: Wording) -> String {
    let asked = capitalised(scribe.of(&ASKED[asked]));
    let verb = event.verb[usize::from(wording.twin)];
    let Event { agent, patient, place, .. } = event;
    if wording.passive {
        format!("{asked} was {patient} {} by {agent} {place}?", verb.participle)
    } else {
        format!("{asked} did {agent} {} {patient} {place}?", verb.base)
    }
}

/// What each difference takes from the full score of 5.
const COSTS: [(Difference, f64); 6] = [
    (Difference::Roles, 2.0),
    (Difference::Agent, 1.5),
    (Difference::Verb, 1.75),
    (Difference::Place, 0.75),
    (Difference::Time, 0.5),
    (Difference::Negation, 1.25),
];

/// Two sentences with a score of 5 less the cost of each difference, at least 0.
pub(super) fn similarity_draft(scribe: &mut Scribe) -> Draft {
    let event = Event::draw(scribe);
    let mut other = event.clone();
    let mut score: f64 = 5.0;
    let wanted = scribe.weighted(&[15, 30, 25, 15, 15]);
    let mut costs = COSTS;
    scribe.draws.shuffle(&mut costs);
    // Roles first: exchanging persons after one was replaced would not be the same difference.
    let chosen = &mut costs[..wanted];
    chosen.sort_by_key(|(difference, _)| *difference != Difference::Roles);
    for (difference, cost) in chosen {
        other = other.variant(scribe, *difference);
        score -= *cost;
    }
    let [first, second] = two_wordings(scribe);
    Draft::pair(event.sentence(first), other.sentence(second), Label::Score(score.max(0.0)))
}
