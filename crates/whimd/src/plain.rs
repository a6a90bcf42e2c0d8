//! What others have written, as it can be shown.

pub use whim_monitor::plain::{harmless, is_harmless, text, to_json};
