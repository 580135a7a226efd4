//! Gate gradients against difference quotients on tiny random models.

use burn::module::Param;
use burn::tensor::{DType, Device, Tensor, TensorData};
use lrvd_burn::adapter::{Extension, Posterior, RankParameters};
use lrvd_burn::model::{AdaptedModel, attach_adapters};
use lrvd_burn::parameters::ParameterValue;
use lrvd_burn::sampling::Pass;
use lrvd_burn::train::{GateGradients, Inputs};
use lrvd_core::noise::NoiseKey;
use lrvd_models::AutoModel;
use lrvd_models::deberta::ADAPTER_TARGETS;
use lrvd_models::llama::LlamaChoice;

use crate::draws::Texts;
use crate::support::{ANSWERS, adapted, close, deberta, lora, model, names, numbers};

const LABELS: usize = 3;
/// Relative positions that pass through the query and key projections, or none.
const POSITIONS: [&str; 2] =
    ["", r#", "relative_attention": false, "share_att_key": false, "position_biased_input": true"#];

/// In double precision, with LoRA whose B is not 0.
fn models() -> [AutoModel; 3] {
    let [shared_keys, no_positions] = POSITIONS.map(|positions| {
        let rest = format!(r#"{positions}, "num_labels": {LABELS}"#);
        let mut model = deberta(&rest, &Device::flex(), DType::F64);
        attach_adapters(&mut model, &names(&ADAPTER_TARGETS), &lora(), NoiseKey::new(6)).unwrap();
        AutoModel::Deberta(model)
    });
    let llama = adapted(model(false, DType::F64), &lora(), &["q_proj", "v_proj", "lm_head"]);
    let choice = LlamaChoice::new(llama, ANSWERS.to_vec()).unwrap();
    [shared_keys, no_positions, AutoModel::Llama(choice)]
}

/// `model` with a posterior of standard deviation `exp(log/2)` for every rank.
fn noisy(mut model: AutoModel, log: f64) -> AutoModel {
    model.visit_layers_mut(&mut |_, layer| {
        let Some(adapter) = layer.low_rank() else { return };
        let a = adapter.a.val().inner();
        let value = Tensor::full([adapter.rank()], log, (&a.device(), a.dtype()));
        let value = Param::from_tensor(value);
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
            let mut a = numbers(adapter.a.val());
            a.iter_mut().skip(rank).step_by(ranks).for_each(|value| *value *= gate);
            adapter.a.set_data(TensorData::new(a, [d_input, ranks]));
        });
    });
    model
}

#[test]
fn gate_gradients_are_difference_quotients_with_and_without_a_posterior() {
    let texts = Texts(3, DType::F64);
    let inputs = Inputs { batch_size: 8, ..Inputs::new(&texts) };
    let apart = Inputs { batch_size: 1, ..inputs };
    for model in models() {
        let found = GateGradients::new(&model, &inputs).unwrap();
        let logits = |model: &AutoModel| inputs.logits(model, &Pass::mean()).unwrap().values;
        close(&found.logits, &logits(&model), 1e-12);
        // Neither padding nor a posterior changes anything.
        let by_row = GateGradients::new(&model, &apart).unwrap();
        close(&by_row.jacobians, &found.jacobians, 1e-10);
        let around = GateGradients::new(&noisy(model.clone(), -2.0), &inputs).unwrap();
        close(&around.jacobians, &found.jacobians, 1e-12);
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
