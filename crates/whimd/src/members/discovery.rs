//! Nodes on the local network that announce themselves, where the configuration wants it.
//!
//! A node calls its name, cluster and port into the network. Anybody could send such a call, so it leads to
//! no more than a proposal, in `whim doctor` and the log. A token decides who becomes a member, as always.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::net::UdpSocket;
use whim_net::NodeName;
use whim_net::name::ClusterName;

use crate::members::cluster::{Cluster, interface_addresses};

/// First byte of a call: no datagram that is sealed with a key begins with it.
pub(crate) const CALL: u8 = 3;
/// Longest call, in bytes.
pub(crate) const CALL_MAX: usize = 192;
/// One of the addresses for use within an organisation (RFC 2365).
const GROUP: Ipv4Addr = Ipv4Addr::new(239, 255, 79, 46);
/// How often a node calls.
pub(crate) const EVERY: Duration = Duration::from_secs(5);
/// A node is gone when it was not heard for this long.
const GONE: Duration = Duration::from_secs(30);
/// How many other nodes are remembered at a time.
pub(crate) const FOUND_MAX: usize = 64;

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Call {
    node: NodeName,
    /// `None` if it is in no cluster.
    cluster: Option<ClusterName>,
    port: u16,
}

/// A node that called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    pub node: NodeName,
    pub cluster: Option<ClusterName>,
    /// Where it is reached, as far as it can be believed.
    pub address: SocketAddr,
    heard: Duration,
}

impl Found {
    /// What a node of cluster `ours` could do about it: what was heard, and how to proceed.
    #[must_use]
    pub(crate) fn proposal(&self, ours: Option<&ClusterName>) -> Option<(String, String)> {
        let Self { node, address, .. } = self;
        match (ours, &self.cluster) {
            (Some(_), None) => Some((
                format!("Somebody at {address} says that it is node {node}, and in no cluster"),
                "To take it in, run 'whim token' on the node that holds the CA, and there 'whim join' with the token".into(),
            )),
            (None, Some(cluster)) => Some((
                format!("Somebody at {address} says that it is node {node} of cluster {cluster}"),
                format!("To join, run 'whim token' there, and here 'whim join {address}'"),
            )),
            _ => None,
        }
    }
}

/// The nodes that have called lately.
#[derive(Debug, Default)]
pub(crate) struct Discovery {
    found: Vec<Found>,
}

impl Discovery {
    /// Takes in a call that came from this address; returns the node if the call brings news of it.
    pub(crate) fn hear(&mut self, now: Duration, from: SocketAddr, bytes: &[u8]) -> Option<Found> {
        if bytes.len() > CALL_MAX || bytes.first() != Some(&CALL) {
            return None;
        }
        let (call, rest) = postcard::take_from_bytes::<Call>(&bytes[1..]).ok()?;
        if !rest.is_empty() {
            return None;
        }
        let found = Found {
            node: call.node,
            cluster: call.cluster,
            address: (from.ip().to_canonical(), call.port).into(),
            heard: now,
        };
        self.found.retain(|known| known.heard + GONE >= now);
        // Once a node has joined, it may have another name.
        let mut known = self.found.iter_mut();
        if let Some(known) = known.find(|known| known.address == found.address) {
            let news = (&known.node, &known.cluster) != (&found.node, &found.cluster);
            known.clone_from(&found);
            return news.then_some(found);
        }
        if self.found.len() >= FOUND_MAX {
            return None;
        }
        self.found.push(found.clone());
        Some(found)
    }

    /// The nodes that called lately.
    pub(crate) fn found(&self, now: Duration) -> impl Iterator<Item = &Found> {
        self.found
            .iter()
            .filter(move |known| known.heard + GONE >= now)
    }
}

