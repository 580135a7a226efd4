//! Rules for the module paths that a configuration adapts, with their ranks and scales.
//!
//! Python's regular expressions are evaluated by the `regex` crate. It has no look-around and no
//! back-references; a pattern with one is an error, never a different set of modules.

use regex::Regex;

use super::config::{PeftConfig, PeftMethod, TargetModules};
use crate::error::Error;
use crate::model::OUTPUT_LAYER;

/// Added to the divisor of `AdaLoRA`'s scale, as in PEFT.
const ADALORA_EPSILON: f64 = 1e-5;

/// A configuration with its patterns compiled.
///
/// # Formula
///
/// ```text
/// LoRA     scaling = lora_alpha / rank           with use_rslora: lora_alpha / sqrt(rank)
/// AdaLoRA  scaling = lora_alpha / (init_r + 1e-5)
/// ```
///
/// `rank` and `lora_alpha` are those of the first pattern, in file order, for which
/// `^(.*\.)?(key)$` matches the path, else the general ones. `AdaLoRA` has neither pattern nor
/// root, and divides by the initial rank for good.
#[derive(Debug)]
pub(super) struct ModuleRules<'a> {
    config: &'a PeftConfig,
    targets: Matcher<'a>,
    excluded: Option<Matcher<'a>>,
    saved: Vec<Regex>,
    /// Patterns of the number of a layer, where only some layers are adapted.
    layers: Vec<Regex>,
    ranks: Vec<(Regex, usize)>,
    alphas: Vec<(Regex, f64)>,
}

impl PeftConfig {
    /// Compiles the patterns.
    pub(super) fn rules(&self) -> Result<ModuleRules<'_>, Error> {
        let excluded = self.exclude_modules.as_ref();
        // Listed names are put into the expression as they are, as PEFT does.
        let saved = self.saved_modules().into_iter().map(|name| {
            compile("modules_to_save", name, &format!(r"^(?:.*\.)?(?:{name})(?:$|\.)"))
        });
        // Without effect for `AdaLoRA`.
        let alphas = match self.method {
            PeftMethod::Lora => self.alpha_pattern.as_slice(),
            PeftMethod::AdaLora(_) => &[],
        };
        Ok(ModuleRules {
            config: self,
            targets: Matcher::new("target_modules", &self.target_modules)?,
            excluded: excluded.map(|names| Matcher::new("exclude_modules", names)).transpose()?,
            saved: saved.collect::<Result<_, _>>()?,
            layers: layer_patterns(self)?,
            ranks: compile_keys("rank_pattern", &self.rank_pattern)?,
            alphas: compile_keys("alpha_pattern", alphas)?,
        })
    }
}

impl ModuleRules<'_> {
    /// Whether the linear layer at `path` is adapted.
    pub(super) fn targets(&self, path: &str) -> bool {
        if self.excluded.as_ref().is_some_and(|matcher| matcher.matches(path))
            || self.saved.iter().any(|pattern| pattern.is_match(path))
        {
            return false;
        }
        // A path that is listed in full is taken whatever its layer, as PEFT does.
        let in_full =
            matches!(self.targets, Matcher::Names(names) if names.iter().any(|n| n == path));
        in_full || (self.targets.matches(path) && self.accepts_layer(path))
    }

    fn accepts_layer(&self, path: &str) -> bool {
        if self.config.layers_to_transform.is_empty() {
            return true;
        }
        let found = self.layers.iter().find_map(|pattern| pattern.captures(path));
        let layer = found.and_then(|captures| captures.name("idx")?.as_str().parse().ok());
        layer.is_some_and(|layer: usize| self.config.layers_to_transform.contains(&layer))
    }

    /// Rank of the module's tensors in the file.
    pub(super) fn rank(&self, path: &str) -> usize {
        match &self.config.method {
            PeftMethod::Lora => first_match(&self.ranks, path).unwrap_or(self.config.r),
            PeftMethod::AdaLora(adalora) => self
                .kept(path)
                .map_or(adalora.init_r, |flags| flags.iter().filter(|&&flag| flag).count()),
        }
    }

    /// Rank before any reallocation.
    pub(super) fn initial_rank(&self, path: &str) -> usize {
        match &self.config.method {
            PeftMethod::Lora => self.rank(path),
            PeftMethod::AdaLora(adalora) => adalora.init_r,
        }
    }

    /// Numerator of the module's scale.
    pub(super) fn lora_alpha(&self, path: &str) -> f64 {
        first_match(&self.alphas, path).unwrap_or(self.config.lora_alpha)
    }

    /// The factor before the product of the module's tensors.
    pub(super) fn scaling(&self, path: &str) -> f64 {
        let (lora_alpha, rank) = (self.lora_alpha(path), self.rank(path) as f64);
        match &self.config.method {
            PeftMethod::AdaLora(adalora) => adalora_scaling(lora_alpha, adalora.init_r),
            PeftMethod::Lora if self.config.use_rslora => lora_alpha / rank.sqrt(),
            PeftMethod::Lora => lora_alpha / rank,
        }
    }

    /// Kept triplets of an `AdaLoRA` module, one flag per initial rank; none for `LoRA` and before
    /// the reallocation.
    pub(super) fn kept(&self, path: &str) -> Option<&[bool]> {
        self.listed().find(|(known, _)| *known == path).map(|(_, flags)| flags)
    }

    /// Modules that the list of kept triplets names, with their flags; none for `LoRA`.
    pub(super) fn listed(&self) -> impl Iterator<Item = (&str, &[bool])> {
        let kept = match &self.config.method {
            PeftMethod::Lora => None,
            PeftMethod::AdaLora(adalora) => adalora.kept.as_ref(),
        };
        kept.into_iter().flatten().map(|(path, flags)| (path.as_str(), flags.as_slice()))
    }
}

