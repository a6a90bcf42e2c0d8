//! Connections: whose they are, how many there may be, and how long they may take.

use axum::Router;
use axum::extract::Request;
use hyper::body::Incoming;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use std::collections::HashMap;
use std::io::Read;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

/// The most connections at a time: of all users, and of one user of this machine.
pub const CONNECTIONS_MAX: usize = 512;
pub const CONNECTIONS_OF_USER_MAX: usize = 64;
/// A client that does not say what it wants within this time is dropped.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// How long to wait after a failure to accept, such as too many open files.
const PAUSE: Duration = Duration::from_millis(100);
/// The most bytes that are read of the kernel's list of connections.
pub const LIST_MAX: u64 = 16 << 20;

/// The user whose connection a request came by. `None`: it comes from another machine, so that cannot be known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connected(pub Option<u32>);

/// The number of present connections by user; those from other machines are counted together.
#[derive(Debug, Default)]
struct Counts(Mutex<HashMap<Option<u32>, usize>>);

/// The place of one connection in [`Counts`]; dropped when the connection ends.
struct Place {
    counts: Arc<Counts>,
    uid: Option<u32>,
}

impl Counts {
    fn admit(self: &Arc<Self>, uid: Option<u32>) -> Option<Place> {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let all: usize = counts.values().sum();
        let own = counts.get(&uid).copied().unwrap_or(0);
        let own_max = uid.map_or(CONNECTIONS_MAX, |_| CONNECTIONS_OF_USER_MAX);
        if all >= CONNECTIONS_MAX || own >= own_max {
            return None;
        }
        counts.insert(uid, own + 1);
        let counts = Arc::clone(self);
        Some(Place { counts, uid })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let counts = self.counts.0.lock();
        let mut counts = counts.unwrap_or_else(PoisonError::into_inner);
        if let Some(own) = counts.get_mut(&self.uid) {
            *own -= 1;
            if *own == 0 {
                counts.remove(&self.uid);
            }
        }
    }
}

/// Serves until the task is aborted.
pub async fn serve(listener: TcpListener, tls: Option<TlsAcceptor>, router: Router) {
    let counts = Arc::<Counts>::default();
    loop {
        let (stream, peer) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::debug!(%error, "a connection to the page is not accepted");
                tokio::time::sleep(PAUSE).await;
                continue;
            }
        };
        let (counts, tls, router) = (Arc::clone(&counts), tls.clone(), router.clone());
        tokio::spawn(async move {
            let Some(connected) = connected(&stream, peer).await else {
                return;
            };
            let Some(_place) = counts.admit(connected.0) else {
                tracing::debug!(%peer, "a connection to the page is one too many");
                return;
            };
            serve_one(stream, tls, router, connected).await;
        });
    }
}

async fn serve_one(
    stream: TcpStream,
    tls: Option<TlsAcceptor>,
    router: Router,
    connected: Connected,
) {
    let Some(acceptor) = tls else {
        return talk(stream, router, connected).await;
    };
    let accepted = tokio::time::timeout(HEAD_TIMEOUT, acceptor.accept(stream)).await;
    if let Ok(Ok(stream)) = accepted {
        talk(stream, router, connected).await;
    }
}

pub(crate) async fn talk(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    router: Router,
    connected: Connected,
) {
    let service = tower::service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(connected);
        tower::ServiceExt::oneshot(router.clone(), request)
    });
    let served = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(32 << 10)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(service))
        .await;
    if let Err(error) = served {
        tracing::debug!(%error, "a connection to the page ended badly");
    }
}

/// Whose connection this is; `None`: it comes from this machine, but no longer belongs to anybody.
async fn connected(stream: &TcpStream, peer: SocketAddr) -> Option<Connected> {
    if !peer.ip().to_canonical().is_loopback() {
        return Some(Connected(None));
    }
    let local = stream.local_addr().ok()?;
    let owner = tokio::task::spawn_blocking(move || owner(peer, local)).await;
    let uid = owner.ok().flatten()?;
    Some(Connected(Some(uid)))
}

/// The user of this machine who has the other end of a connection. All connections are listed as
/// proc_pid_net(5) describes.
fn owner(peer: SocketAddr, local: SocketAddr) -> Option<u32> {
    let list = |path: &str| limited(std::fs::File::open(path).ok()?);
    let find = |path: &str| owner_in(&list(path)?, peer, local);
    find("/proc/self/net/tcp").or_else(|| find("/proc/self/net/tcp6"))
}

