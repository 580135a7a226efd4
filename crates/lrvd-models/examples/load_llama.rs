//! Loads a Llama folder, tells how much memory that took, and continues a text.
//!
//! ```console
//! $ cargo run --release --package lrvd-models --example load_llama -- FOLDER bf16 "Once upon a time"
//! ```
#![allow(clippy::print_stdout, reason = "an example talks to a person")]

use std::error::Error;
use std::path::PathBuf;

use burn::tensor::{DType, Device};
use lrvd_burn::adapter::BaseBits;
use lrvd_burn::files::WeightStore;
use lrvd_models::Precision;
use lrvd_models::llama::{GenerateOptions, LlamaConfig, LlamaForCausalLm};
use lrvd_models::tokenizer::TextTokenizer;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let usage = "usage: load_llama FOLDER f32|bf16|f16|q8|q4 [TEXT]";
    let folder = PathBuf::from(arguments.next().ok_or(usage)?);
    let name = arguments.next().ok_or(usage)?;
    let (dtype, bits) = match name.as_str() {
        "f32" => (DType::F32, None),
        "bf16" => (DType::BF16, None),
        "f16" => (DType::F16, None),
        "q8" => (DType::F32, Some(BaseBits::Q8)),
        "q4" => (DType::F32, Some(BaseBits::Q4)),
        _ => return Err(usage.into()),
    };
    let precision = Precision { dtype, bits };
    let before = resident("VmRSS");
    let config = LlamaConfig::read(&folder.join("config.json"))?;
    let store = WeightStore::open(&folder)?;
    let (model, loaded) =
        LlamaForCausalLm::from_pretrained(&store, &config, &Device::flex(), precision)?;
    println!("{} tensors as {name}", loaded.report.applied.len());
    if let (Some(before), Some(after), Some(peak)) = (before, resident("VmRSS"), resident("VmHWM"))
    {
        let grown = |bytes: u64| bytes.saturating_sub(before) as f64 / 1e9;
        println!("memory: {:.2} GB, at the peak {:.2} GB", grown(after), grown(peak));
    }
    if let Some(text) = arguments.next() {
        let tokenizer = TextTokenizer::from_dir(&folder)?;
        let prompt = tokenizer.encode(&text, None, None)?.get_ids().to_vec();
        let options = GenerateOptions { max_new_tokens: 32, ..GenerateOptions::default() };
        let tokens = model.generate_greedy(&[prompt], &options)?;
        println!("{text}{}", tokenizer.decode(&tokens[0], true)?);
    }
    Ok(())
}

/// An entry of the kernel's account of this process, in bytes.
fn resident(entry: &str) -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(entry)?.strip_prefix(':'))?;
    line.trim().strip_suffix(" kB")?.parse::<u64>().ok().map(|kib| kib * 1024)
}
