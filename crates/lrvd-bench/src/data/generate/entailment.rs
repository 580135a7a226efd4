//! Entailment in the manner of RTE and MNLI: does the second sentence follow from the first?
//!
//! Quantifiers, negation, coordination, verbs that imply their complement or do not, roles, relative clauses,
//! comparatives and order in time. The relation is drawn first, then a pair that has it; every pattern is used
//! in both directions and with affirmed and denied hypotheses.

use super::event::{Difference, Event, Wording};
use super::lexicon::LEXICON;
use super::morphology::{Verb, capitalised};
use super::scribe::{Draft, Scribe};
use crate::data::Label;

/// How the hypothesis stands to the premise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Relation {
    Entailment,
    Neutral,
    Contradiction,
}

use Relation::{Contradiction, Entailment, Neutral};

/// Three classes, equally frequent.
pub(super) fn three_way(scribe: &mut Scribe) -> Draft {
    let relation = [Entailment, Neutral, Contradiction][scribe.draws.index(3)];
    draft(scribe, relation, relation as usize)
}

/// Two classes, equally frequent; what does not follow is neutral in two of three cases.
pub(super) fn two_way(scribe: &mut Scribe) -> Draft {
    let relation = match scribe.weighted(&[3, 2, 1]) {
        0 => Entailment,
        1 => Neutral,
        _ => Contradiction,
    };
    draft(scribe, relation, usize::from(relation != Entailment))
}

fn draft(scribe: &mut Scribe, relation: Relation, class: usize) -> Draft {
    let [premise, hypothesis] = match scribe.weighted(&[24, 14, 16, 12, 16, 10, 8]) {
        0 => quantifiers(scribe, relation),
        1 => coordination(scribe, relation),
        2 => complement(scribe, relation),
        3 => roles(scribe, relation),
        4 => relative_clause(scribe, relation),
        5 => comparison(scribe, relation),
        _ => order_in_time(scribe, relation),
    };
    let finish = |clause: String| format!("{}.", capitalised(&clause));
    Draft::pair(finish(premise), finish(hypothesis), Label::Class(class))
}

/// `did not sing` or `sang`.
fn finite(verb: &Verb, affirmed: bool) -> String {
    if affirmed { verb.past.clone() } else { format!("did not {}", verb.base) }
}

/// Sets and their subsets: `the sailors` holds `the old sailors`; who `sang in the garden` also `sang`.
fn quantifiers(scribe: &mut Scribe, relation: Relation) -> [String; 2] {
    let [noun] = scribe.distinct(&LEXICON.persons);
    let (many, epithet) = (&noun.many, scribe.of(&LEXICON.epithets));
    let (verb, place) = (scribe.act(), scribe.of(&LEXICON.places));
    let narrow = format!("{epithet} {many}");
    let (sang, sang_there) = (verb.past.clone(), format!("{} {place}", verb.past));
    let all = |set: &str, did: &str| format!("all the {set} {did}");
    let some = |set: &str, did: &str| format!("some {set} {did}");
    let none = |set: &str, did: &str| format!("no {set} {did}");
    let silent = |set: &str| format!("some {set} did not {} {place}", verb.base);
    let options: Vec<[String; 2]> = match relation {
        Entailment => vec![
            [all(many, &sang_there), all(&narrow, &sang_there)],
            [all(&narrow, &sang_there), all(&narrow, &sang)],
            [none(many, &sang_there), none(&narrow, &sang_there)],
            [none(many, &sang), none(many, &sang_there)],
            [some(&narrow, &sang_there), some(many, &sang_there)],
            [some(many, &sang_there), some(many, &sang)],
            [format!("not {}", all(many, &sang_there)), silent(many)],
            [silent(&narrow), silent(many)],
        ],
        Neutral => vec![
            [all(&narrow, &sang_there), all(many, &sang_there)],
            [all(&narrow, &sang), all(&narrow, &sang_there)],
            [none(&narrow, &sang_there), none(many, &sang_there)],
            [none(many, &sang_there), none(many, &sang)],
            [some(many, &sang_there), some(&narrow, &sang_there)],
            [some(many, &sang), some(many, &sang_there)],
            [format!("not {}", all(many, &sang_there)), silent(&narrow)],
            [silent(many), silent(&narrow)],
        ],
        Contradiction => vec![
            [all(many, &sang_there), silent(&narrow)],
            [all(many, &sang_there), none(&narrow, &sang_there)],
            [none(many, &sang_there), some(&narrow, &sang_there)],
            [none(many, &sang), some(many, &sang_there)],
            [some(&narrow, &sang_there), none(many, &sang_there)],
            [some(many, &sang_there), none(many, &sang)],
            [silent(&narrow), all(many, &sang_there)],
            [format!("not {}", all(many, &sang_there)), all(many, &sang_there)],
        ],
    };
    one_of(scribe, options)
}

fn one_of(scribe: &mut Scribe, mut options: Vec<[String; 2]>) -> [String; 2] {
    let index = scribe.draws.index(options.len());
    options.swap_remove(index)
}

/// `the doctor and the widow sang`, `the doctor or the widow sang`, `neither … nor …`.
fn coordination(scribe: &mut Scribe, relation: Relation) -> [String; 2] {
    let [first, second] = scribe.two_persons();
    let (verb, place) = (scribe.act(), scribe.of(&LEXICON.places));
    let one = if scribe.coin() { &first } else { &second };
    let affirmed = scribe.coin();
    let hypothesis = format!("{one} {} {place}", finite(verb, affirmed));
    let both = format!("both {first} and {second} {} {place}", verb.past);
    let either = format!("either {first} or {second} {} {place}", verb.past);
    let neither = format!("neither {first} nor {second} {} {place}", verb.past);
    let premise = match relation {
        Neutral => either,
        Entailment if affirmed => both,
        Contradiction if !affirmed => both,
        Entailment | Contradiction => neither,
    };
    [premise, hypothesis]
}

