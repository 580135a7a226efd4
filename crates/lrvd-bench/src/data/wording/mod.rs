//! Classification in words: how a language model is asked for a class, and which word answers it.
//!
//! | File       | Holds                                                                            |
//! |------------|----------------------------------------------------------------------------------|
//! | `table`    | the questions of the GLUE tasks and of a user's own data                         |
//! | `template` | [`Wording`]: a checked template with its answer words                            |
//! | `tokens`   | [`WordedTexts`]: prompts as token ids of a limited length, and the answers' ids  |
//! | `error`    | what can be wrong with them                                                      |
//!
//! The model's output is the logits of the answer words behind the prompt, one for each class, so that everything
//! after it is as for an encoder with a head; or the number that a head makes of the prompt's last token.

mod table;
mod template;
mod tokens;

pub use template::Wording;
pub use tokens::WordedTexts;
