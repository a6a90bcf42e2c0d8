//! The requests, and who may make them.

use askama::Template;
use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Query, Request, State};
use axum::http::header::{self, HeaderMap, HeaderName, HeaderValue};
use axum::http::{Extensions, StatusCode};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::sse::{Event, Sse};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use ring::rand::{SecureRandom, SystemRandom};
use serde::{Deserialize, Serialize};
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use thiserror::Error;
use tokio::sync::Semaphore;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;
use whim_monitor::plain;

use crate::backend::{Backend, Order};
use crate::guard::{Guard, GuardError, Head, TOKEN_HEADER};
use crate::listen::Connected;
use crate::page::{self, Page, Sentence};
use crate::sessions::{Known, SECRET, SessionError, Sessions};

/// The most bytes of an order.
pub const ORDER_MAX: usize = 4096;
/// The most pages that follow the feed at a time.
pub const FEEDS_MAX: usize = 64;
/// Length of a secret as text.
const KEY: usize = 2 * SECRET;

#[derive(Debug, Error)]
pub enum WebError {
    #[error("{0}")]
    Guard(#[from] GuardError),
    #[error("{0}")]
    Session(#[from] SessionError),
    #[error("{FEEDS_MAX} pages are told what changes already: close one of them")]
    Feeds,
    #[error("The order is not understood ({0}): load the page again")]
    Order(String),
    #[error("{0}")]
    Refused(String),
    #[error("No chance is to be had from the kernel: nobody can be admitted")]
    Chance,
}

impl WebError {
    fn status(&self) -> StatusCode {
        match self {
            Self::Guard(_) | Self::Session(SessionError::Foreign) => StatusCode::FORBIDDEN,
            Self::Session(SessionError::Session) => StatusCode::UNAUTHORIZED,
            Self::Session(SessionError::Link) => StatusCode::GONE,
            Self::Session(SessionError::Full) | Self::Feeds | Self::Chance => {
                StatusCode::SERVICE_UNAVAILABLE
            }
            Self::Order(_) => StatusCode::BAD_REQUEST,
            Self::Refused(_) => StatusCode::CONFLICT,
        }
    }
}

/// Answers the script with the sentence alone; a visitor in a browser gets a page by `explain`.
impl IntoResponse for WebError {
    fn into_response(self) -> Response {
        (self.status(), plain::text(&self.to_string())).into_response()
    }
}

/// The page's server; `B` is the daemon.
#[derive(Debug)]
pub struct Web<B: Backend> {
    backend: B,
    guard: Guard,
    cookie: String,
    secure: bool,
    sessions: Mutex<Sessions<B::Who>>,
    feeds: Arc<Semaphore>,
    chance: SystemRandom,
    started: Instant,
}

impl<B: Backend> Web<B> {
    /// The cookie's name contains `port`, because browsers do not tell the cookies of several
    /// daemons on one machine apart by it.
    #[must_use]
    pub fn new(backend: B, guard: Guard, tls: bool, port: u16) -> Arc<Self> {
        Arc::new(Self {
            backend,
            guard,
            cookie: if tls {
                format!("__Host-whim-{port}")
            } else {
                format!("whim-{port}")
            },
            secure: tls,
            sessions: Mutex::default(),
            feeds: Arc::new(Semaphore::new(FEEDS_MAX)),
            chance: SystemRandom::new(),
            started: Instant::now(),
        })
    }

    fn now(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn sessions(&self) -> MutexGuard<'_, Sessions<B::Who>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn chance(&self) -> Result<[u8; SECRET], WebError> {
        let mut bytes = [0; SECRET];
        self.chance.fill(&mut bytes).map_err(|_| WebError::Chance)?;
        Ok(bytes)
    }

    /// The path of a link for this user, which can be opened once.
    ///
    /// # Errors
    /// [`WebError::Session`], [`WebError::Chance`].
    pub fn invite(&self, uid: u32, who: B::Who) -> Result<String, WebError> {
        let key = self
            .sessions()
            .invite(self.now(), uid, who, self.chance()?)?;
        Ok(format!("/enter?key={}", key.text()))
    }

    /// Whether nobody has a link or a session.
    pub fn is_unused(&self) -> bool {
        self.sessions().is_empty(self.now())
    }

    fn known(&self, head: &HeaderMap, connected: Connected) -> Result<Known<B::Who>, WebError> {
        let session = self.session(head).ok_or(SessionError::Session)?;
        Ok(self.sessions().known(self.now(), session, connected.0)?)
    }

    fn session<'a>(&self, head: &'a HeaderMap) -> Option<&'a str> {
        let cookies = head.get_all(header::COOKIE).iter();
        let mut pairs = cookies
            .filter_map(|line| line.to_str().ok())
            .flat_map(|line| line.split(';'))
            .filter_map(|pair| pair.trim().split_once('='));
        let (_, value) = pairs.find(|(name, value)| *name == self.cookie && value.len() == KEY)?;
        Some(value)
    }

