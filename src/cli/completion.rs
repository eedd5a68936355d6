//! `corelane completion`.

use std::io::Write;

use clap_complete::Shell;

use super::failure::Failure;

/// For bash: corelane completion bash > /etc/bash_completion.d/corelane
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The shell
    shell: Shell,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    // Generated into memory, because the generator panics when its output is closed.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut super::command_line(), "corelane", &mut script);
    std::io::stdout().write_all(&script).map_err(|error| Failure::of_output(&error))
}
