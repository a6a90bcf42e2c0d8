//! What makes programs leave: an administrator's order, the return of a node's owner, the removal of a node.

pub(crate) mod changes;
pub(crate) mod evacuation;
pub(crate) mod eviction;
pub(crate) mod owner;
