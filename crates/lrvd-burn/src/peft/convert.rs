//! `AdaLoRA` as `LoRA`, and the configuration that describes modules of different ranks and scales.

use std::collections::BTreeMap;

use super::adapter::{PeftAdapter, PeftModule};
use super::config::{PeftConfig, PeftMethod, TargetModules};
use super::pattern::key_matches;
use crate::error::Error;
use crate::files::host_tensor::wrong_type;
use crate::files::{HostDType, HostTensor};

impl PeftAdapter {
    /// The same update as plain `LoRA`.
    ///
    /// `LoRA` comes back as it is. Of `AdaLoRA`, triplets whose diagonal entry is 0 are dropped,
    /// the diagonal is folded into the down-projection, and the scale `lora_alpha / (init_r +
    /// 1e-5)` becomes the module's own. The folded rows are rounded once, to single precision
    /// (double where they were double).
    pub fn to_lora(&self) -> Result<Self, Error> {
        let PeftMethod::AdaLora(adalora) = &self.config.method else {
            return Ok(self.clone());
        };
        let mut modules = BTreeMap::new();
        for (path, module) in &self.modules {
            check_shapes(path, module)?;
            modules
                .insert(path.clone(), fold(module).map_err(|source| module_error(path, &source))?);
        }
        let scaling = super::pattern::adalora_scaling(self.config.lora_alpha, adalora.init_r);
        let mut config = self.config.clone();
        config.method = PeftMethod::Lora;
        config.r = adalora.init_r;
        config.lora_alpha = exact_alpha(scaling, adalora.init_r);
        config.use_rslora = false;
        config.alpha_pattern = Vec::new();
        let config = describe(&config, &modules);
        Ok(Self { config, modules, saved: self.saved.clone(), ignored: self.ignored.clone() })
    }
}

/// Checks that the factors of a module fit its rank.
pub(super) fn check_shapes(path: &str, module: &PeftModule) -> Result<(), Error> {
    for (tensor, expected) in module.expected_shapes() {
        if tensor.shape() != expected {
            let found = format!("{:?}", tensor.shape());
            return Err(Error::module(path, "shape", format!("{expected:?}"), found));
        }
        if !tensor.is_float() {
            let source = wrong_type(HostDType::F32, tensor.dtype());
            return Err(module_error(path, &source));
        }
    }
    Ok(())
}

pub(super) fn module_error(path: &str, source: &Error) -> Error {
    Error::module(path, "factors", "floats that fit the rank", source)
}

/// Drops triplets without weight and multiplies the others' diagonal into `a`.
fn fold(module: &PeftModule) -> Result<PeftModule, Error> {
    let Some(e) = module.e.as_ref().map(HostTensor::to_f64).transpose()? else {
        return Ok(module.clone());
    };
    let (d_input, d_output) = (module.d_input(), module.d_output());
    let kept: Vec<usize> = (0..module.rank).filter(|&k| e[k] != 0.0).collect();
    let a = module.a.to_f64()?;
    let rows =
        kept.iter().flat_map(|&k| a[k * d_input..(k + 1) * d_input].iter().map(move |x| (k, x)));
    let folded: Vec<f64> = rows.map(|(k, x)| e[k] * x).collect();
    let a = floats(module.a.dtype(), &[kept.len(), d_input], &folded)?;
    let size = module.b.element_size();
    let bytes = module.b.bytes();
    let mut columns = Vec::with_capacity(d_output * kept.len() * size);
    for row in 0..d_output {
        for &k in &kept {
            let start = (row * module.rank + k) * size;
            columns.extend_from_slice(&bytes[start..start + size]);
        }
    }
    let b = HostTensor::new(module.b.dtype(), vec![d_output, kept.len()], columns)?;
    PeftModule::lora(a, b, module.scaling, module.initial_rank)
}

/// Computed values: double precision stays, everything else becomes single precision.
pub(super) fn floats(
    like: HostDType,
    shape: &[usize],
    values: &[f64],
) -> Result<HostTensor, Error> {
    if like == HostDType::F64 {
        return HostTensor::from_f64(shape, values);
    }
    let values: Vec<f32> = values.iter().map(|&value| value as f32).collect();
    HostTensor::from_f32(shape, &values)
}

/// The numerator that, divided by the rank, gives the scale back bit for bit; where none does, the
/// product, which gives it back to one unit in the last place.
pub(super) fn exact_alpha(scaling: f64, rank: usize) -> f64 {
    let rank = rank as f64;
    let product = scaling * rank;
    let candidates = [product.round(), product, product.next_up(), product.next_down()];
    candidates.into_iter().find(|alpha| alpha / rank == scaling).unwrap_or(product)
}

