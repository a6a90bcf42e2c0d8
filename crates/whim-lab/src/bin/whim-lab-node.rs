//! The helper of a lab on its own: what the `whim` command also does for `whim lab-node ...`.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    whim_lab::node::main(std::env::args_os().skip(1))
}
