//! The AdaLoRA bridge: masks, compaction, the orthogonality penalty.

use crate::support::prelude::*;
use lrvd_burn::adalora::{AdaLora, orthogonality};
use lrvd_burn::model::ranks;
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
    HostAdapter { e: Some(numbers(22 + 20 * index as u64, RANK)), ..factors(index) }
}

fn net(dtype: DType) -> Net {
    Net::new([Some(&adapter(0)), Some(&adapter(1))], dtype)
}

/// Gradients of a batch at the mean.
fn gradients(net: &Net, dtype: DType) -> NamedGradients {
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
        let gradients = gradients(&net, dtype);
        optimizer.step(&mut net, &gradients, 1.0);
        // PEFT's layout by hand: A [rank, d_input], B [d_output, rank], values after the update.
        let layers = [("net.first", &net.first, 0), ("net.second", &net.second, 1)];
        let hosts: [[Vec<f64>; 6]; 2] = layers.map(|(path, layer, i)| {
            let (d_in, d_out, module) = (WIDTHS[i], WIDTHS[i + 1], of(layer));
            let g = |name: &str| host(gradients.get(&format!("{path}.{name}")).unwrap().clone());
            [
                transposed(&host(module.a.val()), d_in, RANK),
                transposed(&g("lora_A"), d_in, RANK),
                host(module.singular_values().unwrap().val()),
                g("lora_E"),
                transposed(&host(module.b.val()), RANK, d_out),
                transposed(&g("lora_B"), RANK, d_out),
            ]
        });
        let triplets: Vec<TripletValues<'_, f64>> =
            hosts.iter().map(|h| [0, 2, 4].map(|i| [&h[i][..], &h[i + 1][..]])).collect();
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
            same(&format!("singular values of layer {i} at step {step}"), &new, &expected);
        }
    }
    let total: usize = bridge.mask().unwrap().iter().flatten().filter(|k| **k).count();
    assert_eq!(total, 2, "the target is an average rank of 1");
    assert!(of(&net.first).singular_values().unwrap().val().is_require_grad());
}

/// A whole run, which ends masked; with `cut` the allocator is resumed from its state before that step.
fn finished(dtype: DType, cut: Option<u32>) -> (Net, AdaLora) {
    let (mut net, mut optimizer) = (net(dtype), optimizer());
    let mut bridge = AdaLora::new(config(), &net).unwrap();
    for step in 0..8 {
        if cut == Some(step) {
            bridge = AdaLora::from_state(config(), &net, bridge.state().clone()).unwrap();
        }
        let gradients = gradients(&net, dtype);
        optimizer.step(&mut net, &gradients, 1.0);
        bridge.update(step, &mut net, &gradients).unwrap();
    }
    (net, bridge)
}

#[test]
fn a_compact_model_gives_the_masked_outputs() {
    for (dtype, tolerance) in [(DType::F64, 1e-14), (DType::F32, 1e-6)] {
        let (mut net, bridge) = finished(dtype, None);
        let x = data(dtype).0;
        let masked = host(net.forward(x.clone(), &Pass::mean()));
        bridge.compact(&mut net);
        close("compact", &host(net.forward(x.clone(), &Pass::mean())), &masked, tolerance);
        let kept = bridge.mask().unwrap().iter().map(|m| m.iter().filter(|k| **k).count());
        let got: Vec<usize> = ranks(&net).into_iter().map(|(_, rank)| rank).collect();
        assert_eq!(got, kept.collect::<Vec<_>>());
        bridge.compact(&mut net);
        close("again", &host(net.forward(x, &Pass::mean())), &masked, tolerance);
    }
}

#[test]
fn a_resumed_allocator_continues_bit_for_bit() {
    let whole = finished(DType::F32, None).0.snapshot();
    for cut in 1..8 {
        assert!(finished(DType::F32, Some(cut)).0.snapshot() == whole, "cut at {cut}");
    }
}

#[test]
fn a_model_that_was_cut_is_rejected() {
    for step in [0, 7] {
        let dtype = DType::F32;
        let (mut net, mut bridge) = finished(dtype, None);
        let gradients = gradients(&net, dtype);
        net.first.select_ranks(&[0, 2]);
        let error = bridge.update(step, &mut net, &gradients).unwrap_err();
        assert_eq!(error.to_string(), "`E of module 0` has length 2, expected 4");
        net.first.select_ranks(&[]);
        let error = bridge.update(step, &mut net, &gradients).unwrap_err();
        assert_eq!(error.to_string(), "`model` has length 1, expected 2");
    }
}

#[test]
fn the_orthogonality_penalty_is_the_cores() {
    for (dtype, tolerance) in [(DType::F64, 1e-13), (DType::F32, 2e-6)] {
        let net = net(dtype);
        let means = |layer| leaves_of(layer).into_iter().take(2);
        let leaves: Vec<Tracked> = means(&net.first).chain(means(&net.second)).collect();
        // The core has A as `[rank, d_input]` and B as `[d_output, rank]`.
        check("penalty", orthogonality(&net).unwrap(), &leaves, tolerance, |leaves| {
            let of = |i: usize| {
                let (a, b) = (&leaves[2 * i], &leaves[2 * i + 1]);
                [transposed(a, WIDTHS[i], RANK), transposed(b, RANK, WIDTHS[i + 1])]
            };
            let hosts = [of(0), of(1)];
            let factors: Vec<[&[f64]; 2]> = hosts.iter().map(|[a, b]| [&a[..], &b[..]]).collect();
            vec![core_orthogonality(&factors, RANK).unwrap()]
        });
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
    assert!(a.iter().all(|g| *g == 0.0));
}
