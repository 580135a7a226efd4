//! A base model on the device, and what comes back from it.

use std::collections::BTreeMap;
use std::path::Path;

use burn::tensor::{DType, Device, Gradients, Tensor};
use lrvd_burn::files::WeightStore;
use lrvd_burn::host::values;
use lrvd_burn::model::AdaptedModel;
use lrvd_burn::parameters::{Layout, ParameterValue};
use lrvd_models::deberta::{DebertaClassifier, DebertaConfig};

use super::{Precision, Values, VerifyError, VerifyOptions};

/// A classifier with its configuration, frozen.
pub(super) struct Base {
    pub(super) config: DebertaConfig,
    pub(super) model: DebertaClassifier,
    pub(super) device: Device,
    pub(super) dtype: DType,
}

impl Base {
    /// Loads `config.json` and `model.safetensors` of `dir`, head included.
    pub(super) fn load(dir: &Path, options: &VerifyOptions<'_>) -> Result<Self, VerifyError> {
        let config = DebertaConfig::read(&dir.join("config.json"))?;
        let store = WeightStore::open(dir)?;
        let device = computing_device(options)?;
        let dtype = options.precision.dtype();
        let (model, _) = DebertaClassifier::from_fine_tuned(&store, &config, &device, dtype)?;
        Ok(Self { config, model, device, dtype })
    }
}

/// The device without gradients, if it has the precision.
pub(super) fn computing_device(options: &VerifyOptions<'_>) -> Result<Device, VerifyError> {
    let device = options.device.clone().inner();
    if options.precision == Precision::F64 && !device.supports_dtype(options.precision.dtype()) {
        return Err(VerifyError::unsupported("double precision on this device"));
    }
    Ok(device)
}

/// A device tensor with its shape.
pub(super) fn host<const D: usize>(tensor: Tensor<D>) -> Values {
    Values::new(tensor.dims().to_vec(), values(tensor))
}

/// Parameter values in the layout of a checkpoint.
pub(super) fn stored_value(parameter: &dyn ParameterValue, layout: Layout) -> Values {
    stored(parameter.shape(), values(parameter.flat()), layout)
}

/// Gradients of all trainable parameters under their checkpoint names and in its layout.
///
/// A parameter that the loss does not reach has a gradient of zeros.
pub(super) fn stored_gradients(
    model: &impl AdaptedModel,
    gradients: &Gradients,
) -> BTreeMap<String, Values> {
    let mut found = BTreeMap::new();
    model.visit_parameters(&mut |p| {
        if !p.value.is_trainable() {
            return;
        }
        let gradient = if p.value.is_empty() { None } else { p.value.gradient(gradients) };
        let gradient = gradient.map_or_else(|| vec![0.0; p.value.len()], values);
        found.insert(p.name.to_owned(), stored(p.value.shape(), gradient, p.layout));
    });
    found
}

fn stored(shape: Vec<usize>, flat: Vec<f64>, layout: Layout) -> Values {
    let values = Values::new(shape, flat);
    match layout {
        Layout::AsStored => values,
        Layout::Transposed => values.transposed(),
    }
}
