//! The command `everygpu`: parses the arguments, runs the command, prints what went wrong.

mod cli;

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::main()
}
