//! The count of numbers that each method trains.

use super::c_lora::context_parameter_count;

/// Widths of one wrapped layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct LayerShape {
    /// Width of its input.
    pub d_input: usize,
    /// Width of its output.
    pub d_output: usize,
}

/// A method whose parameters are counted.
///
/// For modules `m` of rank `r` each:
///
/// | Variant            | Count                                                              |
/// |--------------------|--------------------------------------------------------------------|
/// | `Lora`             | `r·Σ(d_input + d_output)`; also MAP, MC dropout, Laplace and temperature scaling |
/// | `BayesLora`        | `Lora + r` per module (one log-variance per rank)                  |
/// | `AdaLora`          | `Lora + r` per module (the diagonal `E`)                           |
/// | `ElementOnA`       | `Lora + r·Σ d_input`; BLoB, and Bayes by backprop on A             |
/// | `ElementOnBoth`    | `2·Lora`; Bayes by backprop                                        |
/// | `ScalaBl`          | `Lora + 2·r` per module                                            |
/// | `CLora`            | `Lora + hidden·(r + 1) + 2·r²·(hidden + 1)` per module             |
/// | `Ensemble`         | `members·Lora`                                                     |
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CountedMethod {
    /// A plain adapter.
    Lora,
    /// One log-variance per rank.
    BayesLora,
    /// Three factors.
    AdaLora,
    /// A standard deviation per entry of A.
    ElementOnA,
    /// A standard deviation per entry of A and B.
    ElementOnBoth,
    /// Mean and standard deviation of a scale per rank.
    ScalaBl,
    /// A contextual network per module.
    CLora {
        /// Width of its hidden layer; [`HIDDEN`](super::c_lora::HIDDEN) in the published code.
        hidden: usize,
    },
    /// Independent adapters.
    Ensemble {
        /// Their number.
        members: usize,
    },
}

impl CountedMethod {
    /// Trained (or fitted) numbers for adapters of one rank on all `layers`.
    pub fn parameter_count(self, layers: &[LayerShape], rank: usize) -> usize {
        let inputs: usize = layers.iter().map(|layer| layer.d_input).sum();
        let outputs: usize = layers.iter().map(|layer| layer.d_output).sum();
        let lora = rank * (inputs + outputs);
        let modules = layers.len();
        match self {
            Self::Lora => lora,
            Self::BayesLora | Self::AdaLora => lora + modules * rank,
            Self::ElementOnA => lora + rank * inputs,
            Self::ElementOnBoth => 2 * lora,
            Self::ScalaBl => lora + modules * 2 * rank,
            Self::CLora { hidden } => lora + modules * context_parameter_count(rank, hidden),
            Self::Ensemble { members } => members * lora,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_configuration() {
        let mut layers = vec![LayerShape { d_input: 4096, d_output: 4096 }; 64];
        layers.push(LayerShape { d_input: 4096, d_output: 32_000 });
        let count = |method: CountedMethod| method.parameter_count(&layers, 8);
        assert_eq!(count(CountedMethod::Lora), 4_483_072);
        assert_eq!(count(CountedMethod::BayesLora), 4_483_592);
        assert_eq!(count(CountedMethod::ElementOnA), 6_612_992);
        assert_eq!(count(CountedMethod::ElementOnBoth), 8_966_144);
        assert_eq!(count(CountedMethod::Ensemble { members: 3 }), 13_449_216);
        assert_eq!(count(CountedMethod::Ensemble { members: 10 }), 44_830_720);
        let extra = |method| count(method) - count(CountedMethod::Lora);
        assert_eq!(extra(CountedMethod::ScalaBl), 1040);
        assert_eq!(extra(CountedMethod::CLora { hidden: 64 }), 578_240);
        assert_eq!(extra(CountedMethod::AdaLora), 520);
    }
}
