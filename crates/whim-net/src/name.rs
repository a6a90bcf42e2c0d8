//! Names: of nodes, clusters and journeys, and the URIs by which certificates carry them.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Longest name of a node or cluster, in bytes: the length of one label of a DNS name, so that every name can
/// be part of a TLS server name.
pub const NAME_MAX: usize = 63;
/// A journey's identifier shares its label with the prefix `j-`.
pub const JOURNEY_MAX: usize = NAME_MAX - 2;

/// TLS server name of a daemon's control connections.
pub const SERVER_NAME_NODE: &str = "node.whim";
/// TLS server name under which the holder of the CA admits new nodes.
pub const SERVER_NAME_JOIN: &str = "join.whim";

#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum NameError {
    #[error(
        "The name {0:?} is not usable: give 1 to {1} characters from a-z, 0-9 and '-', with no '-' at either end"
    )]
    Unusable(String, usize),
    #[error("The role {0:?} is unknown: a supervisor is either 'home' or 'guest'")]
    Role(String),
    #[error("The certificate's name {0:?} is not one of this protocol: it must begin with whim://")]
    Uri(String),
}

fn check(text: &str, limit: usize) -> Result<(), NameError> {
    let bytes = text.as_bytes();
    let usable = !bytes.is_empty()
        && bytes.len() <= limit
        && bytes
            .iter()
            .all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'-'))
        && bytes.first() != Some(&b'-')
        && bytes.last() != Some(&b'-');
    if usable {
        Ok(())
    } else {
        // A hostile name is not repeated at full length in a message.
        Err(NameError::Unusable(text.chars().take(80).collect(), limit))
    }
}

macro_rules! name_type {
    ($(#[$doc:meta])* $name:ident, $limit:expr) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(String);

        impl $name {
            /// Checks and keeps a name.
            ///
            /// # Errors
            /// Too long, empty, or a character that is not allowed.
            pub fn new(text: impl Into<String>) -> Result<Self, NameError> {
                let text = text.into();
                check(&text, $limit)?;
                Ok(Self(text))
            }

            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl TryFrom<String> for $name {
            type Error = NameError;
            fn try_from(text: String) -> Result<Self, NameError> {
                Self::new(text)
            }
        }

        impl FromStr for $name {
            type Err = NameError;
            fn from_str(text: &str) -> Result<Self, NameError> {
                Self::new(text)
            }
        }

        impl From<$name> for String {
            fn from(name: $name) -> Self {
                name.0
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

name_type!(
    /// Name of a node: 1 to 63 characters from a-z, 0-9, '-'; no '-' at either end.
    NodeName,
    NAME_MAX
);
name_type!(
    /// Name of a cluster, drawn at random by `init` unless given; same characters as a node's.
    ClusterName,
    NAME_MAX
);
name_type!(
    /// Identifier of a journey: 1 to 61 characters from a-z, 0-9, '-'; no '-' at either end.
    JourneyId,
    JOURNEY_MAX
);

/// Which half of a journey a supervisor carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    Home,
    Guest,
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Home => "home",
            Self::Guest => "guest",
        })
    }
}

impl FromStr for Role {
    type Err = NameError;
    fn from_str(text: &str) -> Result<Self, NameError> {
        match text {
            "home" => Ok(Self::Home),
            "guest" => Ok(Self::Guest),
            _ => Err(NameError::Role(text.chars().take(80).collect())),
        }
    }
}

/// What a certificate says of its holder, as the URI in its subject alternative name.
///
/// ```text
/// whim://CLUSTER/node/NAME                              a node
/// whim://CLUSTER/node/NAME/journey/ID/home (or guest)   a supervisor
/// whim://CLUSTER/join                                   the holder of the CA, to nodes that join
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Subject {
    Node {
        cluster: ClusterName,
        node: NodeName,
    },
    Journey {
        cluster: ClusterName,
        node: NodeName,
        journey: JourneyId,
        role: Role,
    },
    Join {
        cluster: ClusterName,
    },
}

impl Subject {
    #[must_use]
    pub fn cluster(&self) -> &ClusterName {
        match self {
            Self::Node { cluster, .. } | Self::Journey { cluster, .. } | Self::Join { cluster } => {
                cluster
            }
        }
    }

    /// The node for which it speaks; the join certificate speaks for none.
    #[must_use]
    pub fn node(&self) -> Option<&NodeName> {
        match self {
            Self::Node { node, .. } | Self::Journey { node, .. } => Some(node),
            Self::Join { .. } => None,
        }
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Node { cluster, node } => write!(f, "whim://{cluster}/node/{node}"),
            Self::Journey {
                cluster,
                node,
                journey,
                role,
            } => {
                write!(f, "whim://{cluster}/node/{node}/journey/{journey}/{role}")
            }
            Self::Join { cluster } => write!(f, "whim://{cluster}/join"),
        }
    }
}

impl FromStr for Subject {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        let bad = || NameError::Uri(text.chars().take(80).collect());
        let rest = text.strip_prefix("whim://").ok_or_else(bad)?;
        let mut parts = [""; 7];
        let mut count = 0;
        for part in rest.split('/') {
            *parts.get_mut(count).ok_or_else(bad)? = part;
            count += 1;
        }
        match &parts[..count] {
            [cluster, "node", node] => Ok(Self::Node {
                cluster: ClusterName::new(*cluster)?,
                node: NodeName::new(*node)?,
            }),
            [cluster, "node", node, "journey", journey, role] => Ok(Self::Journey {
                cluster: ClusterName::new(*cluster)?,
                node: NodeName::new(*node)?,
                journey: JourneyId::new(*journey)?,
                role: role.parse()?,
            }),
            [cluster, "join"] => Ok(Self::Join {
                cluster: ClusterName::new(*cluster)?,
            }),
            _ => Err(bad()),
        }
    }
}

