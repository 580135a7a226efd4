//! Rank-stabilised LoRA: LoRA with a scale that falls with the root of the rank.
//!
//! ```text
//! ΔW = lora_alpha / √rank · B·A        LoRA: lora_alpha / rank
//! ```
//!
//! Objective, prediction and parameters (`rank·(d_input + d_output)` per layer) are LoRA's. PEFT has it as `use_rslora`;
//! adapters are saved as LoRA of the same scale. Source: Kalajdzievski 2023, arXiv:2312.03732.

use lrvd_burn::train::Lora;

use super::{RankRequest, lrvd};
use crate::error::Result;
use crate::settings::Config;

pub(super) fn new(config: &Config, request: RankRequest) -> Result<Lora> {
    let lora = lrvd::lora(config, request)?;
    Ok(Lora { lora_alpha: config.lora_alpha * (lora.rank as f64).sqrt(), ..lora })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Preset;

    #[test]
    fn the_scale_falls_with_the_root_of_the_rank() {
        let config = Config { lora_alpha: 12.0, ..Preset::ConstantWeight.config() };
        for (rank, scale) in [(1, 12.0), (4, 6.0), (9, 4.0)] {
            let lora = new(&config, RankRequest::Average(rank)).unwrap();
            assert_eq!((lora.rank, lora.lora_alpha / rank as f64), (rank, scale));
        }
    }
}
