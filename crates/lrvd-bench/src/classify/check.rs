//! What there is to know of a data file before anything is trained.

use std::collections::{BTreeMap, BTreeSet};

use lrvd_models::tokenizer::TextTokenizer;
use serde::Serialize;

use super::data::DataSource;
use super::error::ClassifyError;
use crate::backbone::{Architecture, BackboneError, locate_model, open_tokenizer};
use crate::data::{Example, Label, Spread, Wording};
use crate::settings::WordingSettings;

/// Examples that are shown.
const SHOWN: usize = 3;

/// One split.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SplitReport {
    /// `train` or `validation`.
    pub name: &'static str,
    /// Rows.
    pub rows: usize,
    /// Rows of each class, in class order; empty for scores.
    pub classes: Vec<(String, usize)>,
    /// Smallest, mean and largest score; `None` for classes.
    pub scores: Option<[f64; 3]>,
    /// Characters of the texts of a row.
    pub characters: Option<Spread>,
    /// Tokens of a row before anything is cut; `None` without a model.
    pub tokens: Option<Spread>,
    /// Rows that are longer than `max_length` and will be cut; `None` without a model.
    pub truncated: Option<usize>,
    /// Rows without a letter in their texts.
    pub empty: usize,
    /// Rows whose texts have occurred before in the split.
    pub repeated: usize,
    /// Rows whose texts are in the training split too; of the validation split only.
    pub seen_in_training: usize,
}

/// An example as the model reads it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RenderedExample {
    /// The text that the model reads, special tokens included; the plain texts without a model.
    pub input: String,
    /// Its label.
    pub label: String,
}

/// What `lrvd data check` says.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DataReport {
    /// Version of this report.
    pub schema_version: u32,
    /// Files with their SHA-256.
    pub files: BTreeMap<String, String>,
    /// Whether numbers are learnt instead of classes.
    pub regression: bool,
    /// Whether rows are pairs of texts.
    pub pairs: bool,
    /// Longest input in tokens; `None` without a model.
    pub max_length: Option<usize>,
    /// How a language model is asked.
    pub wording: Option<String>,
    /// Training and validation.
    pub splits: Vec<SplitReport>,
    /// The first rows.
    pub examples: Vec<RenderedExample>,
}

/// Reads the examples of `source`, and with a `model` its configuration and tokenizer: no weights.
///
/// # Errors
///
/// [`ClassifyError`] naming the first bad row, or what keeps the model from reading the texts.
pub fn check_data(
    source: &DataSource,
    model: Option<&str>,
    given: &WordingSettings,
    max_length: usize,
) -> Result<DataReport, ClassifyError> {
    let data = source.read()?;
    let pairs = data.train.iter().any(|example| example.text_b.is_some());
    let opened = model.map(opened).transpose()?;
    let wording = match &opened {
        Some((architecture, _)) => architecture.wording(given, &data.goal, source.task(), pairs)?,
        None => None,
    };
    let reader = match &opened {
        Some((architecture, tokenizer)) => {
            let (task, wording) = (&data.goal.name, wording.as_ref());
            Some((architecture.reader(tokenizer, task, wording, max_length)?, tokenizer))
        }
        None => None,
    };
    let known: BTreeSet<_> = data.train.iter().map(texts).collect();
    let mut splits = Vec::new();
    for (name, examples) in [("train", &data.train), ("validation", &data.validation)] {
        let characters = examples
            .iter()
            .map(texts)
            .map(|(text, pair)| text.chars().count() + pair.map_or(0, |pair| pair.chars().count()));
        let lengths = match &reader {
            Some((reader, _)) => {
                let whole =
                    examples.iter().map(texts).map(|(text, pair)| reader.measure(text, pair));
                Some(whole.collect::<Result<Vec<_>, _>>()?)
            }
            None => None,
        };
        let mut classes: Vec<(String, usize)> =
            data.goal.classes.iter().map(|class| (class.clone(), 0)).collect();
        let mut before = BTreeSet::new();
        let (mut repeated, mut shared, mut empty) = (0, 0, 0);
        for example in examples {
            let texts = texts(example);
            if let Some((_, rows)) = example.label.class().and_then(|id| classes.get_mut(id)) {
                *rows += 1;
            }
            shared += usize::from(name == "validation" && known.contains(&texts));
            empty += usize::from(texts.0.trim().is_empty());
            repeated += usize::from(!before.insert(texts));
        }
        splits.push(SplitReport {
            name,
            rows: examples.len(),
            classes,
            scores: scores(examples),
            characters: Spread::of(characters.collect()),
            tokens: lengths.as_ref().and_then(|l| Spread::of(l.iter().map(|(n, _)| *n).collect())),
            truncated: lengths.map(|l| l.iter().filter(|(_, cut)| *cut).count()),
            empty,
            repeated,
            seen_in_training: shared,
        });
    }
    let rendered = |example: &Example| -> Result<RenderedExample, ClassifyError> {
        let (text, pair) = texts(example);
        let input = match &reader {
            Some((reader, tokenizer)) => {
                tokenizer.decode(&reader.encode(text, pair, example.label)?.0.ids, false)?
            }
            None => pair.map_or_else(|| text.to_owned(), |pair| format!("{text} | {pair}")),
        };
        let label = match example.label {
            Label::Class(id) => data.goal.classes.get(id).cloned().unwrap_or_default(),
            Label::Score(score) => score.to_string(),
        };
        Ok(RenderedExample { input, label })
    };
    Ok(DataReport {
        schema_version: 1,
        regression: data.goal.is_regression(),
        pairs,
        max_length: model.map(|_| max_length),
        wording: wording.as_ref().map(Wording::describe),
        splits,
        examples: data.train.iter().take(SHOWN).map(rendered).collect::<Result<_, _>>()?,
        files: data.files,
    })
}

fn texts(example: &Example) -> (&str, Option<&str>) {
    (&example.text_a, example.text_b.as_deref())
}

fn opened(model: &str) -> Result<(Architecture, TextTokenizer), BackboneError> {
    let folder = locate_model(model)?.folder;
    Ok((Architecture::read(&folder)?, open_tokenizer(&folder)?))
}

/// Smallest, mean and largest score.
fn scores(examples: &[Example]) -> Option<[f64; 3]> {
    let score = |example: &Example| match example.label {
        Label::Score(score) => Some(score),
        Label::Class(_) => None,
    };
    let scores: Vec<f64> = examples.iter().filter_map(score).collect();
    let (least, most) =
        (scores.iter().copied().reduce(f64::min)?, scores.iter().copied().reduce(f64::max)?);
    Some([least, scores.iter().sum::<f64>() / scores.len() as f64, most])
}
