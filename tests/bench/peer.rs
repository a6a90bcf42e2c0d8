//! What calls and moves are compared with: round trips and transfers over plain TCP and over TLS,
//! between the same nodes.
//!
//! The test's own program is both ends: `peer serve CREDENTIALS ADDRESS` says where it listens,
//! `peer ask CREDENTIALS TCP TLS` obeys orders from its standard input.

use std::fs;
use std::io::{BufRead, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;
use whim_journey::frame::Kind;
use whim_net::name::journey_server_name;
use whim_net::{
    Channel, Credentials, JourneyId, NodeName, NodeOptions, PeerExpectation, Role, State, unix_now,
};
use whim_system_tests::{Cluster, Context, Result, bail};

use super::worker::Worker;

/// The first argument by which the program knows that it is a peer.
const WORD: &str = "bench-peer";
const JOURNEY: &str = "bench";
/// A question, in bytes: how many bytes are wanted in the first eight; 0 asks for an echo.
const QUESTION: usize = 64;
/// Transfers are made in pieces of so many bytes.
const PIECE: usize = 1 << 20;
const PATIENCE: Duration = Duration::from_secs(120);

/// Both ends; dropping them ends them.
#[derive(Debug)]
pub(crate) struct Peers {
    asking: Worker,
    _serving: Worker,
}

impl Peers {
    /// One end on n1 that answers, one on n2 that asks: as home and host of a guest on n2.
    ///
    /// # Errors
    /// When they do not find each other.
    pub(crate) fn start(cluster: &Cluster) -> Result<Self> {
        let program = cluster.directory().join("bench-peer");
        fs::copy(std::env::current_exe()?, &program)?;
        let (home, guest) = credentials(cluster.directory())?;
        let status: Value = serde_json::from_str(&cluster.lab(&["status", "--json"])?)?;
        let address = status["nodes"][0]["address"].as_str();
        let address = address.context("n1 has no address")?;
        let word = |path: &Path| path.display().to_string();
        let program = word(&program);
        let words = [&program, WORD, "serve", &word(&home), address];
        let mut serving = Worker::spawn(cluster.command("n1", &words))?;
        let ports = serving.line()?;
        let (tcp, tls) = ports
            .split_once(' ')
            .context("The peer says not where it is")?;
        let words = [&program, WORD, "ask", &word(&guest), tcp, tls];
        Ok(Self {
            asking: Worker::spawn(cluster.command("n2", &words))?,
            _serving: serving,
        })
    }

    /// Round trips of 64 bytes, in microseconds, over `tcp` or `tls`.
    ///
    /// # Errors
    /// When the peers are gone.
    pub(crate) fn round_trips(&mut self, over: &str, count: usize) -> Result<Vec<f64>> {
        self.asking.times_us(&format!("{over} 0 {count}"))
    }

    /// A transfer from n1 to n2, in milliseconds.
    ///
    /// # Errors
    /// When the peers are gone.
    pub(crate) fn transfer_ms(&mut self, over: &str, bytes: u64) -> Result<f64> {
        let times = self.asking.times_us(&format!("{over} {bytes} 1"))?;
        Ok(times.first().context("No time")? / 1000.0)
    }
}

/// Credentials of both roles in files, made by an authority of the measurement's own.
fn credentials(directory: &Path) -> Result<(PathBuf, PathBuf)> {
    let now = unix_now();
    let options = NodeOptions {
        node: NodeName::new("n1")?,
        addresses: vec!["localhost:7946".into()],
        class: "x86-64".into(),
    };
    let state = State::init(&directory.join("bench-authority"), &options, None, now)?;
    let write = |role: Role, name: &str| -> Result<PathBuf> {
        let path = directory.join(name);
        let credentials = state.journey_credentials(&JourneyId::new(JOURNEY)?, role, now)?;
        fs::write(&path, serde_json::to_vec(&credentials)?)?;
        Ok(path)
    };
    Ok((
        write(Role::Home, "bench-home.json")?,
        write(Role::Guest, "bench-guest.json")?,
    ))
}

fn expected(role: Role) -> Result<PeerExpectation> {
    Ok(PeerExpectation::Journey {
        id: JourneyId::new(JOURNEY)?,
        node: None,
        role,
    })
}

/// What this program does if it was started as a peer.
pub(crate) fn entry() -> Option<ExitCode> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if words.first().is_none_or(|word| word != WORD) {
        return None;
    }
    let words: Vec<&str> = words[1..].iter().map(String::as_str).collect();
    let result = match words.as_slice() {
        ["serve", credentials, address] => serve(credentials, address),
        ["ask", credentials, tcp, tls] => ask(credentials, tcp, tls),
        _ => Err(whim_system_tests::anyhow!("Unknown words for a peer")),
    };
    Some(match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    })
}

