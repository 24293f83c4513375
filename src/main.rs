//! The command `everygpu`: parses the arguments, runs the command, prints what went wrong.

mod cli;

fn main() {
    cli::main()
}
