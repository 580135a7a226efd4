//! The AdaLoRA bridge: masks, compaction, the orthogonality penalty.

use crate::support::net::{Net, WIDTHS, data, optimizer};
use crate::support::{RANK, close, close_to_slopes, gradient, host, numbers, of, transposed};
use burn::tensor::DType;
use lrvd_burn::adalora::{AdaLora, orthogonality};
use lrvd_burn::host::HostAdapter;
use lrvd_burn::model::ranks;
use lrvd_burn::optimizer::NamedGradients;
use lrvd_burn::sampling::Pass;
use lrvd_core::adalora::orthogonality as core_orthogonality;
use lrvd_core::adalora::{AdaLoraAllocator, AdaLoraConfig, TripletShape, TripletValues};

fn config() -> AdaLoraConfig {
    AdaLoraConfig {
        init_r: RANK,
        target_r: 1,
        tinit: 1,
        tfinal: 2,
        delta_t: 2,
        total_step: 8,
        beta1: 0.85,
        beta2: 0.85,
        orth_reg_weight: 0.5,
    }
}

fn adapter(index: usize) -> HostAdapter {
    let (d_input, d_output) = (WIDTHS[index], WIDTHS[index + 1]);
    let seed = 20 * (index as u64 + 1);
    HostAdapter {
        rank: RANK,
        d_input,
        d_output,
        a: numbers(seed, RANK * d_input),
        b: numbers(seed + 1, RANK * d_output),
        e: Some(numbers(seed + 2, RANK)),
        noise: None,
        scaling: 1.75,
    }
}

fn net(dtype: DType) -> Net {
    Net::new([Some(&adapter(0)), Some(&adapter(1))], dtype)
}

/// One step of the usual loop without the allocator.
fn gradients(net: &mut Net, dtype: DType) -> NamedGradients {
    let (x, targets) = data(dtype);
    let loss = net.objective(x, targets, &Pass::mean()).loss();
    NamedGradients::collect(net, &loss.backward())
}

fn singular_values(net: &Net) -> [Vec<f64>; 2] {
    [&net.first, &net.second].map(|l| host(of(l).singular_values().unwrap().val()))
}

#[test]
fn the_allocator_sees_what_the_core_sees() {
    let dtype = DType::F64;
    let mut net = net(dtype);
    let mut optimizer = optimizer();
    let mut bridge = AdaLora::new(config(), &net).unwrap();
    assert_eq!(bridge.paths(), ["net.first", "net.second"]);
    let shapes: Vec<TripletShape> =
        (0..2).map(|i| TripletShape { d_input: WIDTHS[i], d_output: WIDTHS[i + 1] }).collect();
    let mut core = AdaLoraAllocator::new(config(), shapes).unwrap();
    for step in 0..8 {
        let gradients = gradients(&mut net, dtype);
        optimizer.step(&mut net, &gradients, 1.0);
        // PEFT's layout by hand: A [rank, d_input], B [d_output, rank], values after the update.
        let hosts: Vec<[Vec<f64>; 6]> =
            [("net.first", &net.first, 0), ("net.second", &net.second, 1)]
                .map(|(path, layer, i)| {
                    let (d_in, d_out) = (WIDTHS[i], WIDTHS[i + 1]);
                    let g = |name: &str| {
                        host(gradients.get(&format!("{path}.{name}")).unwrap().clone())
                    };
                    let module = of(layer);
                    [
                        transposed(&host(module.a.val()), d_in, RANK),
                        transposed(&g("lora_A"), d_in, RANK),
                        host(module.singular_values().unwrap().val()),
                        g("lora_E"),
                        transposed(&host(module.b.val()), RANK, d_out),
                        transposed(&g("lora_B"), RANK, d_out),
                    ]
                })
                .into();
        let triplets: Vec<TripletValues<'_, f64>> = hosts
            .iter()
            .map(|h| {
                let pair = |i: usize| [&h[i][..], &h[i + 1][..]];
                [pair(0), pair(2), pair(4)]
            })
            .collect();
        let before = singular_values(&net);
        let expected = core.update(step, &triplets).unwrap();
        let got = bridge.update(step, &mut net, &gradients).unwrap();
        assert_eq!(got, expected, "step {step}");
        assert_eq!(bridge.state(), core.state(), "step {step}");
        assert_eq!(bridge.scores(), core.scores());
        assert_eq!(bridge.mask(), expected.mask.as_deref());

        let masked = expected.mask.filter(|_| expected.masked_now);
        for (i, (old, new)) in before.iter().zip(singular_values(&net)).enumerate() {
            let keep = |k: usize| masked.as_ref().is_none_or(|m| m[i][k]);
            let expected: Vec<f64> =
                old.iter().enumerate().map(|(k, e)| if keep(k) { *e } else { 0.0 }).collect();
            assert_eq!(new, expected, "singular values of layer {i} at step {step}");
        }
    }
    let total: usize = bridge.mask().unwrap().iter().flatten().filter(|k| **k).count();
    assert_eq!(total, 2, "the target is an average rank of 1");
    assert!(of(&net.first).singular_values().unwrap().val().is_require_grad());
}

/// A whole run, which ends masked.
fn finished(dtype: DType) -> (Net, AdaLora) {
    let mut net = net(dtype);
    let mut optimizer = optimizer();
    let mut bridge = AdaLora::new(config(), &net).unwrap();
    for step in 0..8 {
        let gradients = gradients(&mut net, dtype);
        optimizer.step(&mut net, &gradients, 1.0);
        bridge.update(step, &mut net, &gradients).unwrap();
    }
    (net, bridge)
}

