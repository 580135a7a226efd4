//! The terminal: whether it can be drawn on, and how the bars reach it.

use std::io;
#[cfg(not(unix))]
use std::io::IsTerminal as Stream;
#[cfg(unix)]
use std::os::fd::AsFd as Stream;

use console::Term;
use indicatif::{ProgressDrawTarget, TermLike};

/// Redraws of the bars in a second at most.
const REDRAWS: u8 = 20;

/// True if `stream` is a terminal, still there, that this process has in its foreground: one in the background must not
/// draw over another's text, and stops when it changes the terminal's settings or reads from it.
#[cfg(unix)]
pub(crate) fn is_foreground(stream: impl Stream) -> bool {
    rustix::termios::tcgetpgrp(stream).is_ok_and(|group| group == rustix::process::getpgrp())
}

#[cfg(not(unix))]
pub(crate) fn is_foreground(stream: impl Stream) -> bool {
    stream.is_terminal()
}

/// True if `stream` was a terminal that has gone away.
#[cfg(unix)]
pub(crate) fn is_hung_up(stream: impl Stream) -> bool {
    use rustix::io::Errno;
    matches!(rustix::termios::tcgetattr(stream), Err(Errno::IO | Errno::NXIO))
}

#[cfg(not(unix))]
pub(crate) fn is_hung_up(_: impl Stream) -> bool {
    false
}

/// True if the terminal can do more than print.
#[expect(clippy::disallowed_methods, reason = "the terminal says in it what it can do")]
pub(crate) fn is_able() -> bool {
    std::env::var_os("TERM").is_some_and(|term| term != "dumb") || cfg!(windows)
}

/// True if a notebook or the log of a build keeps the output with every redraw.
#[expect(clippy::disallowed_methods, reason = "notebooks and builds say in it that they are there")]
pub(crate) fn is_recorded() -> bool {
    std::env::vars_os().any(|(name, value)| match &*name.to_string_lossy() {
        "JPY_PARENT_PID" => true,
        "CI" => !value.is_empty() && value != "false",
        name => name.starts_with("COLAB_"),
    })
}

/// Target of the bars: standard error, if it is a terminal that can redraw.
pub(crate) fn bars() -> ProgressDrawTarget {
    let term = Term::buffered_stderr();
    if !term.is_term() || !is_able() {
        return ProgressDrawTarget::hidden();
    }
    ProgressDrawTarget::term_like_with_hz(Box::new(Bars(term)), REDRAWS)
}

/// Draws in the foreground only, and never fails: the bars' library panics where a terminal has gone away.
#[derive(Debug)]
struct Bars(Term);

impl Bars {
    fn draw(&self, draw: impl FnOnce(&Term) -> io::Result<()>) -> io::Result<()> {
        if is_foreground(io::stderr()) { draw(&self.0).or(Ok(())) } else { Ok(()) }
    }
}

impl TermLike for Bars {
    fn width(&self) -> u16 {
        // A character may take two columns.
        self.0.size().1.max(2)
    }

    fn height(&self) -> u16 {
        self.0.size().0
    }

    fn move_cursor_up(&self, n: usize) -> io::Result<()> {
        self.draw(|term| term.move_cursor_up(n))
    }

    fn move_cursor_down(&self, n: usize) -> io::Result<()> {
        self.draw(|term| term.move_cursor_down(n))
    }

    fn move_cursor_right(&self, n: usize) -> io::Result<()> {
        self.draw(|term| term.move_cursor_right(n))
    }

    fn move_cursor_left(&self, n: usize) -> io::Result<()> {
        self.draw(|term| term.move_cursor_left(n))
    }

    fn write_line(&self, text: &str) -> io::Result<()> {
        self.draw(|term| term.write_line(text))
    }

    fn write_str(&self, text: &str) -> io::Result<()> {
        self.draw(|term| term.write_str(text))
    }

    fn clear_line(&self) -> io::Result<()> {
        self.draw(Term::clear_line)
    }

    fn flush(&self) -> io::Result<()> {
        self.draw(Term::flush)
    }
}
