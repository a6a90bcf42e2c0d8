//! What has happened: events, logs, and the history of the node.

pub(crate) mod events;
pub(crate) mod history;
pub(crate) mod history_file;
pub(crate) mod history_task;
pub(crate) mod logs;
pub(crate) mod recorder;
