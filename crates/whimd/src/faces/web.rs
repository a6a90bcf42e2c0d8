//! The page, as this daemon serves it: from when somebody asks for a link until nobody has a session.
//!
//! Before that no port is open, and an idle daemon does nothing for it. Whatever the page asks for goes
//! through [`requests::ask`], with the rights of the user who asked for the link.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use thiserror::Error;
use tokio::net::TcpListener;
use tokio::sync::mpsc::{Receiver, channel};
use tokio_rustls::TlsAcceptor;
use whim_monitor::feed::Update;
use whim_net::tls::TlsError;
use whim_net::tls::page::PageCertificate;
use whim_secret::files::{self, FileError};
use whim_web::backend::{HOURS_MAX, Past};
use whim_web::guard::Guard;
use whim_web::serve::{Web, WebError};
use whim_web::sessions::LINK_LASTS;
use whim_web::{Backend, Greeting, Order, Told, listen};

use crate::daemon::Daemon;
use crate::faces::requests;
use crate::faces::telling;
use crate::past::events::now_ms;
use whim_control::config;
use whim_control::history::{HistoryRow, SampleRow};
use whim_control::protocol::{Answer, Invitation, Request};
use whim_machine::processes::{self, Caller};
use whim_machine::sensors::float;

/// How often we check whether anybody still has a session.
const LOOK_EVERY: Duration = Duration::from_secs(60);
const HOUR_MS: u64 = 3_600_000;
/// Name of the certificate that the daemon makes for its page, in its state directory.
const CERTIFICATE: &str = "web.pem";

