//! Conversations rendered as transformers renders them, and templates that are made to exhaust stack, memory or time.
#![allow(clippy::unwrap_used)]

use std::path::Path;

use super::Role::{Assistant, System, User};
use super::{ChatTemplate, Message, Role};
use crate::error::{Error, Result};
use crate::tokenizer::TextTokenizer;

fn parse(source: &str) -> Result<ChatTemplate> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/tokenizers");
    let tokenizer = TextTokenizer::from_file(&folder.join("llama2_spm_bpe/tokenizer.json"));
    ChatTemplate::new(source.to_owned(), Path::new("here"), &tokenizer.unwrap())
}

fn said(all: &[(Role, &str)]) -> Vec<Message> {
    all.iter().map(|&(role, text)| Message::new(role, text)).collect()
}

/// Text of a conversation of one message, rendered on a thread of the usual stack.
fn rendered(source: String) -> Result<String> {
    let render = move || parse(&source)?.render(&said(&[(User, "Hi")]), true);
    std::thread::spawn(render).join().unwrap()
}

#[track_caller]
fn is_error(source: &str, expected: &str) {
    let text = rendered(source.to_owned()).unwrap_err().to_string();
    assert!(text.contains(expected), "{expected}: {text}");
}

const FUEL: &str = "it takes more than 1000000 steps or makes more than 64 MB of text";

/// A list that each round makes from itself.
fn grown(rounds: usize, list: &str, then: &str) -> String {
    format!(
        "{{% set ns = namespace(l=[1]) %}}{{% for i in range({rounds}) %}}{{% for j in range(1000) %}}\
         {{% set ns.l = {list} %}}{{% endfor %}}{{% endfor %}}{then}"
    )
}