#[test]
fn a_compact_model_gives_the_masked_outputs() {
    for (dtype, tolerance) in [(DType::F64, 1e-14), (DType::F32, 1e-6)] {
        let (mut net, bridge) = finished(dtype);
        let x = data(dtype).0;
        let masked = host(net.forward(x.clone(), &Pass::mean()));
        bridge.compact(&mut net);
        close("compact", &host(net.forward(x.clone(), &Pass::mean())), &masked, tolerance);
        let kept = bridge.mask().unwrap().iter().map(|m| m.iter().filter(|k| **k).count());
        let got: Vec<usize> = ranks(&net).into_iter().map(|(_, rank)| rank).collect();
        assert_eq!(got, kept.collect::<Vec<_>>());
        bridge.compact(&mut net);
        bridge.mask_again(&mut net);
        close("again", &host(net.forward(x, &Pass::mean())), &masked, tolerance);
    }
}

#[test]
fn masking_again_undoes_what_grew_back() {
    let dtype = DType::F32;
    let (mut net, bridge) = finished(dtype);
    let masked = singular_values(&net);
    let gradients = gradients(&mut net, dtype);
    let mut optimizer = optimizer();
    optimizer.step(&mut net, &gradients, 1.0);
    let grown = singular_values(&net);
    let zeros = |v: &[Vec<f64>; 2]| v.iter().flatten().filter(|e| **e == 0.0).count();
    assert!(zeros(&grown) < zeros(&masked));
    bridge.mask_again(&mut net);
    assert_eq!(zeros(&singular_values(&net)), zeros(&masked));
}

#[test]
fn a_resumed_allocator_goes_on() {
    let dtype = DType::F32;
    let run = |cut: Option<u32>| {
        let mut net = net(dtype);
        let mut optimizer = optimizer();
        let mut bridge = AdaLora::new(config(), &net).unwrap();
        for step in 0..8 {
            if cut == Some(step) {
                bridge = AdaLora::from_state(config(), &net, bridge.state().clone()).unwrap();
            }
            let gradients = gradients(&mut net, dtype);
            optimizer.step(&mut net, &gradients, 1.0);
            bridge.update(step, &mut net, &gradients).unwrap();
        }
        net.snapshot()
    };
    let whole = run(None);
    for cut in 1..8 {
        assert_eq!(run(Some(cut)), whole, "cut at {cut}");
    }
}

#[test]
fn a_model_that_was_cut_is_rejected() {
    for step in [0, 7] {
        let dtype = DType::F32;
        let (mut net, mut bridge) = finished(dtype);
        let gradients = gradients(&mut net, dtype);
        net.first.select_ranks(&[0, 2]);
        let error = bridge.update(step, &mut net, &gradients).unwrap_err();
        assert_eq!(error.to_string(), "`E of module 0` has length 2, expected 4");
        net.first.select_ranks(&[]);
        let error = bridge.update(step, &mut net, &gradients).unwrap_err();
        assert_eq!(error.to_string(), "`model` has length 1, expected 2");
    }
}

/// The core's penalty of modules with factors `a [rank, d_input]` and `b [rank, d_output]`, by their order in `leaves`.
fn penalty_of(hosts: &[HostAdapter], leaves: &[Vec<f64>]) -> f64 {
    let in_files: Vec<Vec<f64>> = hosts
        .iter()
        .zip(leaves.chunks(2))
        .map(|(h, leaves)| transposed(&leaves[1], RANK, h.d_output))
        .collect();
    let factors: Vec<[&[f64]; 2]> =
        leaves.chunks(2).zip(&in_files).map(|(leaves, b)| [leaves[0].as_slice(), b]).collect();
    core_orthogonality(&factors, RANK).unwrap()
}

#[test]
fn the_orthogonality_penalty_is_the_cores() {
    for (dtype, tolerance) in [(DType::F64, 1e-13), (DType::F32, 2e-6)] {
        let net = net(dtype);
        let hosts = [&net.first, &net.second].map(|l| HostAdapter::read(of(l)));
        let leaves: Vec<Vec<f64>> = hosts.iter().flat_map(|h| [h.a.clone(), h.b.clone()]).collect();
        let penalty = orthogonality(&net).unwrap();
        close("value", &host(penalty.clone()), &[penalty_of(&hosts, &leaves)], tolerance);
        let gradients = penalty.backward();
        let of_layer = |layer| {
            let module = of(layer);
            let a = transposed(&gradient(&module.a.val(), &gradients), module.d_input(), RANK);
            [("A", a), ("B", gradient(&module.b.val(), &gradients))]
        };
        let found = [of_layer(&net.first), of_layer(&net.second)].concat();
        close_to_slopes("penalty", &found, &leaves, tolerance, |l| penalty_of(&hosts, l));
    }
    assert!(orthogonality(&Net::new([None, None], DType::F32)).is_none());
}

#[test]
fn an_orthonormal_factor_has_a_finite_gradient() {
    let mut plain = adapter(0);
    // Rows of A are unit vectors; B is arbitrary.
    plain.a = (0..RANK * 5).map(|i| f64::from(u8::from(i % 5 == i / 5))).collect();
    let net = Net::new([Some(&plain), None], DType::F32);
    let gradients = orthogonality(&net).unwrap().backward();
    let a = gradient(&of(&net.first).a.val(), &gradients);
    assert!(a.iter().all(|g| *g == 0.0), "{a:?}");
}
