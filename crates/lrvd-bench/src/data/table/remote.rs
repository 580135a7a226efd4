//! Tables of data sets on the hub.
//!
//! | Form | Names |
//! |---|---|
//! | `hf://datasets/OWNER/NAME/PATH` | a file of a data set, as pandas, polars and `DuckDB` name it |
//! | `hf://datasets/OWNER/NAME`, `OWNER/NAME` | a data set, of which one table is taken |
//!
//! `NAME@REVISION` is a branch, a tag or a commit; a `/` in it is `%2F`, except in `refs/convert/X` and `refs/pr/N`, as in the
//! Python library (`huggingface_hub/hf_file_system.py`). The short form has none of the endings by which files on this machine
//! are read, and what is on this machine comes first.

use std::fmt;
use std::path::{Path, PathBuf};

use anyhow::{anyhow, bail};

use super::Format;
use crate::error::{Error, Result, kind_of};
use crate::hub::{MAIN, Repository, RepositoryKind, first, is_plain, may_be_there, named};
use crate::text::quoted;

const SCHEME: &str = "hf://";
const DATASETS: &str = "hf://datasets/";
/// Branch with parquet files that the hub makes of a data set.
const CONVERTED: &str = "refs/convert/parquet";
/// Descriptions that the library `datasets` puts beside tables.
const DESCRIPTIONS: [&str; 4] =
    ["dataset_infos.json", "dataset_info.json", "dataset_dict.json", "state.json"];

/// Part of a data set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    Train,
    Validation,
    Test,
}

impl Part {
    /// Words for the parts in names of files and folders (`datasets/data_files.py`).
    const WORDS: [(Self, &[&str]); 3] = [
        (Self::Train, &["train", "training"]),
        (Self::Validation, &["validation", "valid", "val", "dev"]),
        (Self::Test, &["test", "testing", "eval", "evaluation"]),
    ];

    /// The part that a table is of by the words in its name, else by those in the name of the nearest folder that has one.
    fn of(path: &str) -> Option<Self> {
        path.rsplit('/').find_map(|name| {
            let name = name.to_ascii_lowercase();
            let has = |words: &[&str]| {
                name.split(|c: char| !c.is_ascii_alphabetic()).any(|word| words.contains(&word))
            };
            let mut parts =
                Self::WORDS.iter().filter(|(_, words)| has(words)).map(|(part, _)| *part);
            // Of several parts it is none.
            parts.next().map(|part| Some(part).filter(|_| parts.next().is_none()))
        })?
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Train => "training",
            Self::Validation => "validation",
            Self::Test => "test",
        })
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Address {
    id: String,
    revision: Option<String>,
    path: Option<String>,
}

/// `hf://datasets/OWNER/NAME[@REVISION][/PATH]`.
impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{DATASETS}{}", self.id)?;
        if let Some(revision) = &self.revision {
            let parts = reference(revision).filter(|(_, rest)| rest.is_empty());
            match parts {
                Some(_) => write!(f, "@{revision}")?,
                None => write!(f, "@{}", revision.replace('/', "%2F"))?,
            }
        }
        self.path.iter().try_for_each(|path| write!(f, "/{path}"))
    }
}

/// The reference with two `/` with which a text starts, and what follows it behind a `/`.
fn reference(text: &str) -> Option<(&str, &str)> {
    let name = ["refs/convert/", "refs/pr/"].iter().find_map(|start| text.strip_prefix(start))?;
    let end = name.find('/').unwrap_or(name.len());
    let (reference, rest) = text.split_at(text.len() - name.len() + end);
    Some((reference, rest.trim_start_matches('/')))
}

impl Address {
    /// The address on the hub that `file` names; `None` of a place on this machine.
    pub(super) fn of(file: &Path) -> Result<Option<Self>> {
        let Some(text) = file.to_str() else { return Ok(None) };
        if !is_remote(text) {
            return Ok(Self::short(file, text));
        }
        let found = text.strip_prefix(DATASETS).and_then(Self::long);
        found.map(Some).ok_or_else(|| {
            anyhow!("`{text}`: expected `{DATASETS}OWNER/NAME/PATH` or `{DATASETS}OWNER/NAME@REVISION/PATH`")
        })
    }

