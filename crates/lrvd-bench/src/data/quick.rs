//! The data of the quick profiles: generated tasks, frozen as files.
//!
//! `assets/quick/README.md` says where they come from, how large they are and which accuracy can be reached.

use std::io::Read as _;
use std::path::Path;

use flate2::read::GzDecoder;
use tar::Archive;

use super::DataError;
use crate::io::{IoError, create_dir, write_text};

const ARCHIVE: &[u8] = include_bytes!("../../assets/quick/quick.tar.gz");

pub(crate) struct Quick {
    folder: &'static str,
    tasks: &'static [&'static str],
}

/// Tasks of GLUE, in the original file layouts.
pub(crate) const GLUE: Quick = Quick { folder: "glue", tasks: &["cola", "sst2", "rte"] };
/// Reasoning sets, in the original file layouts.
pub(crate) const REASONING: Quick =
    Quick { folder: "reasoning", tasks: &["wg-s", "arc-c", "arc-e", "wg-m", "obqa"] };

impl Quick {
    /// Returns an error for a task that is not shipped.
    pub(crate) fn check(&self, task: &'static str) -> Result<(), DataError> {
        if self.tasks.contains(&task) {
            return Ok(());
        }
        Err(DataError::NotShipped { task, shipped: self.tasks })
    }

