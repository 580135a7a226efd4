//! The spelling of plurals, past tenses and participles.

/// A noun in both numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Noun {
    pub(super) one: &'static str,
    pub(super) many: String,
}

impl Noun {
    /// Reads `singular` or `singular/plural`.
    pub(super) fn parse(entry: &'static str) -> Self {
        match entry.split_once('/') {
            Some((one, many)) => Self { one, many: many.to_owned() },
            None => Self { one: entry, many: with_s(entry) },
        }
    }

    /// The form for one, or for more than one.
    pub(super) fn form(&self, plural: bool) -> &str {
        if plural { &self.many } else { self.one }
    }
}

/// The forms of a verb.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Verb {
    pub(super) base: String,
    pub(super) past: String,
    pub(super) participle: String,
}

impl Verb {
    /// Reads `base` or `base/past/participle`; a hyphen stands for a space (`reply-to`).
    pub(super) fn parse(entry: &'static str) -> Self {
        let forms: Vec<String> = entry.split('/').map(|form| form.replace('-', " ")).collect();
        if let [base, past, participle] = forms.as_slice() {
            return Self { base: base.clone(), past: past.clone(), participle: participle.clone() };
        }
        let past = with_ed(entry);
        Self { base: entry.to_owned(), participle: past.clone(), past }
    }
}

fn ends_in_consonant_y(word: &str) -> bool {
    let mut letters = word.chars().rev();
    letters.next() == Some('y') && letters.next().is_some_and(|letter| !"aeiou".contains(letter))
}

/// Plural of a noun.
fn with_s(word: &str) -> String {
    if ends_in_consonant_y(word) {
        return format!("{}ies", &word[..word.len() - 1]);
    }
    let hisses = ["s", "x", "z", "ch", "sh"].iter().any(|ending| word.ends_with(ending));
    format!("{word}{}", if hisses { "es" } else { "s" })
}

/// Past tense of a regular verb that does not double its last letter.
fn with_ed(word: &str) -> String {
    if ends_in_consonant_y(word) {
        return format!("{}ied", &word[..word.len() - 1]);
    }
    format!("{word}{}", if word.ends_with('e') { "d" } else { "ed" })
}

/// `a` or `an`, by the first letter; the lexicon has no word where the sound differs but those listed.
pub(super) fn article(word: &str) -> &'static str {
    let silent = ["honest", "heir", "hour"].iter().any(|start| word.starts_with(start));
    let consonant_sound = ["use", "uni", "one"].iter().any(|start| word.starts_with(start));
    if !consonant_sound && (silent || word.starts_with(['a', 'e', 'i', 'o', 'u'])) {
        "an"
    } else {
        "a"
    }
}

/// The sentence with a capital first letter.
pub(super) fn capitalised(sentence: &str) -> String {
    let mut letters = sentence.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_follow_spelling_rules_and_exceptions() {
        for (entry, many) in [
            ("boy", "boys"),
            ("lady", "ladies"),
            ("watch", "watches"),
            ("governess", "governesses"),
            ("box", "boxes"),
            ("goose/geese", "geese"),
            ("loaf/loaves", "loaves"),
        ] {
            assert_eq!(Noun::parse(entry).form(true), many);
        }
        for (entry, past, participle) in [
            ("pity", "pitied", "pitied"),
            ("obey", "obeyed", "obeyed"),
            ("praise", "praised", "praised"),
            ("punish", "punished", "punished"),
            ("see/saw/seen", "saw", "seen"),
            ("reply-to/replied-to/replied-to", "replied to", "replied to"),
        ] {
            let verb = Verb::parse(entry);
            assert_eq!((&*verb.past, &*verb.participle), (past, participle));
        }
    }

    #[test]
    fn articles_follow_the_sound() {
        for (word, wanted) in [
            ("honest", "an"),
            ("happy", "a"),
            ("ugly", "an"),
            ("useless", "a"),
            ("agreeable", "an"),
        ] {
            assert_eq!(article(word), wanted, "{word}");
        }
        assert_eq!(capitalised("the end"), "The end");
        assert_eq!(capitalised(""), "");
    }
}
