//! The studies, one file each.

mod beta;
mod confidence;
mod families;
mod k;
mod proportion;
mod published;
mod rule;
mod schemes;
mod symmetry;
mod tau;

use super::design::Study;
use crate::text::UnknownName;

/// All studies, by name.
pub const STUDIES: &[Study] = &[
    beta::STUDY,
    confidence::STUDY,
    families::STUDY,
    k::STUDY,
    proportion::STUDY,
    published::STUDY,
    rule::STUDY,
    schemes::STUDY,
    symmetry::STUDY,
    tau::STUDY,
];

/// The study called `name`.
///
/// # Errors
///
/// [`UnknownName`] that lists the studies there are.
pub fn named(name: &str) -> Result<&'static Study, UnknownName> {
    let known = || STUDIES.iter().map(|study| study.name);
    let found = STUDIES.iter().find(|study| study.name == name);
    found.ok_or_else(|| UnknownName::new("study", name, known()))
}
