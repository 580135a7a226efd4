//! `lrvd config`

use std::path::PathBuf;

use clap::{Args, Subcommand};

pub(crate) const INIT_EXAMPLES: &str = "\
Examples:
  lrvd config init                                 writes run.toml, for `lrvd train --config run.toml`
  lrvd config init mine.toml --preset constant-weight
  lrvd config init words.toml --task language      for a language model
  lrvd config init --force                         replaces an existing run.toml

The file has the preset's values of common settings, each below a line that explains it. `lrvd config show` prints all
settings, and `lrvd config schema` lets an editor complete them.";

pub(crate) const SHOW_EXAMPLES: &str = "\
Examples:
  lrvd config show > run.toml                      a file to edit, for `lrvd train --config run.toml`
  lrvd config show --preset author-glue
  lrvd config show --task language                 for a language model
  lrvd config show --config run.toml --set steps=2000

Prints all settings as training would use them, with 1000 steps by default.";

pub(crate) const CHECK_EXAMPLES: &str = "\
Examples:
  lrvd config check run.toml                       lists changes to the preset, or the errors
  lrvd config check run.toml --task language       for a file without `task = \"language\"`
  lrvd config check run.toml --format json
  lrvd config check runs/mine.toml && lrvd train --config runs/mine.toml ...

No data or model is loaded. An unknown key, a value of the wrong type and a value out of range are errors.";

pub(crate) const SCHEMA_EXAMPLES: &str = "\
Examples:
  lrvd config schema > lrvd.schema.json            beside run.toml, which names it in its first line
  lrvd config schema | jq '.properties | keys'     every setting
  lrvd config schema | jq .properties.prune

JSON schema, draft 2020-12. Editors that read the line `#:schema ./lrvd.schema.json` of a TOML file (Taplo, Even
Better TOML) then complete and explain keys and values, and mark errors.";

/// Commands of `lrvd config`.
#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Write a settings file to start from.
    #[command(after_help = INIT_EXAMPLES)]
    Init {
        /// The file.
        #[arg(value_name = "FILE.toml", default_value = "run.toml")]
        file: PathBuf,
        /// Settings to start from: default, constant-weight, paper-glue, author-glue [default: default].
        #[arg(long, value_name = "NAME")]
        preset: Option<String>,
        #[command(flatten)]
        training: TrainingArgument,
        /// Replace an existing file.
        #[arg(long)]
        force: bool,
    },
    /// Print settings as a file for `--config`.
    #[command(after_help = SHOW_EXAMPLES)]
    Show {
        #[command(flatten)]
        settings: SettingsArguments,
        #[command(flatten)]
        training: TrainingArgument,
    },
    /// Check a settings file, and list what it changes.
    #[command(after_help = CHECK_EXAMPLES)]
    Check {
        /// The file.
        #[arg(value_name = "FILE.toml")]
        file: PathBuf,
        #[command(flatten)]
        training: TrainingArgument,
    },
    /// Print the JSON schema of settings files, for editors.
    #[command(after_help = SCHEMA_EXAMPLES)]
    Schema,
}

/// What the settings are for, without data to infer it from.
#[derive(Debug, Args)]
pub(crate) struct TrainingArgument {
    /// What is trained: classifier, language [default: the file's, or classifier].
    #[arg(long, value_name = "NAME")]
    pub(crate) task: Option<String>,
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
    /// One setting, e.g. `lora_alpha=32` or `optimizer.beta2=0.98`; may be repeated.
    #[arg(long, value_name = "KEY=VALUE")]
    pub(crate) set: Vec<String>,
}
