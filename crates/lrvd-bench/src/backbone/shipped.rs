//! The tiny checkpoints within the program, so that the quick profiles need nothing but it.

use std::path::{Path, PathBuf};

use anyhow::anyhow;
use lrvd_burn::files::write_atomic;

use super::load::ModelLocation;
use crate::error::Result;
use crate::io::create_dir;
use crate::text::quoted;

struct Checkpoint {
    name: &'static str,
    files: &'static [(&'static str, &'static [u8])],
}

macro_rules! checkpoint {
    ($name:literal: $($file:literal),*) => {
        Checkpoint {
            name: $name,
            files: &[$(($file, include_bytes!(concat!("../../assets/", $name, "/", $file)))),*],
        }
    };
}

const CHECKPOINTS: [Checkpoint; 2] = [
    checkpoint!("deberta-v3-nano": "config.json", "model.safetensors", "spm.model", "tokenizer.json", "tokenizer_config.json"),
    checkpoint!("stories260K": "config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"),
];
/// The end of the name of a shipped checkpoint, which has no folder.
const SHIPPED: &str = " (shipped)";

/// The checkpoint called `name`, whose files are put below the user's cache (`~/.cache/lrvd`), or where that cannot be
/// written, below the folder of temporary files. Files that differ from those of this program are replaced.
pub(crate) fn shipped(name: &str) -> Result<ModelLocation> {
    let Some(found) = CHECKPOINTS.iter().find(|checkpoint| checkpoint.name == name) else {
        let known = quoted(CHECKPOINTS.map(|checkpoint| checkpoint.name));
        return Err(anyhow!("checkpoint `{name}` is not among the shipped ones, {known}"));
    };
    let places = std::env::home_dir().map(|home| home.join(".cache")).into_iter();
    let mut written = Err(anyhow!("checkpoint `{name}`: no folder to put its files into"));
    for place in places.chain([std::env::temp_dir()]) {
        written = found.put(&place.join("lrvd").join(name));
        if written.is_ok() {
            break;
        }
    }
    Ok(ModelLocation { name: format!("{name}{SHIPPED}"), folder: written?, note: None })
}

/// Public name of the model at `location`: a shipped one is in every program of this version.
pub(crate) fn public_place(location: &ModelLocation) -> String {
    if location.name.ends_with(SHIPPED) {
        return "the program".to_owned();
    }
    location.folder.display().to_string()
}

impl Checkpoint {
    fn put(&self, folder: &Path) -> Result<PathBuf> {
        create_dir(folder)?;
        for (name, bytes) in self.files {
            let file = folder.join(name);
            if std::fs::read(&file).ok().as_deref() != Some(bytes) {
                write_atomic(&file, bytes)?;
            }
        }
        Ok(folder.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_written_once_and_replaced_if_they_differ() {
        let dir = tempfile::tempdir().unwrap();
        let [_, stories] = &CHECKPOINTS;
        let folder = stories.put(&dir.path().join("a")).unwrap();
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("assets/stories260K");
        let same = |name: &str| {
            std::fs::read(folder.join(name)).unwrap() == std::fs::read(source.join(name)).unwrap()
        };
        assert!(stories.files.iter().all(|(name, _)| same(name)));
        std::fs::write(folder.join("config.json"), "{}").unwrap();
        stories.put(&folder).unwrap();
        assert!(same("config.json"));
        assert!(
            shipped("none").unwrap_err().to_string().contains("`deberta-v3-nano`, `stories260K`")
        );
    }
}