    /// Writes all files of the suite into the folder `dir`.
    pub(crate) fn write(&self, dir: &Path) -> Result<(), DataError> {
        let broken = || IoError::at("read", Path::new("assets/quick/quick.tar.gz"));
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
pub fn write_generated(dir: &Path) -> Result<(), DataError> {
    GLUE.write(dir)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::collections::BTreeMap;

    use super::*;
    use crate::data::{Origin, load};
    use crate::io::sha256_file;
    use crate::task::GlueTask;

    /// SHA-256 of every file below `dir`, by path.
    fn digests(dir: &Path, prefix: &str, found: &mut BTreeMap<String, String>) {
        for entry in std::fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            let name = format!("{prefix}{}", path.file_name().unwrap().to_str().unwrap());
            if path.is_dir() {
                digests(&path, &format!("{name}/"), found);
            } else {
                found.insert(name, sha256_file(&path).unwrap());
            }
        }
    }

    /// Digests of the files that the grammars wrote, by `sha256sum`.
    const DIGESTS: [(&Quick, &str, &str); 24] = [
        (&GLUE, "CoLA/dev.tsv", "83e48668c483efc653de80a2d4268ae41499177e5fa56c9f9c5b048690d305e1"),
        (
            &GLUE,
            "CoLA/generated.json",
            "3e0a586f74aa9af45a6e3a9d9e1b405a302b093f820fa314dc80f9d0471912f0",
        ),
        (
            &GLUE,
            "CoLA/train.tsv",
            "492a4ef8cdcbc2df718e544b60a51f735beb87ddbd183da688dd6c72109dfb10",
        ),
        (&GLUE, "README.md", "7560e6a617ad28687c75a2bf36346897f75029d1060a05906a6e54bf85a9044e"),
        (&GLUE, "RTE/dev.tsv", "3930fa42abe622a9bc2bdab9a5abc681665dd9a065cdb5a6e79fe1a2deb3b4e0"),
        (
            &GLUE,
            "RTE/generated.json",
            "76b4368d66905829a98d0b8f92e7a63f998a8699e2d652347ac37b1e630b86a7",
        ),
        (
            &GLUE,
            "RTE/train.tsv",
            "9376dff8828ba4514d2c0502ebc8780c5d1d74419a046ed29af157ee20247d0b",
        ),
        (
            &GLUE,
            "SST-2/dev.tsv",
            "846eb375ce7a8fe0bc47956dbb961eff9577a6343277de4837addf366a1f057a",
        ),
        (
            &GLUE,
            "SST-2/generated.json",
            "17251fe03616136323af23af5d53f54cdd3cb6dc2bfeebc5f29898227a9f2f2b",
        ),
        (
            &GLUE,
            "SST-2/train.tsv",
            "235784e52f34cba6ad083bd22123fbd7a0a7045bed2783cd3ac8b2a949d45715",
        ),
        (
            &REASONING,
            "ARC-Challenge/ARC-Challenge-Dev.jsonl",
            "ffc868fb2883f7af3b7d85e9e98b0e637e2efb131a3cfce7bbc6967f2181fc52",
        ),
        (
            &REASONING,
            "ARC-Challenge/ARC-Challenge-Train.jsonl",
            "3804efdc62c88bc7ed0bbc5662d752bf03fb8f918fa264e360c29cdc732ca208",
        ),
        (
            &REASONING,
            "ARC-Challenge/generated.json",
            "bb3d5dd956a7419a90b7ce63bf0ee82845daa5fff70fc85cdadf3c38218fd4a3",
        ),
        (
            &REASONING,
            "ARC-Easy/ARC-Easy-Dev.jsonl",
            "95ce18c0b492147b3e60987ca9bbfcd919772d595be41d8e52efc4ff58dff959",
        ),
        (
            &REASONING,
            "ARC-Easy/ARC-Easy-Train.jsonl",
            "fc3e505f39ce5ab70e08fe059c76e3d6f0fdf0a6e8fb6561cc460e31ca30e170",
        ),
        (
            &REASONING,
            "ARC-Easy/generated.json",
            "ab52c9840007b2cd7ac455eb878195cfafb576823ff639ea008c1f06bed960cf",
        ),
        (
            &REASONING,
            "OpenBookQA/dev.jsonl",
            "7e999f314cb6117841aed3d6979c078da1d8c085d4aefb88373cc05725e35473",
        ),
        (
            &REASONING,
            "OpenBookQA/generated.json",
            "343c683070bb3fa3c8300a339f9f60908e991d691cdaf3e8031b4264fcd02389",
        ),
        (
            &REASONING,
            "OpenBookQA/train.jsonl",
            "1e21adb8183bf40d41d34c3de2fbcfd38e06abdb0495d95cfecd143849e1d2f1",
        ),
        (
            &REASONING,
            "README.md",
            "6e081ed444ec4c9691bfe9ec23a36621df437eeb2549e1c9c087c7c9738fad2d",
        ),
        (
            &REASONING,
            "WinoGrande/dev.jsonl",
            "9e2c9ae456a054f3a2354cc4c1811c2848a77c8bd8c6d4984202de5560c2bbdf",
        ),
        (
            &REASONING,
            "WinoGrande/generated.json",
            "4174b69a8268c55357e55ead7495ab1bedd2417a2dbd1eb10a704776b5446505",
        ),
        (
            &REASONING,
            "WinoGrande/train_m.jsonl",
            "48578d6b24ca3c66d0e43a7bc775ca345afc7df4d55a709826e580bdfc6fcfe8",
        ),
        (
            &REASONING,
            "WinoGrande/train_s.jsonl",
            "3c42f6a18557f7456a9de758a23235dcd2d3eb7aa9affa61aced753a36037997",
        ),
    ];

    #[test]
    fn the_files_of_the_quick_profiles_stay_as_they_are() {
        for suite in [&GLUE, &REASONING] {
            let dir = tempfile::tempdir().unwrap();
            suite.write(dir.path()).unwrap();
            let mut found = BTreeMap::new();
            digests(dir.path(), "", &mut found);
            let wanted = DIGESTS.iter().filter(|(of, ..)| of.folder == suite.folder);
            let wanted = wanted.map(|&(_, file, digest)| (file.to_owned(), digest.to_owned()));
            assert_eq!(found, wanted.collect(), "{}", suite.folder);
        }
    }

    #[test]
    fn the_readers_of_the_originals_read_what_is_shipped() {
        let dir = tempfile::tempdir().unwrap();
        GLUE.write(dir.path()).unwrap();
        for task in GLUE.tasks {
            let task: GlueTask = task.parse().unwrap();
            let data = load(dir.path(), task).unwrap();
            assert_eq!((data.train.rows(), data.validation.rows()), (2_000, 500), "{task}");
            assert_eq!(data.train.origin, Origin::Generated);
            let name = task.display_name();
            let noise = "label noise: 100 of 2000 train and 25 of 500 validation labels are changed at random; \
                         best reachable validation accuracy 0.950";
            let wanted =
                [format!("generated by a grammar from seed 1, not real {name}"), noise.to_owned()];
            assert_eq!(data.notes, wanted);
        }
    }

    #[test]
    fn a_task_that_is_not_shipped_is_refused_with_those_that_are() {
        assert!(GLUE.check("rte").is_ok() && REASONING.check("obqa").is_ok());
        let error = GLUE.check("qqp").unwrap_err().to_string();
        assert_eq!(
            error,
            "task `qqp` is not among the shipped ones, `cola`, `sst2`, `rte`: name a folder of its files with `--data-dir`"
        );
    }
}