#[derive(Debug, Error)]
pub(crate) enum PageError {
    #[error(
        "The page cannot be served at {address} ({source}): give another address as listen in [web]"
    )]
    Listen {
        address: SocketAddr,
        source: std::io::Error,
    },
    #[error("This node serves no page: its configuration has 'enabled = false' in [web]")]
    Off,
    #[error("{path}, which [web] names, cannot be read ({source})")]
    Unreadable {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("{0}")]
    File(#[from] FileError),
    #[error("{0}")]
    Tls(#[from] TlsError),
    #[error("{0}")]
    Web(#[from] WebError),
}

/// The page, while it is served.
#[derive(Debug)]
struct Served {
    web: Arc<Web<Page>>,
    /// `http://127.0.0.1:7947`
    base: String,
    fingerprint: Option<String>,
    listening: tokio::task::JoinHandle<()>,
}

/// Whether the page is served.
#[derive(Debug, Default)]
pub(crate) struct WebPage(tokio::sync::Mutex<Option<Served>>);

impl WebPage {
    /// A link for this caller; the page is served from now on, if it was not already.
    ///
    /// # Errors
    /// See [`PageError`].
    pub(crate) async fn invite(
        self: &Arc<Self>,
        daemon: &Arc<Daemon>,
        caller: &Caller,
    ) -> Result<Invitation, PageError> {
        let mut served = self.0.lock().await;
        let page = match served.take() {
            Some(page) => page,
            None => {
                let page = serve(daemon).await?;
                tokio::spawn(Arc::clone(self).end_unused());
                page
            }
        };
        let page = served.insert(page);
        // A link is not for the process that asked, but for its user.
        let who = Caller {
            pid: 0,
            ..caller.clone()
        };
        let path = page.web.invite(caller.uid, who)?;
        Ok(Invitation {
            url: format!("{}{path}", page.base),
            good_for_seconds: LINK_LASTS / 1000,
            certificate_sha256: page.fingerprint.clone(),
        })
    }

    /// Closes the port when nobody has a session any more.
    async fn end_unused(self: Arc<Self>) {
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            let mut served = self.0.lock().await;
            let is_unused = served.as_ref().is_none_or(|page| page.web.is_unused());
            if is_unused {
                if let Some(page) = served.take() {
                    page.listening.abort();
                    tracing::info!("nobody looks at the page: it is served no more");
                }
                return;
            }
        }
    }
}

async fn serve(daemon: &Arc<Daemon>) -> Result<Served, PageError> {
    let configured = daemon.config();
    let config = &configured.web;
    if !config.enabled {
        return Err(PageError::Off);
    }
    let listener = bind(config).await?;
    let address = listener.local_addr().unwrap_or(config.address());
    let names = names(daemon, address.ip());
    let mut fingerprint = None;
    let mut acceptor = None;
    if !address.ip().is_loopback() {
        let certificate = certificate(config, &daemon.settings().state, &names)?;
        fingerprint = Some(certificate.fingerprint()?);
        acceptor = Some(TlsAcceptor::from(certificate.server_config()?));
    }
    let (tls, port) = (acceptor.is_some(), address.port());
    let guard = Guard::new(tls, &names, port);
    let web = Web::new(Page(Arc::clone(daemon)), guard, tls, port);
    let scheme = if tls { "https" } else { "http" };
    let name = names.first().map_or("localhost", String::as_str);
    let base = format!("{scheme}://{name}:{port}");
    tracing::info!(%address, "the page is served");
    let listening = tokio::spawn(listen::serve(listener, acceptor, web.router()));
    Ok(Served {
        web,
        base,
        fingerprint,
        listening,
    })
}

/// Listens where the configuration says. If it says nothing, this is the usual port or, if another
/// program has it (such as another user's daemon), any port.
async fn bind(config: &config::Web) -> Result<TcpListener, PageError> {
    let address = config.address();
    let bound = TcpListener::bind(address).await;
    let bound = match bound {
        Err(error) if config.listen.is_none() && error.kind() == std::io::ErrorKind::AddrInUse => {
            TcpListener::bind(SocketAddr::new(address.ip(), 0)).await
        }
        bound => bound,
    };
    bound.map_err(|source| PageError::Listen { address, source })
}

/// Names under which browsers find the page, the best one first; IPv6 addresses are in brackets.
fn names(daemon: &Daemon, address: IpAddr) -> Vec<String> {
    let mut names = daemon.config().web.names.clone();
    let literal = |ip: IpAddr| match ip {
        IpAddr::V4(ip) => ip.to_string(),
        IpAddr::V6(ip) => format!("[{ip}]"),
    };
    if !address.is_unspecified() {
        names.push(literal(address));
    }
    if address.is_loopback() {
        names.push("localhost".into());
    } else {
        let host = nix::unistd::gethostname().unwrap_or_default();
        names.extend(host.into_string().ok());
        names.push(daemon.cluster().node());
    }
    names
}

/// The administrator's certificate, or one of our own. Ours is kept, so that users who trust it are not
/// asked again.
fn certificate(
    config: &config::Web,
    state: &Path,
    names: &[String],
) -> Result<PageCertificate, PageError> {
    let read = |path: &PathBuf| {
        std::fs::read_to_string(path).map_err(|source| PageError::Unreadable {
            path: path.clone(),
            source,
        })
    };
    if let (Some(chain), Some(key)) = (&config.certificate, &config.key) {
        return Ok(PageCertificate {
            chain_pem: read(chain)?,
            key_pem: read(key)?,
        });
    }
    let path = state.join(CERTIFICATE);
    let head = format!("# {}\n", names.join(" "));
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    if kept.starts_with(&head) {
        return Ok(PageCertificate {
            chain_pem: kept.clone(),
            key_pem: kept,
        });
    }
    let plain = |name: &String| name.trim_matches(['[', ']']).to_owned();
    let made = PageCertificate::self_signed(&names.iter().map(plain).collect::<Vec<_>>())?;
    let text = format!("{head}{}{}", made.chain_pem, made.key_pem);
    files::write_atomically(&path, text.as_bytes())?;
    Ok(made)
}

/// The daemon, as the page sees it.
#[derive(Debug)]
struct Page(Arc<Daemon>);

impl Backend for Page {
    type Who = Caller;

    fn greeting(&self, who: &Caller) -> Greeting {
        Greeting {
            node: self.0.cluster().node(),
            uid: who.uid,
            user: processes::user_name(who.uid),
            admin: who.admin,
        }
    }

    fn follow(&self, who: Caller) -> Receiver<Vec<Update>> {
        let daemon = Arc::clone(&self.0);
        // A slow watcher is told less often, and not more at a time.
        let (sender, receiver) = channel(1);
        tokio::spawn(async move {
            let mut feed = telling::follow(&daemon, &who);
            loop {
                let Ok(place) = sender.reserve().await else {
                    return;
                };
                let updates = tokio::select! {
                    updates = feed.next(&daemon) => updates,
                    () = sender.closed() => None,
                };
                let Some(updates) = updates else { return };
                place.send(updates);
            }
        });
        receiver
    }

    async fn order(&self, who: Caller, order: Order) -> Result<Told, String> {
        let done = done(&order, &self.0.cluster().node());
        let (answers, text) = requests::ask(&self.0, &who, request(order, now_ms())).await?;
        let mut told = Told::default();
        for answer in answers {
            match answer {
                Answer::Why(why) => told.sentences.extend(why.sentences),
                Answer::Notice { text } => told.sentences.push(text),
                Answer::History(HistoryRow::Sample(sample)) => told.past.push(past(&sample)),
                _ => {}
            }
        }
        told.sentences.extend(text);
        if told.sentences.is_empty() {
            told.sentences.extend(done);
        }
        Ok(told)
    }
}

fn request(order: Order, now_ms: u64) -> Request {
    match order {
        Order::Migrate { pid, to } => Request::Migrate { pid, to },
        Order::Bring { pid, hold } => Request::Bring { pid, hold },
        Order::Go { pid } => Request::Go { pid },
        Order::Drain { node } => Request::Drain { node, wait: false },
        Order::Undrain { node } => Request::Undrain { node },
        Order::Why { pid } => Request::Why { pid },
        Order::Past { hours } => Request::History {
            from_ms: now_ms.saturating_sub(u64::from(hours.min(HOURS_MAX)) * HOUR_MS),
            to_ms: now_ms,
        },
    }
}

fn past(sample: &SampleRow) -> Past {
    let part = |value: f64, of: f64| if of > 0.0 { value / of } else { 0.0 };
    Past {
        time_ms: sample.time_ms + sample.span_ms / 2,
        load: part(sample.load.mean, sample.cpus),
        memory: part(
            sample.memory_used_bytes.mean,
            float(sample.memory_total_bytes),
        ),
    }
}

/// What is said of an order that was answered without any text.
fn done(order: &Order, node: &str) -> Option<String> {
    match order {
        Order::Migrate { pid, to } => Some(format!("{node}:{pid} has gone to {to}")),
        Order::Bring { pid, .. } => Some(format!("{node}:{pid} has come home")),
        Order::Go { pid } => Some(format!("{node}:{pid} may move again")),
        Order::Drain { .. } | Order::Undrain { .. } | Order::Why { .. } | Order::Past { .. } => {
            None
        }
    }
}
