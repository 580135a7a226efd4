//! What `--help` prints, as Markdown.

use std::fmt::Write as _;

/// Columns by which the descriptions of options are indented; names are indented less.
const INDENT: usize = 10;

/// A name, and the Markdown that describes it.
type Described = (String, String);

/// The parts of a help text.
#[derive(Default)]
pub(super) struct Help {
    about: String,
    usage: String,
    /// Heading, and options, arguments or commands.
    sections: Vec<(String, Vec<Described>)>,
    notes: String,
}

impl Help {
    /// Reads a text of clap: a description, the usage, sections of options, and what the command adds.
    pub(super) fn read(text: &str) -> Self {
        let (about, rest) = text.split_once("\n\nUsage: ").unwrap_or((text, ""));
        let (usage, rest) = rest.split_once('\n').unwrap_or((rest, ""));
        let mut sections = Vec::new();
        let mut notes = String::new();
        let mut lines = rest.lines().peekable();
        while let Some(line) = lines.next() {
            if line.is_empty() {
                continue;
            }
            let names =
                |next: &&str| line == "Commands:" || next.trim_start().starts_with(['-', '<', '[']);
            let Some(heading) = line.strip_suffix(':').filter(|_| lines.peek().is_some_and(names))
            else {
                notes = std::iter::once(line).chain(lines).collect::<Vec<_>>().join("\n");
                break;
            };
            let mut found: Vec<(String, Vec<&str>)> = Vec::new();
            while let Some(line) = lines.next_if(|line| line.is_empty() || line.starts_with(' ')) {
                let trimmed = line.trim_start();
                let least = if heading == "Commands" { 3 } else { INDENT };
                if !trimmed.is_empty() && line.len() - trimmed.len() < least {
                    let (name, text) = trimmed.split_once("  ").unwrap_or((trimmed, ""));
                    found.push((name.to_owned(), vec![text.trim_start()]));
                } else if let Some((_, text)) = found.last_mut() {
                    text.push(if heading == "Commands" {
                        trimmed
                    } else {
                        line.get(INDENT..).unwrap_or("")
                    });
                }
            }
            let described =
                found.into_iter().map(|(name, text)| (name, escaped(text.join("\n").trim())));
            sections
                .push((heading.to_owned(), described.filter(|(name, _)| name != "help").collect()));
        }
        Self { about: escaped(about), usage: usage.to_owned(), sections, notes: markdown(&notes) }
    }

    /// The subcommands, each with its description.
    pub(super) fn commands(&self) -> &[Described] {
        let section = self.sections.iter().find(|(heading, _)| heading == "Commands");
        section.map_or(&[], |(_, commands)| commands)
    }

    /// What the command adds below its options.
    pub(super) fn notes(&self) -> &str {
        &self.notes
    }

    /// The part of a page below a heading of this level, without what `common` has too.
    pub(super) fn page(&self, command: &str, level: usize, common: &Self) -> String {
        let heading = "#".repeat(level);
        let mut out =
            format!("{heading} {command}\n\n{}\n\n```text\n{}\n```\n\n", self.about, self.usage);
        let is_common = |described: &Described| {
            common.sections.iter().any(|(_, others)| others.contains(described))
        };
        for (title, described) in &self.sections {
            let mut own = described.iter().filter(|described| !is_common(described)).peekable();
            if own.peek().is_some() {
                let _ = writeln!(out, "{heading}# {title}\n");
            }
            for (name, text) in own {
                let text = if text.is_empty() { "—" } else { text };
                let _ = writeln!(out, "`{name}`\n: {}\n", text.replace('\n', "\n  "));
            }
        }
        if self.notes != common.notes && !self.notes.is_empty() {
            let _ = writeln!(out, "{heading}# More\n\n{}", self.notes);
        }
        out
    }
}

/// A text whose paragraphs are Markdown, or as printed where lines are indented.
fn markdown(text: &str) -> String {
    let mut out = String::new();
    for paragraph in
        text.split("\n\n").map(|part| part.trim_matches('\n')).filter(|part| !part.is_empty())
    {
        if paragraph.lines().any(|line| line.starts_with(' ')) {
            let _ = writeln!(out, "```text\n{paragraph}\n```\n");
        } else {
            let _ = writeln!(out, "{}\n", escaped(paragraph));
        }
    }
    out
}

/// A plain text as Markdown, in which parts between backticks stay code.
pub(super) fn escaped(text: &str) -> String {
    let mut out = String::new();
    for (i, part) in text.split('`').enumerate() {
        out.push_str(if i > 0 { "`" } else { "" });
        for c in part.chars() {
            if i % 2 == 0 && "\\<*_[]$|".contains(c) {
                out.push('\\');
            }
            out.push(c);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const COMMON: &str = "\
A program

Usage: p [OPTIONS] <COMMAND>

Commands:
  make  Make it, whatever
        it is
  help  Print this message

Options:
  -q, --quiet
          Print less

Exit codes: 0, done.
";
    const MAKE: &str = "\
Make it

Usage: p make [OPTIONS] <DIR>

Arguments:
  <DIR>
          Folder

Options:
  -q, --quiet
          Print less

Size:
      --size <N>
          Size of *all*, as in `a*b` [default: 1].
          
          Possible values:
          - 1: small
          - 2: large

Examples:
  p make x
      into x

Prints `a_b` and a_b.
";

    #[test]
    fn a_help_text_is_a_page() {
        let common = Help::read(COMMON);
        assert_eq!(common.commands(), [("make".to_owned(), "Make it, whatever\nit is".to_owned())]);
        let expected = "\
## p make

Make it

```text
p make [OPTIONS] <DIR>
```

### Arguments

`<DIR>`
: Folder

### Size

`--size <N>`
: Size of \\*all\\*, as in `a*b` \\[default: 1\\].
  
  Possible values:
  - 1: small
  - 2: large

### More

```text
Examples:
  p make x
      into x
```

Prints `a_b` and a\\_b.

";
        assert_eq!(Help::read(MAKE).page("p make", 2, &common).trim(), expected.trim());
    }
}
