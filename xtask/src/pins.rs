//! Values that a change must not move.

use std::process::ExitCode;

use anyhow::Result;

use crate::test;

/// The tests that compare with `crates/lrvd-cli/tests/cli/pins/*.txt`.
const TESTS: [&str; 5] = ["--package", "lrvd-cli", "--test", "cli", "pins::"];
/// What these tests read: whether the files are written instead.
const BLESS: (&str, &str) = ("LRVD_BLESS_PINS", "1");

/// Compares, or with `--bless` writes the files anew.
pub(crate) fn run(bless: bool) -> Result<ExitCode> {
    test::run_with(&TESTS.map(str::to_owned), bless.then_some(BLESS))
}
