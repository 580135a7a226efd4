//! Devices by name: `cpu`, `wgpu[:N]`, `cuda[:N]`.

use crate::error::Error;
use burn::tensor::Device;

/// The backends compiled into this build, as a reader would type them.
pub fn built_in() -> Vec<&'static str> {
    let mut names = Vec::new();
    if cfg!(feature = "flex") {
        names.push("cpu");
    }
    if cfg!(feature = "wgpu") {
        names.push("wgpu");
    }
    if cfg!(feature = "cuda") {
        names.push("cuda");
    }
    names
}

/// Opens the device called `name`.
///
/// The hardware is looked for here, because Burn would otherwise panic at the first operation.
pub fn open(name: &str) -> Result<Device, Error> {
    let unknown = || {
        Error::Argument(format!(
            "unknown device `{name}`; expected one of `cpu`, `wgpu`, `wgpu:N`, `cuda`, `cuda:N`"
        ))
    };
    let (kind, index) = match name.split_once(':') {
        Some((kind, index)) => (kind, Some(index.parse::<usize>().map_err(|_| unknown())?)),
        None => (name, None),
    };
    match (kind, index) {
        ("cpu", None) => cpu(name),
        ("wgpu", index) => wgpu(name, index),
        ("cuda", index) => cuda(name, index.unwrap_or(0)),
        _ => Err(unknown()),
    }
}

#[cfg(not(all(feature = "flex", feature = "wgpu", feature = "cuda")))]
fn not_built_in(name: &str, feature: &'static str) -> Error {
    Error::Undefined(format!(
        "device `{name}` is not built in; rebuild with `--features {feature}` (built in: {})",
        built_in().join(", ")
    ))
}

#[cfg(any(feature = "wgpu", feature = "cuda"))]
fn unavailable(name: &str, reason: &str) -> Error {
    Error::Undefined(format!("device `{name}` is not available: {reason}"))
}

#[cfg(feature = "flex")]
#[expect(clippy::unnecessary_wraps, reason = "the other backends can fail")]
fn cpu(_name: &str) -> Result<Device, Error> {
    Ok(Device::flex())
}

#[cfg(not(feature = "flex"))]
fn cpu(name: &str) -> Result<Device, Error> {
    Err(not_built_in(name, "flex"))
}

#[cfg(feature = "wgpu")]
fn wgpu(name: &str, index: Option<usize>) -> Result<Device, Error> {
    use burn::tensor::DeviceType;
    let mut found = Device::enumerate(DeviceType::Wgpu).into_vec();
    if found.is_empty() {
        return Err(unavailable(
            name,
            "no adapter answers (a Vulkan, Metal or DirectX driver is needed)",
        ));
    }
    let (index, count) = (index.unwrap_or(0), found.len());
    if index >= count {
        return Err(unavailable(name, &format!("{count} adapter(s) found, numbered from 0")));
    }
    Ok(found.swap_remove(index))
}

#[cfg(not(feature = "wgpu"))]
fn wgpu(name: &str, _index: Option<usize>) -> Result<Device, Error> {
    Err(not_built_in(name, "wgpu"))
}

#[cfg(feature = "cuda")]
fn cuda(name: &str, index: usize) -> Result<Device, Error> {
    use burn::tensor::DeviceType;
    let mut found = Device::enumerate(DeviceType::Cuda).into_vec();
    let count = found.len();
    if index >= count {
        let reason = match count {
            0 => "no CUDA driver or no CUDA device".to_owned(),
            n => format!("{n} device(s) found, numbered from 0"),
        };
        return Err(unavailable(name, &reason));
    }
    Ok(found.swap_remove(index))
}

#[cfg(not(feature = "cuda"))]
fn cuda(name: &str, _index: usize) -> Result<Device, Error> {
    Err(not_built_in(name, "cuda"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_parsed_strictly() {
        for name in ["gpu", "cpu:0", "cuda:x", "wgpu:-1", ""] {
            let error = open(name).expect_err(name).to_string();
            assert!(error.starts_with(&format!("unknown device `{name}`")), "{error}");
        }
    }

    #[cfg(not(feature = "cuda"))]
    #[test]
    fn a_backend_left_out_names_its_feature() {
        let error = open("cuda:0").expect_err("cuda is not built in");
        assert!(error.to_string().contains("--features cuda"), "{error}");
    }
}
