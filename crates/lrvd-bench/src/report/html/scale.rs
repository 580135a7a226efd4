//! From data to drawing: linear scales with round ticks.

pub(crate) use crate::report::metric::grouped;

/// A linear map from a data range to a drawing range.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scale {
    low: f64,
    high: f64,
    from: f64,
    to: f64,
}

impl Scale {
    /// Maps `low..high` to `from..to`; an empty or unusable data range becomes one of width 1.
    pub(crate) fn new(data: (f64, f64), drawing: (f64, f64)) -> Self {
        let (low, high) = data;
        let usable = low.is_finite() && high.is_finite() && high > low;
        let low_or_zero = if low.is_finite() { low } else { 0.0 };
        let (low, high) = if usable { data } else { (low_or_zero - 0.5, low_or_zero + 0.5) };
        Self { low, high, from: drawing.0, to: drawing.1 }
    }

    /// The scale widened to whole ticks.
    pub(crate) fn nice(data: (f64, f64), drawing: (f64, f64), n_ticks: usize) -> Self {
        let scale = Self::new(data, drawing);
        let step = step(scale.high - scale.low, n_ticks);
        let low = (scale.low / step).floor() * step;
        let high = (scale.high / step).ceil() * step;
        Self { low, high, ..scale }
    }

    pub(crate) fn at(&self, x: f64) -> f64 {
        self.from + (x - self.low) / (self.high - self.low) * (self.to - self.from)
    }

    pub(crate) fn clamped(&self, x: f64) -> f64 {
        self.at(x.clamp(self.low, self.high))
    }

    /// Round values inside the range with their labels, about `n` of them.
    pub(crate) fn ticks(&self, n: usize) -> Vec<(f64, String)> {
        let step = step(self.high - self.low, n);
        let decimals = (-step.log10().floor()).max(0.0) as usize;
        let slack = step * 1e-6;
        let first = ((self.low - slack) / step).ceil() as i64;
        let last = ((self.high + slack) / step).floor() as i64;
        (first..=last)
            .map(|i| {
                let x = i as f64 * step;
                (x, label(x, decimals))
            })
            .collect()
    }
}

/// 1, 2 or 5 times a power of ten, so that a span holds about `n` of them.
fn step(span: f64, n: usize) -> f64 {
    let raw = span / n.max(1) as f64;
    let power = 10_f64.powf(raw.log10().floor());
    let factor = match raw / power {
        x if x < 1.5 => 1.0,
        x if x < 3.5 => 2.0,
        x if x < 7.5 => 5.0,
        _ => 10.0,
    };
    factor * power
}

/// A tick label: thousands as `k`, a true minus sign.
fn label(x: f64, decimals: usize) -> String {
    let text = if x.abs() >= 1e6 {
        format!("{}M", super::svg::coordinate(x / 1e6))
    } else if x.abs() >= 1e4 {
        format!("{}k", super::svg::coordinate(x / 1e3))
    } else {
        format!("{x:.decimals$}")
    };
    if text.trim_start_matches(['-', '0', '.']).is_empty() {
        return text.trim_start_matches('-').to_owned();
    }
    text.replace('-', "−")
}

/// The smallest and largest finite value; none without one.
pub(crate) fn extent(values: impl Iterator<Item = f64>) -> Option<(f64, f64)> {
    values.filter(|x| x.is_finite()).fold(None, |range, x| {
        Some(range.map_or((x, x), |(low, high): (f64, f64)| (low.min(x), high.max(x))))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_inside() {
        let labels = |low, high, n| -> Vec<String> {
            Scale::new((low, high), (0.0, 1.0)).ticks(n).into_iter().map(|t| t.1).collect()
        };
        assert_eq!(labels(0.0, 1.0, 5), ["0.0", "0.2", "0.4", "0.6", "0.8", "1.0"]);
        assert_eq!(labels(-3.1, 4.2, 4), ["−2", "0", "2", "4"]);
        assert_eq!(labels(0.0, 20_000.0, 4), ["0", "5000", "10k", "15k", "20k"]);
        assert_eq!(labels(0.853, 0.871, 3), ["0.855", "0.860", "0.865", "0.870"]);
    }

    #[test]
    fn scales_survive_empty_and_infinite_ranges() {
        for data in [(2.0, 2.0), (f64::NAN, 1.0), (0.0, f64::INFINITY), (3.0, 1.0)] {
            let scale = Scale::nice(data, (0.0, 100.0), 4);
            assert!(scale.at(0.0).is_finite() && !scale.ticks(4).is_empty(), "{data:?}");
        }
        assert_eq!(extent([f64::NAN, 2.0, -1.0, f64::INFINITY].into_iter()), Some((-1.0, 2.0)));
        assert_eq!(extent(std::iter::empty()), None);
    }
}
