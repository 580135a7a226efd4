//! Labels that are there or not, independently of each other.

use burn::tensor::DType;
use lrvd_burn::parameters::values;
use lrvd_burn::train::{calibrated_losses, negative_log_likelihood};
use lrvd_burn::{Error, Prediction};

use super::*;

/// Two rows of three labels: none but the first, and all of them.
const PRESENT: [[f32; 3]; 2] = [[1.0, 0.0, 0.0], [1.0, 1.0, 1.0]];

fn sigmoid(z: f64) -> f64 {
    1.0 / (1.0 + (-z).exp())
}

/// Value and gradient by their formulas, `−Σ [y ln σ(z) + (1 − y) ln σ(−z)]` and `σ(z) − y`, and where `exp` would overflow.
#[test]
fn the_loss_is_binary_cross_entropy_and_its_gradient_the_excess_of_the_probability() {
    let device = Device::flex().autodiff();
    let logits = [[0.5_f32, -1.25, 2.0], [-3.0, 0.0, 0.75]];
    let leaf = Tensor::<2>::from_data(TensorData::from(logits), (&device, DType::F32));
    let leaf = leaf.require_grad();
    let present = Tensor::<2>::from_data(TensorData::from(PRESENT), (&device, DType::F32));
    let targets = Targets::Labels(present);
    let loss = negative_log_likelihood(leaf.clone(), &targets);
    let pairs = || logits.iter().flatten().zip(PRESENT.iter().flatten());
    let term = |(&z, &y): (&f32, &f32)| {
        let p = sigmoid(f64::from(z));
        -if y == 1.0 { p } else { 1.0 - p }.ln()
    };
    let expected: f64 = pairs().map(term).sum();
    let found = values(loss.clone())[0];
    assert!((found - expected).abs() < 1e-5 * expected, "{found} {expected}");
    let slopes = values(leaf.grad(&loss.backward()).unwrap());
    for ((&z, &y), found) in pairs().zip(slopes) {
        let expected = sigmoid(f64::from(z)) - f64::from(y);
        assert!((found - expected).abs() < 1e-6, "{z} {y}: {found} {expected}");
    }
    let far = Tensor::<2>::from_floats([[90.0, -90.0]], &Device::flex());
    let wrong = Targets::Labels(Tensor::from_floats([[0.0, 1.0]], &Device::flex()));
    assert!((values(negative_log_likelihood(far, &wrong))[0] - 180.0).abs() < 1e-3);
}

#[test]
fn every_label_is_a_case_of_two_classes() {
    // Two draws of one row.
    let prediction = Prediction::new(vec![2.0, -1.0, 0.0, 1.0], 1, 2);
    let labels = prediction.per_label();
    assert_eq!((labels.rows, labels.width, labels.members()), (2, 2, 2));
    let answers = labels.classes().unwrap();
    let means = [0.5 * (sigmoid(2.0) + sigmoid(0.0)), 0.5 * (sigmoid(-1.0) + sigmoid(1.0))];
    for (answer, mean) in answers.iter().zip(means) {
        assert!((answer.probabilities[0] - mean).abs() < 1e-12);
        assert!(answer.mutual_information > Some(0.0));
    }
    let made = Prediction { draws_per_example: Some(vec![0]), ..prediction };
    assert_eq!(made.per_label().draws_per_example, Some(vec![0, 0]));
}

/// Logits of 4 and −4, of which three of four labels agree: at the best temperature each label has a probability of 3/4.
#[test]
fn a_row_has_the_loss_of_all_its_labels() -> Result<(), Error> {
    let logits = Prediction::new(vec![4.0, -4.0, 4.0, 4.0], 2, 2);
    let targets = Targets::Labels(Tensor::from_floats([[1.0, 0.0], [1.0, 0.0]], &Device::flex()));
    let found = calibrated_losses(&logits, &targets)?.rows;
    let (right, wrong) = (-0.75_f64.ln(), -0.25_f64.ln());
    assert!((found[0] - 2.0 * right).abs() < 1e-4, "{found:?}");
    assert!((found[1] - right - wrong).abs() < 1e-4, "{found:?}");
    assert_eq!((targets.rows(), targets.answers(), targets.classes()), (2, 2, None));
    Ok(())
}
