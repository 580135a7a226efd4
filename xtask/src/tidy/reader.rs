//! The names in a Rust source, outside comments and tests: tokens, `use` declarations and paths.

/// Names of a path, from the crate's root down.
pub(super) type Path = Vec<String>;

/// The names in one file.
#[derive(Default)]
pub(super) struct Names {
    /// Paths that are used, with their lines.
    pub(super) used: Vec<(Path, usize)>,
    /// All words, with their lines.
    pub(super) words: Vec<(String, usize)>,
    /// Names that the file re-exports, and where they come from.
    pub(super) exports: Vec<(String, Path)>,
    /// Its modules of tests, by the names of their files.
    pub(super) tests: Vec<String>,
}

/// A word, a literal or one character of punctuation.
#[derive(Clone, Copy)]
struct Token<'a> {
    text: &'a str,
    line: usize,
}

impl Token<'_> {
    fn is_word(&self) -> bool {
        self.text.starts_with(starts_word) && !self.text.ends_with(['"', '\'', '#'])
    }
}

fn starts_word(c: char) -> bool {
    c.is_alphabetic() || c == '_'
}

/// The length of the comment, literal, word or character that `text` starts with.
fn length(text: &str) -> usize {
    let after = |skipped: usize| text.get(skipped..)?.chars().next();
    let word = text.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len());
    if text.starts_with("//") {
        return text.find('\n').unwrap_or(text.len());
    }
    if text.starts_with("/*") {
        let mut depth = 0;
        let mut at = 0;
        while at < text.len() {
            match text.as_bytes().get(at..at + 2) {
                Some(b"/*") => (depth, at) = (depth + 1, at + 2),
                Some(b"*/") => (depth, at) = (depth - 1, at + 2),
                _ => at += 1,
            }
            if depth == 0 {
                break;
            }
        }
        return at;
    }
    // A raw string: `r"…"`, `br#"…"#`; `r#name` is a word.
    if matches!(&text[..word], "r" | "br" | "cr") {
        let hashes = text[word..].len() - text[word..].trim_start_matches('#').len();
        if after(word + hashes) == Some('"') {
            let start = word + hashes + 1;
            let closing = format!("\"{}", "#".repeat(hashes));
            return text[start..]
                .find(&closing)
                .map_or(text.len(), |at| start + at + closing.len());
        }
    }
    let quote = if matches!(&text[..word], "" | "b" | "c") { word } else { 0 };
    match after(quote) {
        Some(mark @ ('"' | '\'')) => {
            let first = after(quote + 1).unwrap_or_default();
            let is_lifetime =
                mark == '\'' && first != '\\' && after(quote + 1 + first.len_utf8()) != Some('\'');
            if is_lifetime {
                return quote + 1;
            }
            let mut is_escaped = false;
            let end = text[quote + 1..].find(|c| {
                let closes = c == mark && !is_escaped;
                is_escaped = c == '\\' && !is_escaped;
                closes
            });
            end.map_or(text.len(), |end| quote + 1 + end + 1)
        }
        Some(c) if word == 0 => c.len_utf8(),
        _ => word,
    }
}

fn tokens(text: &str) -> Vec<Token<'_>> {
    let mut tokens = Vec::new();
    let mut rest = text;
    let mut line = 1;
    while !rest.is_empty() {
        let (token, left) = rest.split_at(length(rest));
        let is_comment = token.starts_with("//") || token.starts_with("/*");
        if !is_comment && !token.trim().is_empty() {
            tokens.push(Token { text: token, line });
        }
        line += token.matches('\n').count();
        rest = left;
    }
    tokens
}

