//! A user's texts for a language model, as tokens, and what is learnt of them.
//!
//! The likelihood is averaged over the tokens of completions, or of what the assistant says in a conversation; a prompt
//! is read and not learnt.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{anyhow, ensure};
use lrvd_models::chat::{ChatTemplate, Segment};
pub use lrvd_models::chat::{Message, Role};
use lrvd_models::llama::gguf::GgufModel;
use lrvd_models::tokenizer::TextTokenizer;

use crate::answers::AnswerSpace;
use crate::backbone::{Architecture, Backbone, ModelLocation, check_end};
use crate::data::batch::{Answer, TokenisedExample};
use crate::data::tokens::BareTokens;
use crate::data::{
    At, Content, PreparedTask, SplitName, TextRow, TextSet, length_option, text_row,
};
use crate::error::{Kind, Result};
use crate::settings::Config;
use crate::task::Goal;

/// Turns rows into tokens as the model in a folder reads them.
///
/// A plain text starts as the tokenizer starts every text; its completion ends in the token that ends a text. A
/// conversation is what the folder's chat template writes, which brings its own special tokens.
///
/// Pieces are encoded so that what comes before an answer has the tokens that it has alone, as it will when the model is
/// asked: where the text as a whole would be cut in another way, the answer is encoded by itself.
#[derive(Debug)]
pub(crate) struct LanguageReader<'a> {
    tokens: BareTokens<'a>,
    pub(crate) chat: Option<ChatTemplate>,
    /// Every token that ends a text, whichever of the model's files states it.
    pub(crate) stops: BTreeSet<u32>,
    end: Option<u32>,
    /// Fills a batch; nothing reads it.
    pub(crate) pad_id: u32,
    max_length: usize,
    model: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct EncodedText {
    /// Tokens of the row, cut to the longest input.
    pub(crate) ids: Vec<u32>,
    pub(crate) learnt: Vec<bool>,
    pub(crate) length: usize,
    /// `true` if prompt and answer had to be encoded apart.
    apart: bool,
}

impl<'a> LanguageReader<'a> {
    /// Learns how the model at `location` reads texts, which may be no longer than `max_length` tokens.
    pub(crate) fn new(
        location: &ModelLocation,
        architecture: &Architecture,
        tokenizer: &'a TextTokenizer,
        max_length: usize,
    ) -> Result<Self> {
        let Architecture::Llama(config) = architecture else {
            return Err(anyhow!(
                "model `{}`: language modelling needs a language model, and this is an encoder",
                location.name
            ));
        };
        let special = tokenizer.special_tokens();
        let pad = special.pad.or(config.pad_token_id).or(special.bos).or(special.eos);
        Ok(Self {
            tokens: BareTokens::new(tokenizer)?,
            chat: chat_template(&location.folder, tokenizer)?,
            stops: config.eos_token_ids.iter().copied().chain(special.eos).collect(),
            end: special.eos.or(config.eos_token_ids.first().copied()),
            pad_id: pad.unwrap_or(0),
            max_length,
            model: location.name.clone(),
        })
    }

    pub(crate) fn of(backbone: &'a Backbone, max_length: usize) -> Result<Self> {
        let Backbone { location, architecture, tokenizer, .. } = backbone;
        check_end(location, architecture, tokenizer)?;
        Self::new(location, architecture, tokenizer, max_length)
    }

    pub(crate) fn encode(&self, row: &TextRow) -> Result<EncodedText> {
        let mut text = match &row.input {
            Content::Text { prompt, completion } => {
                self.plain(prompt, completion.as_deref().unwrap_or(""))?
            }
            Content::Chat(messages) => {
                let failed = |source| anyhow!("{}: {source}", row.place);
                self.conversation(&self.template()?.segments(messages).map_err(failed)?)?
            }
        };
        text.length = text.ids.len();
        text.ids.truncate(self.max_length);
        text.learnt.truncate(self.max_length);
        Ok(text)
    }

    /// The tokens after which an answer is asked for.
    pub(crate) fn prompt(&self, content: &Content) -> Result<Vec<u32>> {
        Ok(match content {
            Content::Text { prompt, .. } => self.tokens.opened(prompt)?,
            Content::Chat(messages) => {
                let text = self.template()?.render(messages, true);
                self.tokens.ids(&text.map_err(|error| Kind::Input.mark(error))?)?
            }
        })
    }

