//! What the assistant said, within the text of a conversation.

use super::contained::contained;
use super::error::ChatError;
use super::template::{ChatTemplate, Message, Role};

/// A piece of a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// The piece.
    pub text: String,
    /// Whether it is to be learnt.
    pub learnt: bool,
}

impl ChatTemplate {
    /// The text of a conversation in pieces, of which those are learnt that the assistant said, with what ends them.
    ///
    /// The conversation is rendered up to each of the assistant's messages, once as a question and once with the answer;
    /// what the second text has more is the answer. Both must be beginnings of the whole.
    ///
    /// # Errors
    ///
    /// [`ChatError::Prefix`] if they are not, [`ChatError::NoAnswer`] without such a message, [`ChatError::Refused`].
    pub fn segments(&self, messages: &[Message]) -> Result<Vec<Segment>, ChatError> {
        let (template, messages) = (self.clone(), messages.to_vec());
        contained(move || template.pieces(&messages))
            .unwrap_or_else(|reason| Err(ChatError::Refused { reason }))
    }

    fn pieces(&self, messages: &[Message]) -> Result<Vec<Segment>, ChatError> {
        if messages.is_empty() {
            return Err(ChatError::Empty);
        }
        let whole = self.text(messages, false)?;
        let (mut segments, mut taken) = (Vec::new(), 0);
        for (place, message) in messages.iter().enumerate() {
            if message.role != Role::Assistant {
                continue;
            }
            let changed = || ChatError::Prefix { message: place + 1 };
            let asked = self.text(&messages[..place], true)?;
            let answered = self.text(&messages[..=place], false)?;
            let fits = answered.starts_with(&asked)
                && whole.starts_with(&answered)
                && asked.len() >= taken;
            if !fits {
                return Err(changed());
            }
            let mut push = |text: &str, learnt| {
                if !text.is_empty() {
                    segments.push(Segment { text: text.to_owned(), learnt });
                }
            };
            push(whole.get(taken..asked.len()).ok_or_else(changed)?, false);
            push(whole.get(asked.len()..answered.len()).ok_or_else(changed)?, true);
            taken = answered.len();
        }
        if taken == 0 {
            return Err(ChatError::NoAnswer);
        }
        if let Some(rest) = whole.get(taken..).filter(|rest| !rest.is_empty()) {
            segments.push(Segment { text: rest.to_owned(), learnt: false });
        }
        Ok(segments)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::path::Path;

    use super::*;
    use crate::tokenizer::TextTokenizer;

    /// A tokenizer with the two tokens that templates name.
    fn tokenizer() -> TextTokenizer {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/tokenizers");
        TextTokenizer::from_file(&folder.join("llama2_spm_bpe/tokenizer.json")).unwrap()
    }

    fn template(source: &str) -> ChatTemplate {
        ChatTemplate::new(source.to_owned(), Path::new("here"), &tokenizer()).unwrap()
    }

    fn said(all: &[(Role, &str)]) -> Vec<Message> {
        all.iter().map(|&(role, text)| Message { role, content: text.to_owned() }).collect()
    }

    const CHATML: &str = "{% for message in messages %}
    {{ '<|im_start|>' + message['role'] + '\\n' + message['content'] | trim + '<|im_end|>' + '\\n' }}
{%- endfor %}
{% if add_generation_prompt %}
    {{ '<|im_start|>assistant\\n' }}
{%- endif %}";

    #[test]
    fn the_assistants_words_are_learnt_and_nothing_else() {
        use Role::{Assistant, System, User};
        let messages = said(&[
            (System, "Be brief."),
            (User, " Hi "),
            (Assistant, "Hello."),
            (User, "Bye"),
            (Assistant, "Bye!"),
        ]);
        let source = "{% for m in messages %}{{ '<' + m.role + '>' + m.content.strip() + '</s>' }}{% endfor %}\
                      {% if add_generation_prompt %}<assistant>{% endif %}";
        let segments = template(source).segments(&messages).unwrap();
        let pieces: Vec<_> = segments.iter().map(|s| (s.text.as_str(), s.learnt)).collect();
        let wanted = [
            ("<system>Be brief.</s><user>Hi</s><assistant>", false),
            ("Hello.</s>", true),
            ("<user>Bye</s><assistant>", false),
            ("Bye!</s>", true),
        ];
        assert_eq!(pieces, wanted);
    }

    #[test]
    fn blocks_are_trimmed_and_marks_of_transformers_are_plain_blocks() {
        let messages = said(&[(Role::User, "a"), (Role::Assistant, "b")]);
        // By transformers' rules: the indentation before a block and the line break behind it go.
        let text = template(CHATML).render(&messages[..1], true).unwrap();
        assert_eq!(text, "    <|im_start|>user\na<|im_end|>\n    <|im_start|>assistant\n");
        let marked = "{%- for m in messages %}{% if m.role == 'assistant' %}A:{%- generation -%} {{ m.content }}\
                      {%- endgeneration %}{% else %}Q:{{ m.content }}{% endif %}{% endfor %}";
        assert_eq!(template(marked).render(&messages, false).unwrap(), "Q:aA:b");
        let bos =
            template("{{ bos_token }}{% if tools is not none %}tools{% endif %}{{ eos_token }}");
        assert_eq!(bos.render(&messages, false).unwrap(), "<s></s>");
    }

    #[test]
    fn what_cannot_be_told_apart_is_refused() {
        let two = said(&[
            (Role::User, "a"),
            (Role::Assistant, "b"),
            (Role::User, "c"),
            (Role::Assistant, "d"),
        ]);
        // Only the last message is written whole, as templates do that drop earlier thoughts.
        let forgetful =
            "{% for m in messages %}{{ m.content if loop.last else m.role }};{% endfor %}";
        assert!(matches!(
            template(forgetful).segments(&two),
            Err(ChatError::Prefix { message: 2 })
        ));
        assert!(matches!(template(CHATML).segments(&two[..1]), Err(ChatError::NoAnswer)));
        assert!(matches!(template(CHATML).segments(&[]), Err(ChatError::Empty)));
        let strict = "{{ raise_exception('roles must alternate') }}";
        let error = template(strict).segments(&two).unwrap_err().to_string();
        assert!(error.ends_with("the conversation: roles must alternate"), "{error}");
        let broken = ChatTemplate::new("{% if %}".to_owned(), Path::new("here"), &tokenizer());
        assert!(matches!(broken, Err(ChatError::Syntax { .. })));
        let endless =
            "{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}";
        assert!(matches!(template(endless).render(&two, false), Err(ChatError::Refused { .. })));
        assert!(
            matches!(Role::from_name("narrator"), Err(ChatError::Role { found }) if found == "narrator")
        );
    }
}
