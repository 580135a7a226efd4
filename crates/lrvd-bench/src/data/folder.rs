//! Names and shards in a folder of data files.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::bail;

use crate::error::Result;
use crate::io::cannot;

pub(crate) fn file_names(folder: &Path) -> Result<BTreeSet<String>> {
    let failed = |source| cannot("read", folder)(source);
    let mut names = BTreeSet::new();
    for entry in fs::read_dir(folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        // Names that are not UTF-8 cannot be among the wanted ones.
        if let Ok(name) = entry.file_name().into_string()
            && entry.path().is_file()
        {
            names.insert(name);
        }
    }
    Ok(names)
}

/// All shards of a split among `names`, or none.
pub(crate) fn shards<'a>(
    stem: &str,
    folder: &Path,
    names: &'a BTreeSet<String>,
) -> Result<Vec<&'a str>> {
    let mut found: Vec<(&str, usize, usize)> = Vec::new();
    for name in names {
        let numbers = name.strip_prefix(stem).and_then(|rest| rest.strip_prefix('-'));
        if let Some((index, total)) = numbers.and_then(shard_numbers) {
            found.push((name, index, total));
        }
    }
    let Some(&(first, _, wanted)) = found.first() else { return Ok(Vec::new()) };
    let whole = found.len() == wanted
        && found.iter().enumerate().all(|(i, &(_, index, total))| i == index && total == wanted);
    if !whole {
        bail!(
            "`{}` has {found} of the {wanted} shards that its file names announce",
            folder.join(first).display(),
            found = found.len()
        );
    }
    Ok(found.into_iter().map(|(name, ..)| name).collect())
}

/// `(i, n)` of `0000i-of-0000n.parquet`; a hash may follow the digits.
fn shard_numbers(name: &str) -> Option<(usize, usize)> {
    let (index, rest) = name.strip_suffix(".parquet")?.split_once("-of-")?;
    let total = rest.split('-').next()?;
    Some((index.parse().ok()?, total.parse().ok()?))
}
