//! antctl: the command line of Antrea.

use std::io::Write as _;
use std::process::ExitCode;

use antctl::{Cli, run};
use clap::Parser as _;

fn main() -> ExitCode {
    let result = run(Cli::parse(), &mut std::io::stdout().lock(), &mut std::io::stderr().lock());
    match result {
        Ok(code) => code,
        Err(error) => {
            // Nobody is left to tell if even this fails.
            let _ = writeln!(std::io::stderr(), "antctl: {error:#}");
            ExitCode::FAILURE
        }
    }
}
