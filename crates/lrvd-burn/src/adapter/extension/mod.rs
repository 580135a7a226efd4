//! What do the uncertainty baselines add to an adapted layer?
//!
//! | File | Method | Adds |
//! |---|---|---|
//! | `gaussian` | Bayes by backprop, BLoB, training-free noise | a standard deviation per entry |
//! | `scale` | `ScalaBL` | random scales between the factors |
//! | `contextual` | C-LoRA | a random matrix between them that depends on the input |
//! | `members` | LoRA-Ensemble | several adapters, each for its share of the batch |
//! | `divergence` | all of them | what the noise costs under a prior |
//!
//! An extension belongs to a layer and stands beside its [`LowRankAdapter`], whose factors are the
//! means, the basis or the outer factors; members replace it. It excludes a posterior and singular
//! values.

mod contextual;
mod divergence;
mod gaussian;
mod members;
mod scale;

use burn::module::{Module, Param};
use burn::tensor::Tensor;

use super::linear::AdaptedLinear;
use super::low_rank::LowRankAdapter;
use crate::sampling::{DrawPer, Scheme};

pub(super) use contextual::ContextNoise;
pub use contextual::ContextualGaussian;
pub use gaussian::ElementGaussian;
pub use members::{AdapterMembers, repeat_for_members};
pub use scale::ScaleGaussian;

/// What a baseline adds to an adapted layer.
#[derive(Module, Debug)]
pub enum Extension {
    /// Independent noise on the entries of A, or of both factors.
    Gaussian(ElementGaussian),
    /// Noise on scales between the factors.
    Scale(ScaleGaussian),
    /// Noise on a matrix between the factors that depends on the input.
    Contextual(ContextualGaussian),
    /// Several adapters in place of one.
    Members(AdapterMembers),
}

/// An extension does not fit its layer, or the layer does not do what is asked of it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ExtensionError {
    /// A parameter has another shape than the adapter needs.
    #[error("`{name}` should have shape {wanted:?}, found {found:?}")]
    Shape {
        /// The parameter.
        name: &'static str,
        /// Shape that the layer and the rank ask for.
        wanted: Vec<usize>,
        /// Shape that was given.
        found: Vec<usize>,
    },
    /// There are no factors to put the extension between or around.
    #[error("the layer has no adapter to extend")]
    NoAdapter,
    /// The adapter has noise or singular values of its own.
    #[error("the adapter has {found}, wanted plain factors")]
    NotPlain {
        /// What it has.
        found: &'static str,
    },
    /// Layers would share a batch in different ways.
    #[error("adapter `{path}` has {found} members, others have {wanted}")]
    Members {
        /// Module path of the layer.
        path: String,
        /// Members of the first layer that has some.
        wanted: usize,
        /// Members of this one.
        found: usize,
    },
    /// The scheme of a pass has no meaning for the adapter of a layer.
    #[error("adapter `{path}` cannot be sampled by {scheme:?}")]
    Scheme {
        /// Module path of the layer.
        path: String,
        /// The scheme.
        scheme: Scheme,
    },
}

impl Extension {
    /// Whether passes of `scheme` have a meaning here; the mean always has.
    ///
    /// | | `Weights(Batch)` | `Weights(Sequence)` | `Weights(Token)` | `MomentMatched`, `Nested` |
    /// |---|---|---|---|---|
    /// | Gaussian | yes | yes | flipout | no |
    /// | scale | yes | yes | no | no |
    /// | contextual | yes | yes | noise per token | no |
    /// | members | deterministic, whatever the scheme | | | |
    pub fn supports(&self, scheme: Scheme) -> bool {
        match (self, scheme) {
            (Self::Members(_), _) | (_, Scheme::Mean) => true,
            (_, Scheme::MomentMatched(_) | Scheme::Nested) => false,
            (_, Scheme::Weights(per)) => per != DrawPer::Token || !matches!(self, Self::Scale(_)),
        }
    }

    /// Whether the update at the mean is the product of two factors, so that a LoRA file can hold it
    /// without loss and a base weight can take it in.
    pub(super) fn has_factors(&self) -> bool {
        matches!(self, Self::Gaussian(_))
    }

    /// Whether the update at the mean is one matrix, the same for every input.
    pub(super) fn has_dense_mean(&self) -> bool {
        matches!(self, Self::Gaussian(_) | Self::Scale(_))
    }

    /// Keeps the rank directions `kept`, in order.
    pub(super) fn select(self, kept: &[usize]) -> Self {
        match self {
            Self::Gaussian(e) => Self::Gaussian(e.select(kept)),
            Self::Scale(e) => Self::Scale(e.select(kept)),
            Self::Contextual(e) => Self::Contextual(e.select(kept)),
            Self::Members(e) => Self::Members(e.select(kept)),
        }
    }

