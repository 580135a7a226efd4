//! End-to-end comparisons: what is run, beside what, and what is made of the times.
//!
//! | file | what |
//! |---|---|
//! | `table` | every comparison with its target |
//! | `programs` | our `step`, PyTorch's, and criterion's benches: built, found and run |
//! | `machine` | what the times belong to |
//! | `report` | medians, fits, and one entry for each comparison, which is also the JSON |
//! | `page` | the same as a page |
//! | `run` | the command |

pub(crate) mod machine;
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
    fn uses(&self, side: usize) -> bool {
        [Some(self.ours), Some(self.reference), self.worth].contains(&Some(side))
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
    /// Whether a side must run: a fit needs all of them.
    pub(crate) fn uses(&self, side: usize) -> bool {
        self.axis.is_some() || self.comparisons.iter().any(|c| c.uses(side))
    }

    /// Whether `comparison` needs `program`.
    fn needs(&self, comparison: &Comparison, program: Program) -> bool {
        (0..self.sides.len()).any(|i| comparison.uses(i) && self.sides[i].program == program)
    }

    /// Whether criterion times it.
    pub(crate) fn is_criterions(&self) -> bool {
        self.sides.iter().any(|side| side.program == Program::Criterion)
    }
}

/// The group or the one comparison called `name`; otherwise all names that there are.
fn select(groups: Vec<Group>, name: &str) -> Result<Vec<Group>, Vec<String>> {
    let names = |group: &Group| {
        let of_comparisons = group.comparisons.iter().map(|c| c.name.clone());
        [group.name.clone()].into_iter().chain(of_comparisons).collect::<Vec<_>>()
    };
    let all = groups.iter().flat_map(names).collect();
    for mut group in groups {
        if group.name != name {
            group.comparisons.retain(|comparison| comparison.name == name);
        }
        if !group.comparisons.is_empty() {
            return Ok(vec![group]);
        }
    }
    Err(all)
}

/// The groups as far as they do without PyTorch, and the names of the comparisons that do not.
fn without_torch(mut groups: Vec<Group>) -> (Vec<Group>, Vec<String>) {
    let mut skipped = Vec::new();
    for group in &mut groups {
        let all = std::mem::take(&mut group.comparisons).into_iter();
        let (needing, kept): (Vec<_>, _) = all.partition(|c| group.needs(c, Program::Torch));
        skipped.extend(needing.into_iter().map(|c| c.name));
        group.comparisons = kept;
    }
    groups.retain(|group| !group.comparisons.is_empty());
    (groups, skipped)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::table::groups;
    use super::*;

    fn used(group: &Group) -> Vec<&str> {
        let used = (0..group.sides.len()).filter(|&side| group.uses(side));
        used.map(|side| group.sides[side].label.as_str()).collect()
    }

    #[test]
    fn one_comparison_takes_its_two_sides_along() {
        let chosen = select(groups(false), "nano-moment-matched-lora").unwrap();
        assert_eq!(used(&chosen[0]), ["LoRA", "BayesLoRA, moment-matched"]);
        let [only] = &chosen[0].comparisons[..] else { panic!("{chosen:?}") };
        assert_eq!(only.target, Some(1.15));
        // A fit needs all of its points, a group all of its comparisons.
        assert_eq!(used(&select(groups(false), "tokens-nano-growth").unwrap()[0]).len(), 5);
        assert_eq!(select(groups(false), "nano").unwrap()[0], groups(false)[0]);
    }
}
