//! Families of methods.

/// What a method does about not knowing its weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Family {
    Point,
    /// Several sets of weights, or several thinnings of one.
    Ensemble,
    /// A distribution over weights, learnt with them.
    Variance,
    /// Something fitted around weights that are already trained.
    PostHoc,
    /// Low-rank variational dropout: a distribution over rank directions.
    LowRank,
    /// A name that is not known here.
    Other,
}
