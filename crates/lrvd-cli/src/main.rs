//! The `lrvd` command.
fn main() {}
