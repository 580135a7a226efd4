//! Compiles the call of the allocator's C interface with which the program starts.

#![allow(clippy::print_stdout, reason = "cargo reads it; the lint is off in `lrvd-perf`")]
#![expect(clippy::disallowed_methods, reason = "cargo's arguments are variables")]

use std::env::var_os;
use std::path::PathBuf;

fn main() -> std::io::Result<()> {
    let out = var_os("OUT_DIR").filter(|_| var_os("CARGO_CFG_UNIX").is_some());
    // Elsewhere the allocator's own delay stays.
    let Some(out) = out else { return Ok(()) };
    let source = PathBuf::from(out).join("allocator.c");
    std::fs::write(&source, include_str!("allocator.c"))?;
    let headers = var_os("DEP_MIMALLOC_INCLUDE_DIR");
    let objects = cc::Build::new().includes(headers).file(source).compile_intermediates();
    for object in objects {
        // Of `lrvd-perf` this is the build script, too; its other programs have the system's allocator.
        let program = if var_os("CARGO_PKG_NAME").is_some_and(|name| name == "lrvd-cli") {
            "lrvd"
        } else {
            "step"
        };
        println!("cargo::rustc-link-arg-bin={program}={}", object.display());
    }
    Ok(())
}