    /// The line that sets the cookie, or with an empty session takes it back.
    fn cookie(&self, session: &str) -> String {
        let secure = if self.secure { "; Secure" } else { "" };
        let ends = if session.is_empty() {
            "; Max-Age=0"
        } else {
            ""
        };
        let name = &self.cookie;
        format!("{name}={session}; Path=/; HttpOnly; SameSite=Strict{secure}{ends}")
    }

    /// All requests of the page.
    pub fn router(self: &Arc<Self>) -> Router {
        Router::new()
            .route("/", get(show::<B>))
            .route("/enter", get(enter::<B>))
            .route("/leave", post(leave::<B>))
            .route("/feed", get(feed::<B>))
            .route("/orders", post(order::<B>))
            .route("/page.css", get(|| file("text/css", page::STYLE)))
            .route("/page.js", get(script))
            .route("/icon.svg", get(|| file("image/svg+xml", page::ICON)))
            .layer(from_fn_with_state(Arc::clone(self), outer::<B>))
            .with_state(Arc::clone(self))
    }
}

/// The parts of a request that are judged.
fn head(headers: &HeaderMap) -> Head<'_> {
    let text = |name: HeaderName| headers.get(name)?.to_str().ok();
    Head {
        host: text(header::HOST),
        origin: text(header::ORIGIN),
        fetch_site: text(HeaderName::from_static("sec-fetch-site")),
        token: text(HeaderName::from_static(TOKEN_HEADER)),
    }
}

fn connected(extensions: &Extensions) -> Connected {
    // Unless the listener has said whose connection this is, it counts as nobody's.
    extensions
        .get()
        .copied()
        .unwrap_or(Connected(Some(u32::MAX)))
}

const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
                      img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// Wraps every request: checks the name under which we are asked, and adds to each answer the rules
/// for the browser.
async fn outer<B: Backend>(
    State(web): State<Arc<Web<B>>>,
    request: Request,
    next: Next,
) -> Response {
    let mut response = match web.guard.visit(&head(request.headers())) {
        Ok(()) => next.run(request).await,
        Err(error) => WebError::from(error).into_response(),
    };
    let rules = [
        ("content-security-policy", POLICY),
        ("x-content-type-options", "nosniff"),
        ("x-frame-options", "DENY"),
        ("referrer-policy", "no-referrer"),
        ("cross-origin-opener-policy", "same-origin"),
        ("cross-origin-resource-policy", "same-origin"),
        ("cache-control", "no-store"),
    ];
    for (name, value) in rules {
        let name = HeaderName::from_static(name);
        response
            .headers_mut()
            .insert(name, HeaderValue::from_static(value));
    }
    response
}

async fn file(kind: &'static str, content: impl Into<Body>) -> Response {
    let kind = format!("{kind}; charset=utf-8");
    ([(header::CONTENT_TYPE, kind)], content.into()).into_response()
}

async fn script() -> Response {
    file("text/javascript", page::SCRIPT.concat()).await
}

