//! Tests and type checks on backends other than the default one.

use std::collections::BTreeMap;
use std::path::PathBuf;
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

/// Runs every integration test `crates/*/tests/*_device.rs` with the feature `backend`, which is also the device's name.
///
/// Tests read the device from `LRVD_TEST_DEVICE`, because Burn's device settings are process-wide.
pub(crate) fn test(backend: &str, arguments: &[String]) -> Result<ExitCode> {
    let workspace = Workspace::read()?;
    let tests = device_tests(workspace.files.iter().map(String::as_str));
    if tests.is_empty() {
        bail!("no file `crates/*/tests/*_device.rs`");
    }
    for (package, names) in tests {
        let mut command = process::cargo(&workspace.root);
        command.args(["test", "--package", package, "--features", backend]);
        for name in names {
            command.args(["--test", name]);
        }
        command.args(arguments).env("LRVD_TEST_DEVICE", backend);
        if backend == "wgpu" {
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
    let drivers = |folder| {
        let files = std::fs::read_dir(folder).into_iter().flatten();
        let mut paths: Vec<_> = files.filter_map(|file| Some(file.ok()?.path())).collect();
        paths.sort();
        paths
    };
    let is_software = |path: &PathBuf| {
        path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(SOFTWARE_DRIVER))
    };
    match DRIVER_FOLDERS.into_iter().flat_map(drivers).find(is_software) {
        Some(file) => {
            command.envs(DRIVER_VARIABLES.map(|name| (name, &file)));
        }
        None => eprintln!(
            "Vulkan driver: Mesa's software driver is not installed (Debian: mesa-vulkan-drivers); \
             using what the system offers"
        ),
    }
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
