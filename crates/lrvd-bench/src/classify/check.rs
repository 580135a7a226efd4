//! What there is to know of a data file before anything is trained.

use std::collections::{BTreeMap, BTreeSet};

use lrvd_models::tokenizer::TextTokenizer;
use serde::Serialize;

use super::data::{DataSource, reader};
use crate::backbone::{Architecture, locate_model, open_tokenizer};
use crate::data::{Example, Label, Spread, Texts, Wording};
use crate::error::Result;
use crate::reasoning::QuestionForm;
use crate::settings::WordingSettings;

const SHOWN: usize = 3;

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SplitReport {
    pub name: &'static str,
    pub rows: usize,
    /// Rows of each class, in class order; empty for scores.
    pub classes: Vec<(String, usize)>,
    /// Smallest, mean and largest score; `None` for classes.
    pub scores: Option<[f64; 3]>,
    pub characters: Option<Spread>,
    /// Tokens of a row before anything is cut; `None` without a model.
    pub tokens: Option<Spread>,
    /// Rows that are longer than `max_length` and will be cut; `None` without a model.
    pub truncated: Option<usize>,
    pub empty: usize,
    /// Rows whose texts have occurred before in the split.
    pub repeated: usize,
    /// Rows whose texts are in the training split too; of the validation split only.
    pub seen_in_training: usize,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RenderedExample {
    pub input: String,
    pub label: String,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DataReport {
    pub schema_version: u32,
    pub files: BTreeMap<String, String>,
    pub regression: bool,
    /// Whether rows are pairs of texts, or questions about a passage.
    pub pairs: bool,
    /// Longest input in tokens; `None` without a model.
    pub max_length: Option<usize>,
    pub wording: Option<String>,
    pub splits: Vec<SplitReport>,
    pub examples: Vec<RenderedExample>,
}

pub fn check_data(
    source: &DataSource,
    model: Option<&str>,
    given: &WordingSettings,
    max_length: usize,
) -> Result<DataReport> {
    let data = source.read()?;
    let opened = model.map(opened).transpose()?;
    let wording = match &opened {
        Some((architecture, _)) => data.wording(architecture, given, source.task())?,
        None => None,
    };
    let reader = match &opened {
        Some((architecture, tokenizer)) => {
            let kind = (&data.goal, data.columns.as_ref(), QuestionForm::default());
            let wording = wording.as_ref();
            Some((reader(architecture, tokenizer, kind, wording, max_length)?, tokenizer))
        }
        None => None,
    };
    let known: BTreeSet<_> = data.train.iter().map(Example::texts).collect();
    let mut splits = Vec::new();
    for (name, examples) in [("train", &data.train), ("validation", &data.validation)] {
        let characters = examples.iter().map(Example::texts).map(characters);
        let lengths = match &reader {
            Some((reader, _)) => {
                let whole = examples.iter().map(|example| reader.measure(example.texts()));
                Some(whole.collect::<Result<Vec<_>, _>>()?)
            }
            None => None,
        };
        let mut classes: Vec<(String, usize)> =
            data.goal.classes.iter().map(|class| (class.clone(), 0)).collect();
        let mut before = BTreeSet::new();
        let (mut repeated, mut shared, mut empty) = (0, 0, 0);
        for example in examples {
            let texts = example.texts();
            if let Some((_, rows)) = example.label.class().and_then(|id| classes.get_mut(id)) {
                *rows += 1;
            }
            shared += usize::from(name == "validation" && known.contains(&texts));
            empty += usize::from(texts.text.trim().is_empty());
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
    let rendered = |example: &Example| -> Result<RenderedExample> {
        let texts = example.texts();
        let input = match (&reader, texts) {
            (Some((reader, tokenizer)), _) => {
                tokenizer.decode(&reader.encode(texts, example.label)?.0.ids, false)?
            }
            (None, Texts { text, pair: Some(pair), choices: [] }) => format!("{text} | {pair}"),
            (None, Texts { text, pair: None, choices: [] }) => text.to_owned(),
            (None, question) => QuestionForm::default().text(question),
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
        pairs: data.pairs(),
        max_length: model.map(|_| max_length),
        wording: wording.as_ref().map(Wording::describe),
        splits,
        examples: data.train.iter().take(SHOWN).map(rendered).collect::<Result<_, _>>()?,
        files: data.files,
    })
}

fn characters(texts: Texts<'_>) -> usize {
    let all = std::iter::once(texts.text).chain(texts.pair);
    let all = all.chain(texts.choices.iter().map(String::as_str));
    all.map(|text| text.chars().count()).sum()
}

fn opened(model: &str) -> Result<(Architecture, TextTokenizer)> {
    let folder = locate_model(model)?.folder;
    Ok((Architecture::read(&folder)?, open_tokenizer(&folder)?))
}

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