    /// Checks every parameter against the layer and, but for members, the adapter's rank.
    fn check(
        &self,
        layer: &AdaptedLinear,
        adapter: Option<&LowRankAdapter>,
    ) -> Result<(), ExtensionError> {
        let (d_input, d_output) = (layer.d_input(), layer.d_output());
        let rank = match (self, adapter) {
            (Self::Members(e), _) => e.rank(),
            (_, None) => return Err(ExtensionError::NoAdapter),
            (_, Some(LowRankAdapter { posterior: Some(_), .. })) => {
                return Err(ExtensionError::NotPlain { found: "a posterior" });
            }
            (_, Some(LowRankAdapter { e: Some(_), .. })) => {
                return Err(ExtensionError::NotPlain { found: "singular values" });
            }
            (_, Some(adapter)) => adapter.rank(),
        };
        match self {
            Self::Gaussian(e) => {
                shape("noise of A", &e.a, [d_input, rank])?;
                e.b.as_ref().map_or(Ok(()), |b| shape("noise of B", b, [rank, d_output]))
            }
            Self::Scale(e) => {
                shape("log_mean", &e.log_mean, [rank])?;
                shape("log_std", &e.log_std, [rank])
            }
            Self::Contextual(e) => {
                let hidden = e.w1.val().dims()[1];
                shape("w1", &e.w1, [rank, hidden])?;
                shape("b1", &e.b1, [hidden])?;
                shape("w2", &e.w2, [hidden, 2 * rank * rank])?;
                shape("b2", &e.b2, [2 * rank * rank])
            }
            Self::Members(e) => {
                let (members, rank) = (e.count().max(1), rank.max(1));
                shape("A of the members", &e.a, [members, d_input, rank])?;
                shape("B of the members", &e.b, [members, rank, d_output])
            }
        }
    }
}

fn shape<const D: usize>(
    name: &'static str,
    parameter: &Param<Tensor<D>>,
    wanted: [usize; D],
) -> Result<(), ExtensionError> {
    let found = parameter.val().dims();
    if found == wanted {
        return Ok(());
    }
    Err(ExtensionError::Shape { name, wanted: wanted.to_vec(), found: found.to_vec() })
}

impl AdaptedLinear {
    /// What a baseline added to the layer.
    pub fn extension(&self) -> Option<&Extension> {
        self.extension.as_ref()
    }

    /// The same, mutably; shapes must stay.
    pub fn extension_mut(&mut self) -> Option<&mut Extension> {
        self.extension.as_mut()
    }

    /// Number of ensemble members that share a batch here, if there are several adapters.
    pub fn members(&self) -> Option<usize> {
        match &self.extension {
            Some(Extension::Members(e)) => Some(e.count()),
            _ => None,
        }
    }

    /// Adds noise to the plain adapter on the layer, or puts members in its place.
    ///
    /// The [slot](AdaptedLinear::slot) goes with scales, contexts and members: no LoRA file can hold
    /// them, and a layer without a slot is none that is written to one.
    ///
    /// # Errors
    ///
    /// [`ExtensionError::NoAdapter`] if there is nothing to add noise to,
    /// [`ExtensionError::NotPlain`] if there is noise already, [`ExtensionError::Shape`] if a
    /// parameter does not fit. The layer is unchanged then.
    pub fn extend(&mut self, extension: Extension) -> Result<(), ExtensionError> {
        extension.check(self, self.adapter.as_ref())?;
        if matches!(extension, Extension::Members(_)) {
            self.adapter = None;
        }
        if !extension.has_factors() {
            self.slot = None;
        }
        self.extension = Some(extension);
        Ok(())
    }

    /// Takes the extension off and leaves the factors, if there are any, as a plain adapter.
    ///
    /// Only after [`Extension::Gaussian`] is the plain adapter the mean of what was there.
    pub fn take_extension(&mut self) -> Option<Extension> {
        let extension = self.extension.take();
        if extension.is_some()
            && let Some(adapter) = self.adapter.take()
        {
            let (rank, slot) = (adapter.rank(), self.slot);
            self.attach(adapter, rank);
            self.slot = slot.or(self.slot);
        }
        extension
    }

    /// Whether a pass of `scheme` has a meaning for the layer.
    ///
    /// Plain layers and adapters run at their mean under every scheme and posteriors support all of
    /// them; for the rest see [`Extension::supports`].
    pub fn supports(&self, scheme: Scheme) -> bool {
        self.extension.as_ref().is_none_or(|e| e.supports(scheme))
    }
}
