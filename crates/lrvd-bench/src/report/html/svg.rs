//! A writer for the few SVG elements that the figures need.
//!
//! Colours and type sizes live in the style sheet, so one drawing serves light, dark and paper.

use std::fmt::Write as _;

/// Text safe inside an element or a double-quoted attribute.
pub(crate) fn escape(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            // Control characters are not allowed in HTML text.
            c if c.is_control() && c != '\n' && c != '\t' => safe.push('\u{fffd}'),
            c => safe.push(c),
        }
    }
    safe
}

/// A coordinate with at most two decimals and no trailing zeros; the same value always gives the same text.
pub(crate) fn coordinate(x: f64) -> String {
    let text = format!("{x:.2}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    if text == "-0" { "0".to_owned() } else { text.to_owned() }
}

/// Where a text is anchored.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Anchor {
    Start,
    Middle,
    End,
}

impl Anchor {
    fn name(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Middle => "middle",
            Self::End => "end",
        }
    }
}

/// A drawing fills its column, but grows at most by this much: a narrow one would else have huge letters.
const MOST_GROWTH: f64 = 1.25;

/// A drawing under construction. Class names are ours and are not escaped; labels and tips are.
pub(crate) struct Svg {
    out: String,
}

impl Svg {
    /// Starts a drawing of a width and height in its own units, with a description for screen readers.
    pub(crate) fn new(width: f64, height: f64, label: &str) -> Self {
        let mut out = String::new();
        let (w, h) = (coordinate(width), coordinate(height));
        let (label, most) = (escape(label), coordinate((MOST_GROWTH * width).round()));
        let _ = write!(
            out,
            "<svg viewBox=\"0 0 {w} {h}\" style=\"max-width:{most}px\" role=\"img\" aria-label=\"{label}\">"
        );
        Self { out }
    }

    pub(crate) fn line(&mut self, from: (f64, f64), to: (f64, f64), class: &str) {
        let [x1, y1, x2, y2] = [from.0, from.1, to.0, to.1].map(coordinate);
        let _ = write!(
            self.out,
            "<line class=\"{class}\" x1=\"{x1}\" y1=\"{y1}\" x2=\"{x2}\" y2=\"{y2}\"/>"
        );
    }

    pub(crate) fn rect(
        &mut self,
        corner: (f64, f64),
        size: (f64, f64),
        class: &str,
        tip: Option<&str>,
    ) {
        let [x, y, w, h] = [corner.0, corner.1, size.0.max(0.0), size.1.max(0.0)].map(coordinate);
        let _ = write!(
            self.out,
            "<rect class=\"{class}\" x=\"{x}\" y=\"{y}\" width=\"{w}\" height=\"{h}\""
        );
        self.end("rect", tip);
    }

    pub(crate) fn circle(&mut self, at: (f64, f64), radius: f64, class: &str, tip: Option<&str>) {
        let [x, y, r] = [at.0, at.1, radius].map(coordinate);
        let _ = write!(self.out, "<circle class=\"{class}\" cx=\"{x}\" cy=\"{y}\" r=\"{r}\"");
        self.end("circle", tip);
    }

    /// A closed marker of one of six shapes, so that methods and families differ without colour.
    pub(crate) fn marker(&mut self, at: (f64, f64), shape: usize, class: &str, tip: Option<&str>) {
        let (x, y) = at;
        let points: &[(f64, f64)] = match shape {
            0 => &[(-4.2, -4.2), (4.2, -4.2), (4.2, 4.2), (-4.2, 4.2)],
            1 => &[(0.0, -5.6), (5.2, 4.0), (-5.2, 4.0)],
            2 => return self.circle(at, 5.0, class, tip),
            3 => &[(0.0, -6.0), (6.0, 0.0), (0.0, 6.0), (-6.0, 0.0)],
            4 => &[(0.0, 5.6), (5.2, -4.0), (-5.2, -4.0)],
            _ => &[(0.0, -5.6), (4.8, -2.8), (4.8, 2.8), (0.0, 5.6), (-4.8, 2.8), (-4.8, -2.8)],
        };
        let corners: Vec<(f64, f64)> = points.iter().map(|(dx, dy)| (x + dx, y + dy)).collect();
        let _ = write!(self.out, "<path class=\"{class}\" d=\"{}Z\"", path_data(&corners));
        self.end("path", tip);
    }

    /// An open line through points.
    pub(crate) fn polyline(&mut self, points: &[(f64, f64)], class: &str, tip: Option<&str>) {
        if points.is_empty() {
            return;
        }
        let _ = write!(self.out, "<path class=\"{class}\" d=\"{}\"", path_data(points));
        self.end("path", tip);
    }

    pub(crate) fn text(&mut self, at: (f64, f64), class: &str, anchor: Anchor, text: &str) {
        let [x, y] = [at.0, at.1].map(coordinate);
        let (anchor, text) = (anchor.name(), escape(text));
        let _ = write!(
            self.out,
            "<text class=\"{class}\" x=\"{x}\" y=\"{y}\" text-anchor=\"{anchor}\">{text}</text>"
        );
    }

    /// Text read from bottom to top, for the title of a vertical axis.
    pub(crate) fn vertical_text(&mut self, at: (f64, f64), class: &str, text: &str) {
        let [x, y] = [at.0, at.1].map(coordinate);
        let text = escape(text);
        let _ = write!(
            self.out,
            "<text class=\"{class}\" transform=\"translate({x} {y}) rotate(-90)\" text-anchor=\"middle\">{text}</text>"
        );
    }

    pub(crate) fn finish(mut self) -> String {
        self.out.push_str("</svg>");
        self.out
    }

    fn end(&mut self, element: &str, tip: Option<&str>) {
        match tip {
            Some(tip) => {
                let _ = write!(self.out, "><title>{}</title></{element}>", escape(tip));
            }
            None => self.out.push_str("/>"),
        }
    }
}

fn path_data(points: &[(f64, f64)]) -> String {
    let mut data = String::new();
    for (i, (x, y)) in points.iter().enumerate() {
        let command = if i == 0 { 'M' } else { 'L' };
        let _ = write!(data, "{command}{} {}", coordinate(*x), coordinate(*y));
    }
    data
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn coordinates_are_short_and_stable() {
        let cases = [(1.0, "1"), (1.5, "1.5"), (-0.001, "0"), (100.0, "100"), (0.126, "0.13")];
        for (x, wanted) in cases {
            assert_eq!(coordinate(x), wanted);
        }
    }

    #[test]
    fn text_cannot_leave_its_element() {
        let mut svg = Svg::new(10.0, 10.0, "a \"label\" <b>");
        svg.circle((1.0, 2.0), 3.0, "dot", Some("<script>alert('x')</script> & more\u{0}"));
        let wanted = "<svg viewBox=\"0 0 10 10\" style=\"max-width:13px\" role=\"img\" aria-label=\"a &quot;label&quot; &lt;b&gt;\">\
<circle class=\"dot\" cx=\"1\" cy=\"2\" r=\"3\"><title>&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt; &amp; more\u{fffd}</title></circle></svg>";
        assert_eq!(svg.finish(), wanted);
    }
}
