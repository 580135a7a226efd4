//! One cube per row: its units walk along the row and reduce in shared memory, in a fixed order.

use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;
use cubecl::{self as cubecl, calculate_cube_count_elemwise};

/// Units of a cube at most: what every device of `WebGPU` offers.
const MOST_UNITS: usize = 256;
/// Units of a cube at least: a plane of most devices.
const FEWEST_UNITS: usize = 32;

/// Below every score: the start of a maximum. Not every device has an infinity.
pub(crate) const LOWEST: f32 = -3.0e38;

/// Cubes and units for `rows` rows of `width` numbers, of which there is at least one; cubes beyond
/// the rows must end by themselves.
pub(crate) fn row_sizes(
    like: &CubeTensor,
    rows: usize,
    width: usize,
) -> (Option<(CubeCount, CubeDim)>, usize) {
    let units = width.next_power_of_two().clamp(FEWEST_UNITS, MOST_UNITS);
    let dim = CubeDim::new_1d(units as u32);
    (Some((calculate_cube_count_elemwise(&like.client, rows * units, dim), dim)), units)
}

/// Sum of the values of a cube's units, whose number is a power of two; every unit gets it.
#[cube]
pub(crate) fn cube_sum(value: f32, shared: &mut Shared<[f32]>) -> f32 {
    // What an earlier reduction left may still be read.
    sync_cube();
    shared[UNIT_POS as usize] = value;
    sync_cube();
    let mut active = CUBE_DIM / 2;
    while active > 0 {
        if UNIT_POS < active {
            let other = shared[(UNIT_POS + active) as usize];
            shared[UNIT_POS as usize] += other;
        }
        sync_cube();
        active /= 2;
    }
    shared[0]
}

/// The largest of the values of a cube's units.
#[cube]
pub(crate) fn cube_max(value: f32, shared: &mut Shared<[f32]>) -> f32 {
    sync_cube();
    shared[UNIT_POS as usize] = value;
    sync_cube();
    let mut active = CUBE_DIM / 2;
    while active > 0 {
        if UNIT_POS < active {
            let own = shared[UNIT_POS as usize];
            let other = shared[(UNIT_POS + active) as usize];
            shared[UNIT_POS as usize] = own.max(other);
        }
        sync_cube();
        active /= 2;
    }
    shared[0]
}

/// `exp(x)` of `x <= 0`, and exactly 0 where it would leave the normal numbers and, on some devices, with
/// them the finite; what is no number stays none.
#[cube]
pub(crate) fn exp_below(x: f32) -> f32 {
    select(x < -87.0f32, 0.0f32, x.exp())
}
