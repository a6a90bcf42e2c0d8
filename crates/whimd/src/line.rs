//! The line between this daemon and a supervisor, which belongs to a user: what we start, what we ask, and how
//! we bound what we hear. Nothing else reads what supervisors say (ARCHITECTURE.md, "The line").

pub(crate) mod conversation;
pub(crate) mod directories;
pub(crate) mod hearsay;
pub(crate) mod journal;
pub(crate) mod probes;
pub(crate) mod supervisor;
