//! Signals that are kept until they can be passed on.

/// A signal that arrived while it could not be passed on.
#[derive(Clone, Debug)]
pub struct HeldSignal {
    pub seat: usize,
    pub signal: i32,
    pub info: [u8; 128],
    /// Its thread was in a call when it came, which may have caused it.
    pub in_call: bool,
}
