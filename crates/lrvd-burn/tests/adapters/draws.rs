//! Several draws through one layer, and draws in pairs of opposite noise.

use crate::support::{BATCH, D_INPUT, TOKENS, close, host, host_adapter, layer, numbers, tensor};
use burn::tensor::{DType, Tensor};
use lrvd_burn::sampling::{DrawPer, DrawSet, Pass, Scheme};
use lrvd_core::family::VariationalFamily;
use lrvd_core::noise::NoiseKey;

const DRAWS: usize = 4;

fn pass(draws: DrawSet) -> Pass {
    let key = NoiseKey::new(0x1234_5678_9abc).at_step(3);
    Pass::sampled(Scheme::Weights(DrawPer::Batch), key).with_draws(draws)
}

fn input() -> Tensor<3> {
    tensor(&numbers(1, BATCH * TOKENS * D_INPUT), [BATCH, TOKENS, D_INPUT], DType::F64)
}

#[test]
fn a_batch_of_draws_is_as_many_batches() {
    let rows: Tensor<2> = tensor(&numbers(3, 7 * D_INPUT), [7, D_INPUT], DType::F64);
    for antithetic in [false, true] {
        let one = |first| pass(DrawSet { first, antithetic, ..DrawSet::ONE });
        let set = DrawSet { first: 1, count: DRAWS, rows: BATCH, antithetic };
        for family in VariationalFamily::ALL {
            let layer = layer("net.first", &host_adapter(Some(family), 10), DType::F64);
            let each = |f: &dyn Fn(Pass) -> Vec<f64>| -> Vec<f64> {
                (1..=DRAWS as u32).flat_map(|draw| f(one(draw))).collect()
            };
            let expected = each(&|pass| host(layer.forward_with(input(), &pass)));
            // From the rows of one draw, and from those of all of them.
            for x in [input(), input().repeat_dim(0, DRAWS)] {
                close("tokens", &host(layer.forward_with(x, &pass(set))), &expected, 1e-14);
            }
            let shared = |pass: Pass| layer.prepare(&pass, BATCH).forward_shared(rows.clone());
            // A single draw has no axis for the sequences, several have.
            let expected = each(&|pass| host(shared(pass)).repeat(BATCH));
            close("shared rows", &host(shared(pass(set))), &expected, 1e-14);
        }
    }
}

#[test]
fn the_noise_of_a_pair_cancels_where_it_enters_linearly() {
    let family = VariationalFamily::AsymRankVariance;
    let layer = layer("net.first", &host_adapter(Some(family), 10), DType::F64);
    let mean = host(layer.forward_with(input(), &Pass::mean()));
    let set = DrawSet { first: 0, count: DRAWS, rows: BATCH, antithetic: true };
    let drawn = host(layer.forward_with(input(), &pass(set)));
    let plain = host(layer.forward_with(input(), &pass(DrawSet { antithetic: false, ..set })));
    let n = mean.len();
    for pair in 0..DRAWS / 2 {
        let [a, b] = [2 * pair, 2 * pair + 1].map(|draw| &drawn[draw * n..][..n]);
        let middle: Vec<f64> = a.iter().zip(b).map(|(a, b)| f64::midpoint(*a, *b)).collect();
        close("mean of a pair", &middle, &mean, 1e-13);
        // The first of a pair is the draw that an ordinary pass makes under the pair's key.
        close("law", a, &plain[pair * n..][..n], 1e-15);
        assert!(a.iter().zip(&mean).any(|(a, m)| (a - m).abs() > 1e-3), "the noise must show");
    }
}
