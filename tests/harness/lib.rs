//! What the system tests stand on: labs, programs that are moved while they run, and comparisons
//! with the same programs unmoved.
#![forbid(unsafe_code)]

pub mod case;
pub mod cluster;
pub mod compare;
pub mod container;
pub mod cutter;
pub mod feed;
pub mod guest;
pub mod machine;
mod members;
pub mod mover;
pub mod place;
pub mod plans;
pub mod process;
pub mod program;
pub mod random;
pub mod talk;
pub mod terminal;
pub mod users;
mod version_1;
pub mod webdriver;

pub use anyhow::{Context, Error, Result, anyhow, bail, ensure};
pub use case::{Case, Setting};
pub use cluster::Cluster;
pub use cutter::Cutter;
pub use process::Running;
pub use talk::Talk;
