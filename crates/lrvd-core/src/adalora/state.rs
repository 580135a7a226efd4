//! What a resumed run needs, and whether it fits.

use super::importance::{TripletImportance, TripletShape};
use crate::error::{Error, check_length, check_range};

/// Everything a resumed run needs: the averages and the last mask.
#[derive(Clone, Debug, PartialEq)]
pub struct AdaLoraState {
    /// Moving averages, by module.
    pub modules: Vec<TripletImportance>,
    /// The last mask, by module.
    pub mask: Option<Vec<Vec<bool>>>,
}

impl AdaLoraState {
    /// Checks that every list has the length that the shapes need, and every average is finite.
    pub(super) fn check(&self, init_r: usize, shapes: &[TripletShape]) -> Result<(), Error> {
        for shape in shapes {
            let limit = f64::from(u32::MAX);
            check_range("d_input", shape.d_input as f64, 1.0, limit)?;
            check_range("d_output", shape.d_output as f64, 1.0, limit)?;
        }
        check_length("state", self.modules.len(), shapes.len())?;
        for (module, (triplet, &shape)) in self.modules.iter().zip(shapes).enumerate() {
            let factors = [&triplet.a, &triplet.e, &triplet.b];
            for ((name, expected), entries) in
                factor_lengths(init_r, shape).into_iter().zip(factors)
            {
                for average in [&entries.importance, &entries.uncertainty] {
                    check_len(module, name, expected, average.len())?;
                    check_finite(module, name, average.iter().copied())?;
                }
            }
        }
        if let Some(mask) = &self.mask {
            check_length("mask", mask.len(), shapes.len())?;
            for (module, mask) in mask.iter().enumerate() {
                check_len(module, "mask", init_r, mask.len())?;
            }
        }
        Ok(())
    }
}

/// Lengths of `A`, `E` and `B`, in the order in which the factors are visited.
pub(super) fn factor_lengths(rank: usize, shape: TripletShape) -> [(&'static str, usize); 3] {
    [("A", rank * shape.d_input), ("E", rank), ("B", shape.d_output * rank)]
}

pub(super) fn check_len(
    module: usize,
    name: &'static str,
    expected: usize,
    found: usize,
) -> Result<(), Error> {
    check_length(&format!("{name} of module {module}"), found, expected)
}

pub(super) fn check_finite(
    module: usize,
    name: &'static str,
    mut values: impl Iterator<Item = f64>,
) -> Result<(), Error> {
    let mut last = 0.0;
    match values.position(|value| {
        last = value;
        !value.is_finite()
    }) {
        Some(entry) => {
            Err(Error::entry(format!("{name} of module {module}"), entry, last, "a finite number"))
        }
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::adalora::AdaLoraAllocator;
    use crate::adalora::allocator::tests::{SHAPES, small};

    #[test]
    fn a_foreign_state_is_an_error() {
        let state = AdaLoraAllocator::new(small(), SHAPES.to_vec()).unwrap().state().clone();
        let other = |shapes: &[TripletShape], state| {
            AdaLoraAllocator::from_state(small(), shapes.to_vec(), state).unwrap_err()
        };
        assert_eq!(other(&SHAPES[..1], state.clone()), Error::length("state", 2, 1));
        let swapped = [SHAPES[1], SHAPES[0]];
        assert_eq!(other(&swapped, state.clone()), Error::length("A of module 0", 6, 4));
        let mut short = state.clone();
        short.mask = Some(vec![vec![true; 2], vec![true]]);
        assert_eq!(other(&SHAPES, short), Error::length("mask of module 1", 1, 2));
        let mut broken = state;
        broken.modules[0].e.uncertainty[1] = f64::NAN;
        let broken = other(&SHAPES, broken);
        assert!(matches!(broken, Error::Entry { name, index: 1, .. } if name == "E of module 0"));
        let empty = AdaLoraAllocator::new(small(), vec![TripletShape { d_input: 0, d_output: 1 }]);
        assert!(matches!(empty, Err(Error::OutOfRange { name: "d_input", .. })));
    }
}
