//! Small charts as SVG: panels with axes, curves, bars and words.

use std::fmt::Write as _;

/// Left, right, upper and lower margin of a panel, for what stands beside its axes.
const MARGINS: [f64; 4] = [60.0, 16.0, 34.0, 44.0];

/// Blue, red, green, amber, violet, teal, brown, grey.
pub(crate) const COLOURS: [&str; 8] =
    ["#1f6f8b", "#d1495b", "#2e7d32", "#d68910", "#76448a", "#17a589", "#795548", "#616161"];

/// An image of `width` by `height` around `body`; `label` is for who cannot see it.
pub(crate) fn document(width: f64, height: f64, label: &str, body: &str) -> String {
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
         font-family=\"sans-serif\" font-size=\"12\" role=\"img\" aria-label=\"{}\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n{body}</svg>\n",
        escaped(label)
    )
}

/// `text` without what means something in XML.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('"', "&quot;")
}

/// Three significant digits without zeros at the end.
fn significant(value: f64) -> String {
    let digits = if value == 0.0 { 0.0 } else { 2.0 - value.abs().log10().floor() };
    let text = format!("{value:.*}", digits.clamp(0.0, 6.0) as usize);
    let trimmed = if text.contains('.') { text.trim_end_matches('0') } else { &text };
    trimmed.trim_end_matches('.').to_owned()
}

/// One panel that is being drawn.
pub(crate) struct Panel {
    corner: (f64, f64),
    size: (f64, f64),
    x: (f64, f64),
    y: (f64, f64),
    body: String,
}

impl Panel {
    /// A panel of `size` at `corner`, its axes from the first to the second of `x` and `y`.
    pub(crate) fn new(corner: (f64, f64), size: (f64, f64), x: (f64, f64), y: (f64, f64)) -> Self {
        Self { corner, size, x, y, body: String::new() }
    }

    /// What was drawn.
    pub(crate) fn finish(self) -> String {
        self.body
    }

    /// Where a value lies in the image.
    fn place(&self, x: f64, y: f64) -> (f64, f64) {
        let [left, right, top, bottom] = MARGINS;
        let share = |v: f64, (low, high): (f64, f64)| (v - low) / (high - low);
        (
            self.corner.0 + left + share(x, self.x) * (self.size.0 - left - right),
            self.corner.1 + self.size.1 - bottom - share(y, self.y) * (self.size.1 - top - bottom),
        )
    }

    /// `words` at a value, moved by `shift` and set by `anchor`.
    pub(crate) fn words(
        &mut self,
        (x, y): (f64, f64),
        shift: (f64, f64),
        anchor: &str,
        colour: &str,
        words: &str,
    ) {
        let (x, y) = self.place(x, y);
        let _ = writeln!(
            self.body,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"{anchor}\" fill=\"{colour}\">{}</text>",
            x + shift.0,
            y + shift.1,
            escaped(words)
        );
    }

    /// The heading.
    pub(crate) fn title(&mut self, words: &str) {
        let (x, y) = self.place(self.x.0, self.y.1);
        let (y, words) = (y - 12.0, escaped(words));
        let _ = writeln!(
            self.body,
            "<text x=\"{x:.1}\" y=\"{y:.1}\" font-weight=\"bold\">{words}</text>"
        );
    }

    /// Both axes, three numbers at the one that goes up and `ticks` at the other.
    pub(crate) fn axes(&mut self, ticks: &[(f64, String)]) {
        let (low, high) = self.y;
        for share in [0.0, 0.5, 1.0] {
            let y = low + share * (high - low);
            self.words((self.x.0, y), (-6.0, 4.0), "end", "#000000", &significant(y));
        }
        for (x, words) in ticks {
            self.words((*x, low), (0.0, 18.0), "middle", "#000000", words);
        }
        let ((left, bottom), (right, top)) =
            (self.place(self.x.0, low), self.place(self.x.1, high));
        let _ = writeln!(
            self.body,
            "<path d=\"M{left:.1} {top:.1}V{bottom:.1}H{right:.1}\" fill=\"none\" stroke=\"#444444\"/>"
        );
    }

    /// A curve through `points`.
    pub(crate) fn curve(&mut self, points: &[(f64, f64)], colour: &str, dashes: &str) {
        let places: Vec<String> = points
            .iter()
            .map(|&(x, y)| self.place(x, y))
            .map(|(x, y)| format!("{x:.1},{y:.1}"))
            .collect();
        let _ = writeln!(
            self.body,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\" \
             stroke-dasharray=\"{dashes}\"/>",
            places.join(" ")
        );
    }

    /// A point of `radius`; a name shows when one points at it.
    pub(crate) fn point(&mut self, (x, y): (f64, f64), radius: f64, colour: &str, name: &str) {
        let (x, y) = self.place(x, y);
        let _ = writeln!(
            self.body,
            "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{radius}\" fill=\"{colour}\"><title>{}</title></circle>",
            escaped(name)
        );
    }

    /// A bar from the lower axis up to `y`, as wide as `width` values.
    pub(crate) fn bar(&mut self, (x, y): (f64, f64), width: f64, colour: &str, name: &str) {
        let ((left, top), (right, bottom)) = (self.place(x, y), self.place(x + width, self.y.0));
        let _ = writeln!(
            self.body,
            "<rect x=\"{left:.1}\" y=\"{top:.1}\" width=\"{:.1}\" height=\"{:.1}\" fill=\"{colour}\">\
             <title>{}</title></rect>",
            right - left,
            (bottom - top).max(1.0),
            escaped(name)
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_beside_axes_are_short() {
        for (value, wanted) in [
            (0.0, "0"),
            (10.0, "10"),
            (0.6504, "0.65"),
            (-0.0123456, "-0.0123"),
            (12345.6, "12346"),
        ] {
            assert_eq!(significant(value), wanted);
        }
    }

    #[test]
    fn values_are_placed_upwards_and_words_are_escaped() {
        let mut panel = Panel::new((100.0, 0.0), (276.0, 278.0), (0.0, 2.0), (10.0, 20.0));
        // Margins leave 200 by 200.
        assert_eq!(panel.place(0.0, 10.0), (160.0, 234.0));
        assert_eq!(panel.place(2.0, 20.0), (360.0, 34.0));
        panel.words((1.0, 15.0), (0.0, 0.0), "start", "#000000", "a < b & c");
        assert!(panel.finish().contains("x=\"260.0\" y=\"134.0\""));
        assert_eq!(escaped("a < b & \"c\""), "a &lt; b &amp; &quot;c&quot;");
    }
}
