//! The only writer of this program: data to standard output, everything else to standard error.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "this is the printer")]

use std::error::Error;
use std::io::Write;

use clap::ValueEnum;

/// Form of the data on standard output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people.
    #[default]
    Text,
    /// For programs.
    Json,
}

/// Writes what a command has to say.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Printer {
    format: Format,
    quiet: bool,
}

impl Printer {
    pub(crate) fn new(format: Format, quiet: bool) -> Self {
        Self { format, quiet }
    }

    pub(crate) fn format(self) -> Format {
        self.format
    }

    /// One line of data; a reader that went away is no error.
    #[expect(clippy::unused_self, reason = "whoever writes holds the printer")]
    pub(crate) fn data(self, text: &str) {
        let mut out = std::io::stdout().lock();
        let _ = writeln!(out, "{text}");
    }

    /// A remark.
    pub(crate) fn note(self, text: &str) {
        if !self.quiet {
            eprintln!("{text}");
        }
    }

    /// An error with its causes and, where the error knows one, a hint.
    #[expect(clippy::unused_self, reason = "whoever writes holds the printer")]
    pub(crate) fn error(self, error: &(dyn Error + 'static)) {
        eprintln!("error: {error}");
        let mut seen = error.to_string();
        let mut cause = error.source();
        while let Some(next) = cause {
            let text = next.to_string();
            // Messages that already contain their cause need no second line.
            if !seen.contains(&text) {
                eprintln!("caused by: {text}");
            }
            seen = text;
            cause = next.source();
        }
    }
}
