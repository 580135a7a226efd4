//! Names in print: tasks, methods and their families, modules.

use std::cmp::Ordering;

use crate::method::{Family, MethodName};
use crate::task::Task;

/// Letters and digits in lower case: the key under which `SST-2`, `sst2` and `SST2` are one task.
pub(crate) fn match_key(name: &str) -> String {
    name.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase()).collect()
}

pub(crate) fn task_label(task: &str) -> String {
    let mut known = Task::ALL.iter().map(|task| task.display_name());
    known.find(|name| match_key(name) == match_key(task)).unwrap_or(task).to_owned()
}

/// Order of tasks in a table: by name in print, case ignored, as the paper does.
pub(crate) fn task_order(a: &str, b: &str) -> Ordering {
    let key = |task: &str| (task_label(task).to_lowercase(), task.to_owned());
    key(a).cmp(&key(b))
}

/// Order of methods in a table: as they are registered, unknown ones last.
pub(crate) fn method_rank(name: &str) -> impl Ord + use<> {
    let known = MethodName::from_name(name);
    (known.is_none(), known)
}

pub(crate) fn standard_title(name: &str) -> &str {
    match name {
        "matthews" => "Matthews correlation",
        "pearson" => "Pearson correlation",
        "spearman" => "Spearman correlation",
        "f1" => "F1",
        other => other,
    }
}

/// End of a name for temperature scaling on top of a method.
const TEMPERED: &str = "+ts";

/// Starts of names that published tables give to methods, letters and digits only, in the order in
/// which they are tried where the registry has no such name.
const STARTS: [(&str, Family); 12] = [
    ("bayeslora", Family::LowRank),
    ("ens", Family::Ensemble),
    ("deepens", Family::Ensemble),
    ("batchens", Family::Ensemble),
    ("bayesbybackprop", Family::Variance),
    ("blob", Family::Variance),
    ("lap", Family::PostHoc),
    ("llla", Family::PostHoc),
    ("lla", Family::PostHoc),
    ("swag", Family::PostHoc),
    ("temperature", Family::PostHoc),
    ("mle", Family::Point),
];

impl Family {
    /// The family of a method, by its name in print.
    pub(crate) fn of(method: &str) -> Self {
        if method.to_lowercase().ends_with(TEMPERED) {
            return Self::PostHoc;
        }
        if let Some(known) = MethodName::from_name(method) {
            return known.entry().family;
        }
        let key = match_key(method);
        let known = STARTS.iter().find(|(start, _)| key.starts_with(start));
        known.map_or(Self::Other, |(_, family)| *family)
    }

    pub(crate) fn in_print(self) -> (&'static str, usize) {
        match self {
            Self::Point => ("Point estimates", 0),
            Self::Ensemble => ("Ensembles and dropout", 3),
            Self::Variance => ("Learnt weight variances", 1),
            Self::PostHoc => ("Fitted around a trained adapter", 4),
            Self::LowRank => ("Low-rank variational dropout", 2),
            Self::Other => ("Others", 5),
        }
    }
}

/// Path segments that are followed by a layer number in the checkpoints we know.
const LAYER_WORDS: [&str; 5] = ["layer", "layers", "h", "block", "blocks"];

/// Kinds of modules in the order in which data flow through a layer, each with the ends of their paths after the layer
/// number.
const KINDS: &str = include_str!("kinds.txt");

fn kinds() -> impl Iterator<Item = (&'static str, &'static str)> {
    KINDS.lines().filter_map(|line| line.split_once(": "))
}

/// A module path taken apart for print: its layer and what it does there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ModuleName {
    /// Layer number; none for a module outside the stack.
    pub(crate) layer: Option<u32>,
    /// Kind of module: `query`, `key`, `value`, `attn out`, `ffn in`, `ffn out`, or the words of the path.
    pub(crate) kind: String,
}

