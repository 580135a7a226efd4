//! The hyperparameters of a recorded run.

use std::collections::BTreeSet;

use lrvd_burn::optimizer::{AdamWConfig, GroupRates, ParameterGroups};
use lrvd_burn::peft::{PeftAdapter, PeftMethod, TargetModules};
use lrvd_core::adalora::AdaLoraConfig;
use lrvd_core::schedule::LrSchedule;

use super::super::{Entry, Folder, VerifyError};

/// Keys of every run.
const COMMON: [&str; 11] = [
    "adapter_lr",
    "head_lr",
    "head_weight_decay",
    "betas",
    "eps",
    "clip",
    "steps",
    "warmup_steps",
    "lora_alpha",
    "target_modules",
    "dropout",
];
/// Keys of a `LoRA` run.
const LORA: [&str; 1] = ["r"];
/// Keys of an `AdaLoRA` run.
const ADALORA: [&str; 9] = [
    "init_r",
    "target_r",
    "tinit",
    "tfinal",
    "deltaT",
    "total_step",
    "orth_reg_weight",
    "beta1",
    "beta2",
];

/// Everything that decides a run beside model, adapter and batches.
pub(super) struct Settings {
    pub(super) steps: usize,
    pub(super) schedule: LrSchedule,
    pub(super) adamw: AdamWConfig,
    pub(super) groups: ParameterGroups,
    /// Largest gradient norm; none for no clipping.
    pub(super) clip: Option<f64>,
    pub(super) allocation: Option<AllocationSettings>,
}

/// What `AdaLoRA` adds.
pub(super) struct AllocationSettings {
    pub(super) config: AdaLoraConfig,
    /// Number of the first step.
    pub(super) first_step: u32,
    /// Whether the penalty takes part in the gradient.
    pub(super) penalised: bool,
}

impl Settings {
    /// Reads `hyperparameters` and checks them against the adapter that the run starts from.
    pub(super) fn read(
        folder: &Folder,
        adapter: &PeftAdapter,
        adalora: bool,
    ) -> Result<Self, VerifyError> {
        let entry = folder.get("hyperparameters")?;
        let own: &[&str] = if adalora { &ADALORA } else { &LORA };
        entry.only(&[&COMMON[..], own].concat())?;
        let number = |key: &str| entry.get(key)?.finite();
        let dropout = entry.get("dropout")?;
        if dropout.finite()? != 0.0 {
            return Err(VerifyError::unsupported(format!("`dropout` = {}", dropout.value)));
        }
        check_adapter(&entry, adapter, adalora)?;
        let betas = entry.get("betas")?;
        let &[beta1, beta2] = betas.numbers()?.as_slice() else {
            return Err(betas.wrong("two numbers"));
        };
        let group = |learning_rate, weight_decay| GroupRates { learning_rate, weight_decay };
        let adapter_rates = group(number("adapter_lr")?, 0.0);
        let head = group(number("head_lr")?, number("head_weight_decay")?);
        let frozen = group(0.0, 0.0);
        let steps = entry.get("steps")?;
        let differentiated = folder.get("differentiated")?;
        let penalised = match (differentiated.text()?, adalora) {
            ("loss", _) => false,
            ("total_loss", true) => true,
            (other, _) => {
                return Err(VerifyError::unsupported(format!("`differentiated` = `{other}`")));
            }
        };
        Ok(Self {
            steps: steps.count()?,
            schedule: LrSchedule::linear(entry.get("warmup_steps")?.steps()?, steps.steps()?)?,
            adamw: AdamWConfig { beta1, beta2, epsilon: number("eps")? },
            groups: ParameterGroups {
                adapter: adapter_rates,
                log_variance: frozen,
                pooler: frozen,
                head,
                backbone: frozen,
            },
            clip: if entry.is_null("clip") { None } else { Some(number("clip")?) },
            allocation: adalora.then(|| allocation(folder, &entry, penalised)).transpose()?,
        })
    }
}

fn allocation(
    folder: &Folder,
    entry: &Entry<'_>,
    penalised: bool,
) -> Result<AllocationSettings, VerifyError> {
    let count = |key: &str| entry.get(key)?.count();
    let steps = |key: &str| entry.get(key)?.steps();
    let number = |key: &str| entry.get(key)?.finite();
    let config = AdaLoraConfig {
        init_r: count("init_r")?,
        target_r: count("target_r")?,
        tinit: steps("tinit")?,
        tfinal: steps("tfinal")?,
        delta_t: steps("deltaT")?,
        total_step: steps("total_step")?,
        beta1: number("beta1")?,
        beta2: number("beta2")?,
        orth_reg_weight: number("orth_reg_weight")?,
    };
    config.check()?;
    let first_step = folder.get("adalora")?.get("first_global_step")?.steps()?;
    Ok(AllocationSettings { config, first_step, penalised })
}

/// The adapter folder states some of the settings again.
fn check_adapter(
    entry: &Entry<'_>,
    adapter: &PeftAdapter,
    adalora: bool,
) -> Result<(), VerifyError> {
    let contradicts = |key: &str, found: String| -> Result<(), VerifyError> {
        Err(entry.get(key)?.wrong(format!("what the adapter starts with, {found}")))
    };
    let config = &adapter.config;
    let (key, rank) = match &config.method {
        PeftMethod::AdaLora(settings) => ("init_r", settings.init_r),
        _ => ("r", config.r),
    };
    debug_assert_eq!(adalora, key == "init_r", "the kind was checked against the method");
    if entry.get(key)?.count()? != rank {
        return contradicts(key, rank.to_string());
    }
    if entry.get("lora_alpha")?.finite()? != config.lora_alpha {
        return contradicts("lora_alpha", config.lora_alpha.to_string());
    }
    let targets = entry.get("target_modules")?;
    let same = match &config.target_modules {
        TargetModules::Names(names) => {
            let listed: Result<BTreeSet<&str>, VerifyError> = match targets.value.as_str() {
                Some(name) => Ok(std::iter::once(name).collect()),
                None => targets.list()?.iter().map(Entry::text).collect(),
            };
            listed? == names.iter().map(String::as_str).collect()
        }
        TargetModules::Regex(pattern) => targets.value.as_str() == Some(pattern),
        _ => targets.value.as_str() == Some("all-linear"),
    };
    if same {
        return Ok(());
    }
    contradicts("target_modules", format!("{:?}", config.target_modules))
}
