//! Rules for the module paths that a configuration adapts, with their ranks and scales.
//!
//! Python's regular expressions are evaluated by the `regex` crate. It has no look-around and no
//! back-references; a pattern with one is an error, never a different set of modules.

use std::collections::BTreeMap;

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
#[derive(Debug, Clone)]
pub struct ModuleRules {
    targets: Matcher,
    excluded: Option<Matcher>,
    saved: Vec<Regex>,
    layers: Option<LayerFilter>,
    scale: ScaleRule,
}

#[derive(Debug, Clone)]
enum Matcher {
    Names(Vec<String>),
    Regex(Regex),
    AllLinear,
}

/// Restricts targets to numbered layers.
#[derive(Debug, Clone)]
struct LayerFilter {
    layers: Vec<usize>,
    patterns: Vec<Regex>,
}

#[derive(Debug, Clone)]
enum ScaleRule {
    Lora {
        rank: usize,
        lora_alpha: f64,
        root: bool,
        ranks: Vec<(Regex, usize)>,
        alphas: Vec<(Regex, f64)>,
    },
    AdaLora {
        init_r: usize,
        lora_alpha: f64,
        kept: BTreeMap<String, Vec<bool>>,
    },
}

impl PeftConfig {
    /// Compiles the patterns.
    pub fn rules(&self) -> Result<ModuleRules, Error> {
        let excluded = self.exclude_modules.as_ref();
        // Listed names are put into the expression as they are, as PEFT does.
        let saved = self.saved_modules().into_iter().map(|name| {
            compile("modules_to_save", name, &format!(r"^(?:.*\.)?(?:{name})(?:$|\.)"))
        });
        Ok(ModuleRules {
            targets: Matcher::new("target_modules", &self.target_modules)?,
            excluded: excluded.map(|names| Matcher::new("exclude_modules", names)).transpose()?,
            saved: saved.collect::<Result<_, _>>()?,
            layers: LayerFilter::new(self)?,
            scale: ScaleRule::new(self)?,
        })
    }
}

impl ModuleRules {
    /// Whether the linear layer at `path` is adapted.
    pub fn targets(&self, path: &str) -> bool {
        if self.excluded.as_ref().is_some_and(|matcher| matcher.matches(path)) {
            return false;
        }
        if self.saved.iter().any(|pattern| pattern.is_match(path)) {
            return false;
        }
        // A path that is listed in full is taken whatever its layer, as PEFT does.
        if matches!(&self.targets, Matcher::Names(names) if names.iter().any(|name| name == path)) {
            return true;
        }
        self.targets.matches(path) && self.layers.as_ref().is_none_or(|filter| filter.accepts(path))
    }

    /// Rank of the module's tensors in the file.
    pub fn rank(&self, path: &str) -> usize {
        match &self.scale {
            ScaleRule::Lora { rank, ranks, .. } => first_match(ranks, path).unwrap_or(*rank),
            ScaleRule::AdaLora { init_r, kept, .. } => {
                kept.get(path).map_or(*init_r, |flags| flags.iter().filter(|&&flag| flag).count())
            }
        }
    }

    /// Rank before any reallocation.
    pub fn initial_rank(&self, path: &str) -> usize {
        match &self.scale {
            ScaleRule::Lora { .. } => self.rank(path),
            ScaleRule::AdaLora { init_r, .. } => *init_r,
        }
    }

    /// Numerator of the module's scale.
    pub fn lora_alpha(&self, path: &str) -> f64 {
        match &self.scale {
            ScaleRule::Lora { lora_alpha, alphas, .. } => {
                first_match(alphas, path).unwrap_or(*lora_alpha)
            }
            ScaleRule::AdaLora { lora_alpha, .. } => *lora_alpha,
        }
    }

