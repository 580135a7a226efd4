//! What the times belong to.

use std::path::Path;

use serde::Serialize;

use crate::forward;

/// The machine and the state of the sources.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Machine {
    pub(crate) processor: String,
    pub(crate) vector_units: &'static str,
    pub(crate) threads: usize,
    pub(crate) system: String,
    pub(crate) revision: String,
    /// Of the last minute at the start of the run.
    pub(crate) load_average: String,
}

impl Machine {
    pub(crate) fn read(root: &Path) -> Self {
        let text = |file: &str| std::fs::read_to_string(file).unwrap_or_default();
        let unknown = || "unknown".to_owned();
        let cpu = text("/proc/cpuinfo");
        let name = cpu.lines().find(|line| line.starts_with("model name"));
        let name = name.and_then(|line| line.split_once(": ")).map(|(_, name)| name.to_owned());
        let load = text("/proc/loadavg").split_whitespace().next().map(str::to_owned);
        Self {
            processor: name.unwrap_or_else(unknown),
            vector_units: vector_units(),
            threads: std::thread::available_parallelism().map_or(1, usize::from),
            system: format!("{} {}", std::env::consts::OS, std::env::consts::ARCH),
            revision: forward::revision(root).unwrap_or_else(unknown),
            load_average: load.unwrap_or_else(unknown),
        }
    }

    /// Whether the targets of a processor with AVX-512 hold.
    pub(crate) fn avx512(&self) -> bool {
        self.vector_units == AVX512
    }
}

const AVX512: &str = "AVX-512";

#[cfg(target_arch = "x86_64")]
fn vector_units() -> &'static str {
    if std::arch::is_x86_feature_detected!("avx512f") {
        AVX512
    } else if std::arch::is_x86_feature_detected!("avx2") {
        "AVX2"
    } else {
        "SSE2"
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn vector_units() -> &'static str {
    "not x86-64"
}
