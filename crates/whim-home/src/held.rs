//! Signals that are kept until somebody can be told of them.

/// A signal that arrived while nobody could be told.
#[derive(Clone, Debug)]
pub struct HeldSignal {
    pub slot: usize,
    pub signal: i32,
    pub info: [u8; 128],
}
