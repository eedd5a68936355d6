//! The `corelane` command.

fn main() {}