fn limited(list: impl Read) -> Option<String> {
    let mut text = String::new();
    list.take(LIST_MAX).read_to_string(&mut text).ok()?;
    Some(text)
}

/// The user of the connection from `from` to `to` in such a list.
fn owner_in(list: &str, from: SocketAddr, to: SocketAddr) -> Option<u32> {
    let same = |listed: SocketAddr, wanted: SocketAddr| {
        (listed.ip().to_canonical(), listed.port()) == (wanted.ip().to_canonical(), wanted.port())
    };
    list.lines().skip(1).find_map(|line| {
        let mut fields = line.split_whitespace();
        let (one, other) = (address(fields.nth(1)?)?, address(fields.next()?)?);
        let uid = fields.nth(4)?.parse().ok()?;
        (same(one, from) && same(other, to)).then_some(uid)
    })
}

/// Reads an address such as `0100007F:1F0B`: words of 32 bits in this machine's byte order, and the port.
fn address(text: &str) -> Option<SocketAddr> {
    let (words, port) = text.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let mut bytes = Vec::with_capacity(16);
    for start in (0..words.len()).step_by(8) {
        let word = u32::from_str_radix(words.get(start..start + 8)?, 16).ok()?;
        bytes.extend(word.to_ne_bytes());
    }
    let ip = match <[u8; 4]>::try_from(bytes.as_slice()) {
        Ok(four) => IpAddr::from(four),
        Err(_) => IpAddr::from(<[u8; 16]>::try_from(bytes.as_slice()).ok()?),
    };
    Some(SocketAddr::new(ip, port))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[tokio::test]
    async fn the_kernel_knows_whose_a_connection_is() {
        for listen in ["127.0.0.1:0", "[::1]:0"] {
            let listener = TcpListener::bind(listen).await.expect("a port");
            let local = listener.local_addr().expect("bound");
            let client = TcpStream::connect(local).await.expect("connected");
            let (stream, peer) = listener.accept().await.expect("accepted");
            let own = std::fs::metadata("/proc/self").expect("here");
            let own = std::os::unix::fs::MetadataExt::uid(&own);
            assert_eq!(connected(&stream, peer).await, Some(Connected(Some(own))));
            let elsewhere = SocketAddr::from(([127, 0, 0, 9], peer.port()));
            assert_eq!(owner(elsewhere, local), None);
            drop(client);
        }
    }

    #[test]
    fn who_is_not_here_is_not_known() {
        let list = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid\n\
            0: 0100007F:1F0B 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 1\n\
            1: 0100007F:9C40 0100007F:1F0B 01 00000000:00000000 00:00000000 00000000  1001        0 2\n";
        let at = |port: u16| SocketAddr::from(([127, 0, 0, 1], port));
        assert_eq!(owner_in(list, at(0x9c40), at(0x1f0b)), Some(1001));
        assert_eq!(owner_in(list, at(0x1f0b), at(0x9c40)), None);
    }

    #[test]
    fn nobody_takes_all_connections() {
        let counts = Arc::<Counts>::default();
        let mut places: Vec<Place> = (0..CONNECTIONS_OF_USER_MAX)
            .map(|_| counts.admit(Some(7)).expect("below the limit"))
            .collect();
        assert!(counts.admit(Some(7)).is_none());
        let rest = CONNECTIONS_MAX - places.len();
        places.extend((0..rest).map(|_| counts.admit(None).expect("below the limit")));
        assert!(counts.admit(None).is_none() && counts.admit(Some(8)).is_none());
        places.clear();
        assert!(counts.admit(Some(7)).is_some());
        assert!(counts.0.lock().expect("whole").is_empty());
    }

    #[test]
    fn a_list_is_read_up_to_its_limit() {
        let text = limited(std::io::repeat(b'x')).expect("text");
        assert_eq!(text.len() as u64, LIST_MAX);
    }

    proptest! {
        #[test]
        fn any_list_is_read(list in ".{0,200}") {
            let at = SocketAddr::from(([127, 0, 0, 1], 1));
            prop_assert_eq!(owner_in(&list, at, at), None);
            let _ = address(&list);
        }
    }
}
