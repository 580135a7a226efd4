//! `lrvd push`

use std::path::PathBuf;

use clap::Args;

pub(crate) const EXAMPLES: &str = "\
Examples:
  lrvd export --to peft runs/mine --out adapter && lrvd push adapter --repo me/mine
  lrvd push model --repo me/mine-merged --private

Environment: HF_TOKEN, a token with the right to write; HF_ENDPOINT, another hub; HF_HUB_OFFLINE, which forbids it.
The repository is made if it is not there. All files go in one commit: a reader sees the old state or the new one. Files of
the repository that the folder does not have stay. What DIR holds is what everybody will see: look at its README.md first.";

/// Options of `lrvd push`.
#[derive(Debug, Args)]
pub(crate) struct PushArguments {
    /// What `lrvd export` wrote.
    #[arg(value_name = "DIR")]
    pub(crate) dir: PathBuf,
    /// Repository on the hub.
    #[arg(long, value_name = "OWNER/NAME")]
    pub(crate) repo: String,
    /// Make a new repository one for its owner only.
    #[arg(long)]
    pub(crate) private: bool,
    /// Title of the commit.
    #[arg(long, value_name = "TEXT", default_value = "Upload with lrvd")]
    pub(crate) message: String,
}
