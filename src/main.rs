//! The `corelane` command: parse, call, print. What it does is in the crates below; how it looks is in `cli/`.

mod cli;

fn main() -> std::process::ExitCode {
    cli::main()
}