/// Calls into every network of this machine, and listens there from now on.
pub(crate) async fn call(cluster: &Cluster, listening: &UdpSocket) {
    let Some((call, own)) = own_call(cluster, listening) else {
        return;
    };
    for ip in own {
        // Mostly it fails, because the socket has joined before.
        let _ = listening.join_multicast_v4(GROUP, ip);
        let called = async {
            // The address of a socket decides through which interface its calls go.
            let socket = UdpSocket::bind((ip, 0)).await?;
            socket
                .send_to(&call, (GROUP, whim_control::config::PORT))
                .await
        };
        if let Err(error) = called.await {
            tracing::debug!(%ip, %error, "this node did not call into the network");
        }
    }
}

fn own_call(cluster: &Cluster, listening: &UdpSocket) -> Option<(Vec<u8>, Vec<Ipv4Addr>)> {
    let call = Call {
        node: NodeName::new(cluster.node()).ok()?,
        cluster: cluster.name(),
        port: listening.local_addr().ok()?.port(),
    };
    let mut bytes = vec![CALL];
    bytes.extend(postcard::to_stdvec(&call).ok()?);
    let own = interface_addresses().into_iter().filter_map(|ip| match ip {
        IpAddr::V4(ip) if !ip.is_loopback() => Some(ip),
        _ => None,
    });
    Some((bytes, own.collect()))
}

/// Whether the address is this machine's own.
#[must_use]
pub(crate) fn is_own(ip: IpAddr) -> bool {
    interface_addresses().contains(&ip.to_canonical())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(node: &str, cluster: Option<&str>) -> Vec<u8> {
        let call = Call {
            node: NodeName::new(node).expect("a name"),
            cluster: cluster.map(|name| ClusterName::new(name).expect("a name")),
            port: 7946,
        };
        [vec![CALL], postcard::to_stdvec(&call).expect("encoded")].concat()
    }

    #[test]
    fn what_calls_is_remembered_for_a_while_and_up_to_a_limit() {
        let mut discovery = Discovery::default();
        let from = SocketAddr::from(([192, 0, 2, 9], 33_333));
        let second = Duration::from_secs(1);
        let found = discovery
            .hear(second, from, &call("n9", None))
            .expect("new");
        assert_eq!(found.address.to_string(), "192.0.2.9:7946");
        assert_eq!(discovery.hear(2 * second, from, &call("n9", None)), None);
        assert!(
            discovery
                .hear(3 * second, from, &call("n9", Some("c")))
                .is_some()
        );
        for other in 10..=200 {
            let from = SocketAddr::from(([192, 0, 2, other], 33_333));
            discovery.hear(4 * second, from, &call("n7", None));
        }
        assert_eq!(discovery.found(4 * second).count(), FOUND_MAX);
        assert_eq!(discovery.found(40 * second).count(), 0);
        assert!(
            discovery
                .hear(40 * second, from, &call("n9", None))
                .is_some()
        );
        let from = SocketAddr::from(([192, 0, 2, 8], 33_333));
        let good = call("n8", None);
        for length in 0..good.len() {
            assert_eq!(discovery.hear(second, from, &good[..length]), None);
        }
        let long = [&good[..], &[0; CALL_MAX]].concat();
        assert_eq!(discovery.hear(second, from, &long), None);
        let odd = [&[CALL, 4][..], b"N 9\n", &[0, 5]].concat();
        assert_eq!(discovery.hear(second, from, &odd), None);
    }

    #[test]
    fn only_who_could_join_is_proposed() {
        let ours = ClusterName::new("c").expect("a name");
        let found = |cluster: Option<&str>| Found {
            node: NodeName::new("n9").expect("a name"),
            cluster: cluster.map(|name| ClusterName::new(name).expect("a name")),
            address: SocketAddr::from(([192, 0, 2, 9], 7946)),
            heard: Duration::ZERO,
        };
        assert!(found(None).proposal(Some(&ours)).is_some());
        assert!(found(Some("d")).proposal(Some(&ours)).is_none());
        assert!(found(None).proposal(None).is_none());
        let (_, how) = found(Some("c")).proposal(None).expect("a proposal");
        assert!(how.contains("whim join 192.0.2.9:7946'"), "{how}");
    }
}
