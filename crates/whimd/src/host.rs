//! Guests: programs of other nodes that compute here.

pub(crate) mod guests;
pub(crate) mod hosting;
pub(crate) mod orders;
pub(crate) mod share;
