//! The home supervisor: carries one process on its journey and serves its calls while it is away.
#![forbid(unsafe_code)]

mod apart;
pub mod attic;
mod away;
mod client;
mod company;
pub mod connections;
pub mod convert;
pub mod deputy;
pub mod fuzz;
mod held;
mod holding;
pub mod homeward;
mod identity;
mod journal;
mod locks;
mod masks;
mod moving;
pub mod numbers;
mod ours;
mod outward;
mod progress;
mod queues;
mod remarks;
mod room;
mod seize;
pub mod server;
mod subject;
pub mod supervisor;
mod window;
