//! Tests and type checks of backends other than the default one.

use std::path::PathBuf;
use std::process::Command;

use anyhow::Result;

use crate::{process, workspace};

/// Variables that name the Vulkan loader's drivers.
const DRIVER_VARIABLES: [&str; 2] = ["VK_DRIVER_FILES", "VK_ICD_FILENAMES"];
/// Folders in which the Vulkan loader looks for drivers.
const DRIVER_FOLDERS: [&str; 3] =
    ["/usr/share/vulkan/icd.d", "/usr/local/share/vulkan/icd.d", "/etc/vulkan/icd.d"];
/// Start of the file name of Mesa's software driver.
const SOFTWARE_DRIVER: &str = "lvp_icd";

/// Runs the integration tests `*_device` of lrvd-burn with the feature `backend`, which is also the device's name.
///
/// They read the device from `LRVD_TEST_DEVICE`, because Burn's device settings are process-wide.
pub(crate) fn test(backend: &str, arguments: &[String]) -> Result<()> {
    let mut command = process::cargo(&workspace::root()?);
    command.args(["test", "--package", "lrvd-burn", "--features", backend, "--test", "*_device"]);
    // Compiling the GPU stack well costs far more than running it slowly.
    command.args(["--config", "profile.dev.opt-level=0"]);
    command.args(arguments).env("LRVD_TEST_DEVICE", backend);
    if backend == "wgpu" {
        choose_driver(&mut command);
    }
    process::run(&mut command)
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

/// Type check of the CLI with the features that `arguments` select.
///
/// The build script of Burn's LLVM bundle fetches a large archive; it leaves that out where `DOCS_RS` says that only
/// documentation is being built.
pub(crate) fn type_check(arguments: &[&str]) -> Result<()> {
    let mut command = process::cargo(&workspace::root()?);
    command.args(["check", "--package", "lrvd-cli"]).args(arguments).env("DOCS_RS", "1");
    process::run(&mut command)
}
