//! Tests by Python scripts that need packages and a built `lrvd`.

use std::process::{Command, ExitCode};

use anyhow::{Context as _, Result};

use crate::{forward, process, workspace};

/// Runs `xtask/python/NAME.py` with the packages of `NAME.txt` beside it, which are installed into `target/NAME`.
///
/// `--program LRVD` in `arguments` names a built `lrvd`; otherwise it is built.
pub(crate) fn run(name: &str, arguments: &[String]) -> Result<ExitCode> {
    let root = workspace::root()?;
    let script = root.join("xtask/python").join(name);
    let folder = workspace::target(&root).join(name);
    let python = folder.join(if cfg!(windows) { "Scripts/python.exe" } else { "bin/python" });
    if !process::works(Command::new(&python).arg("--version")) {
        process::run(Command::new("python3").args(["-m", "venv"]).arg(&folder))?;
    }
    let mut install = Command::new(&python);
    install.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r"]);
    process::run(install.arg(script.with_extension("txt")))?;
    let mut command = Command::new(&python);
    command.arg(script.with_extension("py")).args(arguments);
    let is_help = arguments.iter().any(|a| a == "--help" || a == "-h");
    if !is_help && !arguments.iter().any(|a| a == "--program" || a.starts_with("--program=")) {
        let build = ["--package", "lrvd-cli", "--bin", "lrvd"];
        command.arg("--program").arg(forward::build(&root, &build, "lrvd")?);
    }
    process::forget_cargo(&mut command);
    let shown = process::show(&command);
    let status = command.status().with_context(|| format!("cannot start `{shown}`"))?;
    Ok(ExitCode::from(u8::from(!status.success())))
}
