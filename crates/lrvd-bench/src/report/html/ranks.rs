//! The ranks of one task: how they moved, where they ended, and what each component is worth.

use super::heatmap::{Rows, Tips, heatmap, key};
use super::rank_grid::{Size, rank_grid};
use super::svg::escape;
use super::table::method_name;
use super::task::{CHOICE, Group, figure, fold};
use super::view::{self, Cast};
use super::{energy, statistic};

/// All parts that the groups have; empty where no method has ranks to speak of. On a page about uncertainty single seeds
/// are left out: they are most of its bytes.
pub(crate) fn parts(cast: &Cast, groups: &[Group<'_>]) -> String {
    let groups: Vec<&Group<'_>> = groups.iter().filter(|group| has_ranks(group)).collect();
    let most = groups
        .iter()
        .flat_map(|g| &g.runs)
        .flat_map(|run| {
            let events = run.rank_events.iter().flat_map(|e| e.ranks.values());
            let ends = CHOICE.of(run).into_iter().flat_map(|c| c.ranks.values());
            events.chain(ends).copied().chain([run.rank_budget.initial_rank])
        })
        .max()
        .map_or(0.0, f64::from);
    [
        dynamics(cast, &groups, most),
        patterns(cast, &groups, most),
        relevance(cast, &groups),
        captured(cast, &groups),
    ]
    .concat()
}

/// Whether a method chooses ranks, or has a statistic that could: uniform ranks that never change tell nothing.
fn has_ranks(group: &Group<'_>) -> bool {
    let moved = group.runs.iter().any(|run| run.rank_events.len() > 1);
    moved || group.records().iter().any(|record| record.statistics.is_some())
}

/// Whether ranks moved or differ between modules.
fn has_pattern(group: &Group<'_>) -> bool {
    let varied = |ranks: Vec<&u32>| ranks.windows(2).any(|pair| pair[0] != pair[1]);
    group.runs.iter().any(|run| run.rank_events.len() > 1)
        || group.records().iter().any(|record| varied(record.ranks.values().collect()))
}

fn dynamics(cast: &Cast, groups: &[&Group<'_>], most: f64) -> String {
    let moving: Vec<&&Group<'_>> =
        groups.iter().filter(|g| g.runs.iter().any(|run| run.rank_events.len() > 1)).collect();
    let mut html = String::new();
    for rows in [Rows::Layer, Rows::Kind, Rows::Module] {
        let title = match rows {
            Rows::Layer => "by layer",
            Rows::Kind => "by module type",
            Rows::Module => "by module",
        };
        for group in &moving {
            let label = format!("{}: rank over steps {title}", group.method);
            if let Some(svg) = heatmap(&group.runs, rows, most, Tips::Shown, &label) {
                html.push_str(&figure(&method_name(cast, &group.method), title, &svg));
            }
        }
    }
    let mut seeds = String::new();
    for group in moving.iter().filter(|g| g.runs.len() > 1 && !cast.is_about_uncertainty()) {
        for run in &group.runs {
            let label = format!("{}, seed {}: rank over steps by module", group.method, run.seed);
            if let Some(svg) = heatmap(&[*run], Rows::Module, most, Tips::Omitted, &label) {
                let note = format!("seed {}", run.seed);
                seeds.push_str(&figure(&method_name(cast, &group.method), &note, &svg));
            }
        }
    }
    if html.is_empty() {
        return String::new();
    }
    format!(
        "<h3>Rank dynamics</h3><p class=\"how\">Mean over seeds; hatched cells have rank 0: the adapter is gone.</p>\
<div class=\"colour-key\">{}</div><div class=\"grid two\">{html}</div>{}",
        key(most),
        fold("Every seed by module", &format!("<div class=\"grid two\">{seeds}</div>"), &seeds)
    )
}

fn patterns(cast: &Cast, groups: &[&Group<'_>], most: f64) -> String {
    let mut means = String::new();
    let mut seeds = String::new();
    for group in groups.iter().filter(|group| has_pattern(group)) {
        let records = group.records();
        let label = format!("{}: final rank of every module", group.method);
        let name = method_name(cast, &group.method);
        let totals: Vec<f64> = records.iter().map(|r| r.total_rank as f64).collect();
        let Some(total) = view::mean(&totals) else { continue };
        if let Some(svg) = rank_grid(&records, most, Size::Large, &label) {
            let note = format!("mean over {} seeds, total {total:.1}", records.len());
            means.push_str(&figure(&name, &note, &svg));
        }
        let single = group.last.len() > 1 && !cast.is_about_uncertainty();
        for (seed, record) in group.last.iter().filter(|_| single) {
            let label = format!("{}, seed {seed}: final rank of every module", group.method);
            if let Some(svg) = rank_grid(&[*record], most, Size::Small, &label) {
                let note = format!("seed {seed}, total {}", record.total_rank);
                seeds.push_str(&figure(&name, &note, &svg));
            }
        }
    }
    if means.is_empty() {
        return String::new();
    }
    format!(
        "<h3>Final rank patterns</h3><p class=\"how\">Last checkpoint: layers down, module types across.</p>\
<div class=\"grid three\">{means}</div>{}",
        fold("Every seed", &format!("<div class=\"grid three\">{seeds}</div>"), &seeds)
    )
}

fn relevance(cast: &Cast, groups: &[&Group<'_>]) -> String {
    let mut html = String::new();
    for group in groups {
        let found = group.last.iter().filter_map(|(seed, c)| Some((*seed, c.statistics.as_ref()?)));
        let mut more = String::new();
        for (i, (seed, record)) in found.enumerate() {
            let label =
                format!("{}, seed {seed}: {} of every component", group.method, record.name);
            let Some(svg) = statistic::trellis(record, group.colour, &label) else { continue };
            let note = record.threshold.map_or_else(
                || {
                    format!(
                        "{}, seed {seed}, no threshold: ranked by a budget",
                        escape(&record.name)
                    )
                },
                |t| format!("{}, seed {seed}, threshold {t}", escape(&record.name)),
            );
            let drawn = figure(&method_name(cast, &group.method), &note, &svg);
            match i {
                0 => html.push_str(&drawn),
                _ if cast.is_about_uncertainty() => break,
                _ => more.push_str(&drawn),
            }
        }
        let title = format!("{}: the other seeds", escape(&group.method));
        html.push_str(&fold(&title, &more, &more));
    }
    if html.is_empty() {
        return String::new();
    }
    format!(
        "<h3>Relevance of every component</h3><p class=\"how\">Filled: present at the last checkpoint; hollow: its \
value when it was removed. Band: the largest gap between neighbours; dashed: the threshold.</p>{html}"
    )
}

fn captured(cast: &Cast, groups: &[&Group<'_>]) -> String {
    let mut html = String::new();
    for group in groups {
        let records = group.records();
        let label = format!("{}: energy captured by the first components", group.method);
        let Some((n, auc)) = energy::mean_auc(&records) else { continue };
        if let Some(svg) = energy::chart(&records, group.colour, &label) {
            let gap =
                auc.normalised_gap.map_or_else(String::new, |g| format!(", normalised gap {g:.3}"));
            let note = format!("{n} modules over all seeds{gap}");
            html.push_str(&figure(&method_name(cast, &group.method), &note, &svg));
        }
    }
    if html.is_empty() {
        return String::new();
    }
    format!(
        "<h3>Energy captured</h3><p class=\"how\">Share of the mean update carried by its first components: in the \
learned order, by factor norms (a control that knows no posterior), in random order, and the bound by singular values. \
Thin lines are modules.</p><div class=\"grid two\">{html}</div>"
    )
}