impl ModuleName {
    /// Takes a dotted path apart. A path that is not understood keeps its own words, so nothing is lost.
    ///
    /// `deberta.encoder.layer.3.attention.self.query_proj` is layer 3, `query`.
    pub(crate) fn parse(path: &str) -> Self {
        let segments: Vec<&str> = path.split('.').collect();
        let found = segments
            .windows(2)
            .position(|pair| LAYER_WORDS.contains(&pair[0]) && pair[1].parse::<u32>().is_ok());
        let (layer, rest) = match found {
            Some(at) => (segments[at + 1].parse().ok(), segments[at + 2..].join(".")),
            None => (None, path.to_owned()),
        };
        let is_end = |end: &&str| {
            rest.strip_suffix(*end).is_some_and(|start| start.is_empty() || start.ends_with('.'))
        };
        let ends = kinds().flat_map(|(kind, ends)| ends.split(' ').map(move |end| (kind, end)));
        let known = ends.filter(|(_, end)| is_end(end)).max_by_key(|(_, end)| end.len());
        let kind = known.map_or_else(|| rest.clone(), |(kind, _)| kind.to_owned());
        let kind = if kind.is_empty() { path.to_owned() } else { kind };
        Self { layer, kind }
    }

    /// `L3 query`, or the kind alone outside the stack.
    pub(crate) fn label(&self) -> String {
        self.layer.map_or_else(|| self.kind.clone(), |layer| format!("L{layer} {}", self.kind))
    }

    /// Order of columns in a report: along the data flow, unknown kinds last by name.
    pub(crate) fn kind_order(&self) -> impl Ord + use<> {
        let place = kinds().position(|(kind, _)| kind == self.kind);
        (place.is_none(), place, self.kind.clone())
    }

    /// Order in a report: by layer, modules outside the stack last, then along the data flow.
    pub(crate) fn order(&self) -> impl Ord + use<> {
        (self.layer.is_none(), self.layer, self.kind_order())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_find_their_family_and_keep_a_fixed_order() {
        use Family::{Ensemble, LowRank, Other, Point, PostHoc, Variance};
        let names = "LoRA,LoRA+TS,LoRA-Ensemble,ENS-10,C-LoRA,SWAG-LoRA,BayesLoRA expanded,<b>,";
        let found: Vec<Family> = names.split(',').map(Family::of).collect();
        let families =
            [Point, PostHoc, Ensemble, Ensemble, Variance, PostHoc, LowRank, Other, Other];
        assert_eq!(found, families);
        let mut tasks = ["sst2", "agreement", "rte", "cola", "STS-B"];
        tasks.sort_by(|a, b| task_order(a, b));
        assert_eq!(tasks.map(task_label), ["agreement", "CoLA", "RTE", "SST-2", "STS-B"]);
        let mut methods = ["yours", "BayesLoRA", "LoRA", "mine", "AdaLoRA"];
        methods.sort_by_key(|name| (method_rank(name), *name));
        assert_eq!(methods, ["LoRA", "AdaLoRA", "BayesLoRA", "mine", "yours"]);
    }

    #[test]
    fn paths_of_known_checkpoints_have_a_layer_and_a_kind_and_sort_by_number() {
        let cases = [
            ("lm_head", "", "lm head"),
            ("transformer.h.2.mlp.c_proj", "2", "ffn out"),
            ("deberta.encoder.layer.3.attention.self.query_proj", "3", "query"),
            ("encoder.layer.4.my_output.dense", "4", "my_output.dense"),
            ("encoder.layer.5", "5", "encoder.layer.5"),
            ("encoder.layer.5.intermediate.dense", "5", "ffn in"),
            ("base_model.model.model.layers.7.self_attn.v_proj", "7", "value"),
            ("deberta.encoder.layer.10.output.dense", "10", "ffn out"),
            ("deberta.encoder.layer.11.attention.output.dense", "11", "attn out"),
            ("encoder.layer.five.thing", "", "encoder.layer.five.thing"),
            ("", "", ""),
        ];
        for (path, layer, kind) in cases {
            let name = ModuleName::parse(path);
            let found = name.layer.map(|layer| layer.to_string()).unwrap_or_default();
            assert_eq!((found.as_str(), name.kind.as_str()), (layer, kind), "{path}");
        }
        let mut paths = [cases[7].0, cases[0].0, "encoder.layer.2.output.dense", cases[1].0];
        paths.sort_by_cached_key(|path| ModuleName::parse(path).order());
        let labels = paths.map(|path| ModuleName::parse(path).label());
        assert_eq!(labels, ["L2 ffn out", "L2 ffn out", "L10 ffn out", "lm head"]);
    }
}