/// The place behind the bracket that closes the one at `start`.
fn closed(tokens: &[Token<'_>], start: usize) -> usize {
    let mut depth = 0;
    for (i, token) in tokens.iter().enumerate().skip(start) {
        match token.text {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return i + 1;
        }
    }
    tokens.len()
}

/// The place behind the item that starts at `start`: behind its block, or its semicolon.
fn item_end(tokens: &[Token<'_>], start: usize) -> usize {
    let text = |i: usize| tokens.get(i).map_or("", |token| token.text);
    let mut keyword = start;
    if text(keyword) == "pub" {
        keyword += 1;
        if text(keyword) == "(" {
            keyword = closed(tokens, keyword);
        }
    }
    let is_value = matches!(text(keyword), "use" | "static" | "type")
        || text(keyword) == "const" && !matches!(text(keyword + 1), "fn" | "unsafe" | "async");
    let mut i = keyword;
    while i < tokens.len() {
        match text(i) {
            ";" => return i + 1,
            "{" if !is_value => return closed(tokens, i),
            "(" | "[" | "{" => i = closed(tokens, i),
            _ => i += 1,
        }
    }
    i
}

/// Takes items under `#[cfg(test)]` out, and adds the modules among them to `modules`.
fn without_tests<'a>(tokens: &[Token<'a>], modules: &mut Vec<String>) -> Vec<Token<'a>> {
    let text = |i: usize| tokens.get(i).map_or("", |token| token.text);
    let mut kept = Vec::new();
    let mut i = 0;
    while i < tokens.len() {
        let start = i;
        let mut is_test = false;
        let mut file = None;
        while text(i) == "#" && text(i + 1) == "[" {
            let end = closed(tokens, i + 1);
            let words: Vec<&str> =
                tokens[i + 2..(end - 1).max(i + 2)].iter().map(|token| token.text).collect();
            is_test |= words == ["cfg", "(", "test", ")"];
            if let ["path", "=", path] = words[..] {
                file = Some(path.trim_matches('"').trim_end_matches(".rs"));
            }
            i = end;
        }
        if is_test {
            let end = item_end(tokens, i);
            let name = tokens[i..end].iter().skip_while(|token| token.text != "mod").nth(1);
            let is_module = tokens[i..end].iter().take(6).any(|token| token.text == "mod");
            modules.extend(
                name.filter(|_| is_module).map(|name| file.unwrap_or(name.text).to_owned()),
            );
            i = end;
        } else {
            i = i.max(start + 1);
            kept.extend_from_slice(&tokens[start..i]);
        }
    }
    kept
}

/// The names in the source `text` of module `own`.
pub(super) fn read(text: &str, own: &[String]) -> Names {
    let mut names = Names::default();
    let tokens = without_tests(&tokens(text), &mut names.tests);
    let words = tokens.iter().filter(|token| token.is_word());
    names.words.extend(words.map(|token| (token.text.to_owned(), token.line)));
    let text = |i: usize| tokens.get(i).map_or("", |token| token.text);
    let is_joined = |i: usize| text(i) == ":" && text(i + 1) == ":";
    let mut i = 0;
    while i < tokens.len() {
        // `impl Trait + use<'a>` is not a declaration.
        if text(i) == "use" && text(i + 1) != "<" {
            let is_export = i > 0 && matches!(text(i - 1), "pub" | ")");
            i = names.declaration(&tokens, i + 1, &[], own, is_export) + 1;
            continue;
        }
        if tokens[i].is_word() && (i < 2 || !is_joined(i - 2)) {
            let mut path = vec![text(i).to_owned()];
            let mut end = i + 1;
            while is_joined(end) {
                if text(end + 2) == "<" {
                    end = generics_end(&tokens, end + 2);
                } else if tokens.get(end + 2).is_some_and(Token::is_word) {
                    path.push(text(end + 2).to_owned());
                    end += 3;
                } else {
                    break;
                }
            }
            if path.len() > 1 {
                names.used.push((absolute(own, &path), tokens[i].line));
            }
        }
        i += 1;
    }
    names
}

