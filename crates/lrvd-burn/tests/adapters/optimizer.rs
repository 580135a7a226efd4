//! AdamW, its groups, the gradient norm and its clip, accumulation and restored state.

use crate::support::prelude::*;
use lrvd_burn::model::Names;
use lrvd_burn::optimizer::{AdamW, AdamWConfig, Moments};
use lrvd_burn::parameters::Group;
use std::collections::BTreeMap;

/// One parameter of every group and of both numbers of axes.
#[derive(Module, Debug)]
struct Zoo {
    names: Names,
    matrix: Vec<Param<Tensor<2>>>,
    vector: Vec<Param<Tensor<1>>>,
    frozen: Param<Tensor<1>>,
}

/// Of the matrices and of the vectors.
const GROUPS: [(&str, Group); 10] = [
    ("matrix.0", Group::AdapterMean),
    ("matrix.1", Group::Head),
    ("matrix.2", Group::Backbone),
    ("matrix.3", Group::LogVariance),
    ("matrix.4", Group::Pooler),
    ("vector.0", Group::AdapterMean),
    ("vector.1", Group::Head),
    ("vector.2", Group::Backbone),
    ("vector.3", Group::LogVariance),
    ("vector.4", Group::Pooler),
];
/// Rates and decays in this order, by `net::groups()`; vectors of head, backbone and pooler have no decay.
const RATES: [f64; 10] = [3e-3, 5e-3, 1e-3, 2e-2, 4e-3, 3e-3, 5e-3, 1e-3, 2e-2, 4e-3];
const DECAYS: [f64; 10] = [0.02, 0.1, 0.05, 0.0, 0.2, 0.02, 0.0, 0.0, 0.0, 0.0];

impl Zoo {
    fn new(dtype: DType) -> Self {
        let (matrix, vector) = (|i| random(i, [2, 3], dtype), |i| random(i, [5], dtype));
        Self {
            names: Names::below("").with_groups(&GROUPS),
            matrix: [1, 2, 3, 4, 10].map(matrix).to_vec(),
            vector: [5, 6, 7, 8, 11].map(vector).to_vec(),
            frozen: random(9, [5], dtype).set_require_grad(false),
        }
    }

    /// Gradients that are `value(seed of the parameter)`, as a backward pass hands them over.
    fn gradients(&self, dtype: DType, value: impl Fn(u64, usize) -> Vec<f64>) -> NamedGradients {
        let mut loss = Tensor::<1>::zeros([1], (&burn::tensor::Device::flex(), dtype));
        for (i, p) in self.matrix.iter().enumerate() {
            loss = loss + (p.val() * tensor(&value(i as u64, 6), [2, 3], dtype)).sum();
        }
        for (i, p) in self.vector.iter().enumerate() {
            loss = loss + (p.val() * tensor(&value(10 + i as u64, 5), [5], dtype)).sum();
        }
        let gradients = loss.backward();
        NamedGradients::collect(self, &gradients)
    }

    fn values(&self) -> BTreeMap<String, Vec<f64>> {
        let mut all = BTreeMap::new();
        self.visit_parameters(&mut |p| {
            all.insert(p.name.to_owned(), host(p.value.flat()));
        });
        all
    }
}

/// `torch.optim.AdamW` in doubles, for one parameter.
struct Torch {
    rate: f64,
    decay: f64,
    p: Vec<f64>,
    m: Vec<f64>,
    v: Vec<f64>,
}

impl Torch {
    fn step(&mut self, g: &[f64], t: i32, factor: f64) {
        let AdamWConfig { beta1, beta2, epsilon } = AdamWConfig::default();
        let rate = self.rate * factor;
        #[expect(clippy::needless_range_loop, reason = "four lists in step")]
        for i in 0..g.len() {
            self.p[i] *= 1.0 - rate * self.decay;
            self.m[i] += (g[i] - self.m[i]) * (1.0 - beta1);
            self.v[i] = self.v[i] * beta2 + g[i] * g[i] * (1.0 - beta2);
            let size = rate / (1.0 - beta1.powi(t));
            let denominator = self.v[i].sqrt() / (1.0 - beta2.powi(t)).sqrt() + epsilon;
            self.p[i] -= size * self.m[i] / denominator;
        }
    }
}