    fn long(text: &str) -> Option<Self> {
        let (owner, rest) = text.split_once('/')?;
        let (name, rest) = rest.split_at(rest.find(['@', '/']).unwrap_or(rest.len()));
        let (revision, path) = match rest.strip_prefix('@') {
            None => (None, rest.trim_start_matches('/')),
            Some(rest) => {
                let (revision, path) =
                    reference(rest).unwrap_or_else(|| rest.split_once('/').unwrap_or((rest, "")));
                (Some(revision.replace("%2F", "/").replace("%2f", "/")), path)
            }
        };
        let path = path.trim_end_matches('/');
        let path = (!path.is_empty()).then(|| path.to_owned());
        let is_named = is_plain(owner) && is_plain(name);
        is_named.then(|| Self { id: format!("{owner}/{name}"), revision, path })
    }

    fn short(file: &Path, text: &str) -> Option<Self> {
        let (id, revision) = named(text)?;
        let (owner, name) = id.split_once('/')?;
        let is_file = Format::of(file).is_ok() || file.extension().is_some_and(|end| end == "txt");
        let is_id = is_plain(owner) && is_plain(name) && !is_file && !may_be_there(text);
        let revision = revision.map(str::to_owned);
        is_id.then(|| Self { id: id.to_owned(), revision, path: None })
    }

    fn repository(&self) -> Result<Repository> {
        let revision = self.revision.as_deref().unwrap_or(MAIN);
        Repository::new(RepositoryKind::DataSet, &self.id, revision)
    }

    /// An error of the hub or its cache.
    fn failed(&self, repository: &Repository, error: &Error) -> Error {
        let cache = repository.cache().display();
        let message = match &self.path {
            Some(_) => anyhow!("`{self}`: {error:#} (cache: `{cache}`)"),
            None => anyhow!(
                "data set `{}`: no such file here, and {error:#} (cache: `{cache}`)",
                self.id
            ),
        };
        match kind_of(error) {
            Some(kind) => kind.mark(message),
            None => message,
        }
    }

    /// This address with the path of a table; that of the only one where it has no path.
    pub(super) fn with_table(self) -> Result<Self> {
        match &self.path {
            Some(_) => Ok(self),
            None => DataSet::listed(self)?.only(),
        }
    }

    /// The address at its commit, and the file in the cache.
    pub(super) fn fetch(mut self) -> Result<(PathBuf, PathBuf)> {
        let path = self.path.clone().unwrap_or_default();
        let repository = self.repository()?;
        let found = repository.folder(|get| first(&[&path], get).map(drop));
        let (folder, _) = found.map_err(|error| self.failed(&repository, &error))?;
        let commit = folder.file_name().unwrap_or_default().to_string_lossy();
        self.revision = Some(commit.into_owned());
        Ok((self.to_string().into(), folder.join(path)))
    }
}

/// The tables of a data set on the hub, at one commit.
#[derive(Clone, Debug)]
pub struct DataSet {
    /// As it is asked for.
    address: Address,
    commit: String,
    tables: Vec<String>,
}

impl DataSet {
    /// The data set that `file` names without a path in it; `None` of a file.
    pub fn named_by(file: &Path) -> Result<Option<Self>> {
        let address = Address::of(file)?.filter(|address| address.path.is_none());
        address.map(Self::listed).transpose()
    }

    /// Tables of the repository itself, else those that the hub makes of its main branch.
    fn listed(mut address: Address) -> Result<Self> {
        let files = |address: &Address| {
            let repository = address.repository()?;
            let found = repository.files();
            let (commit, files) = found.map_err(|error| address.failed(&repository, &error))?;
            Ok::<_, Error>((commit, files.into_iter().filter(|path| is_table(path)).collect()))
        };
        let (mut commit, mut tables): (String, Vec<String>) = files(&address)?;
        if tables.is_empty() && address.revision.is_none() {
            address.revision = Some(CONVERTED.to_owned());
            (commit, tables) = files(&address).map_err(|error| {
                error.context(format!("data set `{}` has no table on its main branch", address.id))
            })?;
        }
        tables.sort();
        Ok(Self { address, commit, tables })
    }

