//! Selection of modules by path: the layers that get an adapter, and what trains whole.

use crate::error::Error;

/// Modules of a model, chosen by their paths.
///
/// A path is the path of fields from the root, such as `blocks.0.query`, or the name in the checkpoint.
///
/// # Examples
///
/// ```
/// use lrvd_burn::Selection;
///
/// let named = Selection::from(["query", "value"]);
/// assert!(named.contains("blocks.0.query") && !named.contains("blocks.0.key_query"));
/// let first = Selection::Matching(|path| path.starts_with("blocks.0."));
/// assert!(first.contains("blocks.0.key") && !first.contains("head"));
/// ```
#[derive(Clone, Debug)]
pub enum Selection {
    /// Modules whose path is a name in the list or ends with `.name`, as PEFT reads its list form.
    Names(Vec<String>),
    /// Modules with exactly these paths.
    Paths(Vec<String>),
    /// Modules whose path satisfies a predicate.
    Matching(fn(&str) -> bool),
    /// All linear layers but the output layer `lm_head`, and but a head and a pooler that are trained whole; PEFT's `all-linear`.
    AllLinear,
}

/// The output layer of a language model.
pub(crate) const OUTPUT_LAYER: &str = "lm_head";

impl Selection {
    /// `true` if the module at `path` is selected; of [`AllLinear`](Self::AllLinear) if it is a linear layer of the backbone.
    pub fn contains(&self, path: &str) -> bool {
        match self {
            Self::AllLinear => path.rsplit('.').next() != Some(OUTPUT_LAYER),
            Self::Matching(selects) => selects(path),
            Self::Names(list) | Self::Paths(list) => {
                list.iter().any(|entry| self.matches(entry, path))
            }
        }
    }

    /// Checks that every entry selects one of `paths`; the error lists `known` names, each once.
    pub(crate) fn check(
        &self,
        paths: &[&str],
        known: impl Iterator<Item = String>,
    ) -> Result<(), Error> {
        let unused: Vec<String> = match self {
            Self::AllLinear => return Ok(()),
            Self::Matching(selects) if paths.iter().any(|path| selects(path)) => return Ok(()),
            Self::Matching(_) => vec!["predicate".to_owned()],
            Self::Names(list) | Self::Paths(list) if list.is_empty() => {
                return Err(Error::argument("targets", "at least 1", "none"));
            }
            Self::Names(list) | Self::Paths(list) => {
                let is_used = |entry: &String| paths.iter().any(|path| self.matches(entry, path));
                list.iter().filter(|entry| !is_used(entry)).cloned().collect()
            }
        };
        if unused.is_empty() {
            return Ok(());
        }
        let mut names = Vec::new();
        for name in known {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        Err(Error::UnknownTargets { targets: unused, known: names })
    }

    /// `true` if an entry of the list selects the module at `path`.
    fn matches(&self, entry: &str, path: &str) -> bool {
        path == entry || (matches!(self, Self::Names(_)) && has_end(path, entry))
    }
}

/// `true` if `path` is `end` or ends with `.end`.
pub(crate) fn has_end(path: &str, end: &str) -> bool {
    path.strip_suffix(end).is_some_and(|start| start.is_empty() || start.ends_with('.'))
}

impl<const N: usize> From<[&str; N]> for Selection {
    fn from(names: [&str; N]) -> Self {
        Self::Names(names.map(str::to_owned).to_vec())
    }
}
