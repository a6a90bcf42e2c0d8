//! `whim-sim`: the production policy in a simulated cluster.

#![forbid(unsafe_code)]

mod arguments;
mod check;
mod cluster;
mod fluid;
mod mosix;
mod scenario;
mod study;
mod svg;
mod table;
mod traces;
mod workload;

use arguments::{Arguments, Command, RunArguments};
use clap::Parser;
use serde::Serialize;
use std::process::ExitCode;
use table::Table;

fn main() -> ExitCode {
    let done = match Arguments::parse().command {
        Command::Study {
            runs,
            seed,
            policies,
            json,
            assumed,
        } => {
            let table = Table::of(&policies, seed, runs, &assumed);
            if json {
                print_json(&table)
            } else {
                table.print();
                Ok(true)
            }
        }
        Command::Run(arguments) => run(&arguments),
        Command::Check(arguments) => {
            let checked = check::check(arguments.subject, &arguments.extent());
            if arguments.json {
                print_json(&checked).map(|_| checked.holds())
            } else {
                checked.print();
                Ok(checked.holds())
            }
        }
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(2)
        }
    }
}

fn run(arguments: &RunArguments) -> Result<bool, String> {
    let outcome = cluster::run(arguments.setting()?);
    if let Some(path) = &arguments.svg {
        std::fs::write(path, svg::draw(&outcome))
            .map_err(|error| format!("Could not write {}: {error}", path.display()))?;
    }
    if arguments.json {
        print_json(&outcome)?;
    } else {
        outcome.print();
    }
    Ok(outcome.broken.is_empty())
}

fn print_json(value: &impl Serialize) -> Result<bool, String> {
    let text = serde_json::to_string_pretty(value)
        .map_err(|error| format!("Could not write the result as JSON: {error}"))?;
    println!("{text}");
    Ok(true)
}
