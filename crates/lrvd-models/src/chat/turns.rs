//! The assistant's messages within the text of a conversation.

use super::template::{ChatTemplate, Message, Role};
use crate::error::{Error, Result};

/// A piece of a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// The piece.
    pub text: String,
    /// Whether it is to be learnt.
    pub learnt: bool,
}

impl ChatTemplate {
    /// The text of a conversation in pieces. The assistant's messages are learnt, each with the text that ends it.
    ///
    /// The conversation is rendered up to each of the assistant's messages, once as a question and once with the answer;
    /// the end of the second text is the answer. The whole must start with both.
    ///
    /// # Errors
    ///
    /// [`Error::Text`] if it does not, without such a message, or as [`render`](Self::render).
    pub fn segments(&self, messages: &[Message]) -> Result<Vec<Segment>> {
        let none = |what: &str| Error::Text(format!("the conversation has no message{what}"));
        if messages.is_empty() {
            return Err(none(""));
        }
        let mut parts = vec![(messages.len(), false)];
        for (place, message) in messages.iter().enumerate() {
            if message.role == Role::Assistant {
                parts.extend([(place, true), (place + 1, false)]);
            }
        }
        if parts.len() == 1 {
            return Err(none(" of the role `assistant`"));
        }
        let texts = self.renderings(messages, parts.clone())?;
        let (whole, mut taken, mut segments) = (&texts[0], 0, Vec::new());
        for (texts, part) in texts[1..].chunks_exact(2).zip(parts[1..].chunks_exact(2)) {
            let (asked, answered) = (&texts[0], &texts[1]);
            let fits = answered.starts_with(asked) && whole.starts_with(answered);
            let pieces = [taken..asked.len(), asked.len()..answered.len()].map(|at| whole.get(at));
            let ([Some(before), Some(answer)], true) = (pieces, fits) else {
                return Err(Error::Text(format!(
                    "the chat template writes the start of a conversation in another way when the conversation continues: \
                     the whole text does not start with the text up to message {}, so the assistant's words cannot be \
                     told from the rest",
                    part[1].0
                )));
            };
            segments.extend([(before, false), (answer, true)]);
            taken = answered.len();
        }
        segments.push((&whole[taken..], false));
        let filled = segments.into_iter().filter(|(text, _)| !text.is_empty());
        Ok(filled.map(|(text, learnt)| Segment { text: text.to_owned(), learnt }).collect())
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
        let expected = [
            ("<system>Be brief.</s><user>Hi</s><assistant>", false),
            ("Hello.</s>", true),
            ("<user>Bye</s><assistant>", false),
            ("Bye!</s>", true),
        ];
        assert_eq!(pieces, expected);
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
    fn what_cannot_be_told_apart_is_an_error() {
        let two = said(&[
            (Role::User, "a"),
            (Role::Assistant, "b"),
            (Role::User, "c"),
            (Role::Assistant, "d"),
        ]);
        // Only the last message is written whole, as templates do that drop earlier thoughts.
        let forgetful =
            "{% for m in messages %}{{ m.content if loop.last else m.role }};{% endfor %}";
        let strict = "{{ raise_exception('roles must alternate') }}";
        for (source, messages, expected) in [
            (forgetful, &two[..], "does not start with the text up to message 2,"),
            (CHATML, &two[..1], "the conversation has no message of the role `assistant`"),
            (CHATML, &[], "the conversation has no message"),
            (strict, &two, "cannot render the conversation: roles must alternate"),
        ] {
            let error = template(source).segments(messages).unwrap_err();
            assert!(matches!(&error, Error::Text(text) if text.contains(expected)), "{error}");
        }
        let broken = ChatTemplate::new("{% if %}".to_owned(), Path::new("here"), &tokenizer());
        let error = broken.unwrap_err().to_string();
        assert!(error.starts_with("`here`: `chat_template` should be a Jinja template"), "{error}");
        let error = Role::from_name("narrator").unwrap_err().to_string();
        let expected = "`role` should be `system`, `user` or `assistant`, found `narrator`";
        assert_eq!(error, expected);
    }

    #[test]
    fn a_template_that_ran_out_of_fuel_renders_the_next_conversation() {
        let source = "{% if messages[0].content == 'a' %}{% for i in range(100000) %}{% for j in range(100000) %}\
                      {% endfor %}{% endfor %}{% endif %}b";
        let template = template(source);
        for _ in 0..2 {
            let error = template.render(&said(&[(Role::User, "a")]), false).unwrap_err();
            assert!(matches!(error, Error::Text(_)), "{error}");
            assert_eq!(template.render(&said(&[(Role::User, "c")]), false).unwrap(), "b");
        }
    }
}