    /// The factor before the product of the module's tensors.
    pub fn scaling(&self, path: &str) -> f64 {
        let lora_alpha = self.lora_alpha(path);
        match &self.scale {
            ScaleRule::Lora { root: true, .. } => lora_alpha / (self.rank(path) as f64).sqrt(),
            ScaleRule::Lora { root: false, .. } => lora_alpha / self.rank(path) as f64,
            ScaleRule::AdaLora { init_r, .. } => adalora_scaling(lora_alpha, *init_r),
        }
    }

    /// Kept triplets of an `AdaLoRA` module, one flag per initial rank; none for `LoRA` and before
    /// the reallocation.
    pub fn kept(&self, path: &str) -> Option<&[bool]> {
        match &self.scale {
            ScaleRule::Lora { .. } => None,
            ScaleRule::AdaLora { kept, .. } => kept.get(path).map(Vec::as_slice),
        }
    }

    /// Modules that the list of kept triplets names; empty for `LoRA`.
    pub(super) fn listed(&self) -> impl Iterator<Item = &str> {
        let kept = match &self.scale {
            ScaleRule::Lora { .. } => None,
            ScaleRule::AdaLora { kept, .. } => Some(kept),
        };
        kept.into_iter().flat_map(BTreeMap::keys).map(String::as_str)
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

impl Matcher {
    fn new(key: &'static str, targets: &TargetModules) -> Result<Self, Error> {
        Ok(match targets {
            TargetModules::Names(names) => Self::Names(names.clone()),
            TargetModules::Regex(pattern) => {
                Self::Regex(compile(key, pattern, &format!("^(?:{pattern})$"))?)
            }
            TargetModules::AllLinear => Self::AllLinear,
        })
    }

    fn matches(&self, path: &str) -> bool {
        match self {
            Self::Names(names) => names.iter().any(|name| {
                path.strip_suffix(name.as_str())
                    .is_some_and(|start| start.is_empty() || start.ends_with('.'))
            }),
            Self::Regex(pattern) => pattern.is_match(path),
            Self::AllLinear => path.rsplit('.').next() != Some(OUTPUT_LAYER),
        }
    }
}

impl LayerFilter {
    fn new(config: &PeftConfig) -> Result<Option<Self>, Error> {
        let Some(layers) = config.layers_to_transform.clone() else {
            return Ok(None);
        };
        let compiled = |text: &str, pattern: String| compile("layers_pattern", text, &pattern);
        let patterns = if config.layers_pattern.is_empty() {
            // The first numbered part of the path, whatever the name of the list before it.
            vec![compiled("", r"^.*?\.[^.]*\.(?P<idx>\d+)\.".to_owned())?]
        } else {
            let named = config.layers_pattern.iter();
            named
                .map(|name| compiled(name, format!(r"^(?:^|.*?\.){name}\.(?P<idx>\d+)\.")))
                .collect::<Result<_, _>>()?
        };
        Ok(Some(Self { layers, patterns }))
    }

    fn accepts(&self, path: &str) -> bool {
        let found = self.patterns.iter().find_map(|pattern| pattern.captures(path));
        found
            .and_then(|captures| captures.name("idx")?.as_str().parse().ok())
            .is_some_and(|layer| self.layers.contains(&layer))
    }
}

impl ScaleRule {
    fn new(config: &PeftConfig) -> Result<Self, Error> {
        Ok(match &config.method {
            PeftMethod::Lora => Self::Lora {
                rank: config.r,
                lora_alpha: config.lora_alpha,
                root: config.use_rslora,
                ranks: compile_keys("rank_pattern", &config.rank_pattern)?,
                alphas: compile_keys("alpha_pattern", &config.alpha_pattern)?,
            },
            PeftMethod::AdaLora(adalora) => Self::AdaLora {
                init_r: adalora.init_r,
                lora_alpha: config.lora_alpha,
                kept: adalora.kept.iter().flatten().cloned().collect(),
            },
        })
    }
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

#[cfg(test)]
#[path = "pattern_tests.rs"]
mod tests;
