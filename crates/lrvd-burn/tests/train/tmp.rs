use lrvd_burn::train::{Bucketing, LastBatch, OrderConfig, OrderState};

#[test]
fn orders_are_as_pinned() {
    let pins = include_str!("../../../lrvd-cli/tests/cli/pins/draws.txt");
    let lengths: Vec<usize> = (0..11).map(|i| 3 + (7 * i) % 5).collect();
    let mut n = 0;
    for (name, bucketing) in [
        ("shuffled", Bucketing::Shuffled),
        ("bucketed", Bucketing::LengthBucketed { window: 2 }),
        ("file", Bucketing::FileOrder),
    ] {
        for last_batch in [LastBatch::Keep, LastBatch::Drop] {
            let config = OrderConfig { bucketing, last_batch, ..OrderConfig::shuffled(3) };
            let batches = (0..).flat_map(|epoch| config.batches(5, &lengths, epoch)).take(7);
            let batches: Vec<_> = batches.collect();
            let line =
                format!("order.{name}.{last_batch:?}").to_lowercase() + &format!(" = {batches:?}");
            assert!(pins.contains(&line), "{line}");
            n += 1;
        }
    }
    assert_eq!(n, 6);
    let state = OrderState { epoch: 3, merged: true, next_batch: 2 };
    assert_eq!(
        serde_json::to_string(&state).unwrap(),
        serde_json::to_value(state).unwrap().to_string()
    );
    assert_eq!(
        serde_json::to_string(&state).unwrap(),
        r#"{"epoch":3,"merged":true,"next_batch":2}"#
    );
}
