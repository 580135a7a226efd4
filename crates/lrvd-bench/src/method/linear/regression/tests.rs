//! Golden values are scikit-learn's 1.9.1: `LogisticRegression(C=1/strength, tol=1e-12)` and `Ridge(alpha=strength)`.
#![allow(clippy::unwrap_used)]

use super::*;

const COUNT: usize = 30;
const WIDE: usize = 4;
const CLASSES: [usize; COUNT] =
    [2, 1, 1, 2, 2, 0, 1, 1, 2, 0, 1, 1, 1, 0, 2, 2, 0, 0, 2, 2, 0, 1, 1, 0, 0, 2, 2, 0, 0, 2];
/// Rows that have the first label, and the second.
const PRESENT: [&str; 2] = ["001110001001010100110111111011", "110100010110101110100010000101"];

/// `sin(1.7·(i + 1)·(j + 1)) + 0.3·j`, `[rows, 4]`.
fn features() -> Vec<f64> {
    let of = |i: usize, j: usize| (1.7 * (i + 1) as f64 * (j + 1) as f64).sin() + 0.3 * j as f64;
    (0..COUNT).flat_map(|i| (0..WIDE).map(move |j| of(i, j))).collect()
}

fn table(answers: Answers) -> Table {
    let one_hot = |&class: &usize| (0..3).map(move |own| f64::from(own == class));
    let label = |row: usize| PRESENT.map(|all| f64::from(all.as_bytes()[row] == b'1'));
    let score = |(i, row): (usize, &[f64])| {
        row[0] - 0.5 * row[1] + 0.8 * row[2] + 0.2 * row[3] + 0.4 * (2.3 * i as f64).cos()
    };
    let (expected, width) = match answers {
        Answers::Classes => (CLASSES.iter().flat_map(one_hot).collect(), 3),
        Answers::Labels => ((0..COUNT).flat_map(label).collect(), 2),
        Answers::Score => (features().chunks(WIDE).enumerate().map(score).collect(), 1),
    };
    Table { answers, features: matrix(features(), COUNT, &Device::flex()), expected, width }
}

fn near(found: &[f64], expected: &[f64], distance: f64) {
    assert_eq!(found.len(), expected.len());
    let near = found.iter().zip(expected).all(|(f, e)| (f - e).abs() < distance);
    assert!(near, "{found:?}, expected {expected:?}");
}

#[test]
fn coefficients_and_loss_are_those_of_scikit_learn() {
    let fit = |answers| {
        let table = table(answers);
        let found = table.fit(table.zero(), 0.5, 1e-9, None).unwrap();
        let mut logits = table.logits(&found.at);
        let loss = table.loss(&mut logits) / COUNT as f64;
        let (weight, bias) = table.split(&found.at);
        (weight, bias, loss)
    };
    let (weight, bias, loss) = fit(Answers::Classes);
    let expected = [
        [-2.013_402_994_394, 0.602_752_397_111, -0.232_931_361_861, -0.218_246_700_810],
        [-0.039_037_045_804, -0.113_584_200_760, -1.061_513_911_392, -0.596_439_310_194],
        [2.052_440_040_198, -0.489_168_196_351, 1.294_445_273_253, 0.814_686_011_004],
    ];
    near(&weight, expected.as_flattened(), 1e-6);
    // A constant added to every bias changes nothing.
    let mean = bias.iter().sum::<f64>() / 3.0;
    let bias: Vec<f64> = bias.iter().map(|bias| bias - mean).collect();
    near(&bias, &[0.129_815_776_555, 1.516_699_632_457, -1.646_515_409_012], 1e-6);
    assert!((loss - 0.420_361_879_934).abs() < 1e-8, "{loss}");

    let (weight, bias, _) = fit(Answers::Labels);
    let expected = [
        [1.193_839_439_116, -1.380_199_780_213, 1.448_555_458_556, 0.145_972_338_940],
        [0.890_295_813_277, 1.704_057_274_245, -0.288_145_192_586, 0.322_638_980_591],
    ];
    near(&weight, expected.as_flattened(), 1e-6);
    near(&bias, &[-0.205_223_894_456, -0.941_038_403_897], 1e-6);

    let (weight, bias, _) = fit(Answers::Score);
    near(
        &weight,
        &[0.954_934_779_927, -0.462_233_826_482, 0.748_028_144_637, 0.194_989_806_393],
        1e-6,
    );
    near(&bias, &[0.023_473_898_014], 1e-6);
}

