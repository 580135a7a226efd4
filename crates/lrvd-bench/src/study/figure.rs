//! Images: curves with standard errors.

use super::design::{Curves, Figure};
use super::evidence::{Evidence, Quantity};
use crate::chart::{COLOURS, Panel, document, range, significant};

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 400.0;
/// Height of a line of the legend, and width of a letter at most.
const LINE: f64 = 18.0;
const LETTER: f64 = 7.5;

/// A curve: places, means and standard errors.
struct Curve {
    name: String,
    points: Vec<(f64, f64, f64)>,
    /// What each point is, where they are not joined.
    labels: Vec<String>,
}

/// The image `figure` of `evidence`.
pub(super) fn svg(figure: &Figure, evidence: &Evidence) -> String {
    let curves = curves(figure, evidence);
    let points = || curves.iter().flat_map(|curve| &curve.points);
    let x = range(points().map(|p| p.0));
    let y = range(points().flat_map(|p| [p.1 - p.2, p.1 + p.2]));
    let mut panel = Panel::new((0.0, 0.0), (WIDTH, HEIGHT), x, y);
    panel.title(&format!("{} ({})", figure.title, figure.y));
    panel.axes(&ticks(figure, evidence, points().map(|p| p.0).collect()));
    let middle = f64::midpoint(x.0, x.1);
    panel.words((middle, y.0), (0.0, 36.0), "middle", "#444444", figure.x);
    for (place, curve) in curves.iter().enumerate() {
        let colour = COLOURS[place % COLOURS.len()];
        let means: Vec<(f64, f64)> = curve.points.iter().map(|p| (p.0, p.1)).collect();
        if curve.labels.is_empty() {
            panel.curve(&means, colour, "");
        }
        for (place, &(x, mean, error)) in curve.points.iter().enumerate() {
            panel.curve(&[(x, mean - error), (x, mean + error)], colour, "");
            let label = curve.labels.get(place).map_or_else(String::new, |l| format!(" {l}"));
            panel.point((x, mean), 3.0, colour, &format!("{}{label}: {mean:.4}", curve.name));
        }
        if curves.len() > 1 {
            let down = LINE * (place as f64 + 0.5);
            panel.words((x.1, y.1), (10.0, down), "start", colour, &curve.name);
        }
    }
    // The legend stands beside the panel.
    let longest = curves.iter().map(|curve| curve.name.chars().count()).max().unwrap_or(0);
    let legend = if curves.len() > 1 { LETTER * longest as f64 } else { 0.0 };
    document(WIDTH + legend, HEIGHT, figure.title, &panel.finish())
}

/// What stands below the axis: the arms in a row, or the places of points.
fn ticks(figure: &Figure, evidence: &Evidence, mut places: Vec<f64>) -> Vec<(f64, String)> {
    if matches!(figure.curves, Curves::OverArms(_)) && !is_numeric(evidence) {
        let arms = evidence.arms.iter().enumerate();
        return arms.map(|(place, arm)| (place as f64, arm.label.clone())).collect();
    }
    places.sort_by(f64::total_cmp);
    places.dedup();
    // Ten at most.
    let every = places.len().div_ceil(10).max(1);
    let name = |x: f64| significant(if figure.log_x { 10f64.powf(x) } else { x });
    places.into_iter().step_by(every).map(|x| (x, name(x))).collect()
}

fn curves(figure: &Figure, evidence: &Evidence) -> Vec<Curve> {
    let tasks = evidence.tasks();
    let mut curves = Vec::new();
    let mut add = |name: &str, task: &str, points: Vec<(f64, f64, f64)>, labels| {
        if !points.is_empty() {
            let name = if tasks.len() > 1 { format!("{name} ({task})") } else { name.to_owned() };
            curves.push(Curve { name, points, labels });
        }
    };
    let point = |arm: &str, task: &str, quantity: Quantity, x: f64| {
        let spread = evidence.spread(arm, task, quantity)?;
        let x = if figure.log_x { x.log10() } else { x };
        let is_finite = x.is_finite() && spread.mean.is_finite();
        is_finite.then(|| (x, spread.mean, spread.standard_error().unwrap_or(0.0)))
    };
    for task in &tasks {
        match figure.curves {
            Curves::OverArms(quantities) => {
                let is_numeric = is_numeric(evidence);
                for (name, quantity) in quantities {
                    let points = evidence.arms.iter().enumerate().filter_map(|(place, arm)| {
                        let x = if is_numeric { arm.value? } else { place as f64 };
                        point(&arm.label, task, *quantity, x)
                    });
                    add(name, task, points.collect(), Vec::new());
                }
            }
            Curves::Points { x, y } => {
                for arm in &evidence.arms {
                    let label = arm.label.as_str();
                    let of = |metric: &str, name: &str| {
                        evidence.metric_spread(label, task, &format!("{metric}/{name}"), None)
                    };
                    let point = |name: &str| {
                        let (x, y) = (of(x, name)?, of(y, name)?);
                        let error = y.standard_error().unwrap_or(0.0);
                        Some(((x.mean, y.mean, error), name.to_owned()))
                    };
                    let (points, labels) =
                        evidence.names(label).into_iter().filter_map(point).unzip();
                    add(label, task, points, labels);
                }
            }
            Curves::OverAt(metrics) => {
                for arm in &evidence.arms {
                    for metric in metrics {
                        let name = match metrics {
                            [_] => arm.label.clone(),
                            _ => format!("{}: {metric}", arm.label),
                        };
                        let places = evidence.places(&arm.label, metric);
                        let points = places.into_iter().filter_map(|at| {
                            point(&arm.label, task, Quantity { metric, at: Some(at) }, at)
                        });
                        add(&name, task, points.collect(), Vec::new());
                    }
                }
            }
        }
    }
    curves
}

/// Whether arms are numbers; those that are none are then left out.
fn is_numeric(evidence: &Evidence) -> bool {
    evidence.arms.iter().any(|arm| arm.value.is_some())
}
