//! Random numbers, and the order of rows.

use lrvd_burn::train::{Bucketing, LastBatch, OrderConfig};
use lrvd_core::noise::{
    Generator, NoiseKey, Stream, fill_normal, fill_normal_f64, fill_uniform, module_id,
    permutation, philox, words,
};

use super::{Pins, hash};

const NUMBERS: usize = 1001;

#[test]
fn random_numbers_and_orders() {
    let mut pins = Pins::new("draws");
    let module = module_id("encoder.layer.0.attention.self.query_proj");
    let base = NoiseKey::new(0x0123_4567_89ab_cdef).at_step(3).for_module(module);
    pins.exact("module_id", module);
    pins.exact("philox", format!("{:?}", philox([1, 2, 3, 4], [5, 6])));
    let mut block = [0; 8];
    words(base, 7, &mut block);
    pins.exact("words", format!("{block:?}"));
    for (name, stream) in [
        ("weight_a", Stream::WEIGHT_A),
        ("weight_b", Stream::WEIGHT_B),
        ("output", Stream::OUTPUT),
        ("rank", Stream::RANK),
        ("dropout", Stream::DROPOUT),
        ("init", Stream::INIT),
        ("shuffle", Stream::SHUFFLE),
        ("data", Stream::DATA),
    ] {
        let key = base.on_stream(stream).with_use(2);
        let mut uniform = [0.0f32; NUMBERS];
        let mut normal = [0.0f32; NUMBERS];
        let mut wide = [0.0f64; NUMBERS];
        fill_uniform(key, 1, &mut uniform);
        fill_normal(key, 1, &mut normal);
        fill_normal_f64(key, 1, &mut wide);
        let bits =
            |values: &[f32]| hash(&values.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<_>>());
        pins.exact(&format!("{name}.uniform"), format!("{:?} {}", &uniform[..3], bits(&uniform)));
        pins.exact(&format!("{name}.normal"), format!("{:?} {}", &normal[..3], bits(&normal)));
        // Logarithm and cosine are the system's.
        pins.near(&format!("{name}.normal_f64"), wide[..4].iter().copied());
    }
    let mut draws = Generator::new(base.on_stream(Stream::DATA));
    pins.exact("draws.words", format!("{} {}", draws.word(), draws.long_word()));
    pins.near("draws.uniform_and_normal", [draws.uniform(), draws.normal(), draws.normal()]);
    pins.exact("draws.bounded", format!("{} {}", draws.bounded(1000), draws.index(77)));
    let mut shuffled: Vec<usize> = (0..12).collect();
    draws.shuffle(&mut shuffled);
    pins.exact("draws.shuffle", format!("{shuffled:?}"));
    pins.exact("permutation", format!("{:?}", permutation(base, 12)));

    let lengths: Vec<usize> = (0..11).map(|i| 3 + (7 * i) % 5).collect();
    for (name, bucketing) in [
        ("shuffled", Bucketing::Shuffled),
        ("bucketed", Bucketing::LengthBucketed { window: 2 }),
        ("file", Bucketing::FileOrder),
    ] {
        for last_batch in [LastBatch::Keep, LastBatch::Drop] {
            let config = OrderConfig { bucketing, last_batch, ..OrderConfig::shuffled(3) };
            let batches = (0..).flat_map(|epoch| config.batches(5, &lengths, epoch)).take(7);
            let batches: Vec<_> = batches.collect();
            let name = format!("order.{name}.{last_batch:?}").to_lowercase();
            pins.exact(&name, format!("{batches:?}"));
        }
    }
    pins.finish();
}
