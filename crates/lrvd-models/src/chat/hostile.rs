//! Templates that are made to exhaust stack, memory or time end in errors.
#![allow(clippy::unwrap_used)]

use std::path::Path;

use super::{ChatTemplate, Message, Role};
use crate::error::Result;
use crate::tokenizer::TextTokenizer;

fn template(source: &str) -> Result<ChatTemplate> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/tokenizers");
    let tokenizer = TextTokenizer::from_file(&folder.join("llama2_spm_bpe/tokenizer.json"));
    ChatTemplate::new(source.to_owned(), Path::new("here"), &tokenizer.unwrap())
}

fn hi() -> [Message; 1] {
    [Message { role: Role::User, content: "Hi".to_owned() }]
}

/// What a template gives for a conversation of one message, asked on a thread of the usual stack.
fn rendered(source: String) -> Result<String> {
    let render = move || template(&source)?.render(&hi(), true);
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
    let (template, messages) = (template(&source).unwrap(), hi());
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
