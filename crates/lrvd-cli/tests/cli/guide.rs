//! The commands of guides and tutorials: each block `console` is run, and prints what the document shows.
#![cfg(all(unix, feature = "serve"))]

use std::iter::Peekable;
use std::path::Path;
use std::str::Lines;

use crate::serve::Server;
use crate::support::{Sandbox, ended};

/// Root of the clone, which the documents call `lrvd`.
const CLONE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
/// Address of the guides' servers.
const ADDRESS: &str = "http://127.0.0.1:8080";

/// A command, as a shell splits it, and the output that the guide shows.
struct Shown {
    words: Vec<String>,
    output: String,
}

/// The commands of a guide. A command ends where its quotes are closed and its line does not end in `\`.
fn commands(guide: &str) -> Vec<Shown> {
    let mut found = Vec::new();
    for block in guide.split("```console\n").skip(1) {
        let mut lines = block.split("```").next().unwrap().lines().peekable();
        while let Some(line) = lines.next() {
            let words =
                command(line.strip_prefix("$ ").unwrap_or_else(|| panic!("{line}")), &mut lines);
            let output = std::iter::from_fn(|| lines.next_if(|line| !line.starts_with("$ ")));
            found.push(Shown { words, output: output.collect::<Vec<_>>().join("\n") });
        }
    }
    found
}

fn command(first: &str, rest: &mut Peekable<Lines<'_>>) -> Vec<String> {
    let mut text = first.to_owned();
    loop {
        let continued = text.strip_suffix('\\').map(str::to_owned);
        let words = shlex::split(&text).filter(|_| continued.is_none());
        if let Some(words) = words {
            return words;
        }
        let next = rest.next().unwrap_or_else(|| panic!("no end: {text}"));
        text = continued.unwrap_or_else(|| text + "\n") + next;
    }
}

/// A number as it is written, or another character.
#[derive(Debug)]
enum Piece {
    Number(String),
    Other(char),
}

/// A text without white space.
fn pieces(text: &str) -> Vec<Piece> {
    let mut found: Vec<Piece> = Vec::new();
    let mut is_open = false;
    for c in text.chars() {
        match found.last_mut() {
            Some(Piece::Number(number)) if is_open && (c.is_ascii_digit() || c == '.') => {
                number.push(c);
            }
            _ if c.is_ascii_digit() => found.push(Piece::Number(c.into())),
            _ if c.is_whitespace() => {}
            _ => found.push(Piece::Other(c)),
        }
        is_open = c.is_ascii_digit() || c == '.';
    }
    found
}

/// True if the number is that of the guide: one with decimals to two units of the last of them, and to .02, since processors
/// round training differently.
fn is_shown(shown: &str, found: &str) -> bool {
    let Some((_, decimals)) = shown.split_once('.') else { return shown == found };
    let numbers = shown.parse::<f64>().ok().zip(found.parse::<f64>().ok());
    let unit = 0.1_f64.powi(i32::try_from(decimals.len()).unwrap());
    numbers.map_or(shown == found, |(a, b)| (a - b).abs() <= (2.0 * unit).max(0.02))
}

/// True if `found` is `shown`, in which `…` is anything.
fn matches(shown: &[Piece], found: &[Piece]) -> bool {
    match (shown, found) {
        ([], _) => found.is_empty(),
        ([Piece::Other('…'), rest @ ..], _) => {
            (0..=found.len()).any(|from| matches(rest, &found[from..]))
        }
        ([Piece::Number(a), shown @ ..], [Piece::Number(b), found @ ..]) => {
            is_shown(a, b) && matches(shown, found)
        }
        ([Piece::Other(a), shown @ ..], [Piece::Other(b), found @ ..]) => {
            a == b && matches(shown, found)
        }
        _ => false,
    }
}

