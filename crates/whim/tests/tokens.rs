//! How tokens are given, and whom they have admitted.
#![forbid(unsafe_code)]

mod support;

use std::os::unix::fs::{PermissionsExt, symlink};

use support::{Daemon, bad, good, place, see_up, three, token};

const HOLDER: &str = "10.77.0.1";

/// The part of a token that is the secret.
fn secret(token: &str) -> &str {
    &token[9..41]
}

fn logs_show_nothing(daemons: &[Daemon], tokens: &[&String]) {
    for daemon in daemons {
        let log = daemon.directory().join("whimd.log");
        let log = std::fs::read_to_string(log).expect("its log");
        for token in tokens {
            assert!(!log.contains(secret(token)), "the log shows a token");
        }
    }
}

#[test]
fn a_token_is_read_and_never_an_argument() {
    let place = place();
    let (_network, [a, b, c]) = three(&place);
    good(&a.ask(&["init", "--node", "a"]));
    let output = a.ask(&["token"]);
    let one = good(&output).trim().to_owned();
    let beside = String::from_utf8_lossy(&output.stderr);
    let number = format!("Token {} admits one node", &one[..8]);
    assert!(beside.starts_with(&number), "{beside}");
    // The old form, and slips that come to the same, say how it is done and repeat nothing.
    let (half, option) = (secret(&one), format!("--token={one}"));
    for words in [
        vec!["join", HOLDER, &one],
        vec!["join", HOLDER, "--node", "b", half],
        vec!["join", HOLDER, &one, "--node", "b"],
        vec!["--wait", "1", "join", HOLDER, &one],
        vec!["join", HOLDER, "nonsense"],
        vec!["join", &one],
        vec!["join", HOLDER, &option],
        vec!["join", HOLDER, "--token-file", &one],
    ] {
        let output = b.ask(&words);
        let error = bad(&output, 2);
        let told = [
            "Consider this one known, make a new one",
            "--token-file FILE",
        ];
        assert!(told.iter().all(|text| error.contains(text)), "{error}");
        let said = error + &String::from_utf8_lossy(&output.stdout);
        assert!(!said.contains(half), "{said}");
    }
    let error = bad(&b.ask(&["join", HOLDER, "--node", "b"]), 1);
    assert!(
        error.contains("No token has come on standard input"),
        "{error}"
    );
    let error = bad(&b.join(HOLDER, &"x".repeat(70_000), "b"), 1);
    assert!(error.contains("longer than 256 bytes"), "{error}");
    let error = bad(&b.join(HOLDER, &format!("{one} {one}"), "b"), 1);
    assert!(
        error.contains("no token") && !error.contains(half),
        "{error}"
    );
    for shell in ["bash", "zsh", "fish"] {
        let completions = good(&b.ask(&["completions", shell]));
        assert!(completions.contains("token-file"), "{shell}");
    }
    // None of this has spent it.
    good(&b.join(HOLDER, &one, "b"));
    logs_show_nothing(&[a, b, c], &[&one]);
}

#[test]
fn a_file_of_a_token_is_private() {
    let place = place();
    let (_network, [a, b, c]) = three(&place);
    good(&a.ask(&["init", "--node", "a"]));
    let one = token(&a);
    let file = place.path().join("token");
    let path = file.display().to_string();
    let by_file = |path: &str| b.ask(&["join", HOLDER, "--token-file", path, "--node", "b"]);
    let mode = |mode| {
        let permissions = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(&file, permissions).expect("mode");
    };
    std::fs::write(&file, format!("{one}\n")).expect("written");
    for exposed in [0o640, 0o604, 0o620, 0o644] {
        mode(exposed);
        let error = bad(&by_file(&path), 1);
        let told = ["can be read by others", "make a new one"];
        assert!(told.iter().all(|text| error.contains(text)), "{error}");
    }
    mode(0o600);
    let (link, fifo) = (place.path().join("link"), place.path().join("fifo"));
    symlink(&file, &link).expect("link");
    nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRUSR).expect("fifo");
    for no_file in [link.as_path(), place.path(), fifo.as_path()] {
        let error = bad(&by_file(&no_file.display().to_string()), 1);
        assert!(error.contains("is a link, or no file"), "{error}");
    }
    if nix::unistd::geteuid().is_root() {
        let owner = |uid| {
            let uid = Some(nix::unistd::Uid::from_raw(uid));
            nix::unistd::chown(&file, uid, None).expect("chown");
        };
        owner(65_534);
        let error = bad(&by_file(&path), 1);
        assert!(error.contains("belongs to uid 65534"), "{error}");
        owner(0);
    }
    // None of this has spent it.
    good(&by_file(&path));
    let two = token(&a);
    let words = ["join", HOLDER, "--token-file", "-", "--node", "c"];
    good(&c.tell(&words, &two));
    see_up(&a, &["b", "c"]);
    logs_show_nothing(&[a, b, c], &[&one, &two]);
}

#[test]
fn who_came_by_which_token_is_known_where_they_were_admitted() {
    let place = place();
    let (_network, [a, b, c]) = three(&place);
    good(&a.ask(&["init", "--node", "a"]));
    good(&b.join(HOLDER, &token(&a), "b"));
    let two = token(&a);
    good(&c.join(HOLDER, &two, "c"));
    see_up(&b, &["c"]);
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
    good(&c.ask(&["leave"]));
    let error = bad(&c.join(HOLDER, &two, "c"), 1);
    assert!(error.contains("used before"), "{error}");
    let log = good(&a.ask(&["log"]));
    assert!(log.contains("which was used before"), "{log}");
    logs_show_nothing(&[a, b, c], &[&two]);
}
