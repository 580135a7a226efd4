//! What the CPU implementations share: element types, special functions, and loops over tensors.
//!
//! Burn's CPU backend runs elementwise operations on one thread and calls the C library once per
//! element. The implementations here work on plain slices, in loops the compiler can vectorise, for
//! the vector units found at run time, spread over rayon's threads in chunks whose borders depend on
//! the shape alone. Results are therefore the same bits for every number of threads and every width.

mod heads;
mod panels;
mod parallel;
mod product;
mod real;
mod skinny;
mod softmax;
mod special;
mod tensor;
mod wide;

pub(crate) use heads::Parts;
pub(crate) use panels::{Matrix, Panels, lanes};
pub(crate) use parallel::{TASK, rows_per_task, run};
pub(crate) use product::{Low, Product, pack_wide};
pub(crate) use real::{Real, sum, sum_pairs, sum_rows};
pub(crate) use skinny::transposed_product;
pub(crate) use softmax::{softmax_gradient_rows, softmax_rows};
pub(crate) use tensor::{Binary, Unary, contiguous, map, zeros, zip};
pub(crate) use wide::wide;
