//! Limits of the processor, without which a time says nothing on another machine.

use std::time::Instant;

use burn::tensor::{Device, Tensor};
use rayon::prelude::*;

/// Rows and columns of the factors of a product; together they are larger than a cache.
const SIZE: usize = 2048;
/// Values of 8 bytes that are read: 512 MiB.
const VALUES: usize = 1 << 26;
const REPEATS: usize = 5;

/// The shortest of some calls of `run`, in seconds; what a call gives is kept from being left out.
fn shortest<T>(mut run: impl FnMut() -> T) -> f64 {
    let once = |_| {
        let begun = Instant::now();
        std::hint::black_box(run());
        begun.elapsed().as_secs_f64()
    };
    (0..REPEATS).map(once).fold(f64::INFINITY, f64::min)
}

/// Operations per second of a matrix product in single precision, by the framework and with its threads.
pub fn product() -> f64 {
    let values: Vec<f32> = (0..SIZE * SIZE).map(|i| (i % 251) as f32 / 251.0 - 0.3).collect();
    let a: Tensor<2> =
        Tensor::<1>::from_floats(values.as_slice(), &Device::flex()).reshape([SIZE, SIZE]);
    let b: Tensor<2> = a.clone().transpose();
    let seconds = shortest(|| a.clone().matmul(b.clone()).into_data());
    2.0 * (SIZE as f64).powi(3) / seconds
}

/// Bytes per second that all threads read together from memory that no cache holds.
pub fn read_bandwidth() -> f64 {
    let values = vec![1_u64; VALUES];
    let chunk = VALUES / (8 * rayon::current_num_threads().max(1));
    // Several sums, so that additions do not wait for each other.
    let sum = |values: &[u64]| {
        let mut sums = [0_u64; 8];
        for part in values.chunks_exact(sums.len()) {
            sums.iter_mut().zip(part).for_each(|(sum, value)| *sum += value);
        }
        sums.iter().sum::<u64>()
    };
    let seconds = shortest(|| values.par_chunks(chunk).map(sum).sum::<u64>());
    (VALUES * size_of::<u64>()) as f64 / seconds
}
