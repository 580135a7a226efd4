//! The data of the quick profiles: generated tasks, frozen as files.
//!
//! `assets/quick/README.md` has their origin, sizes and reachable accuracy.

use std::io::Read as _;
use std::path::Path;

use anyhow::anyhow;
use flate2::read::GzDecoder;
use tar::Archive;

use crate::error::Result;
use crate::io::{cannot, create_dir, write_text};
use crate::text::quoted;

const ARCHIVE: &[u8] = include_bytes!("../../../assets/quick/quick.tar.gz");

pub(crate) struct Quick {
    folder: &'static str,
    tasks: &'static [&'static str],
}

pub(crate) const GLUE: Quick = Quick { folder: "glue", tasks: &["cola", "sst2", "rte"] };
pub(crate) const REASONING: Quick =
    Quick { folder: "reasoning", tasks: &["wg-s", "arc-c", "arc-e", "wg-m", "obqa"] };

impl Quick {
    pub(crate) fn check(&self, task: &'static str) -> Result<()> {
        if self.tasks.contains(&task) {
            return Ok(());
        }
        Err(anyhow!(
            "task `{task}` is not among the shipped ones, {}: name a folder of its files with `--data-dir`",
            quoted(self.tasks)
        ))
    }

    pub(crate) fn write(&self, dir: &Path) -> Result<()> {
        let broken = || cannot("read", Path::new("assets/quick/quick.tar.gz"));
        let mut archive = Archive::new(GzDecoder::new(ARCHIVE));
        for entry in archive.entries().map_err(broken())? {
            let mut entry = entry.map_err(broken())?;
            let path = entry.path().map_err(broken())?.into_owned();
            let Ok(path) = path.strip_prefix(self.folder) else { continue };
            let mut text = String::new();
            entry.read_to_string(&mut text).map_err(broken())?;
            let file = dir.join(path);
            create_dir(file.parent().unwrap_or(dir))?;
            write_text(&file, &text)?;
        }
        Ok(())
    }
}

/// Writes the tasks of the quick GLUE profile into `dir`, as its runs have them: folders that every reader of GLUE takes.
pub fn write_generated(dir: &Path) -> Result<()> {
    GLUE.write(dir)
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use super::*;
    use crate::data::{Dataset, load};
    use crate::io::sha256_file;
    use crate::task::Task;

    #[test]
    fn the_files_of_the_quick_profiles_stay_as_they_are() {
        // Of the files that the grammars wrote, by `sha256sum`.
        let digests = include_str!("../../../assets/quick/SHA256SUMS").lines();
        for suite in [&GLUE, &REASONING] {
            let dir = tempfile::tempdir().unwrap();
            suite.write(dir.path()).unwrap();
            let files = digests.clone().filter_map(|line| line.split_once("  "));
            let prefix = format!("{}/", suite.folder);
            let files: Vec<_> = files
                .filter_map(|(digest, file)| Some((digest, file.strip_prefix(&prefix)?)))
                .collect();
            assert!(files.len() > suite.tasks.len(), "{files:?}");
            for (digest, file) in files {
                assert_eq!(sha256_file(&dir.path().join(file)).unwrap(), digest, "{file}");
            }
        }
    }

    #[test]
    fn the_readers_of_the_originals_read_what_is_shipped() {
        let dir = tempfile::tempdir().unwrap();
        GLUE.write(dir.path()).unwrap();
        REASONING.write(dir.path()).unwrap();
        let shipped = [GLUE.tasks, REASONING.tasks].concat();
        let mut found = String::new();
        for task in Task::ALL.into_iter().filter(|task| shipped.contains(&task.name())) {
            let Dataset { train, validation, notes, .. } = load(dir.path(), task, None).unwrap();
            let rows = train.rows();
            let rest = validation.rows();
            let origin = train.origin;
            writeln!(found, "{task}: {rows}, {rest}, {origin:?}\n    {}", notes.join("\n    "))
                .unwrap();
        }
        insta::assert_snapshot!(found);
    }
}
