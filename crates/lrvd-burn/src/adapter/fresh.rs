//! Fresh adapters: parameters and initial values of each kind.

use lrvd_core::baselines::initial_rho;
use lrvd_core::noise::{NoiseKey, module_id};
use lrvd_core::posterior::INITIAL_B_BOUND;

use super::config::{AdapterConfig, AdapterKind};
use super::initialisation::Initialiser;
use super::kind::{A, B, E, Extension, Gaussian, LowRankAdapter, NoiseMap, posterior_schemas};
use super::linear::AdaptedLinear;
use super::schema::{ParameterSchema, Sizes};

/// Standard deviation of AdaLoRA's initial factors.
const ADALORA_STD: f64 = 0.02;

impl AdapterConfig {
    /// Attaches a freshly initialised, trainable adapter to `layer`, which is at `path`.
    ///
    /// ```text
    /// LoRA, variational: A ~ U(±1/sqrt(d_input)),  B ~ U(±b_bound)
    /// AdaLoRA:           A, B ~ N(0, 0.02²),       E = 0
    /// Bayes by backprop: as LoRA with B = 0, or A, B ~ N(0, mean_std²);   rho ~ N(rho, rho_std²)
    /// BLoB:              as LoRA with B = 0,       G ~ U(epsilon/√2, epsilon)
    /// ```
    ///
    /// Values depend on `seed` and the path only.
    pub fn attach(
        &self,
        layer: &mut AdaptedLinear,
        path: &str,
        seed: NoiseKey,
    ) -> Result<(), lrvd_core::Error> {
        self.check()?;
        let key = seed.for_module(module_id(path));
        let init = Initialiser::new(
            &layer.weight.base(),
            self.sizes(layer.d_input(), layer.d_output()),
            key,
        );
        layer.place(path, LowRankAdapter::fresh(self, &init), self.rank);
        Ok(())
    }

    /// Number of parameters of a fresh adapter on a layer of the given widths.
    pub fn parameter_count(&self, d_input: usize, d_output: usize) -> usize {
        let sizes = self.sizes(d_input, d_output);
        let count = |schema: &ParameterSchema| schema.shape(&sizes).iter().product::<usize>();
        self.kind.parameters().into_iter().map(count).sum()
    }

    fn sizes(&self, d_input: usize, d_output: usize) -> Sizes {
        Sizes { d_input, d_output, rank: self.rank }
    }
}

impl LowRankAdapter {
    /// A fresh adapter of the kind that `config` names; [`AdapterConfig::attach`] has the distributions.
    fn fresh(config: &AdapterConfig, init: &Initialiser) -> Self {
        let (scaling, dropout) = (config.scaling(), config.dropout);
        let a_bound = Initialiser::bound_of(init.sizes.d_input);
        let lora = |b_bound| (init.uniform(&A, a_bound), init.uniform(&B, b_bound));
        let normal = |std| (init.normal(&A, 0.0, std), init.normal(&B, 0.0, std));
        let ((a, b), extension) = match config.kind {
            AdapterKind::Lora { b_bound } => (lora(b_bound), None),
            AdapterKind::AdaLora => {
                (normal(ADALORA_STD), Some(Extension::SingularValues(init.constant(&E, 0.0))))
            }
            AdapterKind::Variational { family, initial } => {
                let noise = Gaussian::fresh(init, family, initial);
                // At zero the noise-to-signal ratio of every entry would be at its floor.
                (lora(INITIAL_B_BOUND), Some(Extension::Gaussian(noise)))
            }
            AdapterKind::BayesByBackprop { both, rho, rho_std, mean_std } => {
                let [of_a, of_b] = NoiseMap::Softplus.entries();
                let b = both.then(|| init.normal(of_b, rho, rho_std));
                let a = init.normal(of_a, rho, rho_std);
                let noise = Gaussian::per_entry(NoiseMap::Softplus, a, b);
                (mean_std.map_or_else(|| lora(0.0), normal), Some(Extension::Gaussian(noise)))
            }
            AdapterKind::Blob { epsilon } => {
                let [of_a, _] = NoiseMap::Square.entries();
                let a = init.mapped(of_a, |u| initial_rho(u, epsilon));
                let noise = Gaussian::per_entry(NoiseMap::Square, a, None);
                (lora(0.0), Some(Extension::Gaussian(noise)))
            }
        };
        Self { a, b, extension, scaling, dropout }
    }
}

impl AdapterKind {
    /// Every parameter that a fresh adapter of the kind has, in the order of walks.
    pub fn parameters(self) -> Vec<&'static ParameterSchema> {
        let mut all = vec![&A, &B];
        match self {
            Self::Lora { .. } => {}
            Self::AdaLora => all.push(&E),
            Self::Variational { family, .. } => all.extend(posterior_schemas(family)),
            Self::BayesByBackprop { both, .. } => {
                all.extend(&NoiseMap::Softplus.entries()[..=usize::from(both)]);
            }
            Self::Blob { .. } => all.extend(&NoiseMap::Square.entries()[..1]),
        }
        all
    }
}
