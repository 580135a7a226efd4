//! Who did what to whom, when and where: one event in several wordings.

use super::lexicon::LEXICON;
use super::morphology::{Verb, capitalised};
use super::scribe::Scribe;

/// A deed between two persons.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Event {
    pub(super) agent: String,
    pub(super) patient: String,
    /// Two verbs of the same meaning, or twice the same one.
    pub(super) verb: [&'static Verb; 2],
    pub(super) time: &'static str,
    pub(super) place: &'static str,
    pub(super) negated: bool,
}

/// One way of telling an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Wording {
    pub(super) passive: bool,
    /// The time stands before the subject.
    pub(super) time_first: bool,
    /// The second of the two verbs.
    pub(super) twin: bool,
}

impl Event {
    /// An event; three in five have two verbs to choose from.
    pub(super) fn draw(scribe: &mut Scribe) -> Self {
        let [agent, patient] = scribe.two_persons();
        let verb = if scribe.draws.chance(0.6) {
            let [[first, second]] = scribe.distinct(&LEXICON.twins);
            if scribe.coin() { [first, second] } else { [second, first] }
        } else {
            [scribe.deed(); 2]
        };
        let (time, place) = (scribe.of(&LEXICON.times), scribe.of(&LEXICON.places));
        Self { agent, patient, verb, time, place, negated: false }
    }

    /// The same deed with the persons in each other's place.
    pub(super) fn swapped(&self) -> Self {
        Self { agent: self.patient.clone(), patient: self.agent.clone(), ..self.clone() }
    }

    /// A sentence without its capital and full stop.
    pub(super) fn clause(&self, wording: Wording) -> String {
        let verb = self.verb[usize::from(wording.twin)];
        let Self { agent, patient, time, place, negated, .. } = self;
        let core = match (wording.passive, negated) {
            (false, false) => format!("{agent} {} {patient} {place}", verb.past),
            (false, true) => format!("{agent} did not {} {patient} {place}", verb.base),
            (true, false) => format!("{patient} was {} by {agent} {place}", verb.participle),
            (true, true) => format!("{patient} was not {} by {agent} {place}", verb.participle),
        };
        if wording.time_first { format!("{time} , {core}") } else { format!("{core} {time}") }
    }

    /// A sentence, with a space before the full stop.
    pub(super) fn sentence(&self, wording: Wording) -> String {
        format!("{} .", capitalised(&self.clause(wording)))
    }

    /// Another event that shares much with this one, and how it differs.
    pub(super) fn variant(&self, scribe: &mut Scribe, difference: Difference) -> Self {
        let mut other = self.clone();
        match difference {
            Difference::Roles => other = self.swapped(),
            Difference::Agent | Difference::Patient => {
                let [mut person, _] = scribe.two_persons();
                while person == self.agent || person == self.patient {
                    [person, _] = scribe.two_persons();
                }
                if difference == Difference::Agent {
                    other.agent = person;
                } else {
                    other.patient = person;
                }
            }
            Difference::Verb => {
                // A deed whose meaning is neither of the two: no member of either verb's pair.
                let same = |verb: &Verb| {
                    LEXICON.twins.iter().any(|pair| {
                        pair.iter().any(|v| v.base == verb.base)
                            && pair.iter().any(|v| self.verb.iter().any(|s| s.base == v.base))
                    })
                };
                let mut verb = scribe.deed();
                while self.verb.contains(&verb) || same(verb) {
                    verb = scribe.deed();
                }
                other.verb = [verb; 2];
            }
            Difference::Time => {
                while other.time == self.time {
                    other.time = scribe.of(&LEXICON.times);
                }
            }
            Difference::Place => {
                while other.place == self.place {
                    other.place = scribe.of(&LEXICON.places);
                }
            }
            Difference::Negation => other.negated = !self.negated,
        }
        other
    }
}

/// In what two events differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Difference {
    /// The persons have changed places.
    Roles,
    /// Somebody else did it.
    Agent,
    /// It was done to somebody else.
    Patient,
    /// Something else was done.
    Verb,
    /// At another time.
    Time,
    /// In another place.
    Place,
    /// It was not done.
    Negation,
}

/// Two wordings that differ; any difference is as likely for events that are the same as for others.
pub(super) fn two_wordings(scribe: &mut Scribe) -> [Wording; 2] {
    loop {
        let mut wording =
            || Wording { passive: scribe.coin(), time_first: scribe.coin(), twin: scribe.coin() };
        let pair = [wording(), wording()];
        if pair[0].passive != pair[1].passive || pair[0].time_first != pair[1].time_first {
            return pair;
        }
    }
}
