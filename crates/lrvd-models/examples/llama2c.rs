//! Converts a model of llama2.c into a Hugging Face folder:
//!
//! ```text
//! cargo run -p lrvd-models --example llama2c -- stories260K.bin tok512.bin FOLDER
//! ```

use std::error::Error;
use std::path::Path;

use lrvd_models::llama::llama2c::convert;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [checkpoint, tokens, folder] = arguments.as_slice() else {
        return Err("wanted: CHECKPOINT.bin TOKENS.bin FOLDER".into());
    };
    convert(Path::new(checkpoint), Path::new(tokens), Path::new(folder))?;
    Ok(())
}