    fn of_part(&self, part: Part) -> Vec<&String> {
        let own: Vec<_> = self.tables.iter().filter(|path| Part::of(path) == Some(part)).collect();
        match &self.tables[..] {
            // What has no part is for training.
            [one] if part == Part::Train && Part::of(one).is_none() => vec![one],
            _ => own,
        }
    }

    /// The address of the only table of a part, at its commit; `None` if there is none.
    pub fn table(&self, part: Part) -> Result<Option<PathBuf>> {
        match self.of_part(part)[..] {
            [] => Ok(None),
            [one] => Ok(Some(self.pinned(one).to_string().into())),
            ref several => {
                bail!(
                    self.unclear(&format!("{} tables of the {part} part", several.len()), several)
                )
            }
        }
    }

    /// As [`table`](Self::table), where there must be one.
    pub fn needed(&self, part: Part) -> Result<PathBuf> {
        self.table(part)?.ok_or_else(|| {
            let all: Vec<_> = self.tables.iter().collect();
            anyhow!(self.unclear(&format!("no table of the {part} part"), &all))
        })
    }

    fn only(&self) -> Result<Address> {
        match &self.tables[..] {
            [one] => Ok(self.pinned(one)),
            several => {
                let all: Vec<_> = several.iter().collect();
                bail!(self.unclear(&format!("{} tables", several.len()), &all))
            }
        }
    }

    fn pinned(&self, path: &str) -> Address {
        let revision = Some(self.commit.clone());
        Address { revision, path: Some(path.to_owned()), ..self.address.clone() }
    }

    /// Words for a data set of which no table can be taken.
    fn unclear(&self, found: &str, tables: &[&String]) -> String {
        let id = &self.address.id;
        let Some(first) = tables.first() else {
            return format!(
                "data set `{id}` has {found}: name a file, as in `{DATASETS}{id}/PATH`"
            );
        };
        let example = Address { path: Some((*first).clone()), ..self.address.clone() };
        format!("data set `{id}` has {found} ({}): name one, as in `{example}`", quoted(tables))
    }
}

/// The table of `part` where `file` is a data set on the hub; `file` itself otherwise.
pub fn table_of(file: PathBuf, part: Part) -> Result<PathBuf> {
    match DataSet::named_by(&file)? {
        Some(set) => set.needed(part),
        None => Ok(file),
    }
}

/// `true` of an address on the hub in full, as records have it.
pub(crate) fn is_remote(file: &str) -> bool {
    file.starts_with(SCHEME)
}

