//! `whimd`: the daemon of a node.
#![forbid(unsafe_code)]

use std::io::Write;
use std::process::ExitCode;

fn main() -> ExitCode {
    match whimd::main() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // As the result of main it would come with a stack, where RUST_BACKTRACE asks for that of other programs.
            // Nobody may read it, which is no reason to panic.
            let _ = writeln!(std::io::stderr(), "whimd: {error:#}");
            ExitCode::FAILURE
        }
    }
}
