//! A quantity as a burn-train metric.

use std::sync::Arc;

use burn::tensor::TensorReadError;
use burn::train::metric::{
    Metric, MetricAttributes, MetricMetadata, MetricName, Numeric, NumericAttributes, NumericEntry,
    SerializedEntry,
};

/// What a metric measures: its name, how it reads a batch, and what the batches of an epoch come to.
pub trait Quantity: Clone + Default + Send + Sync {
    /// What it needs of a step's output.
    type Input;
    /// Name in the dashboard, in summaries and in log files.
    const NAME: &'static str;
    /// What the name leaves open.
    const DESCRIPTION: &'static str;
    /// Unit, if it has one.
    const UNIT: Option<&'static str>;
    /// Which way is better.
    const HIGHER_IS_BETTER: bool;

    /// Takes a batch in and returns its value; `None` if the quantity is undefined for it.
    fn update(&mut self, input: &Self::Input) -> Result<Option<f64>, TensorReadError>;

    /// Value over the batches of the epoch so far; `None` if there is none.
    fn epoch(&self) -> Option<f64>;
}

/// A [`Quantity`] for burn-train's learner: `metric_train_numeric(NllMetric::default())`.
#[derive(Clone, Debug, Default)]
pub struct Measured<Q> {
    quantity: Q,
    batch: Option<f64>,
}

impl<Q: Quantity> Measured<Q> {
    fn entry(&self, serialized: Option<NumericEntry>) -> SerializedEntry {
        let Some(entry) = serialized else { return SerializedEntry::not_available(Q::UNIT) };
        let text = |value: Option<f64>| {
            let number =
                value.map_or_else(|| SerializedEntry::NOT_AVAILABLE.to_owned(), format_value);
            Q::UNIT.map_or_else(|| number.clone(), |unit| format!("{number} {unit}"))
        };
        let formatted =
            format!("epoch {} - batch {}", text(self.quantity.epoch()), text(self.batch));
        SerializedEntry::new(formatted, entry.serialize())
    }
}

impl<Q: Quantity> Metric for Measured<Q> {
    type Input = Q::Input;

    fn name(&self) -> MetricName {
        Arc::new(Q::NAME.to_owned())
    }

    fn description(&self) -> Option<String> {
        Some(Q::DESCRIPTION.to_owned())
    }

    fn attributes(&self) -> MetricAttributes {
        let unit = Q::UNIT.map(ToOwned::to_owned);
        NumericAttributes { unit, higher_is_better: Q::HIGHER_IS_BETTER }.into()
    }

    fn update(
        &mut self,
        input: &Q::Input,
        _metadata: &MetricMetadata,
    ) -> Result<SerializedEntry, TensorReadError> {
        self.batch = self.quantity.update(input)?;
        Ok(self.entry(self.value()))
    }

    fn compute(&mut self) -> Result<SerializedEntry, TensorReadError> {
        Ok(self.entry(self.quantity.epoch().map(NumericEntry::Final)))
    }

    fn clear(&mut self) {
        *self = Self::default();
    }
}

impl<Q: Quantity> Numeric for Measured<Q> {
    fn value(&self) -> Option<NumericEntry> {
        self.batch.map(NumericEntry::Value)
    }

    fn running_value(&self) -> Option<NumericEntry> {
        self.quantity.epoch().map(NumericEntry::Value)
    }

    fn final_value(&self) -> NumericEntry {
        NumericEntry::Final(self.quantity.epoch().unwrap_or(f64::NAN))
    }
}

/// Four significant digits or all digits before the point.
pub(super) fn format_value(value: f64) -> String {
    let magnitude = value.abs();
    if magnitude != 0.0 && magnitude < 1e-3 {
        format!("{value:.3e}")
    } else if magnitude < 100.0 {
        format!("{value:.4}")
    } else {
        format!("{value:.0}")
    }
}
