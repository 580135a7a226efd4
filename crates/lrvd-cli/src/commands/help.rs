//! The texts under the options of a command's help, laid out for any width of a terminal.

/// Lines of examples and tables are no longer than this.
const WIDTH: usize = 80;
/// Spaces before the second column where it has a separate line.
const INDENT: &str = "      ";
/// Spaces that separate two columns at least.
const GAP: &str = "   ";

/// A text of the folder `help`, whose lines end where its paragraphs do: the terminal's width breaks them.
///
/// An indented line stays a line. Where it has a second column, behind three spaces, lines that are indented by eight or more
/// continue that column, and it gets a separate line if both are longer than 80 characters.
pub(super) fn text(source: &str) -> String {
    let mut lines: Vec<String> = Vec::new();
    let mut goes_on = false;
    for line in source.lines() {
        let indent = line.len() - line.trim_start().len();
        let continues = match (indent, lines.last()) {
            _ if line.is_empty() || line.trim_start().contains(GAP) => false,
            (0, _) => goes_on,
            (8.., Some(last)) => last.trim_start().contains(GAP),
            _ => false,
        };
        goes_on = indent == 0 && !line.is_empty() && !line.contains(GAP);
        match lines.last_mut() {
            Some(last) if continues => {
                last.push(' ');
                last.push_str(line.trim_start());
            }
            _ => lines.push(line.to_owned()),
        }
    }
    lines.iter().map(|line| columns(line)).collect::<Vec<_>>().join("\n")
}

/// A line, or its two columns one below the other.
fn columns(line: &str) -> String {
    let start = line.len() - line.trim_start().len();
    match line[start..].find(GAP) {
        Some(end) if line.chars().count() > WIDTH => {
            let (first, second) = line.split_at(start + end);
            format!("{first}\n{INDENT}{}", second.trim_start())
        }
        _ => line.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::super::Arguments;
    use super::*;

    #[test]
    fn columns_of_long_lines_are_one_below_the_other() {
        let source = "Examples:\n  lrvd a   short\n  lrvd b          long, and long, and long, and long, and long, and long, and\n                  \
                      longer\n\nOne\nparagraph:\n\n  x = 1\nGET /   a\n        b\nEnd\n";
        let expected = "Examples:\n  lrvd a   short\n  lrvd b\n      long, and long, and long, and long, and long, and long, and \
                        longer\n\nOne paragraph:\n\n  x = 1\nGET /   a b\nEnd";
        assert_eq!(text(source), expected);
    }

    /// At every width a line ends because the next word does not fit, or its paragraph ends.
    #[test]
    fn no_help_is_wrapped_twice() {
        // The command's own width has a limit of 100, so that a terminal of 200 is as one of 100.
        for width in [80, 100] {
            let mut root = Arguments::command().term_width(width);
            root.build();
            let mut open: Vec<clap::Command> = root.get_subcommands().cloned().collect();
            open.push(root);
            while let Some(command) = open.pop() {
                let is_root = command.get_name() == "lrvd";
                open.extend(command.get_subcommands().filter(|_| !is_root).cloned());
                let below = command.get_after_long_help().or(command.get_after_help());
                let Some(below) = below.map(ToString::to_string) else {
                    continue;
                };
                let help = command.clone().term_width(width).render_long_help().to_string();
                let first: String = below.chars().take(9).collect();
                let lines: Vec<&str> = help[help.rfind(&first).unwrap()..].lines().collect();
                for pair in lines.windows(2) {
                    let length = pair[0].chars().count();
                    assert!(length <= width, "{}: {}", command.get_name(), pair[0]);
                    let prose = |line: &str| {
                        !line.is_empty() && !line.starts_with(' ') && !line.contains(GAP)
                    };
                    if prose(pair[0]) && prose(pair[1]) {
                        let word = pair[1].split(' ').next().unwrap_or_default().chars().count();
                        let fits = length + 1 + word <= width;
                        assert!(!fits, "{}: `{}` `{}`", command.get_name(), pair[0], pair[1]);
                    }
                }
            }
        }
    }
}
