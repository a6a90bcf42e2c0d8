//! Text that is handed on and never shown.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A text that is a secret or contains one: neither logs nor `Debug` show anything of it. There is no
/// `Display`, so code that needs the text has to call [`Concealed::reveal`].
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Concealed(String);

impl Concealed {
    #[must_use]
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text itself, for the one who is to read it and never for a log.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Concealed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(concealed)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_concealed_travels_and_is_not_shown() {
        let secret = Concealed::new("5ec4e7");
        assert_eq!(
            format!("{secret:?} {:#?}", Some(&secret))
                .matches("5ec4e7")
                .count(),
            0
        );
        let json = serde_json::to_string(&secret).expect("written");
        assert_eq!(json, "\"5ec4e7\"");
        let read: Concealed = serde_json::from_str(&json).expect("read");
        assert_eq!(read.reveal(), "5ec4e7");
    }
}
