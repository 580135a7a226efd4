//! A folder's chat template.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use minijinja::syntax::SyntaxConfig;
use minijinja::{Environment, Error, ErrorKind};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::contained::contained;
use super::error::ChatError;
use super::methods::{self, BYTES_PER_FUEL};
use crate::tokenizer::TextTokenizer;

/// The separate file of a template.
const TEMPLATE_FILE: &str = "chat_template.jinja";
/// The file that may hold it as an entry.
const CONFIG_FILE: &str = "tokenizer_config.json";
/// Its name within the engine.
const NAME: &str = "chat";
/// What a rendering may cost: an instruction costs 1, as do 64 bytes of text. Some hundreds a message are usual.
const FUEL: u64 = 1_000_000;
/// Longest template, bytes: published ones have up to 30,000.
const SOURCE: usize = 1 << 16;

/// Who says something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Instructions.
    System,
    /// Whoever asks.
    User,
    /// Whoever answers: what is learnt.
    Assistant,
}

impl Role {
    /// Its name in files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::System => "system",
            Self::User => "user",
            Self::Assistant => "assistant",
        }
    }

    /// The role that is called `name`.
    ///
    /// # Errors
    ///
    /// [`ChatError::Role`] for another name.
    pub fn from_name(name: &str) -> Result<Self, ChatError> {
        match name {
            "system" => Ok(Self::System),
            "user" => Ok(Self::User),
            "assistant" => Ok(Self::Assistant),
            other => Err(ChatError::Role { found: other.to_owned() }),
        }
    }
}

/// One message of a conversation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Message {
    /// Who says it.
    pub role: Role,
    /// What.
    pub content: String,
}

/// A template, ready to render.
#[derive(Clone, Debug)]
pub struct ChatTemplate {
    engine: Arc<Environment<'static>>,
    /// Tokens that a template may write by their names, such as `bos_token`.
    tokens: BTreeMap<&'static str, String>,
}

impl ChatTemplate {
    /// The template of the model in `folder`, if it has one.
    ///
    /// # Errors
    ///
    /// [`ChatError`] for a file that cannot be read and for a template that is not valid.
    pub fn from_dir(folder: &Path, tokenizer: &TextTokenizer) -> Result<Option<Self>, ChatError> {
        let file = folder.join(TEMPLATE_FILE);
        if let Some(source) = read(&file)? {
            return Self::new(source, &file, tokenizer).map(Some);
        }
        let file = folder.join(CONFIG_FILE);
        let Some(text) = read(&file)? else { return Ok(None) };
        Self::from_settings(&text, &file, tokenizer)
    }

    /// The template in the text of a `tokenizer_config.json`, if it has one; `file` is only named in errors.
    ///
    /// # Errors
    ///
    /// [`ChatError`] for a text that is not JSON and for a template that is not valid.
    pub fn from_settings(
        text: &str,
        file: &Path,
        tokenizer: &TextTokenizer,
    ) -> Result<Option<Self>, ChatError> {
        let config: Value = serde_json::from_str(text)
            .map_err(|source| ChatError::Json { file: file.to_owned(), source })?;
        let source = match &config["chat_template"] {
            Value::Null => return Ok(None),
            Value::String(source) => Some(source.as_str()),
            Value::Array(named) => named
                .iter()
                .find(|entry| entry["name"] == "default")
                .and_then(|entry| entry["template"].as_str()),
            _ => None,
        };
        let source = source.ok_or_else(|| ChatError::Entry { file: file.to_owned() })?;
        Self::new(source.to_owned(), file, tokenizer).map(Some)
    }

