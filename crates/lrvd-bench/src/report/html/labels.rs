//! Where do twenty names go in one figure? Beside their marks, where they cover neither marks nor each other.

use super::svg::Anchor;

/// Width of a character of a label, as a share of its size; a little more than the average of our fonts.
const ASPECT: f64 = 0.56;
/// Distances at which a place is tried, from the mark's centre.
const DISTANCES: [f64; 6] = [9.0, 14.0, 20.0, 28.0, 38.0, 50.0];
/// Directions in which a place is tried, best first: right, left, above, below, and between.
const DIRECTIONS: [(f64, f64); 8] = [
    (1.0, 0.0),
    (-1.0, 0.0),
    (0.0, -1.0),
    (0.0, 1.0),
    (0.75, -0.75),
    (0.75, 0.75),
    (-0.75, -0.75),
    (-0.75, 0.75),
];
/// What a unit of distance costs against a unit of covered area.
const FAR: f64 = 0.8;
/// What a worse direction costs.
const TURN: f64 = 0.5;
/// Half the side of the square that a mark keeps free.
pub(crate) const MARK: f64 = 5.5;
/// From here on a line leads from the mark to its name.
const LEADER: f64 = 18.0;

/// A rectangle: left, top, right, bottom.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Rect(pub(crate) f64, pub(crate) f64, pub(crate) f64, pub(crate) f64);

impl Rect {
    fn around(at: (f64, f64), half: f64) -> Self {
        Self(at.0 - half, at.1 - half, at.0 + half, at.1 + half)
    }

    /// Area shared with another rectangle.
    fn shared(self, other: Self) -> f64 {
        let width = self.2.min(other.2) - self.0.max(other.0);
        let height = self.3.min(other.3) - self.1.max(other.1);
        width.max(0.0) * height.max(0.0)
    }

    /// Area outside another rectangle.
    fn outside(self, frame: Self) -> f64 {
        (self.2 - self.0) * (self.3 - self.1) - self.shared(frame)
    }
}

/// Where a name is written.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    /// Start, middle or end of the text's base line, as the anchor says.
    pub(crate) at: (f64, f64),
    pub(crate) anchor: Anchor,
    /// A line from the mark to the name, where they are apart.
    pub(crate) leader: Option<((f64, f64), (f64, f64))>,
}

/// Places a name beside each mark, in order. `marks` are the centres, `obstacles` further points to keep free, each with
/// half the side of its square, `size` is the type size, and no name leaves `frame`. Where nothing is free, the least
/// is covered.
pub(crate) fn place(
    marks: &[((f64, f64), &str)],
    obstacles: &[((f64, f64), f64)],
    size: f64,
    frame: Rect,
) -> Vec<Place> {
    let taken: Vec<Rect> = marks
        .iter()
        .map(|(at, _)| (*at, MARK))
        .chain(obstacles.iter().copied())
        .map(|(at, half)| Rect::around(at, half))
        .collect();
    let mut written: Vec<Rect> = Vec::new();
    let mut places = Vec::new();
    for (at, name) in marks {
        let width = ASPECT * size * name.chars().count() as f64;
        let mut best: Option<(f64, Place, Rect)> = None;
        for distance in DISTANCES {
            for (turn, direction) in DIRECTIONS.iter().enumerate() {
                let (place, box_) = candidate(*at, *direction, distance, width, size);
                let covered: f64 = taken.iter().chain(&written).map(|r| box_.shared(*r)).sum();
                let cost = covered
                    + 4.0 * box_.outside(frame)
                    + FAR * (distance - DISTANCES[0])
                    + TURN * turn as f64;
                if best.as_ref().is_none_or(|(least, ..)| cost < *least) {
                    best = Some((cost, place, box_));
                }
            }
        }
        if let Some((_, place, box_)) = best {
            written.push(box_);
            places.push(place);
        }
    }
    places
}

fn candidate(
    at: (f64, f64),
    direction: (f64, f64),
    distance: f64,
    width: f64,
    size: f64,
) -> (Place, Rect) {
    let end = (at.0 + direction.0 * distance, at.1 + direction.1 * distance);
    let (anchor, left) = match direction.0 {
        x if x > 0.0 => (Anchor::Start, end.0),
        x if x < 0.0 => (Anchor::End, end.0 - width),
        _ => (Anchor::Middle, end.0 - width / 2.0),
    };
    let middle = match direction.1 {
        y if y > 0.0 => end.1 + 0.25 * size,
        y if y < 0.0 => end.1 - 0.25 * size,
        _ => end.1,
    };
    let leader = (distance >= LEADER).then(|| {
        let start = 0.5 * MARK / distance;
        let towards = |share: f64| (at.0 + (end.0 - at.0) * share, at.1 + (end.1 - at.1) * share);
        (towards(2.0 * start), towards(0.94))
    });
    let place = Place { at: (end.0, middle + 0.34 * size), anchor, leader };
    (place, Rect(left, middle - 0.55 * size, left + width, middle + 0.55 * size))
}

/// Moves the heights of names in one column apart until they are `gap` from each other and inside `low..high`, as far
/// as there is room. Order is kept; the heights come back in the order in which they went in.
pub(crate) fn spread(heights: &[f64], gap: f64, low: f64, high: f64) -> Vec<f64> {
    let mut order: Vec<usize> = (0..heights.len()).collect();
    order.sort_by(|a, b| heights[*a].total_cmp(&heights[*b]));
    let gap = match heights.len() {
        0 | 1 => gap,
        n => gap.min((high - low) / (n - 1) as f64),
    };
    let mut placed = heights.to_vec();
    let mut floor = low;
    for &i in &order {
        placed[i] = placed[i].max(floor);
        floor = placed[i] + gap;
    }
    let mut ceiling = high;
    for &i in order.iter().rev() {
        placed[i] = placed[i].min(ceiling);
        ceiling = placed[i] - gap;
    }
    placed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_keep_apart() {
        let marks: Vec<((f64, f64), &str)> =
            (0..10).map(|i| ((90.0 + 2.0 * f64::from(i), 60.0), "a name")).collect();
        let places = place(&marks, &[], 11.0, Rect(0.0, 0.0, 200.0, 120.0));
        let boxes: Vec<Rect> = places
            .iter()
            .map(|p| {
                let width = ASPECT * 11.0 * 6.0;
                let left = match p.anchor {
                    Anchor::Start => p.at.0,
                    Anchor::Middle => p.at.0 - width / 2.0,
                    Anchor::End => p.at.0 - width,
                };
                Rect(left, p.at.1 - 9.0, left + width, p.at.1 + 1.0)
            })
            .collect();
        for (i, a) in boxes.iter().enumerate() {
            assert!(boxes[..i].iter().all(|b| a.shared(*b) < 1.0), "{boxes:?}");
        }
        assert!(places.iter().any(|p| p.leader.is_some()));
        assert!(place(&[], &[], 11.0, Rect(0.0, 0.0, 1.0, 1.0)).is_empty());
    }

    #[test]
    fn columns_are_pushed_apart_and_stay_inside() {
        assert_eq!(spread(&[10.0, 11.0, 50.0], 5.0, 0.0, 100.0), [10.0, 15.0, 50.0]);
        assert_eq!(spread(&[99.0, 98.0], 5.0, 0.0, 100.0), [100.0, 95.0]);
        // More names than fit: they share the room.
        assert_eq!(spread(&[0.0, 0.0, 0.0], 50.0, 0.0, 20.0), [0.0, 10.0, 20.0]);
        assert!(spread(&[], 5.0, 0.0, 1.0).is_empty());
    }
}
