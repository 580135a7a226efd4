//! A report on data before anything is trained: rows, classes, lengths, duplicates, and the first examples as a model
//! reads them.

mod repeats;

use std::borrow::Cow;
use std::collections::BTreeSet;

use lrvd_models::tokenizer::TextTokenizer;
use serde::Serialize;
use serde_json::{Value, json};

use crate::answers::{AnswerSpace, QuestionKind, Readout};
use crate::backbone::{Architecture, ModelLocation, check_end, locate_model, open_tokenizer};
use crate::data::{
    Data, Dataset, Example, Input, InputLayout, Label, Pieces, QuestionForm, Split, TextRow,
    TextSet, Wording,
};
use crate::error::Result;
use crate::language::{EncodedText, LanguageReader};
use crate::settings::{Config, Layers, ModelFacts};

pub use repeats::{Repeat, RepeatKind, repeats, write_clean};

const SHOWN: usize = 3;
/// A class with fewer training rows is rare.
const RARE: usize = 8;

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct LengthStats {
    pub least: usize,
    /// Of an even number of values the mean of the two in the middle.
    pub median: f64,
    /// Nearest-rank quantile: the smallest value that at least 95 % of the rows do not exceed.
    pub most_rows: usize,
    pub most: usize,
}

impl LengthStats {
    pub fn of(mut values: Vec<usize>) -> Option<Self> {
        values.sort_unstable();
        let least = *values.first()?;
        let most = *values.last()?;
        let median =
            f64::midpoint(values[(values.len() - 1) / 2] as f64, values[values.len() / 2] as f64);
        // ⌈.95 n⌉, in integers.
        let most_rows = values[(19 * values.len()).div_ceil(20) - 1];
        Some(Self { least, median, most_rows, most })
    }
}

/// Describes `data`, and with a `model` its tokens, by configuration, tokenizer and chat template: no weights are read. The
/// `settings` are resolved as for training.
///
/// ```text
/// files       SHA-256 of every file, by path
/// max_length  longest input in tokens; null without a model, as every number of tokens
/// model_note  only if files of the model may be missing in the hub's cache
/// regression, pairs (of texts, or questions about a passage), wording      of labelled rows
/// columns                                                                  of texts for a language model
/// splits      name, rows, characters, tokens (before anything is cut), truncated (rows that are longer than max_length),
///             repeated (rows whose texts have occurred before in the split), seen_in_training (of the validation split); and
///               types (of typed questions, rows of each)
///               classes (rows of each, in class order), scores (least, mean, most), empty, contradicted (rows whose texts another
///               row of either split has with another label)                                       of labelled rows
/// rare        classes with fewer than 8 training rows                                             of labelled rows
///               learnt (tokens of a row), dropped (rows with nothing left to learn once cut)      of texts
/// examples    the first rows, of typed questions the first of each type, as the model reads them if there is one: input and label, or pieces with whether they are learnt
/// ```
pub fn check_data(data: Data, model: Option<&str>, settings: Layers) -> Result<Value> {
    let open = |name: &str| -> Result<Opened> {
        let location = locate_model(name)?;
        let architecture = Architecture::read(&location.folder)?;
        let tokenizer = open_tokenizer(&location.folder)?;
        Ok(Opened { location, architecture, tokenizer })
    };
    let model = model.map(open).transpose()?;
    let facts = data.facts(model.as_ref().map(|model| &model.architecture as &dyn ModelFacts));
    let config = settings.resolve(&facts)?.config;
    let max_length = config.max_length;
    let mut report = match data {
        Data::Labelled(data) => labelled(data, model.as_ref(), &config)?,
        Data::Texts(data) => texts(&data, model.as_ref(), max_length)?,
    };
    report["max_length"] = json!(model.as_ref().map(|_| max_length));
    if let Some(note) = model.and_then(|model| model.location.note) {
        report["model_note"] = json!(note);
    }
    Ok(report)
}

struct Opened {
    location: ModelLocation,
    architecture: Architecture,
    tokenizer: TextTokenizer,
}

/// With a model, the tokens of every row and whether some of them are cut.
type Lengths = Option<Vec<(usize, bool)>>;

/// The report on both splits, of which each is also `counted` in the way of its kind.
fn splits<C: Pieces, L>(
    [train, validation]: [&Split<Example<C, L>>; 2],
    counted: impl Fn(&Split<Example<C, L>>) -> Result<(Lengths, Value)>,
) -> Result<Vec<Value>> {
    let known: BTreeSet<Vec<Cow<'_, str>>> =
        train.examples.iter().map(|example| example.input.pieces()).collect();
    let report = |(name, split): (&'static str, &Split<Example<C, L>>)| {
        let mut before = BTreeSet::new();
        let mut repeated = 0;
        let mut shared = 0;
        let mut characters = Vec::with_capacity(split.rows());
        for example in &split.examples {
            let pieces = example.input.pieces();
            characters.push(pieces.iter().map(|text| text.chars().count()).sum());
            shared += usize::from(name == "validation" && known.contains(&pieces));
            repeated += usize::from(!before.insert(pieces));
        }
        let (lengths, mut report) = counted(split)?;
        report["name"] = name.into();
        report["rows"] = split.rows().into();
        report["characters"] = json!(LengthStats::of(characters));
        let tokens = lengths.iter().flatten().map(|(length, _)| *length).collect();
        report["tokens"] = json!(LengthStats::of(tokens));
        let truncated = lengths.map(|rows| rows.iter().filter(|(_, cut)| *cut).count());
        report["truncated"] = json!(truncated);
        report["repeated"] = repeated.into();
        report["seen_in_training"] = shared.into();
        Ok(report)
    };
    [("train", train), ("validation", validation)].into_iter().map(report).collect()
}