    fn template(&self) -> Result<&ChatTemplate> {
        self.chat.as_ref().ok_or_else(|| {
            Kind::NoTemplate.mark(anyhow!(
                "model `{}` states no chat template (`chat_template.jinja`, `chat_template` in \
                 `tokenizer_config.json`, or `tokenizer.chat_template` in a GGUF file), so a \
                 conversation has no text: give prompts and completions, or use a folder with the \
                 template of the original model",
                self.model
            ))
        })
    }

    fn plain(&self, prompt: &str, completion: &str) -> Result<EncodedText> {
        let before = self.tokens.opened(prompt)?;
        let whole = self.tokens.opened(&format!("{prompt}{completion}"))?;
        let mut text = EncodedText {
            learnt: vec![false; before.len()],
            ids: before,
            ..EncodedText::default()
        };
        text.go_on(whole, completion, true, &self.tokens)?;
        if let Some(end) = self.end {
            text.ids.push(end);
            text.learnt.push(true);
        }
        Ok(text)
    }

    fn conversation(&self, segments: &[Segment]) -> Result<EncodedText> {
        let mut text = EncodedText::default();
        let mut so_far = String::new();
        for segment in segments {
            so_far.push_str(&segment.text);
            let start = text.ids.len();
            text.go_on(self.tokens.ids(&so_far)?, &segment.text, segment.learnt, &self.tokens)?;
            if segment.learnt {
                // What a template writes after the end of an answer is never generated.
                let own = text.ids[start..].iter();
                let end = own.clone().position(|id| self.stops.contains(id));
                let kept = end.map_or(own.len(), |end| end + 1);
                text.learnt[start + kept..].fill(false);
            }
        }
        Ok(text)
    }
}

impl EncodedText {
    /// Continues to `whole`, the tokens of everything so far, or else by those of the last `piece` alone.
    fn go_on(
        &mut self,
        whole: Vec<u32>,
        piece: &str,
        learnt: bool,
        tokens: &BareTokens<'_>,
    ) -> Result<()> {
        if whole.starts_with(&self.ids) {
            self.ids = whole;
        } else {
            self.apart = true;
            self.ids.extend(tokens.ids(piece)?);
        }
        self.learnt.resize(self.ids.len(), learnt);
        Ok(())
    }

    /// Tokens that the model reads and predicts; `None` if no token is left to learn. A first token has nothing to be
    /// predicted from.
    pub(crate) fn example(&self) -> Option<TokenisedExample> {
        let columns: Vec<usize> =
            (1..self.ids.len()).filter(|&i| self.learnt[i]).map(|i| i - 1).collect();
        // Nothing is asked behind the last of them, so nothing is read there.
        let read = columns.last()? + 1;
        let ids = columns.iter().map(|&column| self.ids[column + 1]).collect();
        Some(TokenisedExample::single(self.ids[..read].to_vec(), Answer::Tokens { columns, ids }))
    }
}

/// Both splits of `data` as the language model reads them, as many rows and as long ones as `config` says.
pub(crate) fn prepare(
    mut data: TextSet,
    backbone: &Backbone,
    config: &Config,
) -> Result<PreparedTask> {
    let goal = Goal::new(&data.name, AnswerSpace::Tokens);
    let max_length = config.max_length;
    let reader = LanguageReader::of(backbone, max_length)?;
    let mut notes = std::mem::take(&mut data.notes);
    notes.extend(data.sample(config.train_rows));
    if !data.kind.is_chat() {
        if reader.chat.is_some() {
            notes.push(
                "prompts and completions are read as they are, without the model's chat template: give `messages` \
                 to use it"
                    .to_owned(),
            );
        }
        if reader.end.is_none() {
            notes.push(
                "the model names no token that ends a text, so completions do not learn to end"
                    .to_owned(),
            );
        }
    }
    let (train, validation) = (&data.train.examples, &data.validation.examples);
    let train = encoded(Some(SplitName::Train), train, &reader, max_length, &mut notes)?;
    let validation =
        encoded(Some(SplitName::Validation), validation, &reader, max_length, &mut notes)?;
    let (validation_ids, validation): (Vec<_>, _) = validation.into_iter().unzip();
    let validation_places = places(&data.validation.examples, &validation_ids);
    let train = train.into_iter().map(|(_, text)| text).collect();
    let pad_id = reader.pad_id;
    let task = PreparedTask::without_examples(goal);
    Ok(PreparedTask { train, validation, validation_ids, validation_places, pad_id, notes, ..task })
}

