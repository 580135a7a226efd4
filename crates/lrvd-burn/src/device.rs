//! Devices by name: `cpu`, `wgpu[:N]`, `cuda[:N]`.

use burn::tensor::Device;
use serde::Serialize;

use crate::error::Error;

/// Kinds of devices, the feature of each, and whether it is compiled in.
const KINDS: [(&str, &str, bool); 3] = [
    (CPU, "flex", cfg!(feature = "flex")),
    ("wgpu", "wgpu", cfg!(feature = "wgpu")),
    ("cuda", "cuda", cfg!(feature = "cuda")),
];

/// Name of the CPU.
pub const CPU: &str = "cpu";

/// Kinds of GPUs in the order in which [`automatic`] looks for them.
const GPUS: [&str; 2] = ["cuda", "wgpu"];

/// A device that was found, or a kind of device of which none can be used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DeviceReport {
    /// Name for [`open`].
    pub device: String,
    /// Name of the part, as its driver has it.
    pub part: Option<String>,
    /// `true` if [`open`] opens it.
    pub usable: bool,
    /// Reason why it is not usable.
    pub reason: Option<String>,
}

/// Devices of this build and machine: each one that was found, and the kinds of which there is none, with the reason. Opens the
/// GPUs.
pub fn list() -> Vec<DeviceReport> {
    let unusable = |kind: &str, reason: String| DeviceReport {
        device: kind.to_owned(),
        part: None,
        usable: false,
        reason: Some(reason),
    };
    let of_kind = |(kind, feature, _): &(&str, &str, bool)| match found(kind) {
        None => vec![unusable(kind, format!("not built in; rebuild with `--features {feature}`"))],
        Some(devices) if devices.is_empty() => vec![unusable(kind, none_found(kind).to_owned())],
        Some(devices) => {
            let report = |(index, device): (usize, &Device)| DeviceReport {
                device: if *kind == CPU { CPU.to_owned() } else { format!("{kind}:{index}") },
                part: part(device).map(|part| part.name),
                usable: true,
                reason: None,
            };
            devices.iter().enumerate().map(report).collect()
        }
    };
    KINDS.iter().flat_map(of_kind).collect()
}

/// Name of the first GPU that can be used, or `cpu`. A software renderer is not a GPU.
pub fn automatic() -> String {
    let is_card = |device: &Device| part(device).is_some_and(|part| part.is_card);
    let first = |kind: &str| {
        let index = found(kind)?.iter().position(|device| kind == "cuda" || is_card(device))?;
        Some(format!("{kind}:{index}"))
    };
    GPUS.into_iter().find_map(first).unwrap_or_else(|| CPU.to_owned())
}

/// Name of a device's part, and `true` if it is a card and not a software renderer.
struct Part {
    name: String,
    is_card: bool,
}

/// The part of a GPU, which is opened; `None` of the CPU.
#[cfg(feature = "cube")]
fn part(device: &Device) -> Option<Part> {
    let identity = device.identity()?;
    Some(Part { name: identity.name, is_card: identity.physical.is_some() })
}

#[cfg(not(feature = "cube"))]
fn part(_: &Device) -> Option<Part> {
    None
}

/// Reason why no device of a compiled-in `kind` was found.
fn none_found(kind: &str) -> &'static str {
    match kind {
        "wgpu" => "no adapter answers (a Vulkan, Metal or DirectX driver is needed)",
        _ => "no CUDA driver or no CUDA device",
    }
}

/// Backends compiled into this build, by the names that a user types.
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
        Some((CPU, _)) => return Err(unknown()),
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
        (_, 0) => none_found(kind).to_owned(),
        ("wgpu", count) => format!("{count} adapter(s) found, numbered from 0"),
        (_, count) => format!("{count} device(s) found, numbered from 0"),
    };
    Err(Error::Device { device: name.to_owned(), what: format!("is not available: {reason}") })
}

/// `true` if `device` is the CPU.
pub fn is_cpu(device: &Device) -> bool {
    found(CPU).is_some_and(|cpus| cpus.contains(device))
}

/// The devices of `kind`; `None` if its backend is not compiled in.
fn found(kind: &str) -> Option<Vec<Device>> {
    match kind {
        #[cfg(feature = "flex")]
        CPU => Some(vec![Device::flex()]),
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

    /// Each kind has a line, and every usable name of the list opens, `auto`'s choice too.
    #[test]
    fn the_list_and_the_automatic_choice_can_be_opened() {
        let devices = list();
        for (kind, _, is_built_in) in KINDS {
            let own = devices.iter().filter(|found| found.device.split(':').next() == Some(kind));
            let own: Vec<&DeviceReport> = own.collect();
            assert!(!own.is_empty() && (is_built_in || !own[0].usable), "{kind}: {own:?}");
        }
        for DeviceReport { device, usable, reason, .. } in &devices {
            assert_eq!((open(device).is_ok(), reason.is_none()), (*usable, *usable), "{device}");
        }
        let chosen = automatic();
        assert!(devices.iter().any(|found| found.usable && found.device == chosen), "{chosen}");
    }

    #[cfg(not(feature = "cuda"))]
    #[test]
    fn a_backend_left_out_names_its_feature() {
        let error = open("cuda:0").expect_err("cuda is not built in");
        assert!(error.to_string().contains("--features cuda"), "{error}");
    }
}