/// `managed to sing`, `refused to sing`, `hoped to sing`; `knew that`, `wrongly believed that`, `was told that`.
fn complement(scribe: &mut Scribe, relation: Relation) -> [String; 2] {
    let [first, second] = scribe.two_persons();
    let (verb, place) = (scribe.act(), scribe.of(&LEXICON.places));
    let affirmed = scribe.coin();
    // What the main verb must say of its complement for the hypothesis to stand in the wanted relation.
    let said = match relation {
        Neutral => 2,
        Entailment => usize::from(!affirmed),
        Contradiction => usize::from(affirmed),
    };
    if scribe.coin() {
        let main = scribe.of([
            &["managed to", "dared to", "contrived to", "did not fail to", "did not forget to"][..],
            &["refused to", "failed to", "forgot to", "did not dare to", "did not manage to"],
            &["hoped to", "promised to", "wished to", "did not hope to", "did not promise to"],
        ][said]);
        let premise = format!("{first} {main} {} {place}", verb.base);
        [premise, format!("{first} {} {place}", finite(verb, affirmed))]
    } else {
        let main = scribe.of([
            &["knew that", "was glad that", "remembered that", "did not know that"][..],
            &["wrongly believed that", "was deceived into thinking that", "falsely said that"],
            &["believed that", "was told that", "suspected that", "did not believe that"],
        ][said]);
        let premise = format!("{first} {main} {second} {} {place}", verb.past);
        [premise, format!("{second} {} {place}", finite(verb, affirmed))]
    }
}

/// Active and passive voice with the same persons in the same or in exchanged roles.
fn roles(scribe: &mut Scribe, relation: Relation) -> [String; 2] {
    let event = Event::draw(scribe);
    let mut wording = || Wording { passive: scribe.coin(), time_first: false, twin: scribe.coin() };
    let (first, second) = (wording(), wording());
    let affirmed = scribe.coin();
    let premise = Event { negated: !affirmed, ..event.clone() };
    let hypothesis = match relation {
        Entailment => premise.clone(),
        Contradiction => premise.variant(scribe, Difference::Negation),
        Neutral if scribe.coin() => event.swapped(),
        Neutral => Event { negated: true, ..event.swapped() },
    };
    [premise.clause(first), hypothesis.clause(second)]
}

/// `the doctor who thanked the widow sang`: who sang, and who thanked whom?
fn relative_clause(scribe: &mut Scribe, relation: Relation) -> [String; 2] {
    let [first, second] = scribe.two_persons();
    let (deed, act, place) = (scribe.deed(), scribe.act(), scribe.of(&LEXICON.places));
    let first_acts = scribe.coin();
    let (agent, patient) = if first_acts { (&first, &second) } else { (&second, &first) };
    let clause = if first_acts {
        format!("who {} {second}", deed.past)
    } else {
        format!("whom {second} {}", deed.past)
    };
    let premise = format!("{first} {clause} {} {place}", act.past);
    let about_deed = scribe.coin();
    let affirmed = relation == Entailment || (relation == Neutral && scribe.coin());
    let hypothesis = match (about_deed, relation) {
        (true, Neutral) => {
            if affirmed {
                format!("{patient} {} {agent}", deed.past)
            } else {
                format!("{patient} did not {} {agent}", deed.base)
            }
        }
        (true, _) => format!("{agent} {} {patient}", finite(deed, affirmed)),
        (false, Neutral) => format!("{second} {} {place}", finite(act, affirmed)),
        (false, _) => format!("{first} {} {place}", finite(act, affirmed)),
    };
    [premise, hypothesis]
}

/// `the doctor was older than the widow`.
fn comparison(scribe: &mut Scribe, relation: Relation) -> [String; 2] {
    let [first, second] = scribe.two_persons();
    let [pair, other] = scribe.distinct(&LEXICON.comparatives);
    let (more, less) = if scribe.coin() { (pair[0], pair[1]) } else { (pair[1], pair[0]) };
    let premise = format!("{first} was {more} than {second}");
    let turned = scribe.coin();
    let hypothesis = match (relation, turned) {
        (Entailment, true) => format!("{second} was {less} than {first}"),
        (Entailment, false) => format!("{second} was not {more} than {first}"),
        (Contradiction, true) => format!("{second} was {more} than {first}"),
        (Contradiction, false) => format!("{first} was {less} than {second}"),
        (Neutral, true) => format!("{second} was {} than {first}", other[scribe.draws.index(2)]),
        (Neutral, false) => {
            format!("{first} was not {} than {second}", other[scribe.draws.index(2)])
        }
    };
    [premise, hypothesis]
}

/// `the doctor sang before the widow slept`.
fn order_in_time(scribe: &mut Scribe, relation: Relation) -> [String; 2] {
    let [first, second] = scribe.two_persons();
    let [act, next] = scribe.distinct(&LEXICON.acts);
    let (act, next) = (format!("{first} {}", act.past), format!("{second} {}", next.past));
    let place = scribe.of(&LEXICON.places);
    let earlier_first = scribe.coin();
    let told = |earlier_first: bool, early: &str, late: &str| {
        if earlier_first {
            format!("{early} before {late}")
        } else {
            format!("{late} after {early}")
        }
    };
    let premise = told(earlier_first, &act, &next);
    let same_order = scribe.coin();
    let hypothesis = match relation {
        Entailment => told(!earlier_first, &act, &next),
        Contradiction => told(same_order, &next, &act),
        Neutral => format!("{} {place}", told(same_order, &act, &next)),
    };
    [premise, hypothesis]
}
