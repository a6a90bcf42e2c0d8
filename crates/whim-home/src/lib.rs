//! The home supervisor: carries one process on its journey and serves its calls while it is away.
#![forbid(unsafe_code)]

pub mod apart;
pub mod attic;
pub mod away;
mod client;
pub mod convert;
pub mod deputy;
pub mod fuzz;
pub mod held;
mod holding;
pub mod homeward;
pub mod identity;
mod journal;
pub mod link;
pub mod masks;
pub mod moving;
pub mod outward;
mod progress;
pub mod room;
pub mod server;
pub mod subject;
pub mod supervisor;
pub mod taking;
pub mod window;
