//! Gate gradients against difference quotients on tiny random models.
use burn::tensor::{Tensor, TensorData};
use lrvd_burn::adapter::{Extension, Posterior, RankParameters};
use lrvd_burn::host::values;
use lrvd_burn::model::AdaptedModel as _;
use lrvd_burn::parameters::ParameterValue;
use lrvd_burn::sampling::Pass;
use lrvd_burn::train::GateGradients;
use lrvd_models::AutoModel;

use super::fixture::{LABELS, NO_POSITIONS, SHARED_KEYS, close, deberta, inputs, llama};

/// `model` with a posterior of standard deviation `exp(log/2)` for every rank.
fn noisy(mut model: AutoModel, log: f64) -> AutoModel {
    model.visit_layers_mut(&mut |_, layer| {
        let Some(adapter) = layer.low_rank() else { return };
        let a = adapter.a.val().inner();
        let value = Tensor::full([adapter.rank()], log, (&a.device(), a.dtype()));
        let value = burn::module::Param::from_tensor(value);
        let posterior = Posterior::RankVariance(RankParameters { value });
        layer.extend(Some(Extension::Posterior(posterior))).unwrap();
    });
    model
}

/// `model` with gate `rank` of the layer at `path` at `gate`.
fn gated(model: &AutoModel, path: &str, rank: usize, gate: f64) -> AutoModel {
    let mut model = model.clone();
    model.visit_layers_mut(&mut |found, layer| {
        if found != path {
            return;
        }
        layer.edit(|adapter| {
            let [d_input, ranks] = adapter.a.val().dims();
            let mut a = values(adapter.a.val());
            a.iter_mut().skip(rank).step_by(ranks).for_each(|value| *value *= gate);
            adapter.a.set_data(TensorData::new(a, [d_input, ranks]));
        });
    });
    model
}

#[test]
fn gate_gradients_are_difference_quotients_with_and_without_a_posterior() {
    let inputs = inputs(&[5, 9, 2], 8);
    let apart = super::fixture::inputs(&[5, 9, 2], 1);
    for model in [deberta(SHARED_KEYS), deberta(NO_POSITIONS), llama()] {
        let found = GateGradients::new(&model, &inputs.all()).unwrap();
        let logits = |model: &AutoModel| inputs.all().logits(model, &Pass::mean()).unwrap().values;
        close("logits", &found.logits, &logits(&model), 1e-12);
        // Neither padding nor a posterior changes anything.
        let by_row = GateGradients::new(&model, &apart.all()).unwrap();
        close("padding", &by_row.jacobians, &found.jacobians, 1e-10);
        let around = GateGradients::new(&noisy(model.clone(), -2.0), &inputs.all()).unwrap();
        close("posterior", &around.jacobians, &found.jacobians, 1e-12);
        assert_eq!(found.modules.values().map(ExactSizeIterator::len).sum::<usize>(), found.gates);
        let h = 1e-5;
        for (path, range) in &found.modules {
            let (rank, gate) = (1, range.start + 1);
            let [up, down] = [1.0 + h, 1.0 - h].map(|g| logits(&gated(&model, path, rank, g)));
            for row in 0..3 {
                let slope = |c: usize| (up[row * LABELS + c] - down[row * LABELS + c]) / (2.0 * h);
                for class in 0..LABELS {
                    let expected = slope(class) - slope(LABELS - 1);
                    let gradient = found.jacobians[(row * LABELS + class) * found.gates + gate];
                    assert!(
                        (gradient - expected).abs() < 1e-8,
                        "{path} {row}: {gradient} {expected}"
                    );
                }
            }
        }
        let last = found.modules.values().max_by_key(|range| range.start).cloned().unwrap();
        let part = found.only(last.clone());
        assert_eq!((part.gates, part.modules.len()), (last.len(), 1));
        assert_eq!(part.jacobians[..last.len()], found.jacobians[last]);
    }
}
