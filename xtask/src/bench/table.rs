//! The comparisons of `comparisons.toml`, where the fields are described.

use anyhow::{Context as _, Result, bail};
use serde::Deserialize;

/// Program of a side.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Program {
    /// `step` of `lrvd-perf`.
    #[default]
    Ours,
    /// `torch_step.py`.
    PyTorch,
    /// `llama_cpp_generate.py`.
    #[serde(rename = "llama.cpp")]
    LlamaCpp,
    /// `inference.py`: `lrvd predict` and its peers.
    Inference,
    /// `server_bench.py`: `lrvd serve` and its peers.
    Server,
    /// A bench of `lrvd-perf`.
    Criterion,
}

impl Program {
    /// Programs in Python, which a machine may lack.
    pub(crate) const PEERS: [Self; 4] =
        [Self::PyTorch, Self::LlamaCpp, Self::Inference, Self::Server];

    /// Script and imports of a program in Python.
    pub(crate) fn script(self) -> Option<(&'static str, &'static str)> {
        match self {
            Self::PyTorch => Some(("torch_step.py", "torch, transformers, peft")),
            Self::LlamaCpp => Some(("llama_cpp_generate.py", "llama_cpp, gguf")),
            Self::Inference => Some(("inference.py", "onnxruntime, sentence_transformers")),
            Self::Server => {
                Some(("server_bench.py", "fastapi, uvicorn, onnxruntime, transformers"))
            }
            Self::Ours | Self::Criterion => None,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Side {
    pub(crate) key: String,
    pub(crate) label: String,
    #[serde(default)]
    pub(crate) program: Program,
    /// Options of the program, separated by spaces.
    pub(crate) arguments: String,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Comparison {
    pub(crate) name: String,
    /// Keys of sides.
    pub(crate) ours: String,
    pub(crate) reference: String,
    pub(crate) target: Option<f64>,
    pub(crate) avx512: Option<f64>,
    pub(crate) worth: Option<String>,
    /// True if the losses of the last steps must agree.
    #[serde(default)]
    pub(crate) same_loss: bool,
}

impl Comparison {
    fn uses(&self, side: &Side) -> bool {
        [Some(&self.ours), Some(&self.reference), self.worth.as_ref()].contains(&Some(&side.key))
    }
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Axis {
    pub(crate) unit: String,
    pub(crate) at: Vec<f64>,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Group {
    pub(crate) name: String,
    pub(crate) title: String,
    pub(crate) sides: Vec<Side>,
    pub(crate) comparisons: Vec<Comparison>,
    pub(crate) axis: Option<Axis>,
    pub(crate) rounds: usize,
    /// Timed steps of a side in each round.
    pub(crate) steps: usize,
    /// Threads of every side, in place of all.
    pub(crate) threads: Option<usize>,
    /// True if the time of a side is that of its fastest step, in place of the median.
    #[serde(default)]
    pub(crate) fastest: bool,
    /// True if a comparison is one of the estimated memory of a side, beside its peak, in place of times.
    #[serde(default)]
    pub(crate) memory: bool,
}

impl Group {
    /// The sides that must run: a fit needs all of them.
    pub(crate) fn used(&self) -> impl Iterator<Item = &Side> {
        let is_used =
            |side: &&Side| self.axis.is_some() || self.comparisons.iter().any(|c| c.uses(side));
        self.sides.iter().filter(is_used)
    }

    fn needs(&self, program: Program, comparison: &Comparison) -> bool {
        self.sides.iter().any(|side| side.program == program && comparison.uses(side))
    }

    pub(crate) fn is_criterions(&self) -> bool {
        self.sides.iter().any(|side| side.program == Program::Criterion)
    }
}

/// All groups; with AVX-512 some targets against `PyTorch` are others.
pub(crate) fn groups(avx512: bool) -> Result<Vec<Group>> {
    #[derive(Deserialize)]
    struct Table {
        group: Vec<Group>,
    }
    let table = toml::from_str::<Table>(include_str!("comparisons.toml"));
    let mut groups = table.context("`comparisons.toml`")?.group;
    for comparison in groups.iter_mut().flat_map(|group| &mut group.comparisons) {
        comparison.target = comparison.avx512.filter(|_| avx512).or(comparison.target);
    }
    Ok(groups)
}

/// The groups and comparisons called `names`.
pub(crate) fn select_all(groups: &[Group], names: &[String]) -> Result<Vec<Group>> {
    let mut chosen: Vec<Group> = Vec::new();
    for name in names {
        for group in select(groups.to_vec(), name)? {
            match chosen.iter_mut().find(|known| known.name == group.name) {
                None => chosen.push(group),
                Some(known) => {
                    let new = group.comparisons.into_iter();
                    let is_new =
                        |c: &Comparison| known.comparisons.iter().all(|k| k.name != c.name);
                    let new: Vec<_> = new.filter(is_new).collect();
                    known.comparisons.extend(new);
                }
            }
        }
    }
    Ok(chosen)
}

/// The group or the one comparison called `name`.
pub(crate) fn select(groups: Vec<Group>, name: &str) -> Result<Vec<Group>> {
    let names = |group: &Group| {
        let of_comparisons = group.comparisons.iter().map(|c| c.name.clone());
        [group.name.clone()].into_iter().chain(of_comparisons).collect::<Vec<_>>()
    };
    let all: Vec<String> = groups.iter().flat_map(names).collect();
    for mut group in groups {
        if group.name != name {
            group.comparisons.retain(|comparison| comparison.name == name);
        }
        if !group.comparisons.is_empty() {
            return Ok(vec![group]);
        }
    }
    bail!("there is no comparison `{name}`; there are\n  {}", all.join("\n  "))
}

/// Takes out the comparisons that need `program`, and returns their names.
pub(crate) fn take_comparisons(groups: &mut Vec<Group>, program: Program) -> Vec<String> {
    let mut taken = Vec::new();
    for group in &mut *groups {
        let all = group.comparisons.clone().into_iter();
        let (needing, left): (Vec<_>, _) = all.partition(|c| group.needs(program, c));
        taken.extend(needing.into_iter().map(|comparison| comparison.name));
        group.comparisons = left;
    }
    groups.retain(|group| !group.comparisons.is_empty());
    taken
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::collections::BTreeSet;

    use super::*;

    fn used(group: &Group) -> Vec<&str> {
        group.used().map(|side| side.key.as_str()).collect()
    }

    #[test]
    fn names_are_unique_and_sides_exist() {
        let all = groups(false).unwrap();
        let mut names = BTreeSet::new();
        for group in &all {
            let keys: BTreeSet<_> = group.sides.iter().map(|side| &side.key).collect();
            assert_eq!(keys.len(), group.sides.len(), "{}", group.name);
            assert!(names.insert(&group.name), "{}", group.name);
            for Comparison { name, ours, reference, worth, .. } in &group.comparisons {
                assert!(names.insert(name) && (ours == reference) == group.memory, "{name}");
                let mut sides = [Some(ours), Some(reference), worth.as_ref()].into_iter().flatten();
                assert!(sides.all(|side| keys.contains(side)), "{name}");
            }
            assert!(group.axis.as_ref().is_none_or(|axis| axis.at.len() == group.sides.len()));
        }
    }

    #[test]
    fn one_comparison_takes_its_two_sides_along() {
        let chosen = |name| select(groups(false).unwrap(), name).unwrap().remove(0);
        let only = chosen("nano-moment-matched-lora");
        assert_eq!(used(&only), ["lora", "moment-matched"]);
        assert_eq!((only.comparisons.len(), only.comparisons[0].target), (1, Some(1.15)));
        // A fit needs all of its points, a group all of its comparisons.
        assert_eq!(used(&chosen("tokens-nano-growth")).len(), 5);
        assert_eq!(chosen("nano"), groups(false).unwrap()[0]);
        let error = select(groups(false).unwrap(), "deberta").unwrap_err().to_string();
        assert!(error.starts_with("there is no comparison `deberta`; there are\n  nano\n"));
        assert!(error.contains("\n  pruned-base-rank-10"), "{error}");
    }

    #[test]
    fn several_names_are_run_together_and_none_twice() {
        let names = ["growth-lora", "nano-bayeslora-lora", "growth-search", "growth-lora"];
        let chosen = select_all(&groups(false).unwrap(), &names.map(str::to_owned)).unwrap();
        let found: Vec<Vec<&str>> = chosen.iter().map(used).collect();
        let growth = vec!["lora-early", "lora-late", "search-early", "search-late"];
        assert_eq!(found, [growth, vec!["lora", "bayeslora"]]);
        assert!(select_all(&groups(false).unwrap(), &["lora".to_owned()]).is_err());
    }

    #[test]
    fn growth_is_measured_at_the_same_work() {
        let growth = &select(groups(false).unwrap(), "growth").unwrap()[0];
        for Comparison { ours, reference, target, .. } in &growth.comparisons {
            let arguments = |key: &String| {
                let side = growth.sides.iter().find(|side| side.key == *key).unwrap();
                side.arguments.rsplit_once(" --skip ").unwrap()
            };
            let ((late, after), (early, before)) = (arguments(ours), arguments(reference));
            assert_eq!((late, after, before, *target), (early, "999", "49", Some(1.03)));
        }
    }

    #[test]
    fn the_target_against_pytorch_depends_on_the_vector_units() {
        let of_base = |avx512| {
            let all = select(groups(avx512).unwrap(), "base-lora-pytorch").unwrap();
            all[0].comparisons[0].target
        };
        assert_eq!((of_base(false), of_base(true)), (Some(0.9), Some(1.0)));
    }

    #[test]
    fn every_function_is_one_of_the_benches() {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../benches/benches/operators.rs");
        let text = std::fs::read_to_string(file).unwrap();
        for side in &select(groups(false).unwrap(), "operators").unwrap()[0].sides {
            let (operator, function) = side.arguments.split_once('/').unwrap();
            assert!(text.contains(&format!("\"{function}\"")), "{function}");
            // Sizes are put in by a format.
            let stem = operator.trim_end_matches(|c: char| c.is_ascii_digit() || c == 'x');
            assert!(text.contains(stem), "{operator}");
        }
    }
}
