//! The line between this daemon and a supervisor, which belongs to a user: what is started, what is asked and how
//! what is heard is bounded. Nothing else reads what comes from beyond it (ARCHITECTURE.md, "The line").

pub(crate) mod conversation;
pub(crate) mod directories;
pub(crate) mod hearsay;
pub(crate) mod journal;
pub(crate) mod looking;
pub(crate) mod supervisor;
