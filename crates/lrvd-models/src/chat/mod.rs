//! Conversations as text, by the template that a model's folder states.
//!
//! Hugging Face stores a Jinja template beside a tokenizer, in `chat_template.jinja` or under `chat_template` in
//! `tokenizer_config.json`. It is rendered as transformers renders it: blocks trimmed on both sides, methods of Python's
//! strings and dictionaries, `raise_exception`, and `{% generation %}` blocks, which only mark a text there, as plain
//! ones. There is no `strftime_now`, so that a conversation has one rendering.
//!
//! A template comes with a downloaded model, so it is bounded: 65,536 bytes of source, a million steps, 64 MB of text, five
//! seconds.

mod methods;
mod template;
#[cfg(test)]
mod tests;

pub use template::{ChatTemplate, Message, Role, Segment};