#[rstest]
#[case(DType::F64, 1e-12)]
#[case(DType::F32, 1e-6)]
fn twenty_steps_are_those_of_torch(#[case] dtype: DType, #[case] tolerance: f64) {
    let mut zoo = Zoo::new(dtype);
    let start = zoo.values();
    let mut torch: [Torch; 10] = std::array::from_fn(|i| {
        let p = start[GROUPS[i].0].clone();
        let zeros = vec![0.0; p.len()];
        Torch { rate: RATES[i], decay: DECAYS[i], p, m: zeros.clone(), v: zeros }
    });
    let mut optimizer = optimizer();
    for t in 0..20u32 {
        // Sizes from 1e-4 to 1, so that epsilon and the second moment both matter.
        let value = |seed: u64, n: usize| -> Vec<f64> {
            let size = 10f64.powi(-((seed + u64::from(t)) as i32 % 5));
            numbers(1000 + 50 * u64::from(t) + seed, n).iter().map(|v| v * size).collect()
        };
        let factor = 1.0 - f64::from(t) / 40.0;
        let gradients = zoo.gradients(dtype, value);
        optimizer.step(&mut zoo, &gradients, factor);
        for (torch, (name, ..)) in torch.iter_mut().zip(GROUPS) {
            torch.step(&host(gradients.get(name).unwrap().clone()), t as i32 + 1, factor);
        }
    }
    let got = zoo.values();
    for (torch, (name, ..)) in torch.iter().zip(GROUPS) {
        close(name, &got[name], &torch.p, tolerance);
        let state = &optimizer.state()[name];
        assert_eq!(state.steps, 20);
        close(&format!("{name} m"), &host(state.first.clone()), &torch.m, tolerance);
        close(&format!("{name} v"), &host(state.second.clone()), &torch.v, tolerance);
    }
    assert_eq!(got["frozen"], start["frozen"]);
    assert_eq!(optimizer.state().len(), 10);
}

#[test]
fn the_first_step_by_hand() {
    // With one step m/(1-β1) = g and sqrt(v/(1-β2)) = |g|: the update is η·sign(g) up to ε.
    let mut zoo = Zoo::new(DType::F64);
    let before = zoo.values();
    let gradients = zoo.gradients(DType::F64, |_, n| vec![-0.5; n]);
    optimizer().step(&mut zoo, &gradients, 0.5);
    let after = zoo.values();
    for (p, q) in before["matrix.1"].iter().zip(&after["matrix.1"]) {
        let expected = p * (1.0 - 2.5e-3 * 0.1) + 2.5e-3 * 0.5 / (0.5 + 1e-8);
        assert!((q - expected).abs() < 1e-15, "{q} {expected}");
    }
}

#[test]
fn a_parameter_without_gradient_waits() {
    let mut zoo = Zoo::new(DType::F64);
    let mut optimizer = optimizer();
    let full = zoo.gradients(DType::F64, |seed, n| numbers(seed + 1, n));
    optimizer.step(&mut zoo, &full, 1.0);
    let before = zoo.values();
    let read = |optimizer: &AdamW, name: &str| {
        let m = &optimizer.state()[name];
        (host(m.first.clone()), host(m.second.clone()), m.steps)
    };
    let kept = read(&optimizer, "matrix.1");
    let mut partial = full.clone();
    partial.remove_where(|name| name == "matrix.1");
    optimizer.step(&mut zoo, &partial, 1.0);
    assert_eq!(zoo.values()["matrix.1"], before["matrix.1"], "neither update nor decay");
    assert_ne!(zoo.values()["vector.1"], before["vector.1"]);
    assert_eq!(read(&optimizer, "matrix.1"), kept);
    assert_eq!(optimizer.state()["vector.1"].steps, 2);
    optimizer.step(&mut zoo, &full, 1.0);
    assert_eq!(optimizer.state()["matrix.1"].steps, 2, "its own count");
}

