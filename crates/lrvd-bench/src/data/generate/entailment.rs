//! Entailment in the manner of RTE: the second sentence follows from the first, or does not.
//!
//! Quantifiers, negation, coordination, verbs that imply their complement or do not, roles, relative clauses,
//! comparatives and order in time. The relation is drawn first, then a pair that has it; every pattern is used
//! in both directions and with affirmed and denied hypotheses.

use super::lexicon::LEXICON;
use super::morphology::{Verb, capitalised};
use super::phrase::Draft;
use crate::data::generator::Generator;

/// How the hypothesis stands to the premise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Relation {
    Entailment,
    Neutral,
    Contradiction,
}

use Relation::{Contradiction, Entailment, Neutral};

/// Two classes, equally frequent; what does not follow is neutral in two of three cases.
pub(super) fn draft(generator: &mut Generator) -> Draft {
    let relation = match generator.weighted(&[3, 2, 1]) {
        0 => Entailment,
        1 => Neutral,
        _ => Contradiction,
    };
    let [premise, hypothesis] = match generator.weighted(&[24, 14, 16, 12, 16, 10, 8]) {
        0 => quantifiers(generator, relation),
        1 => coordination(generator, relation),
        2 => complement(generator, relation),
        3 => roles(generator, relation),
        4 => relative_clause(generator, relation),
        5 => comparison(generator, relation),
        _ => order_in_time(generator, relation),
    };
    let finish = |clause: String| format!("{}.", capitalised(&clause));
    let class = usize::from(relation != Entailment);
    Draft { text_a: finish(premise), text_b: Some(finish(hypothesis)), class }
}

/// `did not sing` or `sang`.
fn finite(verb: &Verb, affirmed: bool) -> String {
    if affirmed { verb.past.clone() } else { format!("did not {}", verb.base) }
}

/// Sets and their subsets: `the sailors` holds `the old sailors`; who `sang in the garden` also `sang`.
fn quantifiers(generator: &mut Generator, relation: Relation) -> [String; 2] {
    let [noun] = generator.distinct(&LEXICON.persons);
    let (many, epithet) = (&noun.many, generator.of(&LEXICON.epithets));
    let (verb, place) = (generator.act(), generator.of(&LEXICON.places));
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
    one_of(generator, options)
}

fn one_of(generator: &mut Generator, mut options: Vec<[String; 2]>) -> [String; 2] {
    let index = generator.draws.index(options.len());
    options.swap_remove(index)
}

