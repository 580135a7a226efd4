//! What `cargo xtask --help` prints.

/// The text, without the list of invariants, which `tidy --list` prints.
pub(crate) const TEXT: &str = "\
Usage: cargo xtask COMMAND [ARGS…]
       cargo xtask COMMAND --help

Checks
  test [ARGS…]           documentation tests, then all other tests. With ARGS only the test runner
                         runs, with these arguments (`cargo xtask test -p lrvd-core gauge`). The
                         runner is cargo-nextest if it is installed and `cargo test` otherwise.
  check [STAGE…]         the checks of a change, fastest first, or only the named stages:
                           format     cargo fmt --check
                           tidy       the invariants of docs/architecture.md
                           spelling   typos, if it is installed
                           licences   cargo-deny on licences, bans and sources, if it is installed
                           lint       clippy on all targets, warnings are errors
                           docs       rustdoc, warnings are errors
                           test       as above, `pins` included
                         and, only when named:
                           advisories cargo-deny on known vulnerabilities (needs the network)
  tidy [NAME…|--list]    checks all invariants or the named ones, or lists them
  golden DIR…            the golden tests on any folders of recorded reference values: prints one line
                         for each folder, and below it the largest difference of every recorded
                         tensor beside its tolerance
  pins [--bless]         the tests of values that must not move (crates/lrvd-cli/tests/cli/pins); --bless
                         rewrites their files: state in CHANGELOG.md what moved and why

Reproduction
  glue [ARGS…]           builds the CLI in release mode, then runs `lrvd bench glue ARGS…`
  reasoning [ARGS…]      the same with `lrvd bench reasoning ARGS…`
  lrvd [ARGS…]           the same for any other command of the CLI: `cargo xtask lrvd inspect DIR`
                         `--features LIST` and `--no-default-features` before a `--` apply to the
                         build: `cargo xtask glue --features cuda --device cuda:0`. Arguments after a
                         `--` are passed to the CLI unchanged. Signals are passed on, and the exit
                         status is the CLI's.

Speed
  bench [--only NAME] [--out DIR] [--python PYTHON] [--quick]
                         times training steps and predictions beside those of other programs, both sides
                         interleaved, and compares the ratios with targets; writes docs/results/speed.md,
                         or speed.md and speed.json in DIR. --only runs one comparison or group (an
                         unknown name lists them). --only and --quick, which is too short for results,
                         only print unless `--out` is given. Comparisons with PyTorch need a Python with
                         torch, transformers and peft (default: python3); without it they are listed as
                         skipped. The machine should be idle. Operators: `cargo bench -p lrvd-perf`.

Devices
  wgpu-test [ARGS…]      the device tests on `wgpu`; by default through Mesa's software Vulkan driver
                         if it is installed
  cuda-test [ARGS…]      the same tests on the first CUDA device
  gpu-bench [ARGS…]      the device tests, then training steps beside PyTorch + PEFT, written to
                         docs/results/gpu.md: --device cuda[:N]|wgpu[:N] (default: cuda), --python
                         PYTHON (with torch, transformers and peft); --step and --tests name built
                         programs `step` and `ops_device` for a machine without cargo
  cuda-check             type check with the feature `cuda`, without its native parts

Exit status: 0 success, 1 failure, 2 invalid arguments; `glue`, `reasoning` and `lrvd` return the
CLI's.
";

/// The part of [`TEXT`] on one command: its line and the lines that are indented further.
pub(crate) fn of(command: &str) -> Option<String> {
    let mut lines = TEXT.lines().skip_while(|line| name(line) != Some(command));
    let first = lines.next()?;
    let rest = lines.take_while(|line| line.starts_with("   "));
    let text: String = std::iter::once(first).chain(rest).flat_map(|line| [line, "\n"]).collect();
    Some(format!("Usage: cargo xtask COMMAND [ARGS…]\n\n{text}"))
}

/// The commands, in the order of [`TEXT`].
#[cfg(test)]
pub(crate) fn commands() -> impl Iterator<Item = &'static str> {
    TEXT.lines().filter_map(name)
}

/// The command that a line of [`TEXT`] starts with, behind exactly two spaces.
fn name(line: &str) -> Option<&str> {
    line.strip_prefix("  ").filter(|rest| !rest.starts_with(' '))?.split(' ').next()
}
