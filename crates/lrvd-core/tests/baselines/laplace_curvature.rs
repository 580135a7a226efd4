//! What the gathered factors are, against the exact Fisher matrix of a small classifier.
//!
//! The classifier reads token outputs `h_t = W·a_t` through a fixed `V`: logits `Σ_t V·h_t`.

use lrvd_core::baselines::laplace::{Curvature, InputNormalisation};
use lrvd_core::metrics::softmax;
use lrvd_core::numeric::dense::{times, transposed_times};

use crate::support::{TestRng, assert_close};

const D_OUT: usize = 3;
const D_IN: usize = 4;
const CLASSES: usize = 3;
const SIZE: usize = D_OUT * D_IN;

struct Classifier {
    w: Vec<f64>,
    v: Vec<f64>,
}

impl Classifier {
    fn new() -> Self {
        let mut rng = TestRng::new(23);
        Self { w: rng.normals(SIZE), v: rng.normals(CLASSES * D_OUT) }
    }

    /// `[d_input]`, the sum of the tokens: all that the logits depend on.
    fn summed(tokens: &[f64]) -> Vec<f64> {
        (0..D_IN).map(|j| tokens.iter().skip(j).step_by(D_IN).sum()).collect()
    }

    fn probabilities(&self, tokens: &[f64]) -> Vec<f64> {
        let h = times(&self.w, &Self::summed(tokens), D_OUT, D_IN, 1);
        softmax(&times(&self.v, &h, CLASSES, D_OUT, 1), CLASSES).unwrap()
    }

    /// `Jᵀ(diag p − p pᵀ)J`, `[SIZE, SIZE]`, with `J_c = V_c ⊗ Σ_t a_t`.
    fn fisher(&self, tokens: &[f64]) -> Vec<f64> {
        let (p, a) = (self.probabilities(tokens), Self::summed(tokens));
        let jacobian: Vec<f64> = self.v.iter().flat_map(|v| a.iter().map(move |a| v * a)).collect();
        let middle: Vec<f64> = (0..CLASSES * CLASSES)
            .map(|at| {
                let (i, j) = (at / CLASSES, at % CLASSES);
                f64::from(u8::from(i == j)) * p[i] - p[i] * p[j]
            })
            .collect();
        let half = times(&middle, &jacobian, CLASSES, CLASSES, SIZE);
        transposed_times(&jacobian, &half, CLASSES, SIZE, SIZE)
    }

    fn gather(&self, sums: &mut Curvature, tokens: &[f64]) {
        sums.add_inputs(tokens).unwrap();
        for (class, p) in self.probabilities(tokens).into_iter().enumerate() {
            // −ln p_c by h_t: Vᵀ(p − e_c), the same for every token.
            let mut error = self.probabilities(tokens);
            error[class] -= 1.0;
            let by_output = transposed_times(&self.v, &error, CLASSES, D_OUT, 1);
            sums.add_class(p, &by_output.repeat(tokens.len() / D_IN)).unwrap();
        }
    }
}

/// `S ⊗ A`.
fn product(sums: &Curvature, by: InputNormalisation) -> Vec<f64> {
    let (s, a) = (sums.output_factor(), sums.input_factor(by).unwrap());
    (0..SIZE * SIZE)
        .map(|at| {
            let (row, col) = (at / SIZE, at % SIZE);
            s[(row / D_IN) * D_OUT + col / D_IN] * a[(row % D_IN) * D_IN + col % D_IN]
        })
        .collect()
}

#[test]
fn equal_examples_of_one_token_are_exact() {
    // With equal inputs, A is that input's outer product and S ⊗ A the exact sum of all Fishers.
    for (seed, examples) in [(29, 1), (37, 5)] {
        let (model, tokens) = (Classifier::new(), TestRng::new(seed).normals(D_IN));
        let mut sums = Curvature::new(D_OUT, D_IN);
        for _ in 0..examples {
            model.gather(&mut sums, &tokens);
        }
        let fisher = model.fisher(&tokens);
        let expected: Vec<f64> = fisher.iter().map(|v| f64::from(examples) * v).collect();
        assert_close("sum", &product(&sums, InputNormalisation::Tokens), &expected, 1e-13);
    }
}

#[test]
fn duplicated_data_doubles_the_curvature() {
    let (model, mut rng) = (Classifier::new(), TestRng::new(31));
    let examples = [rng.normals(D_IN), rng.normals(3 * D_IN), rng.normals(2 * D_IN)];
    let gather = |times: usize| {
        let mut sums = Curvature::new(D_OUT, D_IN);
        for example in examples.iter().cycle().take(times * examples.len()) {
            model.gather(&mut sums, example);
        }
        sums
    };
    for by in [InputNormalisation::Tokens, InputNormalisation::Examples] {
        let once: Vec<f64> = product(&gather(1), by).iter().map(|v| 2.0 * v).collect();
        assert_close("twice", &product(&gather(2), by), &once, 1e-13);
    }
    // The compatible normalisation is larger by the mean length, 6 tokens over 3 examples.
    let tokens: Vec<f64> =
        product(&gather(1), InputNormalisation::Tokens).iter().map(|v| 2.0 * v).collect();
    assert_close("length", &product(&gather(1), InputNormalisation::Examples), &tokens, 1e-13);
}