    /// `source`, which was found in `file`.
    ///
    /// # Errors
    ///
    /// [`ChatError::Syntax`] if it is not valid or longer than 65,536 bytes.
    pub fn new(source: String, file: &Path, tokenizer: &TextTokenizer) -> Result<Self, ChatError> {
        let failed = |reason: String| ChatError::Syntax { file: file.to_owned(), reason };
        if source.len() > SOURCE {
            return Err(failed(format!(
                "it has {} bytes, at most {SOURCE} are read",
                source.len()
            )));
        }
        let engine = contained(move || engine(&source).map_err(|error| error.to_string()));
        let engine = engine.flatten().map_err(failed)?;
        let special = tokenizer.special_tokens();
        let named = [
            ("bos_token", special.bos),
            ("eos_token", special.eos),
            ("pad_token", special.pad),
            ("unk_token", special.unk),
        ];
        let token = |(name, id): (&'static str, Option<u32>)| {
            Some((name, id.and_then(|id| tokenizer.token(id).ok())?))
        };
        let tokens = named.into_iter().filter_map(token).collect();
        Ok(Self { engine: Arc::new(engine), tokens })
    }

    /// The text of a conversation, and behind it, if `asks`, what starts the assistant's next message.
    ///
    /// # Errors
    ///
    /// [`ChatError::Refused`] with the template's words, and for a template that needs too much work, memory or time.
    pub fn render(&self, messages: &[Message], asks: bool) -> Result<String, ChatError> {
        let (template, messages) = (self.clone(), messages.to_vec());
        contained(move || template.text(&messages, asks))
            .unwrap_or_else(|reason| Err(ChatError::Refused { reason }))
    }

    /// As [`render`](Self::render), on this thread.
    pub(super) fn text(&self, messages: &[Message], asks: bool) -> Result<String, ChatError> {
        let text = |text: &str| minijinja::Value::from(text);
        let message = |message: &Message| {
            minijinja::Value::from_pairs([
                ("role", text(message.role.name())),
                ("content", text(&message.content)),
            ])
        };
        let messages: Vec<minijinja::Value> = messages.iter().map(message).collect();
        let none = || minijinja::Value::from(());
        let values = [
            ("messages", messages.into()),
            ("add_generation_prompt", asks.into()),
            ("tools", none()),
            ("documents", none()),
        ];
        let tokens = self.tokens.iter().map(|(name, token)| (*name, text(token)));
        let values = minijinja::Value::from_pairs(values.into_iter().chain(tokens));
        let refused = |error: Error| ChatError::Refused { reason: words(&error) };
        let template = self.engine.get_template(NAME).map_err(refused)?;
        template.render(values).map_err(refused)
    }
}

/// The engine with one template.
fn engine(source: &str) -> Result<Environment<'static>, Error> {
    let mut engine = Environment::new();
    engine.set_syntax(SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build()?);
    engine.set_fuel(Some(FUEL));
    engine.set_unknown_method_callback(methods::call);
    let raise = |reason: String| -> Result<String, Error> {
        Err(Error::new(ErrorKind::InvalidOperation, reason))
    };
    engine.add_function("raise_exception", raise);
    engine.add_template_owned(NAME, without_marks(source))?;
    Ok(engine)
}

/// Why a rendering failed.
fn words(error: &Error) -> String {
    if error.kind() == ErrorKind::OutOfFuel {
        let megabytes = FUEL as usize * BYTES_PER_FUEL / 1_000_000;
        return format!(
            "it takes more than {FUEL} steps or makes more than {megabytes} MB of text"
        );
    }
    error.detail().map_or_else(|| error.to_string(), str::to_owned)
}

fn read(file: &Path) -> Result<Option<String>, ChatError> {
    match std::fs::read_to_string(file) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(ChatError::Read { file: file.to_owned(), source }),
    }
}

/// `source` with `{% generation %}` blocks, an addition of transformers, as blocks that are always taken.
fn without_marks(source: &str) -> String {
    let mut text = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(start) = rest.find("{%") {
        let (before, tag) = rest.split_at(start);
        let end = tag.find("%}").map_or(tag.len(), |end| end + 2);
        let (tag, after) = tag.split_at(end);
        text.push_str(before);
        let word = tag.trim_matches(|c: char| "{%}-+".contains(c) || c.is_whitespace());
        match word {
            "generation" => text.push_str(&tag.replace("generation", "if true")),
            "endgeneration" => text.push_str(&tag.replace("endgeneration", "endif")),
            _ => text.push_str(tag),
        }
        rest = after;
    }
    text.push_str(rest);
    text
}
