//! AdamW: rates and decays of the groups, parameters without a gradient, accumulation and restored state.
//! Thirty steps of it, clipped, are compared with PyTorch by the recorded training runs in `lrvd-models`.

use crate::support::prelude::*;
use lrvd_burn::model::Named;
use lrvd_burn::optimizer::Moments;
use std::collections::BTreeMap;

/// One parameter of every group and of both numbers of axes.
#[derive(Module, Debug)]
struct Zoo {
    matrix: Vec<Named<Param<Tensor<2>>>>,
    vector: Vec<Named<Param<Tensor<1>>>>,
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

/// A parameter under the name and in the group of a row of the table.
fn named<const D: usize>(row: usize, shape: [usize; D]) -> Named<Param<Tensor<D>>> {
    let (name, group) = GROUPS[row];
    Named::new(name, group, random(row as u64 + 1, shape, DType::F64))
}

impl Zoo {
    fn new() -> Self {
        Self {
            matrix: (0..5).map(|i| named(i, [2, 3])).collect(),
            vector: (5..10).map(|i| named(i, [5])).collect(),
            frozen: random(11, [5], DType::F64).set_require_grad(false),
        }
    }

    /// Gradients of -0.5.
    fn gradients(&self) -> NamedGradients {
        let matrices = self.matrix.iter().map(|p| p.val().sum());
        let all = matrices.chain(self.vector.iter().map(|p| p.val().sum()));
        let loss = all.reduce(|a, b| a + b).unwrap() * -0.5;
        NamedGradients::collect(self, &loss.backward())
    }

    fn values(&self) -> BTreeMap<String, Vec<f64>> {
        let mut all = BTreeMap::new();
        self.visit_parameters(&mut |p| {
            all.insert(p.name.to_owned(), host(p.value.flat()));
        });
        all
    }
}

/// Both factors of an adapter.
#[derive(Module, Debug)]
struct Factors {
    a: Named<Param<Tensor<2>>>,
    b: Named<Param<Tensor<2>>>,
}

/// LoRA+: a first step is the rate times the sign of the gradient, as below, and B has 16 times the rate of A.
#[test]
fn the_rate_of_b_is_a_multiple_of_that_of_a() {
    let of = |name, seed| Named::new(name, Group::AdapterMean, random(seed, [2, 3], DType::F64));
    let mut factors = Factors { a: of("q.lora_A", 1), b: of("q.lora_B", 2) };
    let values = |all: &Factors| [&all.a, &all.b].map(|p| host(p.val().flatten::<1>(0, 1)));
    let before = values(&factors);
    let loss = (factors.a.val().sum() + factors.b.val().sum()) * -0.5;
    let gradients = NamedGradients::collect(&factors, &loss.backward());
    optimizer().with_b_factor(16.0).step(&mut factors, &gradients, 0.5);
    for ((old, new), rate) in before.into_iter().zip(values(&factors)).zip([1.5e-3, 2.4e-2]) {
        for (p, q) in old.iter().zip(&new) {
            let expected = p * (1.0 - rate * 0.02) + rate * 0.5 / (0.5 + 1e-8);
            assert!((q - expected).abs() < 1e-14, "{q} {expected}");
        }
    }
}

#[test]
fn a_first_step_has_the_rate_and_the_decay_of_its_group() {
    // With one step m/(1-β1) = g and sqrt(v/(1-β2)) = |g|: the update is η·sign(g) up to ε.
    let mut zoo = Zoo::new();
    let before = zoo.values();
    let gradients = zoo.gradients();
    optimizer().step(&mut zoo, &gradients, 0.5);
    let after = zoo.values();
    for ((name, _), (rate, decay)) in GROUPS.into_iter().zip(RATES.into_iter().zip(DECAYS)) {
        for (p, q) in before[name].iter().zip(&after[name]) {
            let expected = p * (1.0 - 0.5 * rate * decay) + 0.5 * rate * 0.5 / (0.5 + 1e-8);
            assert!((q - expected).abs() < 1e-15, "{name}: {q} {expected}");
        }
    }
    assert_eq!(after["frozen"], before["frozen"]);
}

#[test]
fn a_parameter_without_gradient_waits() {
    let (mut zoo, mut optimizer) = (Zoo::new(), optimizer());
    let full = zoo.gradients();
    optimizer.step(&mut zoo, &full, 1.0);
    let before = zoo.values();
    let mut partial = full.clone();
    partial.remove_where(|name| name == "matrix.1");
    optimizer.step(&mut zoo, &partial, 1.0);
    assert_eq!(zoo.values()["matrix.1"], before["matrix.1"], "neither update nor decay");
    assert_ne!(zoo.values()["vector.1"], before["vector.1"]);
    optimizer.step(&mut zoo, &full, 1.0);
    let steps = |name: &str| optimizer.state()[name].steps;
    assert_eq!((steps("matrix.1"), steps("vector.1")), (2, 3), "each has its own count");
    // A gradient that only the second micro-batch has is taken as it is, the others add up.
    partial.accumulate(full);
    let read = |name: &str| host(partial.get(name).unwrap().clone())[0];
    assert_eq!((read("matrix.1"), read("vector.1")), (-0.5, -1.0));
    assert_eq!(NamedGradients::default().global_norm(), 0.0);
}

#[test]
fn foreign_state_is_rejected_by_name_and_changes_nothing() {
    let (mut zoo, mut optimizer) = (Zoo::new(), optimizer());
    let gradients = zoo.gradients();
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
    optimizer.reset();
    assert!(optimizer.state().is_empty());
}
