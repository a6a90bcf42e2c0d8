//! The daemon of a node, and the protocol by which the command line asks it ([`control`]).
#![forbid(unsafe_code)]

pub mod arguments;
pub mod candidates;
pub mod cgroup;
pub mod class;
pub mod clients;
pub mod cluster;
pub mod config;
pub mod control;
pub mod daemon;
pub mod departing;
pub mod events;
pub mod faults;
pub mod features;
pub mod fuzz;
pub mod guests;
pub mod handshakes;
pub mod health;
pub mod hosting;
pub mod journeys;
pub mod listing;
pub mod logs;
pub mod membership;
pub mod moving;
pub mod peers;
pub mod places;
pub mod port;
pub mod processes;
pub mod sensors;
pub mod server;
pub mod settings;
pub mod stay;
pub mod supervisor;
pub mod watching;
