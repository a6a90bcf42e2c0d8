//! The connections of one stay, and the messages on them.

use crate::guest::Outgoing;
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;
use thiserror::Error;
use whim_journey::frame::{Kind, PROTOCOL_VERSION};
use whim_journey::job::Phase;
use whim_journey::message::{
    self, ChannelRole, Hello, MessageError, Resume, TAIL_IN_FRAME_MAX, TAIL_MAX, ToHome,
};
use whim_model::ProcessImage;
use whim_net::name::NameError;
use whim_net::{
    Channel, ChannelError, Credentials, JourneyId, Line, NodeName, PeerExpectation, Role,
};

/// Time for the handshake and the first message of a connection.
const GREETING_WITHIN: Duration = Duration::from_secs(5);
/// How long a transfer may stand still.
pub(crate) const STALL_MAX: Duration = Duration::from_secs(60);
/// Longest image, in bytes.
const IMAGE_MAX: usize = 64 << 20;

#[derive(Debug, Error)]
pub enum ConnectionError {
    #[error("A connection failed: {0}")]
    Channel(#[from] ChannelError),
    #[error(transparent)]
    Message(#[from] MessageError),
    #[error("A name is not valid: {0}")]
    Name(#[from] NameError),
    #[error("The first message of a connection is not one of ours: {0}")]
    Greeting(String),
    #[error(
        "{node} speaks versions {min} to {max} of the journey's protocol, this node speaks version {PROTOCOL_VERSION}: update the older of the two nodes"
    )]
    Version { node: String, min: u16, max: u16 },
    #[error("The next host {0} cannot be reached: no address is known")]
    NoAddress(String),
    #[error("The next host {node} cannot be reached at {address}: {source}")]
    Connect {
        node: String,
        address: String,
        source: ChannelError,
    },
    #[error("A piece of the image is out of order, or the image is longer than {IMAGE_MAX} bytes")]
    Image,
}

/// Who we are, and with whom we talk.
#[derive(Clone, Debug)]
pub(crate) struct Parties {
    pub journey: String,
    pub epoch: u32,
    pub home: String,
    /// The host from which the guest comes, if it does not come from home.
    pub source: Option<String>,
    pub credentials: Credentials,
}

impl Parties {
    /// Accepts a connection that the daemon has handed over: makes the handshake, reads the first
    /// message, and checks whether the peer may be what it claims to be.
    ///
    /// # Errors
    /// The handshake fails, or the peer may not be what it claims to be.
    pub(crate) fn accept(
        &self,
        stream: TcpStream,
    ) -> Result<(ChannelRole, Option<Resume>, Channel), ConnectionError> {
        let expect = PeerExpectation::Supervisor {
            id: JourneyId::new(self.journey.clone())?,
        };
        let mut channel = Channel::accept(stream, &self.credentials, &expect, GREETING_WITHIN)?;
        let frame = channel.receive_frame(GREETING_WITHIN)?;
        let (hello, _) = message::decode::<Hello>(&frame.payload)?;
        let strange = |what: &str| Err(ConnectionError::Greeting(what.to_owned()));
        if frame.kind != Kind::ToGuest && frame.kind != Kind::ToHome {
            return strange("it is of another kind");
        }
        if hello.journey != self.journey || hello.epoch != self.epoch {
            return strange("it names another journey or an older stay");
        }
        if !(hello.version_min..=hello.version_max).contains(&PROTOCOL_VERSION) {
            return Err(refuse_version(channel, &hello));
        }
        // Every member can make a certificate for every journey, so a certificate counts only if it
        // is from the right node.
        let (wanted, node) = match hello.role {
            ChannelRole::Calls | ChannelRole::Pages => (Role::Home, Some(&self.home)),
            ChannelRole::Source => (Role::Guest, self.source.as_ref()),
        };
        let peer = channel.peer();
        let right = peer
            .journey
            .as_ref()
            .is_some_and(|(_, role)| *role == wanted);
        if !right || node.is_none_or(|node| peer.node.as_str() != node) {
            return strange("its certificate is for another purpose");
        }
        Ok((hello.role, hello.resume, channel))
    }

