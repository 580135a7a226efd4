//! A model of one's own: two adapted layers and a trained head.

use burn::tensor::activation::log_softmax;
use lrvd_burn::model::{Named, total_kl};
use lrvd_burn::objective::{Objective, ObjectiveParts};
use lrvd_burn::optimizer::{AdamW, AdamWConfig, GroupRates, ParameterGroups};
use lrvd_core::schedule::LrSchedule;

use super::prelude::*;

/// Widths of the two layers and of the head.
pub(crate) const WIDTHS: [usize; 4] = [5, 7, 6, 3];
const BATCH: usize = 4;

/// Two frozen layers with adapters and a trained head: `head(mean over tokens of second(tanh(first(x))))`.
#[derive(Module, Debug)]
pub(crate) struct Net {
    pub(crate) first: Named<AdaptedLinear>,
    pub(crate) second: Named<AdaptedLinear>,
    pub(crate) head_weight: Named<Param<Tensor<2>>>,
    pub(crate) head_bias: Named<Param<Tensor<1>>>,
}

impl Net {
    /// The model with the given adapters; always the same base and head.
    pub(crate) fn new(adapters: [Option<&HostAdapter>; 2], dtype: DType) -> Self {
        let build = |path: &str, i: usize| {
            let layer = match adapters[i] {
                Some(host) => layer_at(path, host, dtype),
                None => base(path, WIDTHS[i], WIDTHS[i + 1], dtype),
            };
            Named::new(path, Group::Backbone, layer)
        };
        let weight = random(70, [WIDTHS[2], WIDTHS[3]], dtype);
        let bias = random(71, [WIDTHS[3]], dtype);
        Self {
            first: build("net.first", 0),
            second: build("net.second", 1),
            head_weight: Named::new("head.weight", Group::Head, weight),
            head_bias: Named::new("head.bias", Group::Head, bias),
        }
    }

    /// `[batch, tokens, 5]` to class scores `[batch, 3]`.
    pub(crate) fn forward(&self, x: Tensor<3>, pass: &Pass) -> Tensor<2> {
        let hidden = self.first.forward_with(x, pass).tanh();
        let pooled: Tensor<2> = self.second.forward_with(hidden, pass).mean_dim(1).squeeze_dim(1);
        pooled.matmul(self.head_weight.val()) + self.head_bias.val().unsqueeze()
    }

    /// The objective on a batch.
    pub(crate) fn objective(&self, x: Tensor<3>, targets: Tensor<2>, pass: &Pass) -> Objective {
        let n = x.dims()[0] as f64;
        let nll = (log_softmax(self.forward(x, pass), 1) * targets).sum().div_scalar(-n);
        let kl = total_kl(self, Prior::LogUniform, KlReduction::Element).unwrap();
        Objective { nll, kl, penalty: None, kl_weight: 0.02, divisor: 2.0 }
    }

    /// Name, shape and values of every parameter.
    pub(crate) fn snapshot(&self) -> Vec<(String, Vec<usize>, Vec<f64>)> {
        let mut all = Vec::new();
        self.visit_parameters(&mut |p| {
            all.push((p.name.to_owned(), p.value.shape(), host(p.value.flat())));
        });
        all
    }
}

/// An adapter without noise for the layer `index` of the net.
pub(crate) fn factors(index: usize) -> HostAdapter {
    let (d_input, d_output) = (WIDTHS[index], WIDTHS[index + 1]);
    let seed = 20 * (index as u64 + 1);
    let (a, b) = (numbers(seed, RANK * d_input), numbers(seed + 1, RANK * d_output));
    HostAdapter { d_input, d_output, a, b, ..plain() }
}

/// Inputs and one-hot targets.
pub(crate) fn data(dtype: DType) -> (Tensor<3>, Tensor<2>) {
    let x = tensor(&numbers(60, BATCH * TOKENS * WIDTHS[0]), [BATCH, TOKENS, WIDTHS[0]], dtype);
    let targets: Vec<f64> =
        (0..BATCH * 3).map(|i| f64::from(u8::from(i % 3 == i / 3 % 3))).collect();
    (x, tensor(&targets, [BATCH, 3], dtype))
}

/// Rates that differ by group, with decay wherever there may be one.
pub(crate) fn groups() -> ParameterGroups {
    let rates = |learning_rate, weight_decay| GroupRates { learning_rate, weight_decay };
    ParameterGroups {
        adapter: rates(3e-3, 0.02),
        log_variance: rates(2e-2, 0.5),
        pooler: rates(4e-3, 0.2),
        head: rates(5e-3, 0.1),
        backbone: rates(1e-3, 0.05),
    }
}

pub(crate) fn optimizer() -> AdamW {
    AdamW::new(AdamWConfig::default(), groups())
}

/// One step in single precision with clipping and schedule: the loop that a trainer writes.
pub(crate) fn train_step(
    net: &mut Net,
    optimizer: &mut AdamW,
    step: u32,
    scheme: Scheme,
) -> ObjectiveParts {
    let (x, targets) = data(DType::F32);
    let pass = Pass::sampled(scheme, NoiseKey::new(5).at_step(step));
    let objective = net.objective(x, targets, &pass);
    let loss = objective.loss();
    let parts = objective.unread(&loss)();
    let gradients = loss.backward();
    let mut gradients = NamedGradients::collect(net, &gradients);
    let norm = gradients.global_norm();
    assert!(gradients.clip(norm, 0.05) < 1.0, "the clip must be at work: {norm}");
    let schedule = LrSchedule::linear(2, 9).unwrap();
    optimizer.step(net, &gradients, schedule.factor(step));
    parts
}

/// Asserts that steps by `scheme` change the head and `parameters` of the first layer, and nothing else.
pub(crate) fn check_trained(mut net: Net, scheme: Scheme, parameters: &[&str]) {
    let before = net.snapshot();
    let mut optimizer = optimizer();
    for step in 0..4 {
        train_step(&mut net, &mut optimizer, step, scheme);
    }
    let mut trained = vec!["head.bias".to_owned(), "head.weight".to_owned()];
    trained.extend(parameters.iter().map(|name| format!("net.first.{name}")));
    let names: Vec<_> = optimizer.state().keys().cloned().collect();
    assert_eq!(names, trained, "{scheme:?}");
    for ((name, _, old), (_, _, new)) in before.into_iter().zip(net.snapshot()) {
        assert_eq!(trained.contains(&name), old != new, "{name} {scheme:?}");
    }
}
