//! Rust sources as the checks see them: without comments, literals and tests.
//!
//! This is no parser. It knows enough of the lexical structure not to be fooled by a word in a
//! comment or a brace in a string, and keeps every byte at its place, so that line numbers hold.

/// `text` with comments, string and character literals replaced by blanks.
pub(crate) fn code_only(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = bytes.to_vec();
    let mut i = 0;
    while i < bytes.len() {
        match skipped_end(bytes, i) {
            Some(end) => {
                blank(&mut out, i, end);
                i = end;
            }
            None => i += 1,
        }
    }
    // Blanking replaces whole literals and comments, so what is left is still UTF-8.
    String::from_utf8_lossy(&out).into_owned()
}

/// End of the comment or literal that starts at `i`, if one does.
fn skipped_end(bytes: &[u8], i: usize) -> Option<usize> {
    match bytes[i] {
        b'/' if bytes.get(i + 1) == Some(&b'/') => Some(line_end(bytes, i)),
        b'/' if bytes.get(i + 1) == Some(&b'*') => Some(block_comment_end(bytes, i)),
        b'"' => Some(string_end(bytes, i)),
        b'\'' => character_end(bytes, i),
        b'r' | b'b' | b'c' if !follows_word(bytes, i) => prefixed_end(bytes, i),
        _ => None,
    }
}

/// Replaces everything but line ends.
fn blank(bytes: &mut [u8], from: usize, to: usize) {
    for byte in &mut bytes[from..to] {
        if *byte != b'\n' {
            *byte = b' ';
        }
    }
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte >= 0x80
}

fn follows_word(bytes: &[u8], i: usize) -> bool {
    i > 0 && is_word(bytes[i - 1])
}

fn line_end(bytes: &[u8], from: usize) -> usize {
    bytes[from..].iter().position(|&b| b == b'\n').map_or(bytes.len(), |n| from + n)
}

fn block_comment_end(bytes: &[u8], from: usize) -> usize {
    let (mut depth, mut i) = (0, from);
    while i < bytes.len() {
        match &bytes[i..bytes.len().min(i + 2)] {
            b"/*" => {
                depth += 1;
                i += 2;
            }
            b"*/" => {
                depth -= 1;
                i += 2;
                if depth == 0 {
                    return i;
                }
            }
            _ => i += 1,
        }
    }
    bytes.len()
}

/// End of a string whose opening quote is at `from`.
fn string_end(bytes: &[u8], from: usize) -> usize {
    let mut i = from + 1;
    while i < bytes.len() {
        match bytes[i] {
            b'\\' => i += 2,
            b'"' => return i + 1,
            _ => i += 1,
        }
    }
    bytes.len()
}

/// End of a character literal at `from`; `None` for a lifetime.
fn character_end(bytes: &[u8], from: usize) -> Option<usize> {
    let rest = bytes.get(from + 1..).filter(|rest| rest.len() >= 2)?;
    if rest[0] == b'\\' {
        // After the backslash and what it escapes comes the quote, `\'` included.
        return rest[2..].iter().position(|&b| b == b'\'').map(|n| from + 1 + 2 + n + 1);
    }
    let width = rest[1..].iter().take_while(|b| (0x80..0xC0).contains(*b)).count() + 1;
    (rest.get(width) == Some(&b'\'')).then_some(from + 1 + width + 1)
}

/// End of a literal that starts with letters: `r"…"`, `r#"…"#`, `b"…"`, `br"…"`, `b'…'`, `c"…"`.
fn prefixed_end(bytes: &[u8], from: usize) -> Option<usize> {
    let letters = bytes[from..].iter().take_while(|b| matches!(b, b'r' | b'b' | b'c')).count();
    let raw = bytes[from..from + letters].contains(&b'r');
    let at = from + letters;
    match bytes.get(at)? {
        b'"' if !raw => Some(string_end(bytes, at)),
        b'\'' if letters == 1 && bytes[from] == b'b' => character_end(bytes, at),
        b'"' | b'#' if raw => {
            let hashes = bytes[at..].iter().take_while(|&&b| b == b'#').count();
            // `r#type` is an identifier.
            if bytes.get(at + hashes) != Some(&b'"') {
                return None;
            }
            let close: Vec<u8> =
                std::iter::once(b'"').chain(std::iter::repeat_n(b'#', hashes)).collect();
            let start = at + hashes + 1;
            let found = bytes[start..].windows(close.len()).position(|w| w == close);
            Some(found.map_or(bytes.len(), |n| start + n + close.len()))
        }
        _ => None,
    }
}

/// What `#[cfg(test)]` covers in one file.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct TestParts {
    /// The file's code without its test items.
    pub(crate) code: String,
    /// Files of its test modules, relative to the folder of the modules of the file: `tests.rs`,
    /// `tests/`, or what a `#[path]` says (marked, since that is relative to the file's folder).
    pub(crate) modules: Vec<TestModule>,
}

/// A module that exists in test builds only.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum TestModule {
    /// `mod name;`
    Named(String),
    /// `#[path = "file"] mod name;`
    Path(String),
}

