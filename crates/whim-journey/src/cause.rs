//! Why a process is moved.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Why a process is moved. Metrics, log, history and `whim why` name it by its [`Cause::name`], and
/// files hold it as that text too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Cause {
    /// Somebody asked for it: `whim migrate`, `bring`, `top`.
    User,
    /// The balancer: there is less to wait for elsewhere.
    Load,
    /// The balancer: it is away, and most of what it does is asking home.
    Calls,
    /// The balancer: it is away, and waits for its user at a terminal.
    Terminal,
    /// The balancer: the node's memory runs out.
    Memory,
    /// The balancer: it is another program's turn to share a CPU.
    Turn,
    /// Its host wants to be rid of it.
    Host,
    /// Home was told to bring its processes back, or the host is no longer a member.
    Order,
    /// It came home by itself, for a call that can run only there.
    Itself,
}

impl Cause {
    pub const ALL: [Self; 9] = [
        Self::User,
        Self::Load,
        Self::Calls,
        Self::Terminal,
        Self::Memory,
        Self::Turn,
        Self::Host,
        Self::Order,
        Self::Itself,
    ];

    /// Its name; stable.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Load => "load",
            Self::Calls => "calls",
            Self::Terminal => "terminal",
            Self::Memory => "memory",
            Self::Turn => "turn",
            Self::Host => "host",
            Self::Order => "order",
            Self::Itself => "itself",
        }
    }

    /// What follows "because" in a sentence for the user.
    #[must_use]
    pub fn because(self) -> &'static str {
        match self {
            Self::User => "somebody who may move it asked for that",
            Self::Load => "there is less to wait for there",
            Self::Calls => "most of what it does is asking home",
            Self::Terminal => "it waits for its user at a terminal",
            Self::Memory => "memory runs out where it is",
            Self::Turn => "it goes on sharing a CPU there, and another program has its own here",
            Self::Host => "its host wanted to be rid of it",
            Self::Order => "its home was told to bring it back, or its host is no member any more",
            Self::Itself => "it made a call that runs at home alone",
        }
    }
}

impl Serialize for Cause {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

impl<'de> Deserialize<'de> for Cause {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let word = String::deserialize(deserializer)?;
        let found = Self::ALL.into_iter().find(|cause| cause.name() == word);
        found.ok_or_else(|| serde::de::Error::custom("no cause of a move has this name"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_written_as_its_word_and_read_again() {
        for cause in Cause::ALL {
            let text = serde_json::to_string(&cause).expect("written");
            assert_eq!(text, format!("\"{}\"", cause.name()));
            assert_eq!(serde_json::from_str::<Cause>(&text).expect("read"), cause);
            // The history uses another format, which holds it as a text as well.
            let coded = postcard::to_stdvec(&cause).expect("coded");
            assert_eq!(postcard::from_bytes::<&str>(&coded), Ok(cause.name()));
            assert_eq!(postcard::from_bytes::<Cause>(&coded), Ok(cause));
        }
        assert!(serde_json::from_str::<Cause>("\"whim\"").is_err());
    }
}
