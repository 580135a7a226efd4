//! Gaussian noise on the factors of an adapter, whose means the factors are.

use burn::module::{Module, Param};
use burn::tensor::{Tensor, TensorData, activation};
use lrvd_core::Noise;
use lrvd_core::posterior::{LOG_ALPHA_MAX, LOG_VARIANCE_MAX, LOG_VARIANCE_MIN, VariationalFamily};

use crate::adapter::initialisation::Initialiser;
use crate::adapter::schema::{Axis, ParameterSchema, Visit};
use crate::parameters::ParameterValue;
use crate::parameters::values;

/// Above this, softplus is the identity in double precision.
const SOFTPLUS_LINEAR: f64 = 40.0;

/// Standard deviation as a function of an unconstrained parameter.
///
/// ```text
/// additive    σ = exp(ℓ/2)            ℓ = log-variance, limited to [−20, 2]; no gradient outside
/// relative    σ = exp(a/2)·|mean|     a = log noise-to-signal ratio, limited to at most 40
/// softplus    σ = ln(1 + exp(rho))
/// square      σ = G²
/// ```
///
/// # References
///
/// Doyle et al., arXiv:2506.22809 (additive); Blundell et al. 2015, arXiv:1505.05424 (softplus); Wang et al. 2024,
/// arXiv:2406.11675 (square), whose slope vanishes with the standard deviation, so small noise moves slowly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoiseMap {
    /// Log-variance: `BayesLoRA`.
    Additive,
    /// Log noise-to-signal ratio: `BayesLoRA`'s multiplicative family.
    Relative,
    /// `ln(1 + exp(rho))`: Bayes by backprop.
    Softplus,
    /// `G²`: BLoB.
    Square,
}

const fn per_rank(name: &'static str) -> ParameterSchema {
    ParameterSchema::noise(name, &[Axis::Rank], 0)
}

const fn per_entry(a: &'static str, b: &'static str) -> [ParameterSchema; 2] {
    [
        ParameterSchema::noise(a, &[Axis::Input, Axis::Rank], 2),
        ParameterSchema::noise(b, &[Axis::Rank, Axis::Output], 3),
    ]
}

/// Parameters of each map: one for each rank, or those of the entries of A and of B.
static SCHEMAS: [(ParameterSchema, [ParameterSchema; 2]); 4] = [
    (per_rank("rank_log_sigma2"), per_entry("log_sigma2_a", "log_sigma2_b")),
    (per_rank("rank_log_alpha"), per_entry("log_alpha_a", "log_alpha_b")),
    (per_rank("rank_rho"), per_entry("lora_A_rho", "lora_B_rho")),
    (per_rank("rank_G"), per_entry("lora_A_G", "lora_B_G")),
];

impl NoiseMap {
    fn of(family: VariationalFamily) -> Self {
        if family.is_relative() { Self::Relative } else { Self::Additive }
    }

    /// Parameters of the entries of A and of B.
    pub(in crate::adapter) fn entries(self) -> &'static [ParameterSchema; 2] {
        &SCHEMAS[self as usize].1
    }

    /// A parameter limited to the range in which it is used.
    pub(in crate::adapter) fn clamp<const D: usize>(self, parameter: Tensor<D>) -> Tensor<D> {
        match self {
            Self::Additive => parameter.clamp(LOG_VARIANCE_MIN, LOG_VARIANCE_MAX),
            Self::Relative => parameter.clamp_max(LOG_ALPHA_MAX),
            Self::Softplus | Self::Square => parameter,
        }
    }

    /// `σ`; of [`NoiseMap::Relative`] `σ/|mean|`.
    pub(in crate::adapter) fn deviation<const D: usize>(self, parameter: Tensor<D>) -> Tensor<D> {
        match self {
            Self::Additive | Self::Relative => self.clamp(parameter).mul_scalar(0.5).exp(),
            Self::Softplus => softplus(parameter),
            Self::Square => parameter.square(),
        }
    }

    /// Square of [`NoiseMap::deviation`].
    fn variance<const D: usize>(self, parameter: Tensor<D>) -> Tensor<D> {
        match self {
            Self::Additive | Self::Relative => self.clamp(parameter).exp(),
            Self::Softplus | Self::Square => self.deviation(parameter).square(),
        }
    }
}

/// `ln(1 + exp(t))`.
pub(in crate::adapter) fn softplus<const D: usize>(t: Tensor<D>) -> Tensor<D> {
    activation::softplus_with_threshold(t, 1.0, SOFTPLUS_LINEAR)
}

/// Parameters of the noise of a family, in the order of walks.
pub(crate) fn posterior_schemas(family: VariationalFamily) -> Vec<&'static ParameterSchema> {
    let (rank, [a, b]) = &SCHEMAS[NoiseMap::of(family) as usize];
    if family.is_per_entry() { vec![a, b] } else { vec![rank] }
}

