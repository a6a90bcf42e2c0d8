//! How the daemon starts, and how it says that it cannot.
#![forbid(unsafe_code)]

use std::process::{Command, Output};

/// Whoever wants to see the stack of programs of her own has not asked for that of ours.
fn whimd(words: &[&str]) -> Output {
    let output = Command::new(env!("CARGO_BIN_EXE_whimd"))
        .args(words)
        .env("RUST_BACKTRACE", "1")
        .output()
        .expect("whimd runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!said.to_lowercase().contains("backtrace"), "{said}");
    output
}

#[test]
fn wrong_arguments_and_configurations_are_refused() {
    assert_eq!(whimd(&["--no-such"]).status.code(), Some(2));
    assert_eq!(whimd(&["--listen", "here"]).status.code(), Some(2));
    let place = tempfile::tempdir().expect("directory");
    let file = place.path().join("config.toml");
    let path = file.display().to_string();
    let missing = whimd(&["--config", &path]);
    assert_eq!(missing.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&missing.stderr).contains("is not there"));
    std::fs::write(&file, "nonsense = 1").expect("written");
    let invalid = whimd(&["--config", &path]);
    assert_eq!(invalid.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&invalid.stderr).contains("nonsense"));
}

#[test]
fn a_taken_port_and_a_second_daemon_are_told() {
    let place = tempfile::tempdir().expect("directory");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("address").to_string();
    let (state, run) = (place.path().join("state"), place.path().join("run"));
    let (state, run) = (state.display().to_string(), run.display().to_string());
    let refused = whimd(&["--state", &state, "--run", &run, "--listen", &address]);
    assert_eq!(refused.status.code(), Some(1));
    let error = String::from_utf8_lossy(&refused.stderr);
    assert!(
        error.contains(&address) && error.contains("cannot be opened"),
        "{error}"
    );
    let socket = place.path().join("run/control.sock");
    let _ = std::fs::remove_file(&socket);
    let _other = std::os::unix::net::UnixListener::bind(&socket).expect("bound");
    let refused = whimd(&["--state", &state, "--run", &run, "--listen", "127.0.0.1:0"]);
    assert_eq!(refused.status.code(), Some(1));
    let error = String::from_utf8_lossy(&refused.stderr);
    assert!(error.contains("another daemon answers"), "{error}");
}