/// Output of a command; a server stays until the next one.
fn printed(dir: &Sandbox, server: &mut Option<Server>, words: &[String]) -> String {
    let variable = words[0].split_once('=');
    let words = &words[usize::from(variable.is_some())..];
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        ["head", "-n", lines, file] => {
            let text = dir.text(file);
            text.split_inclusive('\n').take(lines.parse().unwrap()).collect()
        }
        ["cp", ref files @ .., "."] => {
            for file in files.iter().filter(|file| **file != "-r") {
                let from = Path::new(CLONE).join(file.strip_prefix("lrvd/").unwrap());
                let name = from.file_name().unwrap().to_str().unwrap();
                if from.is_dir() {
                    dir.copy(&from, name);
                } else {
                    dir.write(name, std::fs::read(&from).unwrap());
                }
            }
            String::new()
        }
        ["cargo", "xtask", suite @ ("glue" | "reasoning"), ref rest @ ..] => {
            let line = [&["lrvd", "bench", suite], rest].concat();
            printed(dir, server, &line.into_iter().map(str::to_owned).collect::<Vec<_>>())
        }
        ["lrvd", "serve", ..] => {
            if let Some(before) = server.take() {
                before.stop();
            }
            let line = shlex::try_join(words[2..].iter().copied()).unwrap();
            *server = Some(Server::start_with(dir, &format!("{line} --quiet"), variable));
            ADDRESS.to_owned()
        }
        ["lrvd", ..] => {
            let output =
                ended(dir.command(&shlex::try_join(words[1..].iter().copied()).unwrap()), "");
            assert_eq!(output.code, 0, "{words:?}: {}", output.stderr);
            output.stdout
        }
        ["curl", url, ref options @ ..] => {
            let path = url.strip_prefix(ADDRESS).unwrap_or_else(|| panic!("{url}"));
            let start = format!("POST {path} HTTP/1.1");
            let mut head = vec![&*start, "Host: localhost"];
            let mut body = "";
            for pair in options.chunks(2) {
                match *pair {
                    ["-H", line] => head.push(line),
                    ["-d", text] => body = text,
                    _ => panic!("{pair:?}"),
                }
            }
            server.as_ref().unwrap().ask(&head, body).text
        }
        _ => panic!("{words:?}"),
    }
}

/// Runs the commands of a document in `dir`, each of which prints what the document shows; some of them start with `steps`.
#[track_caller]
fn holds(dir: &Sandbox, document: &str, steps: &[&str]) {
    let text = std::fs::read_to_string(Path::new(CLONE).join(document)).unwrap();
    let mut server = None;
    let mut seen = Vec::new();
    for Shown { words, output } in commands(&text) {
        let found = printed(dir, &mut server, &words);
        assert!(
            matches(&pieces(&output), &pieces(&found)),
            "{document}: {words:?}\n{found}\nis not as shown:\n{output}"
        );
        seen.push(words.join(" "));
    }
    for step in steps {
        assert!(seen.iter().any(|line| line.starts_with(step)), "{document}: {step}");
    }
    if let Some(server) = server {
        server.stop();
    }
}

#[test]
fn the_commands_of_the_guide_to_a_decision_model_print_what_it_shows() {
    let dir = Sandbox::new();
    for name in ["tickets.csv", "tickets-held-out.csv", "tickets-test.csv", "desk.jsonl"] {
        dir.write(name, dir.bytes(&format!("@tests/data/{name}")));
    }
    dir.copy(&dir.path("@nano"), "deberta-v3-nano");
    dir.copy(&dir.path("@llama"), "stories260K");
    let steps =
        ["lrvd data check", "lrvd train", "lrvd eval", "lrvd abstain", "lrvd serve", "curl"];
    holds(&dir, "docs/guides/decision-model.md", &steps);
}

#[test]
fn the_commands_of_the_tutorial_on_training_print_what_it_shows() {
    let steps = ["lrvd train", "lrvd eval", "lrvd abstain", "lrvd export", "lrvd serve", "curl"];
    holds(&Sandbox::new(), "docs/tutorials/train-calibrate-deploy.md", &steps);
}

#[test]
fn the_commands_of_the_tutorial_on_the_paper_print_what_it_shows() {
    let steps = ["cargo xtask glue --dry-run", "lrvd bench glue", "lrvd bench collect"];
    holds(&Sandbox::new(), "docs/tutorials/reproduce.md", &steps);
}

#[test]
fn a_guide_may_leave_out_parts_and_digits_and_nothing_else() {
    let is_match = |shown: &str, found: &str| matches(&pieces(shown), &pieces(found));
    assert!(is_match("{\"p\": 0.123,\n \"n\":7}", "{\"p\":0.12345,\"n\":7}\n"));
    assert!(is_match("a 1.50 …\nz", "a 1.4999 b c z"));
    assert!(is_match("{…}", "{\"any\": 1}"));
    for (shown, found) in [
        ("p 0.123", "p 0.146"),
        ("n 7", "n 8"),
        ("n 7", "n 7.0"),
        ("a … z", "a b c"),
        ("a", "a b"),
        ("a b", "a"),
    ] {
        assert!(!is_match(shown, found), "{shown}");
    }
}