/// The rows that have a token to learn within the longest input, each with its id; what a reader must know goes into `notes`. Without a
/// split they are of a command that reads data.
pub(crate) fn encoded(
    split: Option<SplitName>,
    rows: &[TextRow],
    reader: &LanguageReader<'_>,
    max_length: usize,
    notes: &mut Vec<String>,
) -> Result<Vec<(String, TokenisedExample)>> {
    let is_trained = split.is_some();
    let split = split.map_or_else(|| "data".to_owned(), |split| split.to_string());
    let texts: Vec<EncodedText> =
        rows.iter().map(|row| reader.encode(row)).collect::<Result<_, _>>()?;
    let mut examples = Vec::with_capacity(rows.len());
    for (text, row) in texts.iter().zip(rows) {
        if let Some(example) = text.example() {
            let hashed = text_row(&row.input);
            examples.push((row.id.clone(), TokenisedExample { row: hashed, ..example }));
        }
    }
    ensure!(
        !examples.is_empty(),
        "{split}: within {max_length} tokens none of its {rows} rows has a token of a completion left; \
             raise `--max-length`",
        rows = rows.len()
    );
    let count = |is: &dyn Fn(&EncodedText) -> bool| texts.iter().filter(|text| is(text)).count();
    let cut = count(&|text| text.length > max_length);
    let apart = count(&|text| text.apart);
    let learnt: usize = examples.iter().map(|(_, example)| example.answer.count()).sum();
    let read: usize = texts.iter().map(|text| text.ids.len()).sum();
    notes.push(format!("{split}: {} rows, {learnt} of {read} tokens are learnt", examples.len()));
    if cut > 0 {
        let dropped = rows.len() - examples.len();
        let left_out = match dropped {
            0 => String::new(),
            n => format!("; {n} of them had nothing left to learn and are left out"),
        };
        let longest = texts.iter().map(|text| text.length).max().unwrap_or(0);
        let rows = rows.len();
        notes.push(format!(
            "{split}: {cut} of {rows} rows lost what is beyond {max_length} tokens{left_out}; the longest has {longest} \
             ({option})",
            option = length_option(is_trained)
        ));
    }
    if apart > 0 {
        notes.push(format!(
            "{split}: {apart} rows have a token that spans prompt and answer; the answer is encoded by itself, as it will \
             be asked for"
        ));
    }
    Ok(examples)
}

/// The places of the rows with these `ids`, in their order: rows with nothing to learn are left out.
pub(crate) fn places(rows: &[TextRow], ids: &[String]) -> Vec<At> {
    let mut rows = rows.iter();
    let place = |id: &String| Some(rows.by_ref().find(|row| row.id == *id)?.place.at);
    ids.iter().filter_map(place).collect()
}