/// Who is at the other end of a connection, proved by its certificates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerIdentity {
    pub cluster: ClusterName,
    pub node: NodeName,
    /// The journey and half for which the peer speaks; `None`: the node's daemon itself.
    pub journey: Option<(JourneyId, Role)>,
    /// Serial number of the leaf, in lower-case hexadecimal.
    pub serial: String,
    /// Serial number of the node's signing certificate, in lower-case hexadecimal.
    pub node_serial: String,
}

impl fmt::Display for PeerIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.journey {
            None => write!(f, "node {}", self.node),
            Some((journey, role)) => {
                write!(
                    f,
                    "the {role} supervisor of journey {journey} on {}",
                    self.node
                )
            }
        }
    }
}

/// The peers that we are willing to talk to on one connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PeerExpectation {
    /// The daemon of any member.
    AnyNode,
    /// The daemon of this member.
    Node(NodeName),
    /// A supervisor of this journey.
    Journey {
        id: JourneyId,
        node: Option<NodeName>,
        role: Role,
    },
    /// Either supervisor of this journey, on any node; the purpose of the connection is decided after the first
    /// message.
    Supervisor { id: JourneyId },
}

impl PeerExpectation {
    /// Whether `peer` is one that we expect.
    #[must_use]
    pub fn admits(&self, peer: &PeerIdentity) -> bool {
        match self {
            Self::AnyNode => peer.journey.is_none(),
            Self::Node(name) => peer.journey.is_none() && peer.node == *name,
            Self::Journey { id, node, role } => {
                peer.journey
                    .as_ref()
                    .is_some_and(|(i, r)| i == id && r == role)
                    && node.as_ref().is_none_or(|name| peer.node == *name)
            }
            Self::Supervisor { id } => peer.journey.as_ref().is_some_and(|(i, _)| i == id),
        }
    }
}

impl fmt::Display for PeerExpectation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AnyNode => f.write_str("any node of the cluster"),
            Self::Node(name) => write!(f, "node {name}"),
            Self::Journey {
                id,
                node: Some(node),
                role,
            } => {
                write!(f, "the {role} supervisor of journey {id} on {node}")
            }
            Self::Journey {
                id,
                node: None,
                role,
            } => {
                write!(f, "the {role} supervisor of journey {id}")
            }
            Self::Supervisor { id } => write!(f, "a supervisor of journey {id}"),
        }
    }
}

/// TLS server name that routes a connection to a supervisor: `j-ID.ROLE.whim`.
#[must_use]
pub fn journey_server_name(id: &JourneyId, role: Role) -> String {
    format!("j-{id}.{role}.whim")
}

