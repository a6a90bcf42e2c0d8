//! What others have written, as it can be shown.

pub use whim_monitor::plain::{harmless, to_json};
