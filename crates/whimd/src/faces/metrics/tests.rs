use super::*;
use crate::faults::Faults;
use crate::members::cluster::Cluster;
use crate::settings::Settings;
use std::net::SocketAddr;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use whim_control::config::Config;
use whim_machine::class::Class;

/// A daemon that tells its metrics, and where.
async fn telling(state: &std::path::Path) -> (Arc<Daemon>, SocketAddr) {
    let settings = Settings {
        state: state.to_path_buf(),
        run: state.to_path_buf(),
        configured: Config::lab(),
        libexec: state.to_path_buf(),
        root: false,
        faults: Faults::default(),
    };
    let class = Class::here(&[]).describe();
    let cluster = Cluster::open(state.join("identity"), Vec::new(), class).expect("cluster");
    let daemon = Daemon::new(settings, cluster);
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("listener");
    let address = listener.local_addr().expect("address");
    tokio::spawn(serve(Arc::clone(&daemon), listener));
    (daemon, address)
}

async fn ask(address: SocketAddr, request: &str) -> String {
    let mut stream = TcpStream::connect(address).await.expect("connected");
    stream.write_all(request.as_bytes()).await.expect("sent");
    let mut answer = String::new();
    // The daemon ends the connection, and may do so before it has read all.
    let _ = stream.read_to_string(&mut answer).await;
    answer
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_are_told_and_nothing_else() {
    let directory = tempfile::tempdir().expect("directory");
    let (_daemon, address) = telling(directory.path()).await;
    let get = "GET /metrics HTTP/1.1\r\nHost: anything\r\n";
    let answer = ask(address, &format!("{get}\r\n")).await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    assert!(answer.contains("content-type: text/plain; version=0.0.4"));
    assert!(answer.contains("connection: close"), "{answer}");
    assert!(answer.contains("\nwhim_node_cpus ") && !answer.contains("# EOF"));
    let open = format!("{get}Accept: application/openmetrics-text; version=1.0.0\r\n\r\n");
    let answer = ask(address, &open).await;
    assert!(answer.contains("content-type: application/openmetrics-text; version=1.0.0"));
    assert!(answer.ends_with("# EOF\n"), "{answer}");
    for (request, status) in [
        ("GET /metrics?x=1 HTTP/1.0\r\n\r\n", "200"),
        ("GET / HTTP/1.1\r\nHost: a\r\n\r\n", "404"),
        ("GET /metrics/ HTTP/1.1\r\nHost: a\r\n\r\n", "404"),
        (
            "POST /metrics HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n",
            "405",
        ),
        ("HEAD /metrics HTTP/1.1\r\nHost: a\r\n\r\n", "405"),
        ("nonsense\r\n\r\n", "400"),
    ] {
        let answer = ask(address, request).await;
        assert!(
            answer.split(' ').nth(1) == Some(status),
            "{request}: {answer}"
        );
        assert!(status == "200" || !answer.contains("whim_"), "{answer}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn heads_of_requests_have_their_limits() {
    let directory = tempfile::tempdir().expect("directory");
    let (_daemon, address) = telling(directory.path()).await;
    let request = |length: usize| {
        let head = "GET /metrics HTTP/1.1\r\nX: ";
        let padding = "x".repeat(length - head.len() - 4);
        format!("{head}{padding}\r\n\r\n")
    };
    let answer = ask(address, &request(HEAD_MAX / 2)).await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    let answer = ask(address, &request(HEAD_MAX + 1)).await;
    assert!(!answer.contains("whim_"), "{answer}");
    let lines = |count: usize| format!("GET /metrics HTTP/1.1\r\n{}\r\n", "X: 1\r\n".repeat(count));
    let answer = ask(address, &lines(HEADER_LINES_MAX)).await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    let answer = ask(address, &lines(HEADER_LINES_MAX + 1)).await;
    assert!(!answer.contains("whim_"), "{answer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn those_who_ask_slowly_keep_nobody_away() {
    let directory = tempfile::tempdir().expect("directory");
    let (_daemon, address) = telling(directory.path()).await;
    let mut slow = Vec::new();
    for _ in 0..CONNECTIONS_MAX {
        let mut stream = TcpStream::connect(address).await.expect("connected");
        stream.write_all(b"GET /metr").await.expect("sent");
        slow.push(stream);
    }
    let begun = Instant::now();
    let answer = ask(address, "GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    assert!(
        begun.elapsed() < ALL_WITHIN + HEAD_WITHIN,
        "{:?}",
        begun.elapsed()
    );
    // The slow clients were told to go.
    for mut stream in slow {
        let mut rest = String::new();
        let _ = stream.read_to_string(&mut rest).await;
        assert!(!rest.contains("whim_"), "{rest}");
    }
}

/// Firecracker's test of dead metrics: every counter has to be used somewhere.
#[test]
fn every_counter_is_counted_by_the_daemon() {
    let sources = concat!(env!("CARGO_MANIFEST_DIR"), "/src");
    let counters = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../whim-metrics/src/metrics.rs"
    );
    let counters = std::fs::read_to_string(counters).expect("the counters");
    let (_, after) = counters.split_once("impl Counters {").expect("there");
    let (body, _) = after.split_once("\n}\n").expect("its end");
    let names: Vec<&str> = body
        .split("pub fn ")
        .skip(1)
        .filter_map(|rest| rest.split('(').next())
        .collect();
    assert!(names.len() > 8, "{names:?}");
    let mut all = String::new();
    let mut folders = vec![std::path::PathBuf::from(sources)];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("sources").flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let text = std::fs::read_to_string(path).expect("a source");
            all += text.split("#[cfg(test)]").next().unwrap_or_default();
        }
    }
    for name in names {
        assert!(all.contains(&format!(".{name}(")), "nobody calls {name}");
    }
}