fn read_credentials(path: &str) -> Result<Credentials> {
    Ok(serde_json::from_slice(&fs::read(path)?)?)
}

fn serve(credentials: &str, address: &str) -> Result<()> {
    let credentials = read_credentials(credentials)?;
    let tcp = TcpListener::bind((address, 0))?;
    let tls = TcpListener::bind((address, 0))?;
    println!("{} {}", tcp.local_addr()?, tls.local_addr()?);
    let plain = thread::spawn(move || -> Result<()> {
        let stream = tcp.accept()?.0;
        stream.set_nodelay(true)?;
        serve_connection(Connection::Tcp(stream))
    });
    let stream = tls.accept()?.0;
    let channel = Channel::accept(stream, &credentials, &expected(Role::Guest)?, PATIENCE)?;
    serve_connection(Connection::Tls(Box::new(channel)))?;
    plain.join().unwrap_or(Ok(()))
}

/// One connection of either kind.
enum Connection {
    Tcp(TcpStream),
    Tls(Box<Channel>),
}

impl Connection {
    fn send(&mut self, bytes: &[u8]) -> Result<()> {
        match self {
            Self::Tcp(stream) => Ok(stream.write_all(bytes)?),
            Self::Tls(channel) => Ok(channel.send_now(Kind::Pages, 1, &[bytes], PATIENCE)?),
        }
    }

    /// Receives some bytes, no more than are due; how many.
    fn receive(&mut self, buffer: &mut [u8]) -> Result<usize> {
        match self {
            Self::Tcp(stream) => Ok(stream.read(buffer)?),
            Self::Tls(channel) => {
                let frame = channel.receive_frame(PATIENCE)?;
                let taken = frame.payload.len().min(buffer.len());
                buffer[..taken].copy_from_slice(&frame.payload[..taken]);
                Ok(taken)
            }
        }
    }

    /// Receives exactly this; false at the end of the connection.
    fn receive_exact(&mut self, buffer: &mut [u8]) -> Result<bool> {
        let mut got = 0;
        while got < buffer.len() {
            match self.receive(&mut buffer[got..])? {
                0 => return Ok(false),
                count => got += count,
            }
        }
        Ok(true)
    }
}

fn serve_connection(mut connection: Connection) -> Result<()> {
    let mut question = [0; QUESTION];
    let piece = vec![0x5a; PIECE];
    while connection.receive_exact(&mut question)? {
        let mut left = usize::try_from(u64::from_le_bytes(question[..8].try_into()?))?;
        if left == 0 {
            connection.send(&question)?;
        }
        while left > 0 {
            let now = left.min(PIECE);
            connection.send(&piece[..now])?;
            left -= now;
        }
    }
    Ok(())
}

fn ask(credentials: &str, tcp: &str, tls: &str) -> Result<()> {
    let credentials = read_credentials(credentials)?;
    let stream = TcpStream::connect(tcp)?;
    stream.set_nodelay(true)?;
    let mut plain = Connection::Tcp(stream);
    let address: SocketAddr = tls.parse()?;
    let name = journey_server_name(&JourneyId::new(JOURNEY)?, Role::Home);
    let expect = expected(Role::Home)?;
    let channel = Channel::connect(address, &name, &credentials, &expect, PATIENCE)?;
    let mut sealed = Connection::Tls(Box::new(channel));
    let mut buffer = vec![0; PIECE];
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let words: Vec<&str> = line.split(' ').collect();
        let [over, bytes, count] = words[..] else {
            bail!("'{line}' is no order");
        };
        let connection = if over == "tls" {
            &mut sealed
        } else {
            &mut plain
        };
        let bytes: usize = bytes.parse()?;
        let mut times = String::new();
        for _ in 0..count.parse::<u32>()? {
            let begun = Instant::now();
            exchange(connection, bytes, &mut buffer)?;
            times += &format!("{} ", begun.elapsed().as_nanos());
        }
        println!("{times}");
    }
    Ok(())
}

/// One question and its answer.
fn exchange(connection: &mut Connection, bytes: usize, buffer: &mut [u8]) -> Result<()> {
    let mut question = [0; QUESTION];
    question[..8].copy_from_slice(&u64::try_from(bytes)?.to_le_bytes());
    connection.send(&question)?;
    let mut left = if bytes == 0 { QUESTION } else { bytes };
    while left > 0 {
        let room = left.min(buffer.len());
        match connection.receive(&mut buffer[..room])? {
            0 => bail!("The peer has gone"),
            got => left -= got,
        }
    }
    Ok(())
}
