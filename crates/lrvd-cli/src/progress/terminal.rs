//! The terminal under the dashboard: taken over, and given back in every case.

use std::backtrace::{Backtrace, BacktraceStatus};
use std::io::{IsTerminal, Write};
use std::panic::{PanicHookInfo, set_hook, take_hook};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};

use burn::train::Interrupter;
use burn::train::renderer::MetricsRenderer;
use burn::train::renderer::tui::TuiMetricsRendererWrapper;

use crate::log;

/// What the dashboard is drawn on.
pub(super) trait Stage: Send {
    /// Takes the screen; `runs_done` of a suite came before.
    fn open(&self, interrupter: Interrupter, runs_done: usize) -> Box<dyn MetricsRenderer>;

    /// Whether nothing can be seen on it any more.
    fn is_broken(&self) -> bool;

    /// Leaves the screen, after what [`Stage::open`] returned is gone, and tells what could not be
    /// shown meanwhile.
    fn leave(&self) -> Vec<String>;
}

/// Name of burn-train's drawing thread.
const DRAWING_THREAD: &str = "train-renderer";
const ENTER_ALTERNATE_SCREEN: &[u8] = b"\x1b[?1049h";
const SHOW_CURSOR: &[u8] = b"\x1b[?25h";
/// Reports of the mouse off, then the user's own screen.
#[cfg(unix)]
const LEAVE: &[u8] = b"\x1b[?1006l\x1b[?1015l\x1b[?1003l\x1b[?1002l\x1b[?1000l\x1b[?1049l";

/// What panics had to say while the dashboard was up; `None` while it is not.
static HELD: Mutex<Option<Vec<String>>> = Mutex::new(None);
static HOOK: Once = Once::new();
/// Settings of the terminal from before the dashboard; `None` while it is not up.
#[cfg(unix)]
static BEFORE: Mutex<Option<rustix::termios::Termios>> = Mutex::new(None);

/// Whether keys, drawing and messages all have a terminal that can do more than print.
#[expect(clippy::disallowed_methods, reason = "the terminal says in it what it can do")]
pub(super) fn is_complete() -> bool {
    let able = std::env::var_os("TERM").is_some_and(|term| term != "dumb") || cfg!(windows);
    able && std::io::stdin().is_terminal()
        && std::io::stdout().is_terminal()
        && std::io::stderr().is_terminal()
}

/// The real one.
#[derive(Debug)]
pub(super) struct Terminal;

impl Stage for Terminal {
    fn open(&self, interrupter: Interrupter, runs_done: usize) -> Box<dyn MetricsRenderer> {
        HOOK.call_once(hold_panics);
        log::hold();
        *held() = Some(Vec::new());
        #[cfg(unix)]
        before(rustix::termios::tcgetattr(std::io::stdin()).ok());
        let runs_done = (runs_done > 0).then_some(runs_done);
        let renderer = TuiMetricsRendererWrapper::new(interrupter, runs_done);
        #[cfg(unix)]
        keep_interrupt_key();
        Box::new(renderer)
    }

    fn is_broken(&self) -> bool {
        held().as_ref().is_some_and(|messages| !messages.is_empty())
    }

    fn leave(&self) -> Vec<String> {
        // The drawing thread shows the cursor itself unless a panic ended it.
        let mut out = std::io::stdout();
        let _ = out.write_all(SHOW_CURSOR).and_then(|()| out.flush());
        #[cfg(unix)]
        before(None);
        log::release();
        held().take().unwrap_or_default()
    }
}

/// Remembers `settings` and returns those remembered before.
#[cfg(unix)]
fn before(settings: Option<rustix::termios::Termios>) -> Option<rustix::termios::Termios> {
    std::mem::replace(&mut *BEFORE.lock().unwrap_or_else(PoisonError::into_inner), settings)
}

/// Puts the terminal back for a process that ends at once, if the dashboard is up.
#[cfg(unix)]
pub(crate) fn give_back() {
    use rustix::termios::{OptionalActions, tcsetattr};

    let Some(settings) = before(None) else { return };
    let mut out = std::io::stdout();
    for code in [LEAVE, SHOW_CURSOR] {
        let _ = out.write_all(code);
    }
    let _ = out.flush();
    let _ = tcsetattr(std::io::stdin(), OptionalActions::Now, &settings);
}

fn held() -> MutexGuard<'static, Option<Vec<String>>> {
    HELD.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Keeps the messages of panics until the terminal can show them.
///
/// burn-train's own hook runs before this one and leaves the alternate screen, but its thread may
/// draw once more; it shall not draw over what the user had on the screen.
fn hold_panics() {
    let previous = take_hook();
    set_hook(Box::new(move |info: &PanicHookInfo<'_>| {
        let mut held = held();
        let Some(messages) = held.as_mut() else {
            drop(held);
            return previous(info);
        };
        let thread = std::thread::current();
        if thread.name() != Some(DRAWING_THREAD) {
            let mut out = std::io::stdout();
            let _ = out.write_all(ENTER_ALTERNATE_SCREEN).and_then(|()| out.flush());
        }
        let backtrace = Backtrace::capture();
        let mut message = format!("thread '{}' {info}", thread.name().unwrap_or("unnamed"));
        if backtrace.status() == BacktraceStatus::Captured {
            message = format!("{message}\n{backtrace}");
        }
        messages.push(message);
    }));
}

/// Makes Ctrl-C a signal again, which the raw mode of the dashboard turns into a key that it ignores;
/// the keys that suspend and abort stay off, for they would leave the terminal as it is.
///
/// burn-train puts the old settings back when it leaves.
#[cfg(unix)]
fn keep_interrupt_key() {
    use rustix::termios::{LocalModes, OptionalActions, SpecialCodeIndex, tcgetattr, tcsetattr};
    use std::time::Duration;

    const DISABLED: u8 = if cfg!(target_os = "linux") { 0 } else { 0xff };
    let stdin = std::io::stdin();
    // The drawing thread sets the raw mode when it gets to run.
    for _ in 0..400 {
        let Ok(mut settings) = tcgetattr(&stdin) else { return };
        if settings.local_modes.contains(LocalModes::ICANON) {
            std::thread::sleep(Duration::from_millis(5));
            continue;
        }
        settings.local_modes |= LocalModes::ISIG;
        for key in [SpecialCodeIndex::VSUSP, SpecialCodeIndex::VQUIT] {
            settings.special_codes[key] = DISABLED;
        }
        let _ = tcsetattr(&stdin, OptionalActions::Now, &settings);
        return;
    }
}