/// Cuts out items under `#[cfg(test)]`; `text` is the source that `code` was made from.
pub(crate) fn without_tests(text: &str, code: &str) -> TestParts {
    let mut out = code.as_bytes().to_vec();
    let mut modules = Vec::new();
    let mut from = 0;
    while let Some(found) = code[from..].find("#[cfg(") {
        let start = from + found;
        let attribute_end = bracket_end(code, start + 1);
        let condition = &code[start..attribute_end];
        if !has_word(condition, "test") || condition.contains("not(test") {
            from = attribute_end;
            continue;
        }
        let (mut at, mut path) = (attribute_end, None);
        // Further attributes of the same item.
        loop {
            let rest = &code[at..];
            let skipped = rest.len() - rest.trim_start().len();
            if !rest.trim_start().starts_with("#[") {
                break;
            }
            let end = bracket_end(code, at + skipped + 1);
            let attribute = &text[at + skipped..end];
            if attribute.starts_with("#[path") {
                path = attribute.split('"').nth(1).map(str::to_owned);
            }
            at = end;
        }
        let end = item_end(code, at);
        let item = code[at..end].trim();
        if let Some(name) = item.strip_suffix(';').and_then(module_name) {
            modules.push(path.map_or_else(|| TestModule::Named(name.to_owned()), TestModule::Path));
        }
        blank(&mut out, start, end);
        from = end;
    }
    TestParts { code: String::from_utf8_lossy(&out).into_owned(), modules }
}

/// The name in `mod name`, with or without a visibility.
fn module_name(item: &str) -> Option<&str> {
    let mut words = item.split_whitespace();
    let name = words.next_back()?;
    (words.next_back()? == "mod").then_some(name)
}

/// End of the bracket pair that opens at `open`.
fn bracket_end(code: &str, open: usize) -> usize {
    let mut depth = 0_usize;
    for (i, byte) in code.bytes().enumerate().skip(open) {
        match byte {
            b'[' => depth += 1,
            b']' if depth <= 1 => return i + 1,
            b']' => depth -= 1,
            _ => {}
        }
    }
    code.len()
}

/// End of the item that starts at `from`: its semicolon or its closing brace.
fn item_end(code: &str, from: usize) -> usize {
    let (mut braces, mut others) = (0_usize, 0_usize);
    for (i, byte) in code.bytes().enumerate().skip(from) {
        match byte {
            b'(' | b'[' => others += 1,
            b')' | b']' => others = others.saturating_sub(1),
            b'{' => braces += 1,
            b'}' if braces <= 1 => return i + 1,
            b'}' => braces -= 1,
            b';' if braces == 0 && others == 0 => return i + 1,
            _ => {}
        }
    }
    code.len()
}

/// Byte offsets at which `word` stands alone in `code`.
pub(crate) fn words<'a>(code: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    code.match_indices(word).map(|(i, _)| i).filter(move |&i| {
        let bytes = code.as_bytes();
        !follows_word(bytes, i) && !bytes.get(i + word.len()).copied().is_some_and(is_word)
    })
}

/// Whether `word` stands alone somewhere in `code`.
pub(crate) fn has_word(code: &str, word: &str) -> bool {
    words(code, word).next().is_some()
}

/// Line of a byte offset, from 1.
pub(crate) fn line(code: &str, offset: usize) -> usize {
    1 + code[..offset].matches('\n').count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(source: &str, kept: &str) {
        let code = code_only(source);
        assert_eq!(code.len(), source.len(), "{source}");
        let squeezed = code.split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(squeezed, kept, "{source}");
    }

    #[test]
    fn comments_and_literals_vanish() {
        check("a // b\nc", "a c");
        check("a /* b /* c */ d */ e", "a e");
        check("a /* never closed", "a");
        check(r#"f("x \" y", z)"#, "f( , z)");
        check("f(r#\"a \" b\"#, c)", "f( , c)");
        check(r#"f(r"\", b"\"", br"\", c"x")"#, "f( , , , )");
        check("let r#type = br; bar\"s\"", "let r#type = br; bar");
        check("f('\\'', '\"', '/', b'\\\\', 'é')", "f( , , , , )");
        check("fn f<'a>(x: &'a str) -> &'static str", "fn f<'a>(x: &'a str) -> &'static str");
        check("'\\u{1F600}' x '\\n'", "x");
        check("\"é\" + x", "+ x");
        check("\"open", "");
        check("x '", "x '");
    }

    #[test]
    fn test_items_are_cut_and_test_files_named() {
        let source = "fn a() { \"}\"; }\n#[cfg(test)]\nmod tests {\n    fn b() { '}'; }\n}\nfn c() {}\n\
                      #[cfg(test)]\nmod more;\n#[cfg(test)]\n#[path = \"x_tests.rs\"]\npub(crate) mod x;\n\
                      #[cfg(all(test, unix))]\nconst D: [u8; 2] = [0; 2];\n\
                      #[cfg(not(test))]\nfn e() {}\n#[cfg(feature = \"test\")]\nfn f() {}\n\
                      #[cfg(test)]\n#[allow(x)]\nfn g(y: [u8; 3]) { if true { } }\nfn h() {}";
        let parts = without_tests(source, &code_only(source));
        for kept in ["a", "c", "e", "f", "h"] {
            assert!(has_word(&parts.code, kept), "{kept}");
        }
        for cut in ["b", "tests", "D", "g", "more"] {
            assert!(!has_word(&parts.code, cut), "{cut}");
        }
        assert_eq!(
            parts.modules,
            [TestModule::Named("more".to_owned()), TestModule::Path("x_tests.rs".to_owned())]
        );
        assert_eq!(line(&parts.code, parts.code.find("fn c").unwrap_or_default()), 6);
    }

    #[test]
    fn words_stand_alone() {
        assert_eq!(words("unsafe_code unsafe xunsafe (unsafe)", "unsafe").count(), 2);
        assert!(!has_word("prints", "print"));
    }
}