    /// Connects to the supervisor that waits on the next host.
    ///
    /// # Errors
    /// The supervisor cannot be reached, or the peer is not the one that we expect.
    pub(crate) fn connect_onward(&self, next: &Next) -> Result<Channel, ConnectionError> {
        let expect = PeerExpectation::Journey {
            id: JourneyId::new(self.journey.clone())?,
            node: Some(NodeName::new(next.node.clone())?),
            role: Role::Guest,
        };
        let mut failure = ConnectionError::NoAddress(next.node.clone());
        for address in &next.addresses {
            let resolved = address.to_socket_addrs().map(Iterator::collect);
            let resolved: Vec<_> = resolved.unwrap_or_default();
            for socket in resolved {
                let connected = Channel::connect(
                    socket,
                    &next.server_name,
                    &self.credentials,
                    &expect,
                    GREETING_WITHIN,
                );
                match connected {
                    Ok(channel) => return self.greet(channel, next.epoch),
                    Err(source) => {
                        failure = ConnectionError::Connect {
                            node: next.node.clone(),
                            address: address.clone(),
                            source,
                        };
                    }
                }
            }
        }
        Err(failure)
    }

    fn greet(&self, mut channel: Channel, epoch: u32) -> Result<Channel, ConnectionError> {
        let hello = message::encode(&Hello {
            journey: self.journey.clone(),
            epoch,
            version_min: PROTOCOL_VERSION,
            version_max: PROTOCOL_VERSION,
            role: ChannelRole::Source,
            resume: None,
        })?;
        channel.send_now(Kind::ToHome, epoch, &[&hello], GREETING_WITHIN)?;
        Ok(channel)
    }
}

/// Says which versions there are, in a failure message, which every version understands. So a user
/// who reads it at home is told what to do, instead of seeing a connection that breaks.
fn refuse_version(mut channel: Channel, hello: &Hello) -> ConnectionError {
    let refusal = ConnectionError::Version {
        node: channel.peer().node.to_string(),
        min: hello.version_min,
        max: hello.version_max,
    };
    let last = message::encode(&ToHome::Failed {
        phase: Phase::Admit,
        reason: refusal.to_string(),
    });
    if let Ok(last) = last {
        // Whether it arrives or not, the connection ends here.
        let _ = channel.send_now(Kind::ToHome, hello.epoch, &[&last], GREETING_WITHIN);
    }
    channel.close();
    refusal
}

/// Where a guest goes from here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Next {
    pub addresses: Vec<String>,
    pub server_name: String,
    pub node: String,
    pub epoch: u32,
}

/// Queues a message. The part of its tail that does not fit into its frame goes in front of it.
///
/// # Errors
/// The tail is longer than home accepts.
pub(crate) fn queue(line: &mut Line, epoch: u32, out: &Outgoing) -> Result<(), ConnectionError> {
    if out.tail.len() > TAIL_MAX {
        return Err(MessageError::TailTooLong(out.tail.len() as u64).into());
    }
    let head = message::encode(&out.message)?;
    let mut rest = out.tail.as_slice();
    if let ToHome::Call(request) = &out.message {
        while rest.len() > TAIL_IN_FRAME_MAX {
            let (now, later) = rest.split_at(TAIL_IN_FRAME_MAX);
            line.queue(Kind::Data, epoch, &[&request.tid.to_le_bytes(), now]);
            rest = later;
        }
    }
    line.queue(Kind::ToHome, epoch, &[&head, rest]);
    Ok(())
}

/// An image that arrives in pieces.
#[derive(Debug, Default)]
pub(crate) struct Assembly {
    bytes: Vec<u8>,
}

impl Assembly {
    /// How many bytes have come.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Adds a piece; returns the image with the last one.
    ///
    /// # Errors
    /// Out of order, too long, or not an image.
    pub(crate) fn add(&mut self, payload: &[u8]) -> Result<Option<ProcessImage>, ConnectionError> {
        let (head, piece) = payload
            .split_first_chunk::<8>()
            .ok_or(ConnectionError::Image)?;
        let word = |at: usize| {
            u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]) as usize
        };
        let (total, offset) = (word(0), word(4));
        if total > IMAGE_MAX || offset != self.bytes.len() || offset + piece.len() > total {
            return Err(ConnectionError::Image);
        }
        self.bytes.extend_from_slice(piece);
        if self.bytes.len() < total {
            return Ok(None);
        }
        let (image, _) = message::decode(&self.bytes)?;
        self.bytes = Vec::new();
        Ok(Some(image))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_are_put_together_up_to_their_limit() {
        let piece = |total: usize| {
            let total = u32::try_from(total).expect("small");
            [&total.to_le_bytes()[..], &[0; 4], &[0; 16]].concat()
        };
        let first = Assembly::default().add(&piece(IMAGE_MAX));
        assert!(matches!(first, Ok(None)), "{first:?}");
        let first = Assembly::default().add(&piece(IMAGE_MAX + 1));
        assert!(matches!(first, Err(ConnectionError::Image)), "{first:?}");
    }
}