fn chat_template(model: &Path, tokenizer: &TextTokenizer) -> Result<Option<ChatTemplate>> {
    if !GgufModel::is_at(model) {
        return Ok(ChatTemplate::from_dir(model, tokenizer)?);
    }
    let files = GgufModel::open(model).and_then(|file| file.tokenizer_files());
    let settings = files?.settings;
    Ok(ChatTemplate::from_settings(&settings, model, tokenizer)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::Place;

    /// 512 pieces with byte fallback; `<s>` (1) before every text, `</s>` (2) ends one.
    fn stories() -> (ModelLocation, Architecture, TextTokenizer) {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("assets/stories260K");
        let (architecture, tokenizer) =
            (Architecture::read(&folder).unwrap(), TextTokenizer::from_dir(&folder).unwrap());
        (ModelLocation { name: "stories".to_owned(), folder, note: None }, architecture, tokenizer)
    }

    fn row(input: Content) -> TextRow {
        let place = Place { file: Path::new("rows.csv").into(), at: At::Line(2) };
        TextRow { id: "0".to_owned(), place, input, label: () }
    }

    fn text(prompt: &str, completion: &str) -> TextRow {
        let prompt = prompt.to_owned();
        let completion = Some(completion.to_owned());
        row(Content::Text { prompt, completion })
    }

    #[test]
    fn a_completion_is_learnt_with_its_end_and_its_prompt_is_not() {
        let (location, architecture, tokenizer) = stories();
        let reader = LanguageReader::new(&location, &architecture, &tokenizer, 20).unwrap();
        let ids = |text: &str| tokenizer.encode(text, None, None).unwrap().get_ids().to_vec();
        let whole = ids("Once upon a time");
        let found = reader.encode(&text("Once upon", " a time")).unwrap();
        let prompt = ids("Once upon").len();
        assert_eq!(found.ids, [&whole[..], &[2]].concat());
        assert_eq!((found.length, found.apart), (whole.len() + 1, false));
        assert!(found.learnt.iter().enumerate().all(|(i, &learnt)| learnt == (i >= prompt)));
        // The model reads all but the end, and is asked from the prompt's last token on.
        let example = found.example().unwrap();
        assert_eq!(example.ids, whole);
        let columns = (prompt - 1..whole.len()).collect();
        let next = Answer::Tokens { columns, ids: found.ids[prompt..].to_vec() };
        assert_eq!(example.answer, next);
        assert_eq!(reader.prompt(&text("Once upon", "x").input).unwrap(), whole[..prompt]);

        // `Tim` + `my` is one token, `▁Timmy`: asked after `Tim`, the model will not have read it.
        let parted = reader.encode(&text("Once upon a Tim", "my ran")).unwrap();
        let before = ids("Once upon a Tim");
        assert!(parted.apart && parted.ids.starts_with(&before), "{:?}", parted.ids);
        assert!(!parted.learnt[before.len() - 1] && parted.learnt[before.len()]);

        // What is too long loses its end, and a row without a completion is none.
        let long = reader.encode(&text("Once upon a time", &" very".repeat(30))).unwrap();
        assert_eq!((long.ids.len(), long.learnt.len()), (20, 20));
        assert!(long.length > 30 && long.example().unwrap().ids.len() == 19);
        let lost = reader.encode(&text(&"very ".repeat(30), " time")).unwrap();
        assert_eq!(lost.example(), None);
    }

    #[test]
    fn what_a_template_writes_behind_an_answer_is_not_learnt() {
        let (mut location, _, tokenizer) = stories();
        let folder = tempfile::tempdir().unwrap();
        std::fs::copy(location.folder.join("config.json"), folder.path().join("config.json"))
            .unwrap();
        let template = "{% for m in messages %}{{ m.role }}: {{ m.content }}{{ eos_token }}\n{% endfor %}{% if \
                        add_generation_prompt %}assistant: {% endif %}";
        std::fs::write(folder.path().join("chat_template.jinja"), template).unwrap();
        std::fs::write(
            folder.path().join("generation_config.json"),
            r#"{"eos_token_id": [2, 426]}"#,
        )
        .unwrap();
        location.folder = folder.path().to_owned();
        let architecture = Architecture::read(&location.folder).unwrap();
        let reader = LanguageReader::new(&location, &architecture, &tokenizer, 99).unwrap();
        assert_eq!(reader.stops, [2, 426].into());
        let message = |role, content: &str| Message::new(role, content);
        let chat = |answer: &str| {
            let messages = vec![message(Role::User, "Hi"), message(Role::Assistant, answer)];
            let found = reader.encode(&row(Content::Chat(messages))).unwrap();
            let learnt = found.ids.iter().zip(&found.learnt).filter(|(_, learnt)| **learnt);
            let learnt: Vec<u32> = learnt.map(|(&id, _)| id).collect();
            (found.ids, learnt)
        };
        let (ids, learnt) = chat("Once");
        assert_eq!(learnt.last(), Some(&2));
        // The line break behind the end is there, and is not learnt.
        assert!(ids.last() != Some(&2) && learnt.len() < 6, "{ids:?} {learnt:?}");
        // A full stop (426) is an end of this folder, too.
        assert_eq!(chat("Once. Once").1.last(), Some(&426));
    }
}
