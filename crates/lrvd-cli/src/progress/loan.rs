//! The terminal while the dashboard has it.
//!
//! burn-train's renderer and the libraries below it abort the process when a terminal that has gone away cannot be put
//! back, and read the end of its input without end. They get a pipe and a pseudo-terminal of this process
//! instead, which stay. One thread carries what is drawn to the terminal, one carries the keys back, as long as it is there.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, PipeReader, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::fs::OFlags;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::stdio::{dup2_stdin, dup2_stdout};
use rustix::termios::{
    LocalModes, OptionalActions, QueueSelector, SpecialCodeIndex, Termios, tcflush, tcgetattr,
    tcsetattr,
};

use super::lock;
use crate::terminal::is_foreground;

/// Reports of the mouse off, then the user's own screen.
const LEAVE: &[u8] = b"\x1b[?1006l\x1b[?1015l\x1b[?1003l\x1b[?1002l\x1b[?1000l\x1b[?1049l";

const SHOW_CURSOR: &[u8] = b"\x1b[?25h";
/// Longest wait of a read for a key.
const READ: Duration = Duration::from_millis(100);

/// The loan, while the dashboard is up.
static LOAN: Mutex<Option<Loan>> = Mutex::new(None);
/// One for all runs: its reader registers it once.
static KEYBOARD: LazyLock<io::Result<Keyboard>> = LazyLock::new(Keyboard::new);

struct Loan {
    original: Arc<Original>,
    /// The terminal has gone away, has another process in its foreground, or was given back.
    is_over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

/// The terminal, and its settings before the loan.
struct Original {
    settings: Termios,
    input: File,
    output: File,
}

/// Both ends of a pseudo-terminal.
struct Keyboard {
    typed: File,
    keys: File,
}

impl Keyboard {
    fn new() -> io::Result<Self> {
        let typed = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY)?;
        grantpt(&typed)?;
        unlockpt(&typed)?;
        let name = ptsname(&typed, Vec::new())?;
        // The reader expects an error where nothing is left to read.
        let flags = (OFlags::NOCTTY | OFlags::NONBLOCK).bits().cast_signed();
        let mut options = File::options();
        let options = options.read(true).write(true).custom_flags(flags);
        let keys = options.open(OsStr::from_bytes(name.as_bytes()))?;
        Ok(Self { typed: typed.into(), keys })
    }
}

/// Puts a pipe and the keyboard in the place of the terminal, which gets settings for single keys. After an error the
/// terminal is still to be given back.
pub(super) fn take() -> io::Result<()> {
    let keyboard = KEYBOARD.as_ref().map_err(io::Error::kind)?;
    let input = File::from(io::stdin().as_fd().try_clone_to_owned()?);
    let output = File::from(io::stdout().as_fd().try_clone_to_owned()?);
    let terminal = input.try_clone()?;
    let drawn_on = output.try_clone()?;
    let settings = tcgetattr(&input)?;
    let (drawn, pen) = io::pipe()?;
    // A renderer that panics may put settings back when standard input is the terminal again.
    tcsetattr(&keyboard.keys, OptionalActions::Now, &settings)?;
    let is_over = Arc::new(AtomicBool::new(false));
    let own = single_keys(&settings);
    let mut held = lock(&LOAN);
    let original = Arc::new(Original { settings, input, output });
    let loan = Loan { original, is_over: Arc::clone(&is_over), threads: Vec::new() };
    let loan = held.insert(loan);
    tcsetattr(&terminal, OptionalActions::Now, &own)?;
    let over = Arc::clone(&is_over);
    let draw = move || carry_picture(drawn, drawn_on, &over);
    loan.threads.push(thread::Builder::new().spawn(draw)?);
    let type_in = move || carry_keys(&terminal, &keyboard.typed, &is_over);
    loan.threads.push(thread::Builder::new().spawn(type_in)?);
    dup2_stdin(&keyboard.keys)?;
    dup2_stdout(&pen)?;
    Ok(())
}

/// True if nothing can be drawn any more.
pub(super) fn is_over() -> bool {
    lock(&LOAN).as_ref().is_some_and(|loan| loan.is_over.load(Ordering::Relaxed))
}

/// Puts the terminal back, after the renderer's end and all that it has drawn.
pub(super) fn give_back() {
    let mut held = lock(&LOAN);
    let Some(loan) = held.as_mut() else { return };
    let original = Arc::clone(&loan.original);
    let _ = dup2_stdin(&original.input);
    // The last writer of the pipe is gone, which ends both threads.
    let _ = dup2_stdout(&original.output);
    let threads = std::mem::take(&mut loan.threads);
    drop(held);
    if let Ok(keyboard) = &*KEYBOARD {
        let _ = tcflush(&keyboard.keys, QueueSelector::IFlush);
    }
    for thread in threads {
        let _ = thread.join();
    }
    original.restore();
    // Only now: a second Ctrl-C ends the process before this thread comes here, and has to find the loan.
    *lock(&LOAN) = None;
}

/// Puts the terminal back for a process that ends at once, if the dashboard is up.
pub(crate) fn end() {
    let Some(loan) = lock(&LOAN).take() else { return };
    loan.is_over.store(true, Ordering::Relaxed);
    loan.original.restore();
}

impl Original {
    fn restore(&self) {
        let is_ours = is_foreground(&self.input);
        // Else a write from the background would stop the process.
        if is_ours || !self.settings.local_modes.contains(LocalModes::TOSTOP) {
            let mut output = &self.output;
            let _ = output.write_all(LEAVE).and_then(|()| output.write_all(SHOW_CURSOR));
        }
        if is_ours {
            let _ = tcsetattr(&self.input, OptionalActions::Now, &self.settings);
        }
    }
}

/// Settings in which a read returns in time, with or without a key, and Ctrl-C stays a signal; the keys that
/// suspend and abort are off, for they would leave the terminal as it is.
fn single_keys(settings: &Termios) -> Termios {
    const DISABLED: u8 = if cfg!(target_os = "linux") { 0 } else { 0xff };
    let mut settings = settings.clone();
    settings.make_raw();
    settings.local_modes |= LocalModes::ISIG;
    for (code, value) in [
        (SpecialCodeIndex::VSUSP, DISABLED),
        (SpecialCodeIndex::VQUIT, DISABLED),
        (SpecialCodeIndex::VMIN, 0),
        (SpecialCodeIndex::VTIME, (READ.as_millis() / 100) as u8),
    ] {
        settings.special_codes[code] = value;
    }
    settings
}

/// Carries what is drawn to the terminal, until no writer is left; what the terminal does not take is lost.
fn carry_picture(mut drawn: PipeReader, mut terminal: File, is_over: &AtomicBool) {
    let mut bytes = [0; 1 << 13];
    while let Ok(count @ 1..) = drawn.read(&mut bytes) {
        let is_lost = is_over.load(Ordering::Relaxed) || !is_foreground(&terminal);
        if is_lost || terminal.write_all(&bytes[..count]).is_err() {
            is_over.store(true, Ordering::Relaxed);
        }
    }
    is_over.store(true, Ordering::Relaxed);
}

/// Carries keys to the keyboard while the terminal is there.
fn carry_keys(mut terminal: &File, mut keyboard: &File, is_over: &AtomicBool) {
    let mut keys = [0; 1 << 10];
    while !is_over.load(Ordering::Relaxed) {
        if !is_foreground(terminal) {
            return is_over.store(true, Ordering::Relaxed);
        }
        match terminal.read(&mut keys) {
            Ok(count) => {
                let _ = keyboard.write_all(&keys[..count]);
            }
            Err(_) => thread::sleep(READ),
        }
    }
}
