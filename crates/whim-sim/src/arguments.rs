//! The command line.

use crate::check::{Extent, Subject};
use crate::cluster::Setting;
use crate::cluster::node::Machine;
use crate::scenario::{self, GIB, Scenario};
use crate::study::{Assumptions, Policy};
use crate::traces;
use clap::{Args, Parser, Subcommand};
use std::path::{Path, PathBuf};

/// The production policy in a simulated cluster
#[derive(Parser)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Compare policies as the study of the opportunity cost approach did
    Study {
        /// Runs of each policy
        #[arg(long, default_value_t = 100)]
        runs: u64,
        /// Seed of the first run; the others have those that follow it
        #[arg(long, default_value_t = 0)]
        seed: u64,
        /// Policies, the worst first
        #[arg(
            long = "policy",
            value_enum,
            value_delimiter = ',',
            default_value = "pvm,e-pvm,mosix,e-mosix,ours"
        )]
        policies: Vec<Policy>,
        /// Print JSON
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        assumed: Assumptions,
    },
    /// Run a cluster
    Run(RunArguments),
    /// Check invariants in many runs
    Check(CheckArguments),
}

#[derive(Args)]
pub(crate) struct CheckArguments {
    /// What is checked
    #[arg(value_enum)]
    pub subject: Subject,
    /// Runs, of seeds one after the other
    #[arg(long, alias = "cases", default_value_t = 10)]
    pub seeds: u64,
    /// The first seed
    #[arg(long, default_value_t = 0)]
    pub first: u64,
    /// Hours that each run of the ping-pong check simulates
    #[arg(long, default_value_t = 1.0)]
    pub hours: f64,
    /// The largest cluster of the checks of ages and speed
    #[arg(long, default_value_t = 1024)]
    pub nodes: usize,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

impl CheckArguments {
    pub(crate) fn extent(&self) -> Extent {
        Extent {
            first: self.first,
            seeds: self.seeds,
            hours: self.hours.clamp(0.01, 1000.0),
            nodes: self.nodes,
        }
    }
}

#[derive(Args)]
pub(crate) struct RunArguments {
    /// What runs in it: a scenario (see docs/simulation.md), or a file: a trace in the Standard Workload
    /// Format, or a record of a lab, NAME.jsonl
    #[arg(long, default_value = "hogs")]
    pub workload: String,
    /// Its nodes: their cores (0.8,0.4,0.4,0.2), or how many nodes of one core there are
    #[arg(long, default_value = "0.8,0.4,0.4,0.2")]
    pub nodes: String,
    /// Of each node, in GiB
    #[arg(long, default_value_t = 2.0)]
    pub memory: f64,
    /// When it is over, in seconds
    #[arg(long, default_value_t = 600.0)]
    pub seconds: f64,
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
    /// Nothing moves by itself
    #[arg(long)]
    pub no_balance: bool,
    /// Programs take turns at sharing CPUs
    #[arg(long)]
    pub fair: bool,
    /// Bytes a second of a move
    #[arg(long, default_value_t = 100e6)]
    pub rate: f64,
    /// Seconds for which a move stops a program, beside its bytes: from 0.1 to 0.3, or this
    #[arg(long)]
    pub freeze: Option<f64>,
    /// Draw loads and moves into this file
    #[arg(long)]
    pub svg: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Larger clusters are not simulated.
const NODES_MAX: usize = 100_000;

impl RunArguments {
    pub(crate) fn setting(&self) -> Result<Setting, String> {
        let mut setting = Setting::new(self.seed, self.machines()?, self.seconds);
        setting.balance = !self.no_balance;
        setting.habits.fair = self.fair;
        setting.trace = self.svg.is_some();
        setting.rate = self.rate.max(1.0);
        setting.rules.rate = setting.rate;
        if let Some(freeze) = self.freeze {
            setting.freeze = (freeze.max(0.0), freeze.max(0.0));
        }
        let path = Path::new(&self.workload);
        if path.exists() {
            traces::fill(&mut setting, path)?;
        } else {
            scenario::fill(&mut setting, self.workload.parse::<Scenario>()?);
        }
        Ok(setting)
    }

    fn machines(&self) -> Result<Vec<Machine>, String> {
        let odd = || {
            format!(
                "'{}' is neither a number of nodes (up to {NODES_MAX}) nor a list of cores",
                self.nodes
            )
        };
        let memory = self.memory * GIB;
        if let Ok(count) = self.nodes.parse::<usize>() {
            if !(1..=NODES_MAX).contains(&count) {
                return Err(odd());
            }
            let nodes = scenario::equal(count).into_iter();
            return Ok(nodes.map(|node| Machine { memory, ..node }).collect());
        }
        let node = |cores: &str| {
            let cores: f64 = cores.parse().map_err(|_| odd())?;
            let good = cores > 0.0 && cores <= 4096.0;
            let machine = Machine {
                cores,
                speed: 1.0,
                memory,
            };
            good.then_some(machine).ok_or_else(odd)
        };
        self.nodes.split(',').map(node).collect()
    }
}
