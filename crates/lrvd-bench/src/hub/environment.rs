//! Variables of the environment that the client of the hub reads, and the places that they name.

use std::env::VarError;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::{anyhow, bail};

use crate::error::Result;
use crate::io::cannot;

/// Variable of the user's home.
const HOME: &str = if cfg!(windows) { "USERPROFILE" } else { "HOME" };

/// Looks a variable of the environment up.
pub(super) type Variables<'a> = &'a dyn Fn(&str) -> Result<Option<String>>;

/// The first of the variables that is set.
pub(super) fn first_set(names: [&str; 2], variables: Variables<'_>) -> Result<Option<String>> {
    Ok(variables(names[0])?.or(variables(names[1])?))
}

/// Folder of the repositories.
pub(super) fn cache(variables: Variables<'_>) -> Result<PathBuf> {
    let found = match first_set(["HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"], variables)? {
        Some(folder) => expanded(&folder, variables)?,
        None => hub_home(variables)?.map(|home| home.join("hub")),
    };
    found.ok_or_else(|| {
        anyhow!(
            "this user has no home (`{HOME}` is not set): set `HF_HOME` to a folder for the cache, or pass the path of a copy"
        )
    })
}

/// File of the token that `hf auth login` stores; `None` of a user without a home.
pub(super) fn token_file(variables: Variables<'_>) -> Result<Option<PathBuf>> {
    match variables("HF_TOKEN_PATH")? {
        Some(file) => expanded(&file, variables),
        None => Ok(hub_home(variables)?.map(|home| home.join("token"))),
    }
}

/// Folder of the cache and of the token; `None` of a user without a home.
fn hub_home(variables: Variables<'_>) -> Result<Option<PathBuf>> {
    if let Some(folder) = variables("HF_HOME")? {
        return expanded(&folder, variables);
    }
    let shared = variables("XDG_CACHE_HOME")?.unwrap_or_else(|| "~/.cache".to_owned());
    Ok(expanded(&shared, variables)?.map(|shared| shared.join("huggingface")))
}

/// `path` with a leading `~`, `$NAME` and `${NAME}` replaced, as Python's `expandvars(expanduser(path))` does: a variable that is
/// not set stays as it is. `None` if it starts with `~` and the user has no home.
fn expanded(path: &str, variables: Variables<'_>) -> Result<Option<PathBuf>> {
    let is_separator = |c: char| c == '/' || (cfg!(windows) && c == '\\');
    let path = match path.strip_prefix('~') {
        Some(rest) if rest.is_empty() || rest.starts_with(is_separator) => {
            let Some(home) = home(variables)? else { return Ok(None) };
            home + rest
        }
        Some(_) => bail!("the home of another user in `{path}` is not looked up: write it out"),
        None => path.to_owned(),
    };
    let mut made = String::new();
    let mut rest = path.as_str();
    while let Some((before, after)) = rest.split_once('$') {
        made.push_str(before);
        let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let (name, behind) = match after.strip_prefix('{').and_then(|after| after.split_once('}')) {
            Some(found) => found,
            None => after.split_at(after.find(|c| !is_part(c)).unwrap_or(after.len())),
        };
        let value = if name.is_empty() { None } else { variables(name)? };
        match value {
            Some(value) => made.push_str(&value),
            None => made.push_str(&rest[before.len()..rest.len() - behind.len()]),
        }
        rest = behind;
    }
    Ok(Some((made + rest).into()))
}

/// The user's home: of the environment, else of the system's list of users.
fn home(variables: Variables<'_>) -> Result<Option<String>> {
    let listed = || std::env::home_dir()?.into_os_string().into_string().ok();
    Ok(variables(HOME)?.or_else(listed).filter(|home| !home.is_empty()))
}

pub(super) fn offline() -> Result<bool> {
    let set = first_set(["HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"], &variable)?;
    Ok(set.is_some_and(|value| {
        matches!(value.to_ascii_lowercase().as_str(), "1" | "true" | "yes" | "on")
    }))
}

/// A variable of the environment that is set and not empty.
#[expect(clippy::disallowed_methods, reason = "the hub's own variables")]
pub(super) fn variable(name: &str) -> Result<Option<String>> {
    match std::env::var(name) {
        Ok(value) => Ok(Some(value).filter(|value| !value.is_empty())),
        Err(VarError::NotPresent) => Ok(None),
        // It may be a secret.
        Err(VarError::NotUnicode(_)) => bail!("the environment variable `{name}` is not UTF-8"),
    }
}

/// The text of a file; `None` if there is none.
pub(super) fn text(file: &Path) -> Result<Option<String>> {
    match fs::read_to_string(file) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        text => text.map(Some).map_err(cannot("read", file)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Expected values are those of `constants.py` of version 2.4.0.
    #[cfg(unix)]
    #[test]
    fn the_cache_and_the_token_are_where_pythons_library_has_them() {
        let found = |set: &str| {
            let variables = |name: &str| {
                let mut set = set.split(' ').filter_map(|pair| pair.split_once('='));
                Ok(set.find(|(own, _)| *own == name).map(|(_, value)| value.to_owned()))
            };
            let token = token_file(&variables).unwrap();
            (cache(&variables), token.map(|file| file.display().to_string()))
        };
        for (set, expected_cache, expected_token) in [
            ("HOME=/u", "/u/.cache/huggingface/hub", "/u/.cache/huggingface/token"),
            ("HOME=/u XDG_CACHE_HOME=/c", "/c/huggingface/hub", "/c/huggingface/token"),
            ("HOME=/u XDG_CACHE_HOME=/c HF_HOME=~/x", "/u/x/hub", "/u/x/token"),
            ("HOME=/u HF_HOME=$HOME/x", "/u/x/hub", "/u/x/token"),
            ("HOME=/u HF_HOME=/a${HOME}/$X_1$", "/a/u/$X_1$/hub", "/a/u/$X_1$/token"),
            ("HOME=/u HF_HOME=${X", "${X/hub", "${X/token"),
            ("HOME=/u HF_HOME=/h HUGGINGFACE_HUB_CACHE=~/old", "/u/old", "/h/token"),
            (
                "HOME=/u HUGGINGFACE_HUB_CACHE=/old HF_HUB_CACHE=~",
                "/u",
                "/u/.cache/huggingface/token",
            ),
            ("HOME=/u HF_HOME=/h HF_TOKEN_PATH=~/t", "/h/hub", "/u/t"),
        ] {
            let (cache, token) = found(set);
            assert_eq!(cache.unwrap(), Path::new(expected_cache), "{set}");
            assert_eq!(token.as_deref(), Some(expected_token), "{set}");
        }
        let (cache, token) = found("HOME=");
        assert_eq!(token, None);
        assert!(cache.unwrap_err().to_string().contains("set `HF_HOME`"));
        assert_eq!(found("HOME= HF_HUB_CACHE=/c").0.unwrap(), Path::new("/c"));
        let error = found("HF_HUB_CACHE=~eve/c").0.unwrap_err().to_string();
        assert!(error.contains("`~eve/c` is not looked up"), "{error}");
    }
}
