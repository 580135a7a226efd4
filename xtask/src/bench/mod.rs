//! End-to-end comparisons: what is run, beside what, and what is made of the times.
//!
//! | file | what |
//! |---|---|
//! | `table` | every comparison with its target |
//! | `programs` | our `step` and PyTorch's, built, found and run |
//! | `measure` | runs in turn, medians, fits |
//! | `operators` | what criterion times |
//! | `machine` | what the times belong to |
//! | `report` | one entry for each comparison, as JSON |
//! | `page` | the same as a page |
//! | `run` | the command |

pub(crate) mod machine;
pub(crate) mod measure;
pub(crate) mod operators;
pub(crate) mod page;
pub(crate) mod programs;
pub(crate) mod report;
pub(crate) mod run;
pub(crate) mod table;

/// Who runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Program {
    /// `step` of `lrvd-perf`.
    Ours,
    /// `torch_step.py`.
    Torch,
    /// A bench of `lrvd-perf`.
    Criterion,
}

/// One thing that is timed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Side {
    pub(crate) label: String,
    pub(crate) program: Program,
    /// Options of the program, separated by spaces; `FOLDER` stands for one that all sides share.
    pub(crate) arguments: String,
}

/// Two sides and what their ratio should be.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Comparison {
    pub(crate) name: String,
    /// Index of our side.
    pub(crate) ours: usize,
    /// Index of the other side.
    pub(crate) reference: usize,
    /// Largest ratio that meets the aim, if there is one.
    pub(crate) target: Option<f64>,
    /// Index of the side whose answers must be worth as much as ours for the aim to be met.
    pub(crate) worth: Option<usize>,
}

impl Comparison {
    /// The sides that it reads.
    fn sides(&self) -> impl Iterator<Item = usize> {
        [self.ours, self.reference].into_iter().chain(self.worth)
    }
}

/// A quantity that grows from side to side, over which the time is fitted.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Axis {
    pub(crate) unit: &'static str,
    /// Its value at each side.
    pub(crate) at: Vec<f64>,
}

/// Sides that are run in turn, and the comparisons between them.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Group {
    pub(crate) name: String,
    pub(crate) title: String,
    pub(crate) sides: Vec<Side>,
    pub(crate) comparisons: Vec<Comparison>,
    pub(crate) axis: Option<Axis>,
    pub(crate) rounds: usize,
    /// Timed steps of a side in each round.
    pub(crate) steps: usize,
}

impl Group {
    /// Keeps the comparisons for which `keep` holds, and the sides that they need.
    pub(crate) fn retain(&mut self, keep: impl Fn(&Self, &Comparison) -> bool) {
        let kept: Vec<bool> = self.comparisons.iter().map(|c| keep(self, c)).collect();
        let mut kept = kept.into_iter();
        self.comparisons.retain(|_| kept.next().unwrap_or(false));
        if self.axis.is_some() {
            return;
        }
        let uses = |side: usize| self.comparisons.iter().any(|c| c.sides().any(|i| i == side));
        let used: Vec<bool> = (0..self.sides.len()).map(uses).collect();
        for comparison in &mut self.comparisons {
            let Comparison { ours, reference, worth, .. } = comparison;
            for side in [ours, reference].into_iter().chain(worth) {
                *side = used[..*side].iter().filter(|&&used| used).count();
            }
        }
        let mut used = used.into_iter();
        self.sides.retain(|_| used.next().unwrap_or(false));
    }

    /// Whether criterion times it.
    pub(crate) fn is_criterions(&self) -> bool {
        self.sides.iter().any(|side| side.program == Program::Criterion)
    }

    /// Whether `comparison` needs `program`.
    pub(crate) fn needs(&self, comparison: &Comparison, program: Program) -> bool {
        comparison.sides().any(|i| self.sides[i].program == program)
    }
}

/// The group or the one comparison called `name`; otherwise all names that there are.
pub(crate) fn select(groups: Vec<Group>, name: &str) -> Result<Vec<Group>, Vec<String>> {
    let names = |group: &Group| {
        let of_comparisons = group.comparisons.iter().map(|c| c.name.clone());
        [group.name.clone()].into_iter().chain(of_comparisons).collect::<Vec<_>>()
    };
    let all = groups.iter().flat_map(names).collect();
    for mut group in groups {
        if group.name != name {
            group.retain(|_, comparison| comparison.name == name);
        }
        if !group.comparisons.is_empty() {
            return Ok(vec![group]);
        }
    }
    Err(all)
}

/// The groups as far as they do without PyTorch, and the names of the comparisons that do not.
pub(crate) fn without_torch(groups: Vec<Group>) -> (Vec<Group>, Vec<String>) {
    let (mut kept, mut skipped) = (Vec::new(), Vec::new());
    for mut group in groups {
        let needing = group.comparisons.iter().filter(|c| group.needs(c, Program::Torch));
        skipped.extend(needing.map(|c| c.name.clone()));
        group.retain(|group, comparison| !group.needs(comparison, Program::Torch));
        if !group.comparisons.is_empty() {
            kept.push(group);
        }
    }
    (kept, skipped)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::table::groups;
    use super::*;

    #[test]
    fn one_comparison_takes_its_two_sides_along() {
        let chosen = select(groups(false), "nano-moment-matched-lora").unwrap();
        let [group] = &chosen[..] else { panic!("{chosen:?}") };
        let labels: Vec<&str> = group.sides.iter().map(|side| side.label.as_str()).collect();
        assert_eq!(labels, ["LoRA", "BayesLoRA, moment-matched"]);
        let [only] = &group.comparisons[..] else { panic!("{group:?}") };
        assert_eq!((only.ours, only.reference, only.target), (1, 0, Some(1.15)));
        // A fit needs all of its points, a group all of its comparisons.
        assert_eq!(select(groups(false), "tokens-nano-growth").unwrap()[0].sides.len(), 5);
        assert_eq!(select(groups(false), "nano").unwrap()[0], groups(false)[0]);
    }

    #[test]
    fn without_pytorch_the_rest_is_left_and_the_gap_is_named() {
        let (left, skipped) = without_torch(groups(false));
        assert_eq!(skipped.len(), 9);
        assert!(skipped.iter().all(|name| name.ends_with("-pytorch")), "{skipped:?}");
        for group in left {
            assert!(group.sides.iter().all(|side| side.program != Program::Torch));
            for comparison in &group.comparisons {
                assert!(comparison.ours.max(comparison.reference) < group.sides.len());
            }
        }
    }
}