/// `AdaLoRA`'s scale; the divisor stays the initial rank for good.
pub(super) fn adalora_scaling(lora_alpha: f64, init_r: usize) -> f64 {
    lora_alpha / (init_r as f64 + ADALORA_EPSILON)
}

/// Whether a pattern key would match the path; an invalid pattern matches nothing.
pub(super) fn key_matches(key: &str, path: &str) -> bool {
    compile_key("rank_pattern", key).is_ok_and(|pattern| pattern.is_match(path))
}

/// Module paths that are meant.
#[derive(Debug)]
enum Matcher<'a> {
    Names(&'a [String]),
    Pattern(Regex),
    AllLinear,
}

impl<'a> Matcher<'a> {
    fn new(key: &'static str, targets: &'a TargetModules) -> Result<Self, Error> {
        Ok(match targets {
            TargetModules::Names(names) => Self::Names(names),
            TargetModules::Regex(text) => {
                Self::Pattern(compile(key, text, &format!("^(?:{text})$"))?)
            }
            TargetModules::AllLinear => Self::AllLinear,
        })
    }

    fn matches(&self, path: &str) -> bool {
        match self {
            Self::Names(names) => names.iter().any(|name| {
                let start = path.strip_suffix(name.as_str());
                start.is_some_and(|start| start.is_empty() || start.ends_with('.'))
            }),
            Self::Pattern(pattern) => pattern.is_match(path),
            Self::AllLinear => path.rsplit('.').next() != Some(OUTPUT_LAYER),
        }
    }
}

/// Patterns of the number of a layer in a path.
fn layer_patterns(config: &PeftConfig) -> Result<Vec<Regex>, Error> {
    let compiled = |text: &str, pattern: &str| compile("layers_pattern", text, pattern);
    if config.layers_pattern.is_empty() {
        // The first numbered part of the path, whatever the name of the list before it.
        return Ok(vec![compiled("", r"^.*?\.[^.]*\.(?P<idx>\d+)\.")?]);
    }
    let named = config.layers_pattern.iter();
    named.map(|name| compiled(name, &format!(r"^(?:^|.*?\.){name}\.(?P<idx>\d+)\."))).collect()
}

fn first_match<T: Copy>(patterns: &[(Regex, T)], path: &str) -> Option<T> {
    patterns.iter().find(|(pattern, _)| pattern.is_match(path)).map(|&(_, value)| value)
}

fn compile_keys<T: Copy>(
    key: &'static str,
    patterns: &[(String, T)],
) -> Result<Vec<(Regex, T)>, Error> {
    patterns.iter().map(|(pattern, value)| Ok((compile_key(key, pattern)?, *value))).collect()
}

fn compile_key(key: &'static str, pattern: &str) -> Result<Regex, Error> {
    compile(key, pattern, &format!(r"^(?:.*\.)?(?:{pattern})$"))
}

fn compile(key: &'static str, pattern: &str, full: &str) -> Result<Regex, Error> {
    Regex::new(full).map_err(|error| {
        Error::Argument(format!(
            "`{key}` has the pattern `{pattern}`, which cannot be used: {error}"
        ))
    })
}
