//! What `RUST_LOG` asks for, on standard error, without breaking what is drawn there.

use std::io::{self, Write};
use std::sync::{Mutex, MutexGuard, PoisonError};

use anyhow::anyhow;
use lrvd_bench::Result;
#[cfg(feature = "dashboard")]
use tracing::level_filters::LevelFilter;
use tracing::subscriber::set_global_default;
use tracing_subscriber::EnvFilter;

use crate::printer::remark;

/// The filter, as `env_logger` made it known: `lrvd=debug`, `info,lrvd_burn::train=trace`.
const VARIABLE: &str = "RUST_LOG";

/// Lines that wait for the end of the dashboard; `None` while it is not up.
static HELD: Mutex<Option<Vec<String>>> = Mutex::new(None);

/// Starts the log that the environment asks for.
pub(crate) fn start() -> Result<()> {
    #[expect(clippy::disallowed_methods, reason = "the variable that logs are asked for by")]
    let found = std::env::var_os(VARIABLE);
    let Some(found) = found.filter(|found| !found.is_empty()) else { return Ok(()) };
    let rejected = |reason: String| {
        let found = found.display();
        anyhow!("{VARIABLE} is `{found}`: {reason}; expected a filter such as `lrvd=debug`")
    };
    let text = found.to_str().ok_or_else(|| rejected("it is not UTF-8".to_owned()))?;
    let filter = EnvFilter::builder().parse(text).map_err(|error| rejected(error.to_string()))?;
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(false)
        .with_writer(|| Lines)
        .finish();
    // The first one stays, and this is the only one.
    let _ = set_global_default(subscriber);
    Ok(())
}

#[cfg(feature = "dashboard")]
pub(crate) fn is_on() -> bool {
    LevelFilter::current() != LevelFilter::OFF
}

/// Log lines wait until [`release`].
#[cfg(feature = "dashboard")]
pub(crate) fn hold() {
    *held() = Some(Vec::new());
}

pub(crate) fn is_held() -> bool {
    held().is_some()
}

#[cfg(feature = "dashboard")]
pub(crate) fn release() {
    let lines = held().take();
    lines.into_iter().flatten().for_each(|line| remark(&line));
}

fn held() -> MutexGuard<'static, Option<Vec<String>>> {
    HELD.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Writes whole lines, as the subscriber hands them over.
struct Lines;

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(bytes);
        match &mut *held() {
            Some(lines) => lines.push(text.trim_end().to_owned()),
            None => remark(text.trim_end()),
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
