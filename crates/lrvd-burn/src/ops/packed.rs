//! A frozen weight in the form in which products read it.

#[cfg(feature = "flex")]
use std::sync::OnceLock;

/// Form of the frozen weights in a model that only predicts, made at their first use and held beside them.
///
/// Of layers in single precision on the CPU; elsewhere it changes nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packing {
    /// The numbers in the order of the kernel: the same bits as without, and less to move for a few rows.
    Panels,
    /// Products of eight bits.
    ///
    /// # Formula
    ///
    /// ```text
    /// y = sₓ·s_w·Σ (q_x − z)·q_w + bias       s_w = max |w| / 63 of an output, q_w in −63 ..= 63
    ///                                         sₓ = (max x − min x) / 255 of a row with 0, q_x in 0 ..= 255, z = round(−min x / sₓ)
    /// ```
    ///
    /// The sums are exact, so that results are the same on every processor; 63 keeps sums of two products within 16 bits, which
    /// processors without VNNI need. Adapters, heads and attention stay in single precision, and so does a pass with the noise
    /// of [moments](crate::sampling::Scheme::MomentMatched).
    #[cfg(feature = "int8")]
    Integer,
}

/// A weight in the form of a [`Packing`], made at the first use.
pub(crate) struct Packed {
    pub(crate) packing: Packing,
    #[cfg(feature = "flex")]
    form: OnceLock<cpu::Form>,
}

impl Packed {
    pub(crate) fn new(packing: Packing) -> Self {
        Self {
            packing,
            #[cfg(feature = "flex")]
            form: OnceLock::new(),
        }
    }

    /// The form of `weight`, `[d_input, d_output]`; `None` if it was made of another one.
    #[cfg(feature = "flex")]
    pub(super) fn of(&self, weight: &burn_flex::FlexTensor) -> Option<&cpu::Kind> {
        let form = self.form.get().unwrap_or_else(|| {
            // Made outside: while it packs, a thread of the pool may begin another pass, which would wait for itself.
            let made = cpu::Form::new(self.packing, weight);
            self.form.get_or_init(|| made)
        });
        form.is_of(weight).then_some(&form.kind)
    }
}

impl std::fmt::Debug for Packed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.packing.fmt(f)
    }
}

#[cfg(feature = "flex")]
pub(super) mod cpu {
    use super::Packing;
    use crate::ops::cpu::prelude::*;

    pub(crate) struct Form {
        /// What was packed. That it is held keeps its memory from being written and from being another weight's.
        weight: FlexTensor,
        pub(crate) kind: Kind,
    }

    pub(crate) enum Kind {
        Panels(Panels),
        #[cfg(feature = "int8")]
        Integer(Integers),
    }

    impl Form {
        pub(super) fn new(packing: Packing, weight: &FlexTensor) -> Self {
            let stored = Weight::new(weight);
            let matrix = stored.matrix(false);
            let kind = match packing {
                Packing::Panels => Kind::Panels(pack_wide(matrix)),
                #[cfg(feature = "int8")]
                Packing::Integer => Kind::Integer(Integers::new(matrix)),
            };
            Self { weight: weight.clone(), kind }
        }

        pub(super) fn is_of(&self, weight: &FlexTensor) -> bool {
            let is_same = std::ptr::eq(self.weight.bytes(), weight.bytes());
            is_same && self.weight.layout() == weight.layout()
        }
    }
}