#[test]
fn the_norm_is_global_and_the_clip_is_torchs() {
    for (dtype, tolerance) in [(DType::F64, 1e-14), (DType::F32, 1e-6)] {
        let zoo = Zoo::new(dtype);
        let value = |seed: u64, n: usize| numbers(seed + 40, n);
        let gradients = zoo.gradients(dtype, value);
        let squares: f64 = (0..5)
            .map(|i| (i, 6))
            .chain((10..15).map(|i| (i, 5)))
            .flat_map(|(seed, n)| value(seed, n))
            .map(|v| v * v)
            .sum();
        let norm = gradients.global_norm();
        close("norm", &[norm], &[squares.sqrt()], tolerance);
        for (max_norm, expected) in [(0.25, 0.25 / (norm + 1e-6)), (100.0, 1.0)] {
            let mut clipped = gradients.clone();
            assert_eq!(clipped.clip(norm, max_norm), expected);
            let of = |g: &NamedGradients| host(g.get("matrix.1").unwrap().clone());
            let scaled: Vec<f64> = of(&gradients).iter().map(|g| g * expected).collect();
            close("clipped", &of(&clipped), &scaled, tolerance);
        }
    }
    assert_eq!(NamedGradients::default().global_norm(), 0.0);
}

#[test]
fn micro_batches_add_up_to_their_batch() {
    let adapter = noisy(VariationalFamily::RankVariance);
    let net = Net::new([Some(&adapter), None], DType::F64);
    let (x, targets) = data(DType::F64);
    let collect = |from: usize, to: usize| {
        let (x, targets) = (x.clone().slice([from..to]), targets.clone().slice([from..to]));
        let loss = net.objective(x, targets, &Pass::mean()).loss();
        NamedGradients::collect(&net, &loss.backward())
    };
    let whole = collect(0, 4);
    let mut sum = collect(0, 2);
    sum.accumulate(collect(2, 4));
    sum.scale(0.5);
    let names: Vec<&str> = whole.names().collect();
    assert_eq!(names, sum.names().collect::<Vec<_>>());
    assert_eq!(names.len(), 5);
    for name in names {
        let of = |g: &NamedGradients| host(g.get(name).unwrap().clone());
        close(name, &of(&sum), &of(&whole), 1e-13);
    }
    // A gradient that only the second micro-batch has is taken as it is.
    let mut first = whole.clone();
    first.remove_where(|name| name == "head.bias");
    first.accumulate(whole.clone());
    let bias = |g: &NamedGradients| host(g.get("head.bias").unwrap().clone());
    assert_eq!(bias(&first), bias(&whole));
}

#[test]
fn foreign_state_is_rejected_by_name_and_changes_nothing() {
    let mut zoo = Zoo::new(DType::F64);
    let mut optimizer = optimizer();
    let gradients = zoo.gradients(DType::F64, |seed, n| numbers(seed + 1, n));
    optimizer.step(&mut zoo, &gradients, 1.0);
    let good = optimizer.state().clone();
    let moments = |n: usize| {
        let m = tensor(&vec![0.0; n], [n], DType::F64);
        Moments { first: m.clone(), second: m, steps: 1 }
    };
    for (name, state) in [
        ("stranger", moments(6)),
        ("matrix.1", moments(5)),
        ("frozen", moments(5)),
        ("vector.1", Moments { second: moments(4).second, ..moments(5) }),
    ] {
        let mut bad = good.clone();
        bad.insert(name.to_owned(), state);
        let error = optimizer.restore(&zoo, bad).unwrap_err();
        assert!(error.to_string().ends_with(&format!("unexpected `{name}`")), "{error}");
        assert_eq!(optimizer.state().len(), 10);
        assert_eq!(optimizer.state()["matrix.1"].first.dims(), [6]);
    }
}

#[test]
fn a_restored_optimizer_continues_bit_for_bit() {
    let steps = |zoo: &mut Zoo, optimizer: &mut AdamW, range: std::ops::Range<u64>| {
        for t in range {
            let gradients = zoo.gradients(DType::F32, |seed, n| numbers(100 * t + seed, n));
            optimizer.step(zoo, &gradients, 1.0 / (1.0 + t as f64));
        }
    };
    let mut whole = Zoo::new(DType::F32);
    steps(&mut whole, &mut optimizer(), 0..6);
    let (mut cut, mut before) = (Zoo::new(DType::F32), optimizer());
    steps(&mut cut, &mut before, 0..3);
    let mut after = optimizer();
    after.restore(&cut, before.state().clone()).unwrap();
    steps(&mut cut, &mut after, 3..6);
    assert!(whole.values() == cut.values());
    // Forgotten state is another run.
    let (mut other, mut forgetful) = (Zoo::new(DType::F32), optimizer());
    steps(&mut other, &mut forgetful, 0..3);
    forgetful.reset();
    assert!(forgetful.state().is_empty());
    steps(&mut other, &mut forgetful, 3..6);
    assert!(whole.values() != other.values());
}