/// Independent Gaussian noise on the entries of A, or of both factors; without it the adapter is plain LoRA.
///
/// ```text
/// A = mean_a + σ_a ⊙ eps_a,   B = mean_b + σ_b ⊙ eps_b        σ: see NoiseMap
/// ```
///
/// A parameter belongs to a rank component (row of A and column of B), or to one entry.
///
/// # Examples
///
/// ```
/// use burn::module::Param;
/// use burn::tensor::{Device, Tensor};
/// use lrvd_burn::adapter::{Gaussian, NoiseMap};
/// use lrvd_core::VariationalFamily;
///
/// let log_variance = Param::from_tensor(Tensor::from_data([-8.0, -8.0], &Device::default()));
/// let noise = Gaussian::per_rank(NoiseMap::Additive, false, log_variance);
/// assert_eq!(noise.family(), Some(VariationalFamily::AsymRankVariance));
/// ```
#[derive(Module, Debug)]
pub struct Gaussian {
    /// Of both factors, or of A.
    parameter: NoiseParameter,
    /// Of B, `[rank, d_output]`, if it has a separate parameter.
    b: Option<Param<Tensor<2>>>,
    #[module(skip)]
    map: NoiseMap,
    /// `true` if B is random too.
    #[module(skip)]
    both: bool,
}

/// Parameter of the noise of one or of both factors.
#[derive(Module, Debug)]
pub(crate) enum NoiseParameter {
    /// One number for each rank component, `[rank]`.
    Rank(Param<Tensor<1>>),
    /// One number for each entry, of the factor's shape.
    Entries(Param<Tensor<2>>),
}

/// Variances of the factors, for noise on activations.
#[expect(clippy::large_enum_variant, reason = "one lives on the stack for the time of a forward")]
pub(in crate::adapter) enum Variances {
    /// One for each rank, and `true` if B has it too.
    Rank(Tensor<1>, bool),
    /// Noise-to-signal ratio of each rank.
    Ratio(Tensor<1>),
    /// One for each entry of A and of B.
    Entries(Tensor<2>, Tensor<2>),
}

