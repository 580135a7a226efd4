//! Conversations rendered as transformers renders them, and templates that are made to exhaust stack, memory or time.
#![allow(clippy::unwrap_used)]

use std::path::Path;

use super::{ChatTemplate, Message, Role};
use crate::error::{Error, Result};
use crate::tokenizer::TextTokenizer;

fn parse(source: &str) -> Result<ChatTemplate> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/tokenizers");
    let tokenizer = TextTokenizer::from_file(&folder.join("llama2_spm_bpe/tokenizer.json"));
    ChatTemplate::new(source.to_owned(), Path::new("here"), &tokenizer.unwrap())
}

fn template(source: &str) -> ChatTemplate {
    parse(source).unwrap()
}

fn said(all: &[(Role, &str)]) -> Vec<Message> {
    all.iter().map(|&(role, text)| Message { role, content: text.to_owned() }).collect()
}

/// What a template gives for a conversation of one message, asked on a thread of the usual stack.
fn rendered(source: String) -> Result<String> {
    let render = move || parse(&source)?.render(&said(&[(Role::User, "Hi")]), true);
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
fn a_long_reason_is_cut() {
    let text = rendered("{{ raise_exception('é' * 1000000) }}".to_owned()).unwrap_err().to_string();
    let expected = format!("cannot render the conversation: {}…", "é".repeat(400));
    assert!(text.ends_with(&expected), "{}", text.len());
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
    let chain = |count: usize| format!("{{% if 0 %}}{}{{% endif %}}", "{% elif 0 %}".repeat(count));
    is_error(&chain(50_000), "a template of at most 65536 bytes");
    assert_eq!(rendered(chain(5_000)).unwrap(), "");
    for (open, close) in [("(", ")"), ("[", "]"), ("{1:", "}")] {
        let nested = format!("{{{{ {}1{} }}}}", open.repeat(10_000), close.repeat(10_000));
        is_error(&nested, "should be a Jinja template, found ");
    }
    let blocks = format!("{}{}", "{% if 1 %}".repeat(2_500), "{% endif %}".repeat(2_500));
    is_error(&blocks, "should be a Jinja template, found ");
    // Values nest as deeply as there are steps.
    is_error(&grown(1_000, "[ns.l]", "{{ ns.l }}"), FUEL);
    assert!(rendered(grown(40, "[ns.l]", "{{ ns.l }}")).unwrap().ends_with("]]]"));
    is_error("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "recursion");
}

#[test]
fn texts_that_grow_run_out_of_fuel() {
    for source in [
        "{% for i in range(100000) %}{% for j in range(100000) %}a line of text{% endfor %}{% endfor %}",
        "{% set x %}{% for i in range(100000) %}{% for j in range(100000) %}a line of text\
         {% endfor %}{% endfor %}{% endset %}",
        "{% set ns = namespace(s='x') %}{% for i in range(100) %}{% set ns.s = ns.s + ns.s %}{% endfor %}",
        "{% set ns = namespace(s='x') %}{% for i in range(100) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}",
        "{% set x = 'x' * 100000000 %}{% set x = x * 100000000 %}{% set x = x * 100000000 %}",
        "{% set x = 'x' * 1000000 %}{{ range(100000) | join(x) }}",
        "{% set x = 'x' * 1000000 %}{{ x.join(range(100000)) }}",
        "{% set x = 'x' * 1000000 %}{{ x | replace('x', x) }}",
        "{% set x = 'x' * 1000000 %}{{ x.replace('x', x) }}",
        "{{ '%1000000000d' | format(1) }}",
        "{{ '{:1000000000d}'.format(1) }}",
        "{{ '{:99999999999999999999999d}'.format(1) }}",
        "{% set x = 'x' * 10000000 %}{{ ('{0}' * 100).format(x) }}",
        "{% set x = 'x' * 10000000 %}{{ ('{x}' * 100).format(x=x) }}",
        "{{ 'x' | indent(1000000000, true) }}",
        "{{ ('a,' * 30000000).split(',') | length }}",
        "{{ ('a ' * 30000000).split() | length }}",
        "{{ ('a\n' * 30000000).splitlines() | length }}",
        "{{ ('a,' * 20000000) | list | length }}",
        "{{ ('ß' * 30000000).upper() | length }}",
        "{% for i in range(100000) %}{% set x = range(100000) | list %}{% endfor %}",
    ] {
        is_error(source, FUEL);
    }
}

#[test]
fn lists_that_double_take_too_long() {
    let source = grown(1, "ns.l + ns.l", "{{ ns.l | length }}");
    let (template, messages) = (template(&source), said(&[(Role::User, "Hi")]));
    for reason in ["it takes longer than 5 s", "an earlier rendering failed or took too long"] {
        let error = template.render(&messages, true).unwrap_err().to_string();
        assert!(error.ends_with(reason), "{error}");
    }
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
    let bos = template("{{ bos_token }}{% if tools is not none %}tools{% endif %}{{ eos_token }}");
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
    let forgetful = "{% for m in messages %}{{ m.content if loop.last else m.role }};{% endfor %}";
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
    let error = parse("{% if %}").unwrap_err().to_string();
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
