//! Noise on activations: the moment-matched and the nested scheme.

use burn::tensor::Tensor;
use burn::tensor::module::linear;
use lrvd_core::moments::CrossTerm;
use lrvd_core::noise::{NoiseKey, Stream};
use lrvd_core::posterior::EPS_VARIANCE;

use super::kind::{Gaussian, LowRankAdapter, Variances};
use crate::ops::{
    Noise, OutputNoise, add_gaussian_noise, add_rank_two_noise, row_energy, standard_normal,
};

impl LowRankAdapter {
    /// `mean` with output noise of the update's exact per-coordinate variance.
    ///
    /// # Formula
    ///
    /// ```text
    /// y = mean + c · eps ⊙ sqrt(V + 1e-8),   S = x·A
    /// rank variance:    V[n,k] = q[n]·(w[k] + κu) + t[n],
    ///                   q = ‖x_n‖², w = Σ_i v_i B_ik², t = Σ_i v_i S_ni², u = Σ_i v_i², v = exp(ℓ)
    /// noise to signal:  V = C·B²,  C = x²·A² ⊙ α(1 + κα) + S² ⊙ α
    /// per entry:        V = v_s·(B² + κσ_B²) + S²·σ_B²,  v_s = x²·σ_A²
    /// A only:           V[n,k] = q[n]·w[k]
    /// ```
    ///
    /// `κ` is 1 for [`CrossTerm::Exact`] and 0 for [`CrossTerm::Omitted`]. The tied additive
    /// family needs no product beyond LoRA's own two: its variance has rank two over
    /// (token, channel), and the noise operator rebuilds it from `q`, `w` and `t`.
    ///
    /// The use index separates the noise of several uses of one layer in a forward. Where nothing comes between
    /// the update and its base product, the tied families run as
    /// [`moment_matched_linear`](crate::ops::moment_matched_linear).
    ///
    /// # Shapes
    ///
    /// `x` is `[sequences, tokens, d_input]`, `mean` and the result `[sequences, tokens, d_output]`.
    pub(super) fn moment_matched(
        &self,
        mean: Tensor<3>,
        x: Tensor<3>,
        variances: Variances,
        cross: CrossTerm,
        key: (NoiseKey, u32),
    ) -> Tensor<3> {
        let OutputNoise { noise, cross: kappa, .. } = self.output_noise(key, cross, true);
        let (a, b) = (self.a.val(), self.b.val());
        let shape = mean.dims();
        let (mean, x) = (rows(mean), rows(x));
        let s = || linear(x.clone(), a.clone(), None);
        let variance = match variances {
            Variances::Rank(v, both) => {
                let w = (b.square() * v.clone().unsqueeze_dim(1)).sum_dim(0).squeeze_dim(0);
                let q = row_energy(x.clone(), None);
                let (w, t) = if both {
                    let w = w + v.clone().square().sum().mul_scalar(kappa);
                    (w, row_energy(s(), Some(v)))
                } else {
                    (w, q.zeros_like())
                };
                return add_rank_two_noise(mean, q, w, t, noise).reshape(shape);
            }
            Variances::Ratio(alpha) => {
                let inner = alpha.clone() + alpha.clone().square().mul_scalar(kappa);
                let u = linear(x.clone().square(), a.clone().square(), None);
                let c = u * inner.unsqueeze() + s().square() * alpha.unsqueeze();
                linear(c, b.square(), None)
            }
            Variances::Entries(var_a, var_b) => {
                let v_s = linear(x.clone().square(), var_a, None);
                let of_s = linear(v_s, b.square() + var_b.clone().mul_scalar(kappa), None);
                of_s + linear(s().square(), var_b, None)
            }
        };
        add_gaussian_noise(mean, variance, noise).reshape(shape)
    }

    /// Source of the noise of an output.
    pub(super) fn output_noise(
        &self,
        (key, use_index): (NoiseKey, u32),
        cross: CrossTerm,
        both: bool,
    ) -> OutputNoise {
        let key = key.on_stream(Stream::OUTPUT).with_use(use_index);
        let cross = match cross {
            CrossTerm::Exact => 1.0,
            CrossTerm::Omitted => 0.0,
        };
        OutputNoise { noise: Noise { key, scale: self.scaling }, both, cross }
    }

    /// Update with noise on the rank activations first and on the outputs given them.
    ///
    /// # Formula
    ///
    /// ```text
    /// s = x·A + sqrt(v_s + 1e-8) ⊙ eps_1,   y = s·B + sqrt(ρ + 1e-8) ⊙ eps_2
    /// v_s: rank variance q[n]·v_i;  noise to signal α_i (x²·A²);  per entry x²·σ_A²
    /// ρ:   rank variance Σ_i v_i s_ni² (one number per token);
    ///      noise to signal (s² ⊙ α)·B²;  per entry s²·σ_B²;  A only: no second noise
    /// ```
    pub(super) fn nested(
        &self,
        x: Tensor<3>,
        gaussian: &Gaussian,
        (key, use_index): (NoiseKey, u32),
    ) -> Tensor<3> {
        let [sequences, tokens, _] = x.dims();
        let x = rows(x);
        let (a, b) = (self.a.val(), self.b.val());
        let mean = linear(x.clone(), a.clone(), None);
        let shape = mean.dims();
        let eps = standard_normal(&mean, shape, key.on_stream(Stream::RANK).with_use(use_index));
        let with_noise = |variance: Tensor<2>| {
            mean.clone() + variance.add_scalar(EPS_VARIANCE).sqrt() * eps.clone()
        };
        let noise = Noise { key: key.on_stream(Stream::OUTPUT).with_use(use_index), scale: 1.0 };
        let out = match gaussian.variances(&b) {
            Variances::Rank(v, both) => {
                let q = row_energy(x, None);
                let s = with_noise(q.unsqueeze_dim(1) * v.clone().unsqueeze_dim(0));
                if both {
                    let rho = row_energy(s.clone(), Some(v));
                    let out = linear(s, b, None);
                    let [n, d] = out.dims();
                    let place = (&out.device(), out.dtype());
                    let (q, w) = (Tensor::zeros([n], place), Tensor::zeros([d], place));
                    add_rank_two_noise(out, q, w, rho, noise)
                } else {
                    linear(s, b, None)
                }
            }
            Variances::Ratio(alpha) => {
                let alpha = alpha.unsqueeze_dim::<2>(0);
                let s = with_noise(linear(x.square(), a.square(), None) * alpha.clone());
                let rho = linear(s.clone().square() * alpha, b.clone().square(), None);
                add_gaussian_noise(linear(s, b, None), rho, noise)
            }
            Variances::Entries(var_a, var_b) => {
                let s = with_noise(linear(x.square(), var_a, None));
                let rho = linear(s.clone().square(), var_b, None);
                add_gaussian_noise(linear(s, b, None), rho, noise)
            }
        };
        let d_output = out.dims()[1];
        out.mul_scalar(self.scaling).reshape([sequences, tokens, d_output])
    }
}

/// One row for each token.
fn rows(x: Tensor<3>) -> Tensor<2> {
    let [sequences, tokens, width] = x.dims();
    x.reshape([sequences * tokens, width])
}
