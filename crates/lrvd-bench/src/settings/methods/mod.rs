//! Settings of single methods, under `methods.KEY`.

mod post_hoc;
mod trained;

use schemars::JsonSchema;
use serde::ser::Error as _;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Map, Value};

pub use post_hoc::{
    LaplaceLayers, LaplacePredictive, LaplacePrior, LaplaceSettings, SwagSettings, TfbCriterion,
    TfbSettings,
};
pub(super) use trained::check_hyper;
pub use trained::{
    ArdSettings, BbbPrior, BbbSettings, BbbWeight, BlobSettings, CLoraSettings, KlDirectionSetting,
    LoraEnsembleSettings, MapSettings, McDropoutSettings, MixtureSettings, NoiseToSignalSettings,
    Optimizers, ScalaBlSettings,
};

use crate::error::Result;

/// Settings of the methods that have some beyond the experiment's, by the method's key.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct MethodSettings {
    /// MAP.
    pub map: MapSettings,
    /// MC dropout.
    pub mcd: McDropoutSettings,
    /// LoRA-Ensemble.
    pub lora_ensemble: LoraEnsembleSettings,
    /// Bayes by backprop.
    pub bbb: BbbSettings,
    /// Bayes by backprop on A only.
    pub bbb_a: BbbSettings,
    /// Laplace-LoRA.
    pub laplace: LaplaceSettings,
    /// SWAG-LoRA.
    pub swag: SwagSettings,
    /// BLoB.
    pub blob: BlobSettings,
    /// `ScalaBL`.
    pub scalabl: ScalaBlSettings,
    /// TFB.
    pub tfb: TfbSettings,
    /// C-LoRA.
    pub c_lora: CLoraSettings,
    /// The multiplicative family.
    pub lrvd_nts: NoiseToSignalSettings,
    /// The hierarchical prior.
    pub lrvd_ard: ArdSettings,
}

impl Default for MethodSettings {
    fn default() -> Self {
        Self {
            map: MapSettings::default(),
            mcd: McDropoutSettings::default(),
            lora_ensemble: LoraEnsembleSettings::default(),
            bbb: BbbSettings::default(),
            bbb_a: BbbSettings { both: false, ..BbbSettings::default() },
            laplace: LaplaceSettings::default(),
            swag: SwagSettings::default(),
            blob: BlobSettings::default(),
            scalabl: ScalaBlSettings::default(),
            tfb: TfbSettings::default(),
            c_lora: CLoraSettings::default(),
            lrvd_nts: NoiseToSignalSettings::default(),
            lrvd_ard: ArdSettings::default(),
        }
    }
}

impl MethodSettings {
    pub(super) fn check(&self) -> Result<()> {
        self.map.check("methods.map")?;
        self.mcd.check("methods.mcd")?;
        self.lora_ensemble.check("methods.lora-ensemble")?;
        self.bbb.check("methods.bbb")?;
        self.bbb_a.check("methods.bbb-a")?;
        self.laplace.check("methods.laplace")?;
        self.swag.check("methods.swag")?;
        self.blob.check("methods.blob")?;
        self.scalabl.check("methods.scalabl")?;
        self.tfb.check("methods.tfb")?;
        self.c_lora.check("methods.c-lora")?;
        self.lrvd_nts.check("methods.lrvd-nts")?;
        self.lrvd_ard.check("methods.lrvd-ard")
    }

    /// Writes the methods whose settings are not the defaults, each with all of them.
    pub(super) fn serialize_changed<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let object = |settings: &Self| match serde_json::to_value(settings) {
            Ok(Value::Object(map)) => Ok(map),
            Ok(_) => Err(S::Error::custom("settings of methods are no object")),
            Err(error) => Err(S::Error::custom(error)),
        };
        let (mine, defaults) = (object(self)?, object(&Self::default())?);
        let changed = mine.into_iter().filter(|(key, value)| defaults.get(key) != Some(value));
        changed.collect::<Map<_, _>>().serialize(to)
    }
}