/// The place behind the `>` that closes the `<` at `start`.
fn generics_end(tokens: &[Token<'_>], start: usize) -> usize {
    let mut depth = 0;
    for i in start..tokens.len() {
        match tokens[i].text {
            "<" => depth += 1,
            ">" if tokens[i - 1].text != "-" => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return i + 1;
        }
    }
    tokens.len()
}

/// `names` from the crate's root. A first name of another crate is taken for one of a module, which then does not exist.
fn absolute(own: &[String], names: &[String]) -> Path {
    let up = names.iter().take_while(|name| *name == "super").count();
    match names.first().map(String::as_str) {
        Some("crate") => names[1..].to_vec(),
        Some("super") => [&own[..own.len().saturating_sub(up)], &names[up..]].concat(),
        Some("self") => [own, &names[1..]].concat(),
        _ => [own, names].concat(),
    }
}

impl Names {
    /// Reads the tree of a `use` at `i`, behind the names `start`; returns the place of what ends it.
    fn declaration(
        &mut self,
        tokens: &[Token<'_>],
        mut i: usize,
        start: &[String],
        own: &[String],
        is_export: bool,
    ) -> usize {
        let text = |i: usize| tokens.get(i).map_or("", |token| token.text);
        let mut path = start.to_vec();
        loop {
            match text(i) {
                ":" => {
                    i += 1;
                    continue;
                }
                "{" => {
                    let end = closed(tokens, i);
                    i += 1;
                    while i + 1 < end {
                        i = self.declaration(tokens, i, &path, own, is_export) + 1;
                    }
                    return end;
                }
                "*" => {
                    self.used.push((absolute(own, &path), tokens[i].line));
                    return i + 1;
                }
                "self" if !path.is_empty() => i += 1,
                word if word.starts_with(starts_word) => {
                    path.push(word.to_owned());
                    i += 1;
                }
                _ => return i,
            }
            if text(i) == ":" {
                continue;
            }
            let line = tokens[i - 1].line;
            let mut called = path.last().cloned().unwrap_or_default();
            if text(i) == "as" {
                text(i + 1).clone_into(&mut called);
                i += 2;
            }
            let path = absolute(own, &path);
            if is_export {
                self.exports.push((called, path));
            } else {
                self.used.push((path, line));
            }
            return i;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The words of a source, and its paths.
    fn words(text: &str) -> String {
        let names = read(text, &[]);
        names.words.iter().map(|(word, _)| word.as_str()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn words_are_outside_comments_literals_and_tests() {
        for (text, expected) in [
            ("fn x() { println!(\"{}\", y(|| z)) } // w", "fn x println y z"),
            ("a /* b /* c */ d */ e", "a e"),
            ("r\"b\\\" r#\"c\" d\"# br##\"e\"# f\"## g", "g"),
            ("'b' '\\'' '\\u{41}' b'c' \"d \\\" e\" b\"f\" c\"g\" 'h: 'i'", "h"),
            ("r#type x\u{e9} 0b1 1e5 '\u{e9}' y", "r type x\u{e9} y"),
            ("#[cfg(test)] use a::{b, c}; d", "d"),
            ("#[cfg(test)] const A: [u8; 2] = [1, { 2 }]; d", "d"),
            (
                "#[cfg(test)] #[allow(x)] pub(crate) const fn f<const N: usize>() -> [u8; 2] { g } d",
                "d",
            ),
            ("#[cfg(not(test))] struct S; #[cfg(test)] struct T(u8); d", "cfg not test struct S d"),
        ] {
            assert_eq!(words(text), expected, "{text}");
        }
    }

    #[test]
    fn paths_are_read_with_their_lines() {
        let own = ["a".to_owned(), "b".to_owned()];
        let text = "use crate::c::{\n  self, d::*, e as f,\n};\nuse super::g;\npub(crate) use self::h::I as J;\n\
                    fn k(l: Vec<crate::m::N>) -> impl Fn() + use<> { o::<fn() -> crate::p::Q>::r(); <T as super::s::U>::v }\n\
                    #[cfg(test)]\n#[path = \"w.rs\"]\nmod tests;";
        let names = read(text, &own);
        let used: Vec<String> =
            names.used.iter().map(|(path, line)| format!("{} {line}", path.join("::"))).collect();
        let expected =
            ["c 2", "c::d 2", "c::e 2", "a::g 4", "m::N 6", "a::b::o::r 6", "p::Q 6", "a::s::U 6"];
        assert_eq!(used, expected);
        let from: Vec<String> = names
            .exports
            .iter()
            .map(|(name, path)| format!("{name} = {}", path.join("::")))
            .collect();
        assert_eq!(from, ["J = a::b::h::I"]);
        assert_eq!(names.tests, ["w"]);
    }
}
