//! Entry of a fuzz target in `fuzz/`; its corpus is replayed by the tests of this crate.

use crate::exposition::{Format, negotiate, plain};

/// Any Accept header gives a format, and OpenMetrics only if the header names it. Any text can be made plain,
/// and has no end mark then.
pub fn accept(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    if negotiate(Some(text)) == Format::OpenMetrics {
        let named = text.to_ascii_lowercase();
        assert!(named.contains("application/openmetrics-text"));
    }
    let once = plain(text);
    assert!(!once.split('\n').any(|line| line == "# EOF"));
}

#[cfg(test)]
mod tests {
    #[test]
    fn corpus_of_accept() {
        whim_corpus::replay("accept", super::accept);
    }
}
