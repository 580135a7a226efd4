//! `lrvd config`

use std::path::PathBuf;

use clap::{Args, Subcommand};

pub(crate) const SHOW_EXAMPLES: &str = "\
Examples:
  lrvd config show > run.toml                      a file to edit, for `lrvd train --config run.toml`
  lrvd config show --preset author-glue
  lrvd config show --config run.toml --set steps=2000

All settings as they would be used, with 1000 steps where nobody says otherwise.";

pub(crate) const CHECK_EXAMPLES: &str = "\
Examples:
  lrvd config check run.toml                       what it changes of its preset, or what is wrong in it
  lrvd config check run.toml --format json
  lrvd config check runs/mine.toml && lrvd train --config runs/mine.toml ...

Nothing is loaded. An unknown key, a value of the wrong kind or out of range is refused by name.";

/// What `lrvd config` can do.
#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Print settings as a file for `--config`.
    #[command(after_help = SHOW_EXAMPLES)]
    Show(SettingsArguments),
    /// Check a settings file, and say what it changes.
    #[command(after_help = CHECK_EXAMPLES)]
    Check {
        /// The file.
        #[arg(value_name = "FILE.toml")]
        file: PathBuf,
    },
}

/// Where settings come from, for `lrvd train` and `lrvd config show`.
#[derive(Debug, Default, Args)]
pub(crate) struct SettingsArguments {
    /// Settings to start from: default, constant-weight, paper-glue, author-glue [default: the file's, or default].
    #[arg(long, value_name = "NAME")]
    pub(crate) preset: Option<String>,
    /// Settings that differ from the preset; an unknown key is an error.
    #[arg(long, value_name = "FILE.toml")]
    pub(crate) config: Option<PathBuf>,
    /// One setting, e.g. `kl_weight=0.03` or `prune.every=0.1`; may be repeated.
    #[arg(long, value_name = "KEY=VALUE")]
    pub(crate) set: Vec<String>,
}