/// `true` of a path in a repository that has the ending of a table.
fn is_table(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    let is_hidden = path.split('/').any(|part| part.starts_with('.'));
    !is_hidden && !DESCRIPTIONS.contains(&name) && Format::of(Path::new(path)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_a_data_set_and_may_have_a_revision_and_a_path() {
        let found = |text: &str| Address::of(Path::new(text)).unwrap();
        let address = |revision: Option<&str>, path: Option<&str>| {
            let [revision, path] = [revision, path].map(|text| text.map(str::to_owned));
            Some(Address { id: "o/n".to_owned(), revision, path })
        };
        for (text, revision, path) in [
            ("hf://datasets/o/n", None, None),
            ("hf://datasets/o/n/d/t.parquet", None, Some("d/t.parquet")),
            ("hf://datasets/o/n@v1", Some("v1"), None),
            ("hf://datasets/o/n@v1/t.csv", Some("v1"), Some("t.csv")),
            ("hf://datasets/o/n@a%2Fb/t.csv", Some("a/b"), Some("t.csv")),
            ("hf://datasets/o/n@refs/pr/3/t.csv", Some("refs/pr/3"), Some("t.csv")),
            ("hf://datasets/o/n@refs/convert/parquet", Some(CONVERTED), None),
            (
                "hf://datasets/o/n@refs/convert/parquet/default/train/0000.parquet",
                Some(CONVERTED),
                Some("default/train/0000.parquet"),
            ),
        ] {
            assert_eq!(found(text), address(revision, path), "{text}");
            assert_eq!(found(text).unwrap().to_string(), text);
        }
        assert_eq!(found("hf://datasets/o/n/"), address(None, None));
        assert_eq!(found("o/n"), address(None, None));
        assert_eq!(found("o/n@v1"), address(Some("v1"), None));
        // `src` is a folder of this machine.
        for local in ["n", "o/n.csv", "o/n.txt", "./o/n", "/o/n", "a/o/n", "o n/x", "src/data"] {
            assert_eq!(found(local), None, "{local}");
        }
        for wrong in ["hf://o/n/t.csv", "hf://models/o/n", "hf://datasets/o", "hf://datasets/../n"]
        {
            let error = Address::of(Path::new(wrong)).unwrap_err().to_string();
            assert!(error.contains("expected `hf://datasets/OWNER/NAME/PATH`"), "{error}");
        }
    }

    fn set(tables: &[&str]) -> DataSet {
        let address = Address { id: "o/n".to_owned(), revision: None, path: None };
        let tables = tables.iter().filter(|path| is_table(path)).map(|&path| path.to_owned());
        DataSet { address, commit: "c".to_owned(), tables: tables.collect() }
    }

    /// Names of files of data sets on the hub.
    #[test]
    fn a_table_is_of_the_part_that_its_name_or_its_folder_says() {
        for (path, expected) in [
            ("data/train-00000-of-00001-b42a775f407cee45.parquet", Some(Part::Train)),
            ("default/train/0000.parquet", Some(Part::Train)),
            ("test.jsonl", Some(Part::Test)),
            ("en/dev.tsv", Some(Part::Validation)),
            ("validation_matched.csv", Some(Part::Validation)),
            ("test/training_set.csv", Some(Part::Train)),
            ("train_test.csv", None),
            ("contest/latest.csv", None),
        ] {
            assert_eq!(Part::of(path), expected, "{path}");
        }
    }

    #[test]
    fn the_only_table_of_a_part_is_taken_or_all_are_listed() {
        let three =
            set(&["README.md", "dataset_infos.json", "test.csv", "train.csv", ".x/dev.csv"]);
        let pinned = |path: &str| PathBuf::from(format!("hf://datasets/o/n@c/{path}"));
        assert_eq!(three.needed(Part::Train).unwrap(), pinned("train.csv"));
        assert_eq!(three.needed(Part::Test).unwrap(), pinned("test.csv"));
        assert_eq!(three.table(Part::Validation).unwrap(), None);
        let error = three.needed(Part::Validation).unwrap_err().to_string();
        assert_eq!(
            error,
            "data set `o/n` has no table of the validation part (`test.csv`, `train.csv`): name one, as in \
             `hf://datasets/o/n/test.csv`"
        );
        let error = three.only().unwrap_err().to_string();
        assert!(
            error.starts_with("data set `o/n` has 2 tables (`test.csv`, `train.csv`): "),
            "{error}"
        );
        let several = set(&["a/train.csv", "b/train.csv"]);
        let error = several.table(Part::Train).unwrap_err().to_string();
        assert!(
            error.starts_with("data set `o/n` has 2 tables of the training part (`a/"),
            "{error}"
        );
        assert_eq!(set(&["all.csv"]).needed(Part::Train).unwrap(), pinned("all.csv"));
        assert_eq!(set(&["all.csv"]).table(Part::Test).unwrap(), None);
        let error = set(&["README.md"]).only().unwrap_err().to_string();
        assert_eq!(
            error,
            "data set `o/n` has 0 tables: name a file, as in `hf://datasets/o/n/PATH`"
        );
        let many: Vec<String> = (0..20).map(|i| format!("train-{i:02}.csv")).collect();
        let many = set(&many.iter().map(String::as_str).collect::<Vec<_>>());
        let error = many.needed(Part::Train).unwrap_err().to_string();
        assert!(error.contains("20 tables of the training part (`train-00.csv`, "), "{error}");
        assert!(error.contains(" more): name one"), "{error}");
    }
}
