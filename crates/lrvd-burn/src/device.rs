//! Devices by name: `cpu`, `wgpu[:N]`, `cuda[:N]`.

use burn::tensor::Device;

use crate::error::Error;

/// Kinds of devices, the feature of each, and whether it is compiled in.
const KINDS: [(&str, &str, bool); 3] = [
    ("cpu", "flex", cfg!(feature = "flex")),
    ("wgpu", "wgpu", cfg!(feature = "wgpu")),
    ("cuda", "cuda", cfg!(feature = "cuda")),
];

/// The backends compiled into this build, as a reader would type them.
fn built_in() -> Vec<&'static str> {
    KINDS.iter().filter(|(_, _, is_built_in)| *is_built_in).map(|(kind, ..)| *kind).collect()
}

/// Opens the device called `name`.
///
/// The hardware is looked for here, because Burn would otherwise panic at the first operation.
pub fn open(name: &str) -> Result<Device, Error> {
    let unknown = || {
        let what = "is unknown; expected one of `cpu`, `wgpu`, `wgpu:N`, `cuda`, `cuda:N`";
        Error::Device { device: name.to_owned(), what: what.to_owned() }
    };
    let (kind, index) = match name.split_once(':') {
        Some(("cpu", _)) => return Err(unknown()),
        Some((kind, index)) => (kind, index.parse::<usize>().map_err(|_| unknown())?),
        None => (name, 0),
    };
    let (_, feature, _) = KINDS.iter().find(|(known, ..)| *known == kind).ok_or_else(unknown)?;
    let mut devices = found(kind).ok_or_else(|| {
        let built_in = built_in().join(", ");
        let what =
            format!("is not built in; rebuild with `--features {feature}` (built in: {built_in})");
        Error::Device { device: name.to_owned(), what }
    })?;
    if index < devices.len() {
        return Ok(devices.swap_remove(index));
    }
    let reason = match (kind, devices.len()) {
        ("wgpu", 0) => {
            "no adapter answers (a Vulkan, Metal or DirectX driver is needed)".to_owned()
        }
        ("wgpu", count) => format!("{count} adapter(s) found, numbered from 0"),
        (_, 0) => "no CUDA driver or no CUDA device".to_owned(),
        (_, count) => format!("{count} device(s) found, numbered from 0"),
    };
    Err(Error::Device { device: name.to_owned(), what: format!("is not available: {reason}") })
}

/// The devices of `kind`; `None` if its backend is not compiled in.
fn found(kind: &str) -> Option<Vec<Device>> {
    match kind {
        #[cfg(feature = "flex")]
        "cpu" => Some(vec![Device::flex()]),
        #[cfg(feature = "wgpu")]
        "wgpu" => Some(Device::enumerate(burn::tensor::DeviceType::Wgpu).into_vec()),
        #[cfg(feature = "cuda")]
        "cuda" => Some(Device::enumerate(burn::tensor::DeviceType::Cuda).into_vec()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_parsed_strictly() {
        for name in ["gpu", "cpu:0", "cuda:x", "wgpu:-1", ""] {
            let error = open(name).expect_err(name).to_string();
            assert!(error.starts_with(&format!("device `{name}` is unknown")), "{error}");
        }
    }

    #[cfg(not(feature = "cuda"))]
    #[test]
    fn a_backend_left_out_names_its_feature() {
        let error = open("cuda:0").expect_err("cuda is not built in");
        assert!(error.to_string().contains("--features cuda"), "{error}");
    }
}