fn html(status: StatusCode, template: &impl Template) -> Response {
    let Ok(text) = template.render() else {
        return StatusCode::INTERNAL_SERVER_ERROR.into_response();
    };
    let kind = "text/html; charset=utf-8";
    (status, [(header::CONTENT_TYPE, kind)], text).into_response()
}

fn explain(error: &WebError) -> Response {
    let sentence = error.to_string();
    let sentence = Sentence {
        sentence: &sentence,
    };
    html(error.status(), &sentence)
}

async fn show<B: Backend>(State(web): State<Arc<Web<B>>>, request: Request) -> Response {
    let known = match web.known(request.headers(), connected(request.extensions())) {
        Ok(known) => known,
        Err(error) => return explain(&error),
    };
    let greeting = web.backend.greeting(&known.who);
    let page = Page {
        greeting: &greeting,
        token: known.token.text(),
    };
    html(StatusCode::OK, &page)
}

#[derive(Deserialize)]
struct Key {
    key: String,
}

async fn enter<B: Backend>(
    State(web): State<Arc<Web<B>>>,
    key: Result<Query<Key>, axum::extract::rejection::QueryRejection>,
    request: Request,
) -> Response {
    let connected = connected(request.extensions());
    let entered = || -> Result<String, WebError> {
        let Query(Key { key }) = key.map_err(|_| SessionError::Link)?;
        if key.len() != KEY {
            return Err(SessionError::Link.into());
        }
        let chance = [web.chance()?, web.chance()?];
        let session = web.sessions().enter(web.now(), &key, connected.0, chance)?;
        Ok(web.cookie(session.text()))
    };
    match entered() {
        Ok(cookie) => {
            let headers = [(header::SET_COOKIE, cookie), (header::LOCATION, "/".into())];
            (StatusCode::SEE_OTHER, headers).into_response()
        }
        Err(error) => explain(&error),
    }
}

async fn leave<B: Backend>(
    State(web): State<Arc<Web<B>>>,
    request: Request,
) -> Result<Response, WebError> {
    let known = web.known(request.headers(), connected(request.extensions()))?;
    web.guard
        .order(&head(request.headers()), known.token.text())?;
    if let Some(session) = web.session(request.headers()) {
        web.sessions().leave(session);
    }
    Ok((
        [(header::SET_COOKIE, web.cookie(""))],
        "The session is over",
    )
        .into_response())
}

async fn feed<B: Backend>(
    State(web): State<Arc<Web<B>>>,
    request: Request,
) -> Result<Response, WebError> {
    web.guard.read(&head(request.headers()))?;
    let connected = connected(request.extensions());
    let headers = request.headers().clone();
    let known = web.known(&headers, connected)?;
    let place = Arc::clone(&web.feeds)
        .try_acquire_owned()
        .map_err(|_| WebError::Feeds)?;
    let batches = ReceiverStream::new(web.backend.follow(known.who));
    let events = batches
        // The feed ends with its session.
        .take_while(move |_| web.known(&headers, connected).is_ok())
        .map(move |batch| {
            let _held = &place;
            let text = json(&batch);
            Ok::<_, Infallible>(Event::default().data(text))
        });
    Ok(Sse::new(events).into_response())
}

/// An answer as JSON for the page, without letters that would change the order of text.
fn json(value: &impl Serialize) -> String {
    let json = plain::to_json(value).unwrap_or_default();
    String::from_utf8(json).unwrap_or_default()
}

async fn order<B: Backend>(
    State(web): State<Arc<Web<B>>>,
    request: Request,
) -> Result<Response, WebError> {
    let (parts, body) = request.into_parts();
    let known = web.known(&parts.headers, connected(&parts.extensions))?;
    web.guard.order(&head(&parts.headers), known.token.text())?;
    let wrong = |error: &dyn std::fmt::Display| WebError::Order(error.to_string());
    let body = to_bytes(body, ORDER_MAX).await.map_err(|e| wrong(&e))?;
    let order: Order = serde_json::from_slice(&body).map_err(|e| wrong(&e))?;
    let told = web.backend.order(known.who, order).await;
    let told = told.map_err(WebError::Refused)?;
    Ok(file("application/json", json(&told)).await)
}