fn labelled(mut data: Dataset, model: Option<&Opened>, config: &Config) -> Result<Value> {
    let &Config { wording: ref given, pooling, max_length, .. } = config;
    let layout = model.map(|model| model.architecture.resolve(&mut data, given, pooling));
    let layout = layout.transpose()?;
    let goal = &data.kind.goal;
    let readout = layout.as_ref().map_or(given.readout.unwrap_or_default(), InputLayout::readout);
    let reader = match (model, &layout) {
        (Some(Opened { architecture, tokenizer, .. }), Some(layout)) => {
            Some((architecture.reader(tokenizer, goal, layout, max_length)?, tokenizer))
        }
        _ => None,
    };
    let classes = goal.answers.names();
    // Letters say nothing of options that are others in each row.
    let (listed, types) = match goal.answers {
        AnswerSpace::Questions { .. } => (&[][..], true),
        AnswerSpace::Question { .. } => (&classes[..], true),
        _ => (&classes[..], false),
    };
    // Letters are places of choices.
    let is_named = matches!(goal.answers, AnswerSpace::Classes { .. } | AnswerSpace::Labels { .. });
    let wording = layout.as_ref().filter(|_| !types);
    let wording = wording.and_then(|layout| layout.wording(&goal.answers, data.pairs()));
    let contradicted = contradicted(&data);
    let counted = |split: &Split| {
        let lengths = reader.as_ref().map(|(reader, _)| {
            split.examples.iter().map(|example| reader.measure(&example.input)).collect()
        });
        let own = |e: &&Example| {
            contradicted.contains(&(e.place.file.display().to_string(), e.place.at.number()))
        };
        let contradicted = split.examples.iter().filter(own).count();
        let mut classes: Vec<(String, usize)> =
            listed.iter().map(|class| (class.clone(), 0)).collect();
        for example in &split.examples {
            let ids = match &example.label {
                Label::Set(labels) => labels.clone(),
                label => label.class().into_iter().collect(),
            };
            for id in ids {
                if let Some((_, count)) = classes.get_mut(id) {
                    *count += 1;
                }
            }
        }
        let types = types.then(|| {
            let count = |kind| split.examples.iter().filter(|e| e.input.kind == Some(kind)).count();
            QuestionKind::ALL.map(|kind| (kind.name(), count(kind)))
        });
        let is_empty = |example: &&Example| example.input.text.trim().is_empty();
        let empty = split.examples.iter().filter(is_empty).count();
        let scores = scores(&split.examples);
        let mut report = json!({
            "classes": classes,
            "scores": scores,
            "empty": empty,
            "contradicted": contradicted,
        });
        if let Some(types) = types {
            report["types"] = json!(types);
        }
        Ok((lengths.transpose()?, report))
    };
    let shown = |Example { input, label, .. }: &Example| {
        let text = match (&reader, input) {
            (Some((reader, tokenizer)), _) => {
                tokenizer.decode(&reader.encode(input, label.clone())?.0.ids, false)?
            }
            (None, question) if !question.choices.is_empty() => {
                QuestionForm::own(readout).text(question)
            }
            (None, Input { text, pair: Some(pair), .. }) => format!("{text} | {pair}"),
            (None, Input { text, pair: None, .. }) => text.clone(),
        };
        let name = |id: usize| {
            let name = classes.get(id).cloned().unwrap_or_default();
            match (input.choices.get(id), readout) {
                (Some(choice), Readout::Options) => choice.clone(),
                (Some(choice), Readout::Letters) if types => format!("{name}) {choice}"),
                _ => name,
            }
        };
        let label = match label {
            Label::Score(score) => score.to_string(),
            Label::Shares(shares) => {
                let voted = shares.iter().enumerate().filter(|(_, share)| **share > 0.0);
                let each = voted.map(|(id, share)| format!("{} {share}", name(id)));
                each.collect::<Vec<_>>().join(", ")
            }
            Label::Class(id) => name(*id),
            Label::Set(labels) => labels.iter().map(|&id| name(id)).collect::<Vec<_>>().join(", "),
        };
        Ok(json!({ "input": text, "label": label }))
    };
    Ok(json!({
        "files": data.files(),
        "regression": goal.answers == AnswerSpace::Score,
        "pairs": data.pairs(),
        "wording": wording.as_ref().map(Wording::describe),
        "rare": rare(&data.train.examples, if is_named { &classes } else { &[] }),
        "splits": splits([&data.train, &data.validation], counted)?,
        "examples": first(&data.train.examples).map(shown).collect::<Result<Vec<_>>>()?,
    }))
}