/// Parameter of one random factor.
#[derive(Clone, Copy)]
pub(in crate::adapter) enum FactorNoise<'a> {
    Rank(&'a Param<Tensor<1>>),
    Entries(&'a Param<Tensor<2>>),
}

impl Gaussian {
    /// One parameter for each rank component, `[rank]`, of both factors or of A alone.
    pub fn per_rank(map: NoiseMap, both: bool, parameter: Param<Tensor<1>>) -> Self {
        Self { parameter: NoiseParameter::Rank(parameter), b: None, map, both }
    }

    /// One parameter for each entry of A, `[d_input, rank]`, and of B, `[rank, d_output]`, if it is random.
    pub fn per_entry(map: NoiseMap, a: Param<Tensor<2>>, b: Option<Param<Tensor<2>>>) -> Self {
        let both = b.is_some();
        Self { parameter: NoiseParameter::Entries(a), b, map, both }
    }

    /// Noise of `family`, whose parameters `make` gives in the order of [`posterior_schemas`]: of a rank, or of an entry.
    pub(crate) fn of_family<E>(
        family: VariationalFamily,
        rank: impl FnOnce() -> Result<Param<Tensor<1>>, E>,
        entries: impl FnOnce() -> Result<[Param<Tensor<2>>; 2], E>,
    ) -> Result<Self, E> {
        let map = NoiseMap::of(family);
        Ok(if family.is_per_entry() {
            let [a, b] = entries()?;
            Self::per_entry(map, a, Some(b))
        } else {
            Self::per_rank(map, family.has_random_b(), rank()?)
        })
    }

    /// Noise of `family` whose parameters all start at `initial`.
    pub(in crate::adapter) fn fresh(
        init: &Initialiser,
        family: VariationalFamily,
        initial: f64,
    ) -> Self {
        let (rank, [a, b]) = &SCHEMAS[NoiseMap::of(family) as usize];
        // Rounded to single precision, as the factors of a fresh adapter are.
        let entry = |schema| init.constant(schema, f64::from(initial as f32));
        let made: Result<Self, std::convert::Infallible> = Self::of_family(
            family,
            || Ok(init.constant(rank, initial)),
            || Ok([entry(a), entry(b)]),
        );
        let Ok(noise) = made;
        noise
    }

    /// Standard deviation as a function of the parameters.
    pub fn map(&self) -> NoiseMap {
        self.map
    }

    /// The family of a posterior of `BayesLoRA`; `None` of other noise.
    pub fn family(&self) -> Option<VariationalFamily> {
        match (self.map, &self.parameter, self.both) {
            (NoiseMap::Additive, NoiseParameter::Rank(_), true) => {
                Some(VariationalFamily::RankVariance)
            }
            (NoiseMap::Additive, NoiseParameter::Rank(_), false) => {
                Some(VariationalFamily::AsymRankVariance)
            }
            (NoiseMap::Relative, NoiseParameter::Rank(_), true) => {
                Some(VariationalFamily::NoiseToSignal)
            }
            (NoiseMap::Additive, NoiseParameter::Entries(_), true) => {
                Some(VariationalFamily::ElementVariance)
            }
            _ => None,
        }
    }

    /// The parameters on the host; `None` without a family.
    pub(super) fn host(&self) -> Option<Noise> {
        let a = match &self.parameter {
            NoiseParameter::Rank(p) => values(p.val()),
            NoiseParameter::Entries(a) => values(a.val().transpose()),
        };
        let b = self.b.as_ref().map(|b| values(b.val().transpose())).unwrap_or_default();
        Some(Noise { family: self.family()?, a, b })
    }

    /// Adds `shift[k]` to every parameter of rank `k`, within the range in which they are used.
    pub(crate) fn shift(&mut self, shift: &[f64]) {
        let map = self.map;
        match &mut self.parameter {
            NoiseParameter::Rank(p) => set(p, |value| map.clamp(value.clone() + on(shift, &value))),
            NoiseParameter::Entries(a) => {
                set(a, |a| map.clamp(a.clone() + on(shift, &a).unsqueeze_dim(0)));
            }
        }
        if let Some(b) = &mut self.b {
            set(b, |b| map.clamp(b.clone() + on(shift, &b).unsqueeze_dim(1)));
        }
    }

    /// Replaces the parameters of the ranks, `[rank]`; `false` if there is one for each entry.
    pub fn set_per_rank(&mut self, parameters: &[f64]) -> bool {
        let NoiseParameter::Rank(p) = &mut self.parameter else { return false };
        p.set_data(TensorData::from(parameters));
        true
    }

    /// Parameters of A, and of B if it is random.
    pub(in crate::adapter) fn factors(&self) -> (FactorNoise<'_>, Option<FactorNoise<'_>>) {
        let of_a = match &self.parameter {
            NoiseParameter::Rank(p) => FactorNoise::Rank(p),
            NoiseParameter::Entries(a) => FactorNoise::Entries(a),
        };
        let of_b = self.b.as_ref().map_or(of_a, FactorNoise::Entries);
        (of_a, self.both.then_some(of_b))
    }

    /// Standard deviations of A `[d_input | 1, rank]` and of B `[rank, d_output | 1]`, ready to broadcast against the factors;
    /// `None` where B is not random.
    ///
    /// Deviations of [`NoiseMap::Relative`] have the sign of the mean, which gives the same distribution.
    pub fn deviations(&self, a: &Tensor<2>, b: &Tensor<2>) -> (Tensor<2>, Option<Tensor<2>>) {
        let (std_a, std_b) = match &self.parameter {
            NoiseParameter::Rank(p) => {
                let std = self.map.deviation(p.val());
                let std_b = self.both.then(|| std.clone().unsqueeze_dim(1));
                (std.unsqueeze_dim(0), std_b)
            }
            NoiseParameter::Entries(p) => {
                let std_b = self.b.as_ref().map(|b| self.map.deviation(b.val()));
                (self.map.deviation(p.val()), std_b)
            }
        };
        if self.map != NoiseMap::Relative {
            return (std_a, std_b);
        }
        (a.clone() * std_a, std_b.map(|std_b| b.clone() * std_b))
    }

    /// Variances or ratios, for factors of which B is `b`.
    pub(in crate::adapter) fn variances(&self, b: &Tensor<2>) -> Variances {
        match &self.parameter {
            NoiseParameter::Rank(p) => {
                let variance = self.map.variance(p.val());
                match self.map {
                    NoiseMap::Relative => Variances::Ratio(variance),
                    _ => Variances::Rank(variance, self.both),
                }
            }
            NoiseParameter::Entries(a) => {
                let of_b = |b: &Param<Tensor<2>>| self.map.variance(b.val());
                let of_b = self.b.as_ref().map_or_else(|| b.zeros_like(), of_b);
                Variances::Entries(self.map.variance(a.val()), of_b)
            }
        }
    }

    pub(super) fn each(&mut self, visit: &mut Visit<'_>) {
        let (rank, [of_a, of_b]) = &SCHEMAS[self.map as usize];
        match &mut self.parameter {
            NoiseParameter::Rank(p) => visit(rank, p),
            NoiseParameter::Entries(a) => visit(of_a, a),
        }
        if let Some(b) = &mut self.b {
            visit(of_b, b);
        }
    }
}

/// `shift` as a tensor beside `like`.
fn on<const D: usize>(shift: &[f64], like: &Tensor<D>) -> Tensor<1> {
    Tensor::from_data(TensorData::from(shift), (&like.device(), like.dtype()))
}

/// Replaces the values.
fn set<const D: usize>(param: &mut Param<Tensor<D>>, change: impl FnOnce(Tensor<D>) -> Tensor<D>) {
    let value = param.val().detach();
    param.set_data(change(value).into_data());
}
