//! What a node is and does: its load, memory and speed, its CPU's class, its control groups, its processes.
//!
//! It reads the kernel's files and reports what is there. It knows nothing of clusters, members and journeys.
#![forbid(unsafe_code)]

pub mod batch;
pub mod cgroup;
pub mod class;
pub mod features;
pub mod fuzz;
pub mod process;
pub mod processes;
pub mod sensors;
