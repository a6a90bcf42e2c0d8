//! How tokens are given, and whom they have admitted.
#![forbid(unsafe_code)]

mod support;

use support::{Daemon, bad, good, place, see_up, three, token};

#[test]
fn a_token_is_read_and_never_an_argument() {
    use std::os::unix::fs::{PermissionsExt, symlink};
    let place = place();
    let (_network, [a, b, c]) = three(&place);
    good(&a.ask(&["init", "--node", "a"]));
    let output = a.ask(&["token"]);
    let one = good(&output).trim().to_owned();
    let (id, _) = one.split_once('.').expect("parts");
    let beside = String::from_utf8_lossy(&output.stderr);
    assert!(
        beside.starts_with(&format!("Token {id} admits one node")),
        "{beside}"
    );
    // The old form, and slips that come to the same, say how it is done and repeat nothing.
    let (half, option) = (&one[9..41], format!("--token={one}"));
    for words in [
        vec!["join", "10.77.0.1", &one],
        vec!["join", "10.77.0.1", "--node", "b", half],
        vec!["join", "10.77.0.1", &one, "--node", "b"],
        vec!["--wait", "1", "join", "10.77.0.1", &one],
        vec!["join", "10.77.0.1", "nonsense"],
        vec!["join", &one],
        vec!["join", "10.77.0.1", &option],
        vec!["join", "10.77.0.1", "--token-file", &one],
    ] {
        let output = b.ask(&words);
        let error = bad(&output, 2);
        assert!(
            error.contains("Consider this one known, make a new one"),
            "{error}"
        );
        assert!(error.contains("--token-file FILE"), "{error}");
        let said = error + &String::from_utf8_lossy(&output.stdout);
        assert!(!said.contains(half), "{said}");
    }
    let error = bad(&b.ask(&["join", "10.77.0.1", "--node", "b"]), 1);
    assert!(
        error.contains("No token has come on standard input"),
        "{error}"
    );
    let error = bad(&b.join("10.77.0.1", &"x".repeat(70_000), "b"), 1);
    assert!(error.contains("longer than 256 bytes"), "{error}");
    let error = bad(&b.join("10.77.0.1", &format!("{one} {one}"), "b"), 1);
    assert!(
        error.contains("no token") && !error.contains(half),
        "{error}"
    );
    let file = place.path().join("token");
    let path = file.display().to_string();
    let by_file = |path: &str| b.ask(&["join", "10.77.0.1", "--token-file", path, "--node", "b"]);
    let mode = |mode| {
        let permissions = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(&file, permissions).expect("mode");
    };
    std::fs::write(&file, format!("{one}\n")).expect("written");
    for exposed in [0o640, 0o604, 0o620, 0o644] {
        mode(exposed);
        let error = bad(&by_file(&path), 1);
        assert!(
            error.contains("can be read by others") && error.contains("make a new one"),
            "{error}"
        );
    }
    mode(0o600);
    let link = place.path().join("link");
    symlink(&file, &link).expect("link");
    for no_file in [
        link.display().to_string(),
        place.path().display().to_string(),
    ] {
        let error = bad(&by_file(&no_file), 1);
        assert!(error.contains("is a link, or no file"), "{error}");
    }
    let fifo = place.path().join("fifo");
    nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRUSR).expect("fifo");
    let error = bad(&by_file(&fifo.display().to_string()), 1);
    assert!(error.contains("is a link, or no file"), "{error}");
    if nix::unistd::geteuid().is_root() {
        let whose = Some(nix::unistd::Uid::from_raw(65_534));
        nix::unistd::chown(&file, whose, None).expect("chown");
        let error = bad(&by_file(&path), 1);
        assert!(error.contains("belongs to uid 65534"), "{error}");
        let own = Some(nix::unistd::Uid::from_raw(0));
        nix::unistd::chown(&file, own, None).expect("chown");
    }
    for shell in ["bash", "zsh", "fish"] {
        let completions = good(&b.ask(&["completions", shell]));
        assert!(completions.contains("token-file") && !completions.contains("former"));
    }
    // None of this has spent it.
    good(&by_file(&path));
    let two = token(&a);
    let words = ["join", "10.77.0.1", "--token-file", "-", "--node", "c"];
    good(&c.tell(&words, &two));
    see_up(&a, &["b", "c"]);
    // Who came by which token is known where they were admitted, and nowhere else.
    let row = |daemon: &Daemon, name: &str| {
        let mut rows = daemon.rows(&["nodes", "--json"]).into_iter();
        rows.find(|row| row["name"] == name).expect("its row")
    };
    let admitted = &row(&a, "c")["admitted"];
    assert_eq!(admitted["token"], two[..8], "{admitted}");
    let from = admitted["from"].as_str().expect("from");
    assert!(from.starts_with("10.77.0.3:"), "{from}");
    assert!(admitted["time_ms"].as_u64().expect("when") > 1_700_000_000_000);
    assert!(row(&a, "a")["admitted"].is_null() && row(&b, "c")["admitted"].is_null());
    let table = good(&a.ask(&["nodes"]));
    assert!(
        table.contains("ADMITTED") && table.contains(&two[..8]),
        "{table}"
    );
    let log = good(&a.ask(&["log"]));
    assert!(log.contains(&format!("by token {}", &two[..8])), "{log}");
    bad(&c.ask(&["init"]), 1);
    good(&c.ask(&["leave"]));
    let error = bad(&c.join("10.77.0.1", &two, "c"), 1);
    assert!(error.contains("used before"), "{error}");
    let log = good(&a.ask(&["log"]));
    assert!(log.contains("which was used before"), "{log}");
    for daemon in [&a, &b, &c] {
        let log = daemon.directory().join("whimd.log");
        let log = std::fs::read_to_string(log).expect("its log");
        for token in [&one, &two] {
            assert!(!log.contains(&token[9..41]), "the log shows a token");
        }
    }
}
