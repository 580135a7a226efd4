//! Published names of methods, such as `ENS` or `BayesLoRA_r8_noprune_k10`, and ours.

use std::collections::BTreeMap;

use crate::report::metric::Metric;
use crate::report::published::PublishedRow;
use crate::report::rows::match_key;

/// A published name that is not ours, and the names under which the method may have run here, the nearest first. Both
/// are letters and digits only.
struct Alias {
    published: &'static str,
    ours: &'static [&'static str],
    draws: Draws,
}

/// What a published name without a number of draws stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Draws {
    /// This many; 0 is the posterior mean.
    Exactly(u32),
    /// As many as the run has: the published table gives the method's full answer and no other.
    Most,
}

/// A method that is called the same here needs an entry only if its published name leaves the draws open. The published
/// ensemble has the parameters of ten members.
const ALIASES: [Alias; 6] = [
    Alias { published: "mcd", ours: &["mcd"], draws: Draws::Most },
    Alias { published: "ens", ours: &["ens10", "ens3", "enslogits"], draws: Draws::Most },
    Alias { published: "bbb", ours: &["bbb"], draws: Draws::Most },
    Alias { published: "lap", ours: &["lap"], draws: Draws::Most },
    Alias { published: "bayeslorar8noprune", ours: &["bayeslorafixed"], draws: Draws::Exactly(0) },
    Alias {
        published: "bayesloraexpanded",
        ours: &["bayesloraexpanded"],
        draws: Draws::Exactly(0),
    },
];

/// A published method in our terms.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Partner {
    /// The method that ran here; none if it did not.
    pub(crate) method: Option<String>,
    pub(crate) draws: Draws,
}

/// Finds the method of a published row among those that ran.
pub(crate) fn partner(row: &PublishedRow, methods: &[String]) -> Partner {
    let (name, draws) = row.method_and_draws();
    let key = match_key(name);
    let alias = ALIASES.iter().find(|alias| alias.published == key);
    let named = |key: &str| methods.iter().find(|method| match_key(method) == key).cloned();
    let method = match alias {
        Some(alias) => alias.ours.iter().find_map(|ours| named(ours)),
        None => named(&key),
    };
    let draws = match (draws, alias) {
        (Some(draws), _) => Draws::Exactly(draws),
        (None, Some(alias)) => alias.draws,
        (None, None) => Draws::Exactly(0),
    };
    Partner { method, draws }
}

/// What a published number is taken over the tasks of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Over {
    Task,
    /// All tasks: their mean, which is the value of each where they agree.
    Mean,
    Least,
    Most,
}

impl Over {
    /// The number taken of the values of all tasks; none without tasks.
    pub(crate) fn of(self, values: &[f64]) -> Option<f64> {
        let fold = |f: fn(f64, f64) -> f64| values.iter().copied().reduce(f);
        match self {
            Self::Task | Self::Mean => {
                let sum = fold(|a, b| a + b)?;
                Some(sum / values.len() as f64)
            }
            Self::Least => fold(f64::min),
            Self::Most => fold(f64::max),
        }
    }

    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::Task => "",
            Self::Mean => "all tasks",
            Self::Least => "all tasks, fewest",
            Self::Most => "all tasks, most",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct PublishedMetric {
    pub(crate) metric: Metric,
    /// One of the published unit in ours: a million parameters are 1e6 parameters.
    pub(crate) factor: f64,
    pub(crate) over: Over,
}

/// Reads the name of a published metric and its task; none if we measure nothing like it.
pub(crate) fn metric(row: &PublishedRow, draws: u32) -> Option<PublishedMetric> {
    let all = match_key(&row.task) == "all";
    let over = if all { Over::Mean } else { Over::Task };
    let millions = |over| PublishedMetric { metric: Metric::Parameters, factor: 1e6, over };
    match row.metric.as_str() {
        "params_m" => Some(millions(over)),
        "params_m_min" => Some(millions(Over::Least)),
        "params_m_max" => Some(millions(Over::Most)),
        name => {
            Metric::parse(name, draws).map(|metric| PublishedMetric { metric, factor: 1.0, over })
        }
    }
}

/// How many published numbers carry each name, in the order of the names: `foo (2), bar`.
pub(crate) fn counted<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for name in names {
        *counts.entry(name).or_default() += 1;
    }
    let words: Vec<String> = counts
        .into_iter()
        .map(|(name, n)| if n > 1 { format!("{name} ({n})") } else { name.to_owned() })
        .collect();
    words.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(metric: &str, method: &str, task: &str) -> PublishedRow {
        let (metric, method, task) = (metric.into(), method.into(), task.into());
        PublishedRow { line: 2, metric, method, task, mean: 1.0, std: None }
    }

    #[test]
    fn published_names_find_our_methods() {
        let ours =
            ["LoRA", "MCD", "ENS-3", "ENS-10", "LAP", "BLoB", "BayesLoRA", "BayesLoRA-fixed"];
        let ours = ours.map(String::from);
        let cases = [
            ("LoRA", Some("LoRA"), Draws::Exactly(0)),
            ("MCD", Some("MCD"), Draws::Most),
            ("ENS", Some("ENS-10"), Draws::Most),
            ("LAP", Some("LAP"), Draws::Most),
            ("BBB", None, Draws::Most),
            ("BLoB_k10", Some("BLoB"), Draws::Exactly(10)),
            ("BayesLoRA_k0", Some("BayesLoRA"), Draws::Exactly(0)),
            ("BayesLoRA_r8_noprune_k10", Some("BayesLoRA-fixed"), Draws::Exactly(10)),
            ("BayesLoRA_expanded_k10", None, Draws::Exactly(10)),
            ("IVON_k5", None, Draws::Exactly(5)),
        ];
        for (published, method, draws) in cases {
            let found = partner(&row("accuracy", published, "OBQA"), &ours);
            assert_eq!(found, Partner { method: method.map(String::from), draws }, "{published}");
        }
    }

    #[test]
    fn millions_and_ranges_over_tasks() {
        let over = |name: &str, task: &str| {
            metric(&row(name, "LoRA", task), 0).map(|m| (m.factor, m.over))
        };
        assert_eq!(over("params_m", "all"), Some((1e6, Over::Mean)));
        assert_eq!(over("params_m", "OBQA"), Some((1e6, Over::Task)));
        assert_eq!(over("params_m_min", "all"), Some((1e6, Over::Least)));
        assert_eq!(over("ece", "OBQA"), Some((1.0, Over::Task)));
        assert_eq!(over("perplexity", "OBQA"), None);
        let values = [1.0, 4.0, 4.0];
        let found = [Over::Mean, Over::Least, Over::Most].map(|over| over.of(&values));
        assert_eq!(found, [Some(3.0), Some(1.0), Some(4.0)]);
        assert_eq!(Over::Least.of(&[]), None);
        assert_eq!(counted(["b", "a", "b"].into_iter()), "a, b (2)");
    }
}