/// File and number of every row of a contradiction.
fn contradicted(data: &Dataset) -> BTreeSet<(String, usize)> {
    let rows = repeats(data).into_iter().filter(|row| row.kind == RepeatKind::Contradiction);
    rows.map(|row| (row.file, row.at.number())).collect()
}

/// The first rows, of typed questions the first of each type.
fn first(examples: &[Example]) -> impl Iterator<Item = &Example> {
    let kinds = [None].into_iter().chain(QuestionKind::ALL.map(Some));
    kinds.flat_map(|kind| examples.iter().filter(move |e| e.input.kind == kind).take(SHOWN))
}

/// Classes with some training rows and fewer than [`RARE`], with their number.
fn rare(train: &[Example], classes: &[String]) -> Vec<(String, usize)> {
    let mut rows = vec![0; classes.len()];
    for example in train {
        let own = match &example.label {
            Label::Set(labels) => labels.clone(),
            label => label.class().into_iter().collect(),
        };
        own.into_iter().filter(|&id| id < classes.len()).for_each(|id| rows[id] += 1);
    }
    let all = classes.iter().cloned().zip(rows);
    all.filter(|(_, rows)| (1..RARE).contains(rows)).collect()
}

fn scores(examples: &[Example]) -> Option<[f64; 3]> {
    let scores: Vec<f64> = examples.iter().filter_map(|example| example.label.score()).collect();
    let least = scores.iter().copied().reduce(f64::min)?;
    let most = scores.iter().copied().reduce(f64::max)?;
    Some([least, scores.iter().sum::<f64>() / scores.len() as f64, most])
}

fn texts(data: &TextSet, model: Option<&Opened>, max_length: usize) -> Result<Value> {
    let reader = match model {
        Some(Opened { location, architecture, tokenizer }) => {
            check_end(location, architecture, tokenizer)?;
            let reader = LanguageReader::new(location, architecture, tokenizer, max_length)?;
            Some((reader, tokenizer))
        }
        None => None,
    };
    let counted = |split: &Split<_>| {
        let texts = reader.as_ref().map(|(reader, _)| {
            split.examples.iter().map(|row| reader.encode(row)).collect::<Result<Vec<_>>>()
        });
        let texts = texts.transpose()?;
        let length = |text: &EncodedText| (text.length, text.length > max_length);
        let lengths = texts.as_ref().map(|texts| texts.iter().map(length).collect());
        let learnt = |text: &EncodedText| text.learnt.iter().filter(|learnt| **learnt).count();
        let dropped = |text: &&EncodedText| text.example().is_none();
        let counts = texts.map(|texts| {
            let learnt = LengthStats::of(texts.iter().map(learnt).collect());
            (learnt, texts.iter().filter(dropped).count())
        });
        let (learnt, dropped) = counts.unzip();
        Ok((lengths, json!({ "learnt": learnt, "dropped": dropped })))
    };
    let shown = |row: &TextRow| {
        Ok(match &reader {
            Some((reader, tokenizer)) => json!(marked(&reader.encode(row)?, tokenizer)?),
            None => json!(row.input.marked()),
        })
    };
    Ok(json!({
        "files": data.files(),
        "columns": data.kind,
        "splits": splits([&data.train, &data.validation], counted)?,
        "examples": data.train.examples.iter().take(SHOWN).map(shown).collect::<Result<Vec<_>>>()?,
    }))
}

/// The tokens of a text in runs of what is learnt and what is not, special tokens included.
fn marked(text: &EncodedText, tokenizer: &TextTokenizer) -> Result<Vec<(String, bool)>> {
    let mut pieces = Vec::new();
    let mut so_far = String::new();
    let mut start = 0;
    for run in text.learnt.chunk_by(|a, b| a == b) {
        start += run.len();
        // From the beginning each time: a decoder treats a first token in its own way.
        let longer = tokenizer.decode(&text.ids[..start], false)?;
        let piece = longer.strip_prefix(&so_far).unwrap_or(&longer).to_owned();
        pieces.push((piece, run[0]));
        so_far = longer;
    }
    Ok(pieces)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_has_the_value_that_95_percent_of_the_rows_do_not_exceed() {
        let of = |n: usize| LengthStats::of((1..=n).rev().collect()).unwrap();
        // ⌈9.5⌉ = 10, ⌈28.5⌉ = 29, ⌈19⌉ = 19, ⌈38⌉ = 38; the median of an even number is a mean.
        assert_eq!([10, 30, 20, 40].map(|n| of(n).most_rows), [10, 29, 19, 38]);
        assert_eq!([1, 2, 5, 10].map(|n| of(n).median), [1.0, 1.5, 3.0, 5.5]);
        assert_eq!((of(10).least, of(10).most, LengthStats::of(Vec::new())), (1, 10, None));
    }
}