/// scikit-learn's mean log loss of the rows `i mod 3` by the fit to the others, at 10 to the power of −½ the smallest of all.
#[test]
fn the_strength_has_the_smallest_loss_of_rows_that_are_left_out() {
    let folds: Vec<Option<usize>> = (0..COUNT).map(|row| Some(row % 3)).collect();
    let table = table(Answers::Classes);
    let folds = Folds::new(&table, &folds, None);
    let found = folds.best().unwrap().unwrap();
    assert_eq!((found.halves, folds.held[1][0], found.logits.len()), (-1, 1, 3 * COUNT));
    assert!((found.loss - 0.671_295_037).abs() < 2e-3, "{}", found.loss);
    // The other way, from a first strength that is too weak for it.
    let strong = folds.at(8, &vec![table.zero(); 3]).unwrap().loss;
    assert!((strong - 1.117_037_015).abs() < 2e-3, "{strong}");
}

#[test]
fn scale_and_shift_are_folded_into_the_weights() {
    // Columns of other units, and one that is constant.
    let moved: Vec<f64> = features()
        .chunks(WIDE)
        .flat_map(|row| [1e4 * row[0] - 3e4, 1e-3 * row[1], row[2], row[3] + 5.0, 7.0])
        .collect();
    let host = Device::flex();
    for answers in [Answers::Classes, Answers::Labels, Answers::Score] {
        let Table { expected, width, .. } = table(answers);
        let fit = |features: Vec<f64>| {
            let rows = Rows { answers, expected: expected.clone(), width, features };
            let found = Regression::fit(&rows, 3, &host, None).unwrap();
            (found.answers(&rows.features, &host), found)
        };
        let (plain, first) = fit(features());
        let (other, second) = fit(moved.clone());
        assert_eq!(first.strength, second.strength);
        near(&plain, &other, 1e-2);
        assert!(second.weight.iter().skip(4).step_by(5).all(|&weight| weight == 0.0));
        let repeated = fit(features()).1;
        assert_eq!((repeated.weight, repeated.logits), (first.weight, first.logits));
    }
}

#[test]
fn every_class_is_in_every_fit_of_the_cross_validation() {
    let groups = [vec![0; 12], vec![1; 2], vec![2], vec![3; 7]].concat();
    let found = folds(&groups, 5);
    assert_eq!(found[14], None, "a class's only row");
    for group in [0, 1, 3] {
        let own = (0..groups.len()).filter(|&row| groups[row] == group);
        let mut counts = [0; FOLDS];
        own.for_each(|row| counts[found[row].unwrap()] += 1);
        let least = counts.iter().min().unwrap();
        let most = counts.iter().max().unwrap();
        assert!(most - least <= 1, "{group}: {counts:?}");
    }
    assert_ne!(found, folds(&groups, 6));
    // With one row of each class nothing can be left out.
    assert_eq!(folds(&[0, 1, 2], 5), [None; 3]);
    let rows = Rows {
        answers: Answers::Classes,
        expected: vec![1.0, 0.0, 0.0, 1.0],
        width: 2,
        features: vec![1.0, -1.0],
    };
    let found = Regression::fit(&rows, 1, &Device::flex(), None).unwrap();
    assert_eq!((found.strength, found.loss, found.folds), (strength(USUAL), None, 0));
    assert!(found.weight[0] > 0.1 && (found.weight[0] + found.weight[1]).abs() < 1e-9);
}

#[test]
fn a_watch_ends_the_fit() {
    let rows =
        Rows { answers: Answers::Score, expected: vec![1.0; 4], width: 1, features: vec![1.0; 4] };
    let stops = |_: usize| false;
    let ended = Regression::fit(&rows, 1, &Device::flex(), Some(&stops));
    assert!(matches!(ended, Err(lrvd_burn::Error::Stopped)));
}