#[test]
fn deep_sources_are_too_long_or_are_parsed() {
    for part in ["not ", "-", "|abs", ".a", " ~ 1", " + 1", "()", "[0]", "**1", " if 1 else 1"] {
        let nested = |count: usize| match part {
            "not " | "-" => format!("{{{{ {}1 }}}}", part.repeat(count)),
            _ => format!("{{{{ 1{} }}}}", part.repeat(count)),
        };
        is_error(&nested(100_000), "a template of at most 65536 bytes");
        // The deepest of a source that is read; whether it means something is the engine's to say.
        let _ = rendered(nested(65_000 / part.len()));
    }
    let chain = format!("{{% if 0 %}}{}{{% endif %}}", "{% elif 0 %}".repeat(5_000));
    assert_eq!(rendered(chain).unwrap(), "");
    for (open, close, count) in [
        ("(", ")", 10_000),
        ("[", "]", 10_000),
        ("{1:", "}", 10_000),
        ("{% if 1 %}", "{% endif %}", 2_500),
    ] {
        let nested = format!("{}1{}", open.repeat(count), close.repeat(count));
        let nested = if count > 2_500 { format!("{{{{ {nested} }}}}") } else { nested };
        is_error(&nested, "should be a Jinja template, found ");
    }
    // Values nest as deeply as there are steps.
    is_error(&grown(1_000, "[ns.l]", "{{ ns.l }}"), FUEL);
    assert!(rendered(grown(40, "[ns.l]", "{{ ns.l }}")).unwrap().ends_with("]]]"));
    is_error("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "recursion");
    let long = format!("cannot render the conversation: {}…", "é".repeat(400));
    is_error("{{ raise_exception('é' * 1000000) }}", &long);
}

#[test]
fn texts_that_grow_run_out_of_fuel() {
    for source in [
        "{% for i in range(100000) %}{% for j in range(100000) %}a line of text{% endfor %}{% endfor %}",
        "{% set ns = namespace(s='x') %}{% for i in range(100) %}{% set ns.s = ns.s + ns.s %}{% endfor %}",
        "{% set x = 'x' * 1000000 %}{{ x.join(range(100000)) }}",
        "{% set x = 'x' * 1000000 %}{{ x.replace('x', x) }}",
        "{{ '{:1000000000d}'.format(1) }}",
        "{{ '{:99999999999999999999999d}'.format(1) }}",
        "{% set x = 'x' * 10000000 %}{{ ('{0}' * 100).format(x) }}",
        "{% set x = 'x' * 10000000 %}{{ ('{x}' * 100).format(x=x) }}",
        "{{ ('a,' * 30000000).split(',') | length }}",
        "{{ ('a ' * 30000000).split() | length }}",
        "{{ ('a\n' * 30000000).splitlines() | length }}",
        "{{ ('ß' * 30000000).upper() | length }}",
    ] {
        is_error(source, FUEL);
    }
}

#[test]
fn lists_that_double_take_too_long() {
    let source = grown(1, "ns.l + ns.l", "{{ ns.l | length }}");
    let template = parse(&source).unwrap();
    let messages = said(&[(User, "Hi")]);
    for reason in ["it takes longer than 5 s", "an earlier rendering failed or took too long"] {
        let error = template.render(&messages, true).unwrap_err().to_string();
        assert!(error.ends_with(reason), "{error}");
    }
}

#[test]
fn a_template_that_ran_out_of_fuel_renders_the_next_conversation() {
    let source = "{% if messages[0].content == 'a' %}{% for i in range(100000) %}{% for j in range(100000) %}\
                      {% endfor %}{% endfor %}{% endif %}b";
    let template = parse(source).unwrap();
    let error = template.render(&said(&[(User, "a")]), false).unwrap_err();
    assert!(matches!(error, Error::Text(_)), "{error}");
    assert_eq!(template.render(&said(&[(User, "c")]), false).unwrap(), "b");
}

#[test]
fn pythons_methods_are_pythons() {
    for (source, expected) in [
        ("{{ ', '.join(['a', 1]) }}", "a, 1"),
        ("{{ 'aXbX'.replace('X', '--') }}", "a--b--"),
        ("{{ 'aXbX'.replace('X', '--', 1) }}", "a--bX"),
        ("{{ 'a  b '.split() | length }} {{ 'a,b,c'.split(',', 1)[1] }}", "2 b,c"),
        ("{{ 'a\nb\n'.splitlines() | length }}", "2"),
        ("{{ '{} {x:>3}'.format('a', x='b') }}", "a   b"),
        ("{{ ' Hi '.strip().upper() }} {{ {'a': 1}.get('a') }}", "HI 1"),
    ] {
        assert_eq!(rendered(source.to_owned()).unwrap(), expected, "{source}");
    }
}

const CHATML: &str = "{% for message in messages %}
    {{ '<|im_start|>' + message['role'] + '\\n' + message['content'] | trim + '<|im_end|>' + '\\n' }}
{%- endfor %}
{% if add_generation_prompt %}
    {{ '<|im_start|>assistant\\n' }}
{%- endif %}";

#[test]
fn the_assistants_words_are_learnt_and_nothing_else() {
    let mut messages = said(&[
        (System, "Be brief."),
        (User, " Hi "),
        (Assistant, "Hello."),
        (User, "Bye"),
        (Assistant, "Bye!"),
    ]);
    let source = "{% for m in messages %}{{ '<' + m.role + '>' + m.content.strip() + '</s>' }}{% endfor %}\
                      {% if add_generation_prompt %}<assistant>{% endif %}";
    let segments = parse(source).unwrap().segments(&messages).unwrap();
    let pieces: Vec<_> = segments.iter().map(|s| (s.text.as_str(), s.learnt)).collect();
    let expected = [
        ("<system>Be brief.</s><user>Hi</s><assistant>", false),
        ("Hello.</s>", true),
        ("<user>Bye</s><assistant>", false),
        ("Bye!</s>", true),
    ];
    assert_eq!(pieces, expected);
    // An answer that a file excludes is read, and not learnt.
    messages[2].learnt = false;
    let segments = parse(source).unwrap().segments(&messages).unwrap();
    let pieces: Vec<_> = segments.iter().map(|s| (s.text.as_str(), s.learnt)).collect();
    assert_eq!(pieces, [expected[0], ("Hello.</s>", false), expected[2], expected[3]]);
}

#[test]
fn blocks_are_trimmed_and_marks_of_transformers_are_plain_blocks() {
    // By transformers' rules: the indentation before a block and the line break behind it go.
    let chatml = "    <|im_start|>user\na<|im_end|>\n    <|im_start|>assistant\n";
    let marked = "{%- for m in messages %}{% if m.role == 'assistant' %}A:{%- generation -%} {{ m.content }}\
                      {%- endgeneration %}{% else %}Q:{{ m.content }}{% endif %}{% endfor %}";
    let bos = "{{ bos_token }}{% if tools is not none %}tools{% endif %}{{ eos_token }}";
    let messages = said(&[(User, "a"), (Assistant, "b")]);
    for (source, count, expected) in
        [(CHATML, 1, chatml), (marked, 2, "Q:aA:b"), (bos, 2, "<s></s>")]
    {
        let text = parse(source).unwrap().render(&messages[..count], count == 1).unwrap();
        assert_eq!(text, expected);
    }
}

#[test]
fn what_cannot_be_told_apart_is_an_error() {
    let mut excluded = said(&[(User, "a"), (Assistant, "b")]);
    excluded[1].learnt = false;
    let two = said(&[(User, "a"), (Assistant, "b"), (User, "c"), (Assistant, "d")]);
    // Only the last message is written whole, as templates do that drop earlier thoughts.
    let forgetful = "{% for m in messages %}{{ m.content if loop.last else m.role }};{% endfor %}";
    let strict = "{{ raise_exception('roles must alternate') }}";
    for (source, messages, expected) in [
        (forgetful, &two[..], "does not start with the text up to message 2,"),
        (CHATML, &two[..1], "the conversation has no message of the role `assistant`"),
        (CHATML, &excluded, "the conversation has no message that is learnt"),
        (CHATML, &[], "the conversation has no message"),
        (strict, &two, "cannot render the conversation: roles must alternate"),
    ] {
        let error = parse(source).unwrap().segments(messages).unwrap_err();
        assert!(matches!(&error, Error::Text(text) if text.contains(expected)), "{error}");
    }
    let error = parse("{% if %}").unwrap_err().to_string();
    assert!(error.starts_with("`here`: `chat_template` should be a Jinja template"), "{error}");
    let error = Role::from_name("narrator").unwrap_err().to_string();
    let expected = "`role` should be `system`, `user` or `assistant`, found `narrator`";
    assert_eq!(error, expected);
}