/// A `LoRA` configuration that says the rank and the scale of every module by its full path.
///
/// `r` and `lora_alpha` stay those of the configuration (with `use_rslora`, the numerator that
/// gives the same scale without it), so that a module without a pattern has kept its initial rank.
/// Rank 0 is an error in PEFT: such modules are neither targeted nor listed.
pub(super) fn describe(config: &PeftConfig, modules: &BTreeMap<String, PeftModule>) -> PeftConfig {
    let mut config = config.clone();
    if config.use_rslora {
        let root = (config.r as f64).sqrt();
        config.lora_alpha = exact_alpha(config.lora_alpha / root, config.r);
        config.use_rslora = false;
    }
    config.exclude_modules = None;
    config.layers_to_transform = None;
    config.layers_pattern = Vec::new();
    config.rank_pattern = Vec::new();
    config.alpha_pattern = Vec::new();
    let present: Vec<(&String, &PeftModule)> =
        modules.iter().filter(|(_, module)| module.rank > 0).collect();
    for (path, module) in &present {
        let key = || pattern_key(path, present.iter().map(|(other, _)| other.as_str()));
        if module.rank != config.r {
            config.rank_pattern.push((key(), module.rank));
        }
        let lora_alpha = exact_alpha(module.scaling, module.rank);
        if lora_alpha != config.lora_alpha {
            config.alpha_pattern.push((key(), lora_alpha));
        }
    }
    let paths = present.into_iter().map(|(path, _)| path.clone());
    config.target_modules = TargetModules::Names(paths.collect());
    config
}

/// A pattern that matches this path and no other module's.
///
/// The plain path is that in all but odd cases, and other readers than PEFT know only plain paths.
/// Where it is not (a path that ends another path, or holds a character with a meaning in patterns)
/// it is escaped and anchored.
fn pattern_key<'a>(path: &str, mut others: impl Iterator<Item = &'a str>) -> String {
    if key_matches(path, path) && others.all(|other| other == path || !key_matches(path, other)) {
        path.to_owned()
    } else {
        format!("^{}", regex::escape(path))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::peft::AdaLoraConfig;

    #[test]
    fn numerators_give_the_scale_back() {
        assert_eq!(exact_alpha(2.0, 3), 6.0);
        for (scaling, rank) in [(16.0 / 3.0, 7), (16.0 / 8.0_f64.sqrt(), 5), (1.999_995, 1)] {
            assert_eq!(exact_alpha(scaling, rank) / rank as f64, scaling, "{scaling} {rank}");
        }
        // No double divided by 3 is the double nearest to 0.1; one unit in the last place is the
        // best there is.
        assert_eq!(exact_alpha(0.1, 3) / 3.0, 0.1_f64.next_up());
        assert_eq!(exact_alpha(2.0, 0), 0.0);
    }

    #[test]
    fn keys_match_their_module_alone() {
        let paths = ["pooler.dense", "dense", "h.0.q"];
        let key = |path| pattern_key(path, paths.into_iter());
        assert_eq!(key("h.0.q"), "h.0.q");
        assert_eq!(key("pooler.dense"), "pooler.dense");
        assert_eq!(key("dense"), "^dense");
        assert!(key_matches("^dense", "dense") && !key_matches("^dense", "pooler.dense"));
        let odd = pattern_key("h.(0)+q", ["h.(0)+q"].into_iter());
        assert!(key_matches(&odd, "h.(0)+q"), "{odd}");
    }

    #[test]
    fn adalora_becomes_lora_with_the_same_update() {
        // rank 3 of 4, middle triplet masked; scaling 8 / 4.00001.
        let module = PeftModule {
            rank: 3,
            initial_rank: 4,
            scaling: super::super::pattern::adalora_scaling(8.0, 4),
            lora_alpha: 8.0,
            a: HostTensor::from_f32(&[3, 2], &[1.0, 2.0, 9.0, 9.0, -0.5, 4.0]).unwrap(),
            b: HostTensor::from_f32(&[2, 3], &[1.0, 9.0, 0.25, -3.0, 9.0, 2.0]).unwrap(),
            e: Some(HostTensor::from_f32(&[3], &[0.5, 0.0, -2.0]).unwrap()),
        };
        let targets = TargetModules::Names(vec!["q".into()]);
        let adalora = AdaLoraConfig { init_r: 4, ..AdaLoraConfig::default() };
        let adapter = PeftAdapter {
            config: PeftConfig::adalora(adalora, 8.0, targets),
            modules: [("q".to_owned(), module)].into(),
            saved: BTreeMap::new(),
            ignored: Vec::new(),
        };
        let lora = adapter.to_lora().unwrap();
        let folded = &lora.modules["q"];
        assert_eq!((folded.rank, folded.initial_rank, &folded.e), (2, 4, &None));
        assert_eq!(folded.a.to_f32().unwrap(), [0.5, 1.0, 1.0, -8.0]);
        assert_eq!(folded.b.to_f32().unwrap(), [1.0, 0.25, -3.0, 2.0]);
        // By hand: b·diag(e)·a = [[0.75, -1], [0.5, -19]].
        let delta = folded.delta().unwrap();
        let expected = [0.75, -1.0, 0.5, -19.0].map(|x| x * 8.0 / 4.000_01);
        for (found, expected) in delta.iter().zip(expected) {
            assert!((found - expected).abs() < 1e-12 * expected.abs(), "{found} {expected}");
        }
        assert_eq!(delta, adapter.modules["q"].delta().unwrap());
        let rules = lora.config.rules().unwrap();
        assert_eq!((rules.rank("q"), rules.scaling("q")), (2, folded.scaling));
    }
}
