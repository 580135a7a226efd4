//! What `cargo xtask --help` prints.

/// The text, without the list of invariants, which `tidy --list` prints.
pub(crate) const TEXT: &str = "\
Usage: cargo xtask COMMAND [ARGS…]
       cargo xtask COMMAND --help

Every day
  test [ARGS…]           all tests, then nothing: the runner's own summary is the last word.
                         Documentation tests come first. ARGS go to the runner, which then runs
                         alone (`cargo xtask test -p lrvd-core gauge`). Uses cargo-nextest if it
                         is installed and `cargo test` otherwise.
  check [STAGE…]         what a change must pass, cheapest first, or only the named stages:
                           format     cargo fmt --check
                           tidy       the invariants of docs/architecture.md
                           spelling   typos, if it is installed
                           licences   cargo-deny on licences, bans and sources, if it is installed
                           lint       clippy on all targets, warnings are errors
                           docs       rustdoc, warnings are errors
                           test       as above, `pins` included
                         and, only when named:
                           advisories cargo-deny on known vulnerabilities (needs the network)
  tidy [NAME…|--list]    the invariants alone, or the named ones, or a list of them
  golden DIR…            recomputes folders of recorded reference values, as the golden tests do with
                         those of the repository, and prints one line for each folder and below it
                         the largest difference of every recorded tensor beside its tolerance
  pins [--bless]         the tests of values that must not move (crates/lrvd-cli/tests/cli/pins); with
                         --bless their files are written anew: CHANGELOG.md then says what moved and why

Reproduction
  glue [ARGS…]           builds the CLI in release mode, then runs `lrvd bench glue ARGS…` here
  reasoning [ARGS…]      the same with `lrvd bench reasoning ARGS…`
  lrvd [ARGS…]           the same for any other command of the CLI: `cargo xtask lrvd inspect DIR`
                         Before a `--`, `--features LIST` and `--no-default-features` belong to the
                         build: `cargo xtask glue --features cuda --device cuda:0`. What follows a
                         `--` goes to the CLI untouched. Signals and the exit status are the CLI's.

Speed
  bench [--only NAME] [--out DIR] [--python PYTHON] [--quick]
                         our steps and predictions beside their peers in one run, each side in turn,
                         against the targets; writes docs/results/speed.md, or speed.md and speed.json
                         in DIR. --only runs one comparison or group (an unknown name lists them) and,
                         like --quick, which is too short to count, prints unless there is a DIR.
                         Comparisons with PyTorch need a Python with torch, transformers and peft
                         (python3, unless --python names another) and are otherwise skipped by name.
                         The machine should be idle. Operators: `cargo bench -p lrvd-perf`.

Devices
  wgpu-test [ARGS…]      the device tests on `wgpu`, through Mesa's software Vulkan driver if that
                         is installed and no other driver is asked for
  cuda-test [ARGS…]      the same tests on the first CUDA device
  gpu-bench [ARGS…]      the device tests, then training steps beside PyTorch + PEFT, written to
                         docs/results/gpu.md: --device cuda[:N]|wgpu[:N] (cuda unless given),
                         --python PYTHON (with torch, transformers and peft); --step and --tests
                         name a built `step` and a built `ops_device` for a machine without cargo
  cuda-check             type check with the feature `cuda`, without its native parts

Exit status: 0 all is well, 1 something failed, 2 the arguments make no sense; `glue`, `reasoning`
and `lrvd` end with the CLI's own.
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