/// `the doctor and the widow sang`, `the doctor or the widow sang`, `neither … nor …`.
fn coordination(generator: &mut Generator, relation: Relation) -> [String; 2] {
    let [first, second] = generator.two_persons();
    let (verb, place) = (generator.act(), generator.of(&LEXICON.places));
    let one = if generator.coin() { &first } else { &second };
    let affirmed = generator.coin();
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
fn complement(generator: &mut Generator, relation: Relation) -> [String; 2] {
    let [first, second] = generator.two_persons();
    let (verb, place) = (generator.act(), generator.of(&LEXICON.places));
    let affirmed = generator.coin();
    // What the main verb must say of its complement for the hypothesis to stand in the wanted relation.
    let said = match relation {
        Neutral => 2,
        Entailment => usize::from(!affirmed),
        Contradiction => usize::from(affirmed),
    };
    if generator.coin() {
        let main = generator.of([
            &["managed to", "dared to", "contrived to", "did not fail to", "did not forget to"][..],
            &["refused to", "failed to", "forgot to", "did not dare to", "did not manage to"],
            &["hoped to", "promised to", "wished to", "did not hope to", "did not promise to"],
        ][said]);
        let premise = format!("{first} {main} {} {place}", verb.base);
        [premise, format!("{first} {} {place}", finite(verb, affirmed))]
    } else {
        let main = generator.of([
            &["knew that", "was glad that", "remembered that", "did not know that"][..],
            &["wrongly believed that", "was deceived into thinking that", "falsely said that"],
            &["believed that", "was told that", "suspected that", "did not believe that"],
        ][said]);
        let premise = format!("{first} {main} {second} {} {place}", verb.past);
        [premise, format!("{second} {} {place}", finite(verb, affirmed))]
    }
}

/// Active and passive voice with the same persons in the same or in exchanged roles.
fn roles(generator: &mut Generator, relation: Relation) -> [String; 2] {
    let persons = generator.two_persons();
    // Three deeds in five have two verbs to choose from.
    let verbs = if generator.draws.chance(0.6) {
        let [[first, second]] = generator.distinct(&LEXICON.twins);
        if generator.coin() { [first, second] } else { [second, first] }
    } else {
        [generator.deed(); 2]
    };
    let (time, place) = (generator.of(&LEXICON.times), generator.of(&LEXICON.places));
    let mut wording = || (generator.coin(), verbs[usize::from(generator.coin())]);
    let (first, second) = (wording(), wording());
    let told = |swapped: bool, affirmed: bool, (passive, verb): (bool, &Verb)| {
        let [agent, patient] =
            if swapped { [&persons[1], &persons[0]] } else { [&persons[0], &persons[1]] };
        let core = match (passive, affirmed) {
            (false, _) => format!("{agent} {} {patient}", finite(verb, affirmed)),
            (true, true) => format!("{patient} was {} by {agent}", verb.participle),
            (true, false) => format!("{patient} was not {} by {agent}", verb.participle),
        };
        format!("{core} {place} {time}")
    };
    let affirmed = generator.coin();
    let (swapped, said) = match relation {
        Entailment => (false, affirmed),
        Contradiction => (false, !affirmed),
        Neutral => (true, generator.coin()),
    };
    [told(false, affirmed, first), told(swapped, said, second)]
}

/// `the doctor who thanked the widow sang`: who sang, and who thanked whom?
fn relative_clause(generator: &mut Generator, relation: Relation) -> [String; 2] {
    let [first, second] = generator.two_persons();
    let (deed, act, place) = (generator.deed(), generator.act(), generator.of(&LEXICON.places));
    let first_acts = generator.coin();
    let (agent, patient) = if first_acts { (&first, &second) } else { (&second, &first) };
    let clause = if first_acts {
        format!("who {} {second}", deed.past)
    } else {
        format!("whom {second} {}", deed.past)
    };
    let premise = format!("{first} {clause} {} {place}", act.past);
    let about_deed = generator.coin();
    let affirmed = relation == Entailment || (relation == Neutral && generator.coin());
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
fn comparison(generator: &mut Generator, relation: Relation) -> [String; 2] {
    let [first, second] = generator.two_persons();
    let [pair, other] = generator.distinct(&LEXICON.comparatives);
    let (more, less) = if generator.coin() { (pair[0], pair[1]) } else { (pair[1], pair[0]) };
    let premise = format!("{first} was {more} than {second}");
    let turned = generator.coin();
    let hypothesis = match (relation, turned) {
        (Entailment, true) => format!("{second} was {less} than {first}"),
        (Entailment, false) => format!("{second} was not {more} than {first}"),
        (Contradiction, true) => format!("{second} was {more} than {first}"),
        (Contradiction, false) => format!("{first} was {less} than {second}"),
        (Neutral, true) => format!("{second} was {} than {first}", other[generator.draws.index(2)]),
        (Neutral, false) => {
            format!("{first} was not {} than {second}", other[generator.draws.index(2)])
        }
    };
    [premise, hypothesis]
}

/// `the doctor sang before the widow slept`.
fn order_in_time(generator: &mut Generator, relation: Relation) -> [String; 2] {
    let [first, second] = generator.two_persons();
    let [act, next] = generator.distinct(&LEXICON.acts);
    let (act, next) = (format!("{first} {}", act.past), format!("{second} {}", next.past));
    let place = generator.of(&LEXICON.places);
    let earlier_first = generator.coin();
    let told = |earlier_first: bool, early: &str, late: &str| {
        if earlier_first {
            format!("{early} before {late}")
        } else {
            format!("{late} after {early}")
        }
    };
    let premise = told(earlier_first, &act, &next);
    let same_order = generator.coin();
    let hypothesis = match relation {
        Entailment => told(!earlier_first, &act, &next),
        Contradiction => told(same_order, &next, &act),
        Neutral => format!("{} {place}", told(same_order, &act, &next)),
    };
    [premise, hypothesis]
}
