//! Deep ensembles: independent runs whose answers are averaged.
//!
//! Objective: that of the member, once per run, with seeds of their own for initial values and data
//! order. Parameters: as many times the member's as there are runs. Sources: Lakshminarayanan et al.
//! 2017, arXiv:1612.01474; three runs with averaged logits: the code of Wang et al. 2024,
//! arXiv:2406.11675; several SWAG runs: Wilson and Izmailov 2020, arXiv:2002.08791.

use super::{Average, Build, MethodEntry};
use crate::report::Family;

/// Three runs of LoRA, probabilities averaged.
pub(super) static ENS_3: MethodEntry = MethodEntry {
    name: "ENS-3",
    key: "ens-3",
    summary: "three independent LoRA runs, probabilities averaged",
    family: Family::Ensemble,
    build: Build::Ensemble { member: "lora", members: 3, average: Average::Probabilities },
};

/// Ten runs of LoRA, probabilities averaged.
pub(super) static ENS_10: MethodEntry = MethodEntry {
    name: "ENS-10",
    key: "ens-10",
    summary: "ten independent LoRA runs, probabilities averaged",
    family: Family::Ensemble,
    build: Build::Ensemble { member: "lora", members: 10, average: Average::Probabilities },
};

/// The ensemble of BLoB's code.
pub(super) static ENS_BLOB: MethodEntry = MethodEntry {
    name: "ENS-logits",
    key: "ens-blob",
    summary: "three independent LoRA runs, logits averaged, as BLoB's code does",
    family: Family::Ensemble,
    build: Build::Ensemble { member: "lora", members: 3, average: Average::Logits },
};

/// Several SWAG runs.
pub(super) static MULTI_SWAG: MethodEntry = MethodEntry {
    name: "MultiSWAG",
    key: "multiswag",
    summary: "three independent SWAG runs, probabilities averaged",
    family: Family::PostHoc,
    build: Build::Ensemble { member: "swag", members: 3, average: Average::Probabilities },
};
