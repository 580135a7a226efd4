//! Tests and type checks on backends other than the default one.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Result, bail};

use crate::process;
use crate::workspace::{self, Workspace};

/// Variables that name the Vulkan loader's drivers.
const DRIVER_VARIABLES: [&str; 2] = ["VK_DRIVER_FILES", "VK_ICD_FILENAMES"];
/// Folders in which the Vulkan loader looks for drivers.
const DRIVER_FOLDERS: [&str; 3] =
    ["/usr/share/vulkan/icd.d", "/usr/local/share/vulkan/icd.d", "/etc/vulkan/icd.d"];
/// Start of the file name of Mesa's software driver.
const SOFTWARE_DRIVER: &str = "lvp_icd";

/// A backend beside the default one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Backend {
    /// Vulkan, Metal or DirectX through wgpu.
    Wgpu,
    /// CUDA.
    Cuda,
}

impl Backend {
    /// Its feature, which is also the device's name.
    fn name(self) -> &'static str {
        match self {
            Self::Wgpu => "wgpu",
            Self::Cuda => "cuda",
        }
    }
}

/// Runs every integration test `crates/*/tests/*_device.rs` with the backend's feature.
///
/// Tests read the device from `LRVD_TEST_DEVICE`, because Burn's device settings are process-wide.
pub(crate) fn test(backend: Backend, arguments: &[String]) -> Result<ExitCode> {
    let workspace = Workspace::read()?;
    let tests = device_tests(workspace.files.iter().map(String::as_str));
    if tests.is_empty() {
        bail!("no file `crates/*/tests/*_device.rs`");
    }
    for (package, names) in tests {
        let mut command = process::cargo(&workspace.root);
        command.args(["test", "--package", package, "--features", backend.name()]);
        for name in names {
            command.args(["--test", name]);
        }
        command.args(arguments).env("LRVD_TEST_DEVICE", backend.name());
        if backend == Backend::Wgpu {
            choose_driver(&mut command);
        }
        process::run(&mut command)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Test names by package, from file names.
fn device_tests<'a>(files: impl Iterator<Item = &'a str>) -> BTreeMap<&'a str, Vec<&'a str>> {
    let mut tests: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for file in files {
        let parts: Vec<&str> = file.split('/').collect();
        if let ["crates", package, "tests", name] = parts[..]
            && let Some(name) = name.strip_suffix(".rs")
            && name.ends_with("_device")
        {
            tests.entry(package).or_default().push(name);
        }
    }
    tests
}

/// Points the Vulkan loader at the software driver, unless the caller already chose a driver.
fn choose_driver(command: &mut Command) {
    if let Some(name) = DRIVER_VARIABLES.iter().find(|n| std::env::var_os(n).is_some()) {
        eprintln!("Vulkan driver: as `{name}` says");
        return;
    }
    match DRIVER_FOLDERS.iter().find_map(|folder| software_driver(Path::new(folder))) {
        Some(file) => {
            for name in DRIVER_VARIABLES {
                command.env(name, &file);
            }
        }
        None => eprintln!(
            "Vulkan driver: Mesa's software driver is not installed (Debian: mesa-vulkan-drivers); \
             using what the system offers"
        ),
    }
}

fn software_driver(folder: &Path) -> Option<PathBuf> {
    let mut found: Vec<PathBuf> = std::fs::read_dir(folder)
        .ok()?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| {
            path.file_name().is_some_and(|n| n.to_string_lossy().starts_with(SOFTWARE_DRIVER))
        })
        .collect();
    found.sort();
    found.into_iter().next()
}

/// Type check with the feature `cuda`.
///
/// The build script of Burn's LLVM bundle fetches a large archive; it leaves that out when it is
/// told that only documentation is being built.
pub(crate) fn cuda_check() -> Result<ExitCode> {
    let root = workspace::root()?;
    let mut command = process::cargo(&root);
    command.args(["check", "--package", "lrvd-cli", "--features", "cuda"]).env("DOCS_RS", "1");
    process::run(&mut command)?;
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_tests_are_found_by_name_and_place() {
        let files = [
            "crates/upper/tests/model_device.rs",
            "crates/lower/tests/ops_device.rs",
            "crates/lower/tests/ops.rs",
            "crates/lower/tests/deep/more_device.rs",
            "crates/lower/src/some_device.rs",
        ];
        let expected = [("lower", vec!["ops_device"]), ("upper", vec!["model_device"])];
        assert_eq!(device_tests(files.into_iter()), BTreeMap::from(expected));
    }
}
