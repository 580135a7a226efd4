//! Values that a change must not move.

use std::process::ExitCode;

use anyhow::Result;

use super::{test, usage};

/// The tests that compare with `crates/lrvd-cli/tests/cli/pins/*.txt`.
const TESTS: [&str; 5] = ["--package", "lrvd-cli", "--test", "cli", "pins::"];
/// What these tests read: whether the files are written instead.
const BLESS: (&str, &str) = ("LRVD_BLESS_PINS", "1");

/// Compares, or with `--bless` writes the files anew.
pub(crate) fn run(arguments: &[String]) -> Result<ExitCode> {
    let bless = match arguments {
        [] => None,
        [one] if one == "--bless" => Some(BLESS),
        [other, ..] => return Ok(usage(&format!("`pins` takes `--bless` only, found `{other}`"))),
    };
    test::run_with(&TESTS.map(str::to_owned), bless)?;
    Ok(ExitCode::SUCCESS)
}
