//! What a daemon goes by: the file, before it is used, and what is changed while it runs.
#![forbid(unsafe_code)]

mod support;

use std::collections::BTreeSet;
use std::process::Command;
use support::{alone, bad, good, place, whim};

#[test]
fn a_configuration_is_checked_without_a_daemon() {
    let place = place();
    let file = place.path().join("config.toml");
    let check = || {
        Command::new(whim())
            .args(["config", "check"])
            .arg(&file)
            .output()
            .expect("runs")
    };
    let error = bad(&check(), 1);
    assert!(error.contains("is not there"), "{error}");
    std::fs::write(&file, "lease = 5\n[guests]\nmemory_percent = 50\n").expect("written");
    good(&check());
    for (text, word) in [
        ("leese = 5", "leese"),
        ("lease = -1", "lease"),
        ("[guests]\npids = 1", "pids"),
        ("leese = 5\ndiscover = 1", "line 2: discover: "),
    ] {
        std::fs::write(&file, text).expect("written");
        let error = bad(&check(), 1);
        assert!(
            error.contains(word) && error.contains("config.toml"),
            "{error}"
        );
    }
    let sample = concat!(env!("CARGO_MANIFEST_DIR"), "/../../dist/config.toml");
    good(
        &Command::new(whim())
            .args(["config", "check", sample])
            .output()
            .expect("runs"),
    );
}

#[test]
fn a_configuration_s_fault_has_a_line_and_a_key() {
    let place = place();
    let file = place.path().join("config.toml");
    std::fs::write(&file, "[guests]\npids = 1\nmox = 2").expect("written");
    let json = |valid: bool| {
        let output = Command::new(whim())
            .args(["config", "check", "--json"])
            .arg(&file)
            .output()
            .expect("runs");
        assert_eq!(output.status.success(), valid, "{output:?}");
        serde_json::from_slice::<serde_json::Value>(&output.stdout).expect("JSON")
    };
    let found = json(false);
    assert_eq!(found["faults"][0]["reason"], found["reason"]);
    let second = &found["faults"][1];
    assert_eq!(
        (&second["line"], &second["key"]),
        (&3.into(), &"guests.mox".into())
    );
    assert_eq!(
        (
            &found["line"],
            &found["key"],
            &found["valid"],
            &found["present"]
        ),
        (
            &2.into(),
            &"guests.pids".into(),
            &false.into(),
            &true.into()
        )
    );
    assert!(
        found["reason"]
            .as_str()
            .is_some_and(|reason| reason.contains("16 to 65536"))
    );
    std::fs::write(&file, "").expect("written");
    assert_eq!(json(true)["reason"], serde_json::Value::Null);
    std::fs::remove_file(&file).expect("removed");
    let found = json(false);
    let names: BTreeSet<&str> = found
        .as_object()
        .expect("object")
        .keys()
        .map(String::as_str)
        .collect();
    let expected = [
        "file", "valid", "present", "line", "key", "reason", "faults", "exposed",
    ];
    assert_eq!(names, BTreeSet::from(expected));
}

#[test]
fn what_is_no_file_is_not_waited_for() {
    let place = place();
    let fifo = place.path().join("fifo");
    nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).expect("a FIFO");
    let check = Command::new("timeout")
        .arg("30")
        .arg(whim())
        .args(["config", "check"])
        .arg(&fifo)
        .output()
        .expect("runs");
    let error = bad(&check, 1);
    assert!(error.contains("is a FIFO, which is never read"), "{error}");
}

#[test]
fn a_valid_file_that_others_can_change_is_told() {
    use std::os::unix::fs::PermissionsExt;
    let place = place();
    let file = place.path().join("config.toml");
    std::fs::write(&file, "lease = 5\n").expect("written");
    let check = |mode: u32| {
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).expect("its mode");
        let output = Command::new(whim())
            .args(["config", "check", "--json"])
            .arg(&file)
            .output()
            .expect("runs");
        let found: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
        assert_eq!(found["valid"], true, "{found}");
        (
            String::from_utf8_lossy(&output.stderr).into_owned(),
            found["exposed"].clone(),
        )
    };
    assert_eq!(check(0o644), (String::new(), serde_json::Value::Null));
    let (said, exposed) = check(0o666);
    let exposed = exposed.as_str().expect("a sentence");
    assert!(
        exposed.contains("can be changed by other users (mode 666)"),
        "{exposed}"
    );
    assert!(
        said.contains("No daemon of yours would take this file") && said.contains(exposed),
        "{said}"
    );
}

#[test]
fn a_running_daemon_is_tuned() {
    let place = place();
    let daemon = alone(&place);
    let all = daemon.rows(&["tune", "--json"]);
    assert!(all.len() > 10, "{all:?}");
    for row in &all {
        let names: BTreeSet<&str> = row
            .as_object()
            .expect("object")
            .keys()
            .map(String::as_str)
            .collect();
        assert_eq!(names, BTreeSet::from(["key", "value", "configured"]));
        assert_eq!(row["value"], row["configured"]);
    }
    let said = good(&daemon.ask(&["tune", "labels", "[\"gpu\"]"]));
    assert!(
        said.contains("labels is [\"gpu\"] now, it was []"),
        "{said}"
    );
    let again = good(&daemon.ask(&["tune", "labels", "[\"gpu\"]"]));
    assert!(again.contains("already"), "{again}");
    // Others are told at once.
    assert_eq!(
        daemon.rows(&["nodes", "--json"])[0]["labels"],
        serde_json::json!(["gpu"])
    );
    let row = &daemon.rows(&["tune", "labels", "--json"])[0];
    assert_eq!(row["configured"], serde_json::json!([]));
    let row = &daemon.rows(&["tune", "guests.max", "7", "--json"])[0];
    assert_eq!(
        (&row["value"], &row["configured"]),
        (&7.into(), &1024.into())
    );
    let table = good(&daemon.ask(&["tune"]));
    assert!(table.contains("configured: 1024"), "{table}");
    for (words, said) in [
        (
            ["tune", "allow_root", "true"],
            "no key that can be changed while the daemon runs",
        ),
        (["tune", "guests.max", "many"], "guests.max"),
        (["tune", "guests.memory_percent", "0"], "1 to 100"),
    ] {
        let error = bad(&daemon.ask(&words), 1);
        assert!(error.contains(said), "{error}");
    }
}
