//! Turns a process into data ([`whim_model`]) and back: freezes it, captures it, rebuilds it.
#![forbid(unsafe_code)]

pub mod capture;
mod capture_plan;
mod capture_remarks;
mod capture_told;
mod counters;
pub mod descriptor_signals;
pub mod freeze;
pub mod freeze_assemble;
pub mod freeze_attend;
pub mod freeze_calls;
mod freeze_continue;
mod freeze_delivery;
pub mod freeze_entries;
pub mod freeze_filters;
mod freeze_groups;
pub mod freeze_observe;
pub mod freeze_release;
mod freeze_vdso;
pub mod fuzz;
pub mod inject;
#[cfg(test)]
mod kernel_source;
pub mod mapping;
pub mod maps;
pub mod rebuild;
pub mod remarks;
pub mod reserve;
pub mod settings;
pub mod sharing;
pub mod stay;
pub mod stay_descriptors;
pub mod stay_filters;
mod stay_mappings;
pub mod stay_sentences;
mod stay_threads;
pub mod ticks;
mod travelling_signals;
pub mod vdso;