/// TLS server name that routes a connection to the guest of a stay: `j-ID.EPOCH.HOME.guest.whim`. Names of
/// journeys are only unique within their home: another home may have a journey of the same name, in any epoch.
#[must_use]
pub fn stay_server_name(home: &NodeName, id: &JourneyId, epoch: u32) -> String {
    format!("j-{id}.{epoch}.{home}.{}.whim", Role::Guest)
}

/// Where a connection goes, by the server name in its first message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Route {
    Node,
    Join,
    Supervisor(JourneyId, Role),
    /// To the guest of this stay alone.
    Stay {
        home: NodeName,
        journey: JourneyId,
        epoch: u32,
    },
}

impl Route {
    /// Parses a server name; `None`: it is not one of ours, and the connection is refused.
    #[must_use]
    pub fn of(server_name: &str) -> Option<Self> {
        match server_name {
            SERVER_NAME_NODE => return Some(Self::Node),
            SERVER_NAME_JOIN => return Some(Self::Join),
            _ => {}
        }
        let rest = server_name.strip_prefix("j-")?.strip_suffix(".whim")?;
        let (id, rest) = rest.split_once('.')?;
        let journey = JourneyId::new(id).ok()?;
        let Some((number, rest)) = rest.split_once('.') else {
            return Some(Self::Supervisor(journey, rest.parse().ok()?));
        };
        let epoch: u32 = number.parse().ok()?;
        let (home, role) = rest.split_once('.')?;
        let is_ours = role.parse() == Ok(Role::Guest) && epoch.to_string() == number;
        let home = NodeName::new(home).ok().filter(|_| is_ours)?;
        Some(Self::Stay {
            home,
            journey,
            epoch,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_checked() {
        for good in ["a", "n1", "build-7", &"x".repeat(63)] {
            assert_eq!(NodeName::new(good).expect("usable").as_str(), good);
        }
        for bad in [
            "",
            "-a",
            "a-",
            "A",
            "a.b",
            "a/b",
            "ä",
            "a b",
            &"x".repeat(64),
        ] {
            assert!(NodeName::new(bad).is_err(), "{bad}");
        }
        assert!(serde_json::from_str::<NodeName>("\"../etc\"").is_err());
    }

    #[test]
    fn subjects_survive_a_round_trip() {
        for uri in [
            "whim://c/node/n1",
            "whim://c/node/n1/journey/7f/home",
            "whim://c-1/join",
        ] {
            assert_eq!(uri.parse::<Subject>().expect("valid").to_string(), uri);
        }
        for bad in [
            "",
            "whim://",
            "http://c/node/n1",
            "whim://c/node/n1/",
            "whim://c/node",
            "whim://c/node/n1/journey/7f/deputy",
            "whim://c/node/n1/journey/7f/home/x/y/z",
        ] {
            assert!(bad.parse::<Subject>().is_err(), "{bad}");
        }
    }

    #[test]
    fn routes() {
        let id = JourneyId::new("n1-77-3").expect("valid");
        let name = journey_server_name(&id, Role::Guest);
        let found = Some(Route::Supervisor(id.clone(), Role::Guest));
        assert_eq!(Route::of(&name), found);
        let longest = NodeName::new("x".repeat(NAME_MAX)).expect("valid");
        let journey = JourneyId::new("x".repeat(JOURNEY_MAX)).expect("valid");
        let name = stay_server_name(&longest, &journey, u32::MAX);
        assert!(name.len() < 254, "{name}");
        let stay = Route::Stay {
            home: longest,
            journey,
            epoch: u32::MAX,
        };
        assert_eq!(Route::of(&name), Some(stay));
        assert_eq!(Route::of("node.whim"), Some(Route::Node));
        assert_eq!(Route::of("join.whim"), Some(Route::Join));
        for bad in [
            "",
            "whim",
            "j-.home.whim",
            "j-../x.home.whim",
            "j-a.b.whim",
            "j-a.home.whim.x",
            "j-a.1.n1.home.whim",
            "j-a.01.n1.guest.whim",
            "j-a.+1.n1.guest.whim",
            "j-a.4294967296.n1.guest.whim",
            "j-a.1..guest.whim",
            "j-a.1.n1.n2.guest.whim",
        ] {
            assert_eq!(Route::of(bad), None, "{bad}");
        }
    }
}
