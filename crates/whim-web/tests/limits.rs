//! The page's router, asked for more than it gives.
#![forbid(unsafe_code)]

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::{Request, StatusCode};
use tokio::sync::mpsc::{Receiver, channel};
use tower::ServiceExt;
use whim_monitor::feed::Update;
use whim_web::guard::Guard;
use whim_web::listen::Connected;
use whim_web::serve::{FEEDS_MAX, ORDER_MAX, Web};
use whim_web::{Backend, Greeting, Order, Told};

/// A daemon of which nothing is asked but that it is there.
#[derive(Debug)]
struct Quiet;

impl Backend for Quiet {
    type Who = ();

    fn greeting(&self, (): &()) -> Greeting {
        Greeting {
            node: "n1".into(),
            uid: 7,
            user: "seven".into(),
            admin: false,
        }
    }

    fn follow(&self, (): ()) -> Receiver<Vec<Update>> {
        let (sender, receiver) = channel(1);
        tokio::spawn(async move { sender.closed().await });
        receiver
    }

    async fn order(&self, (): (), order: Order) -> Result<Told, String> {
        let sentences = vec![format!("{order:?}")];
        let past = Vec::new();
        Ok(Told { sentences, past })
    }
}

struct Session {
    router: Router,
    cookie: String,
    token: String,
}

impl Session {
    async fn open() -> Self {
        let guard = Guard::new(false, &["n1".into()], 7947);
        let web = Web::new(Quiet, guard, false, 7947);
        let path = web.invite(7, ()).expect("room");
        let mut session = Self {
            router: web.router(),
            cookie: String::new(),
            token: String::new(),
        };
        let entered = session.ask("GET", &path, Body::empty()).await;
        assert_eq!(entered.status(), StatusCode::SEE_OTHER);
        let cookie = entered.headers()["set-cookie"].to_str().expect("text");
        session.cookie = cookie.split(';').next().expect("a pair").to_owned();
        let page = session.ask("GET", "/", Body::empty()).await;
        let page = to_bytes(page.into_body(), 1 << 20).await.expect("whole");
        let page = String::from_utf8_lossy(&page).into_owned();
        let (_, rest) = page
            .split_once("name=\"token\" content=\"")
            .expect("a token");
        session.token = rest.split('"').next().expect("its end").to_owned();
        session
    }

    async fn ask(&self, method: &str, path: &str, body: Body) -> axum::response::Response {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", "n1:7947")
            .header("origin", "http://n1:7947")
            .header("cookie", &self.cookie)
            .header("x-whim-token", &self.token)
            .extension(Connected(Some(7)))
            .body(body)
            .expect("a request");
        let answered = self.router.clone().oneshot(request).await;
        answered.expect("never fails")
    }
}

#[tokio::test]
async fn an_order_is_read_up_to_its_limit() {
    let session = Session::open().await;
    let order = |length: usize| {
        let short = r#"{"order":"why","pid":7}"#;
        Body::from(format!("{short}{}", " ".repeat(length - short.len())))
    };
    let longest = session.ask("POST", "/orders", order(ORDER_MAX)).await;
    assert_eq!(longest.status(), StatusCode::OK);
    let longer = session.ask("POST", "/orders", order(ORDER_MAX + 1)).await;
    assert_eq!(longer.status(), StatusCode::BAD_REQUEST);
}

#[tokio::test]
async fn pages_are_told_up_to_their_limit() {
    let session = Session::open().await;
    let mut feeds = Vec::new();
    for _ in 0..FEEDS_MAX {
        let feed = session.ask("GET", "/feed", Body::empty()).await;
        assert_eq!(feed.status(), StatusCode::OK);
        feeds.push(feed);
    }
    let refused = session.ask("GET", "/feed", Body::empty()).await;
    assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE);
    feeds.pop();
    let feed = session.ask("GET", "/feed", Body::empty()).await;
    assert_eq!(feed.status(), StatusCode::OK);
}

/// A request that did not come by the page's own listener is nobody's.
#[tokio::test]
async fn without_a_connection_nobody_is_known() {
    let session = Session::open().await;
    let request = Request::builder()
        .uri("/")
        .header("host", "n1:7947")
        .header("cookie", &session.cookie)
        .body(Body::empty())
        .expect("a request");
    let answered = session.router.clone().oneshot(request).await;
    let answered = answered.expect("never fails");
    assert_eq!(answered.status(), StatusCode::UNAUTHORIZED);
}
