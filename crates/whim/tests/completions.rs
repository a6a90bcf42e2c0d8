//! Words for completions that only a running system knows, as a real bash asks for them.
#![forbid(unsafe_code)]

mod support;

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Instant;
use support::{Owned, PATIENCE, alone, good, place, until, whim};

/// Does what readline does when the key is pressed at the end of a line, whose last word `$2` is as the shell parts it.
const PRESS: &str = r#"
source "$3"
function=$(complete -p whim)
function=${function##*-F } function=${function%% *}
COMP_LINE=$1 COMP_POINT=${#1} COMP_WORDS=($1)
[[ $1 == *" " ]] && COMP_WORDS+=("")
COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
whim() { "$WHIM" "$@"; }
"$function" whim "$2" "${COMP_WORDS[COMP_CWORD - 1]}"
printf '%s\n' "${COMPREPLY[@]}"
"#;

/// What bash has for the end of a line.
fn press(script: &Path, socket: &Path, line: &str, last: &str) -> Output {
    Command::new("bash")
        .args(["--norc", "--noprofile", "-c", PRESS, "bash", line, last])
        .arg(script)
        .env("WHIM", whim())
        .env("WHIM_SOCKET", socket)
        .stdin(Stdio::null())
        .output()
        .expect("bash runs")
}

fn words(output: &Output) -> Vec<String> {
    let said = good(output);
    said.split_whitespace().map(str::to_owned).collect()
}

fn script(directory: &Path) -> std::path::PathBuf {
    let script = directory.join("whim.bash");
    let completions = Command::new(whim()).args(["completions", "bash"]).output();
    std::fs::write(&script, good(&completions.expect("whim runs"))).expect("written");
    script
}

#[test]
fn bash_gets_nodes_labels_programs_and_keys_of_the_daemon() {
    let place = place();
    let script = script(place.path());
    let daemon = alone(&place);
    good(&daemon.ask(&["init", "--node", "n1"]));
    let mut command = daemon.whim(&["run", "--pin", "sleep", "60"]);
    let program = Owned::quiet(&mut command);
    let pid = program.0.id().to_string();
    until("the program", || {
        (daemon.rows(&["ps", "--json"]).len() == 1).then_some(())
    });
    let keys = daemon.rows(&["tune", "--json"]);
    let fair = keys.iter().filter(|row| {
        let key = row["key"].as_str().unwrap_or_default();
        key.starts_with("balance.")
    });
    assert!(fair.count() > 2, "{keys:?}");
    for (line, last, expected) in [
        ("whim drain ", "", "n1"),
        ("whim drain --wait n", "n", "n1"),
        ("whim migrate 4711 h", "h", "home"),
        ("whim run --on ", "", "best n1"),
        ("whim run --only=n", "n", "n1"),
        // What is in a list is not told again.
        ("whim run --avoid n1,", "n1,", ""),
        ("whim why ", "", &pid),
        ("whim log --calls n1:", "", &pid),
        ("whim tune balance.fai", "balance.fai", "balance.fair"),
        ("whim drain x", "x", ""),
    ] {
        // A busy machine may be slower than whoever presses the key is patient.
        until(line, || {
            let found = words(&press(&script, &daemon.socket(), line, last));
            (found.join(" ") == expected).then_some(())
        });
    }
    // Verbs and options come of the definition, as before.
    let found = words(&press(&script, &daemon.socket(), "whim dr", "dr"));
    assert_eq!(found, ["drain"]);
    let found = words(&press(&script, &daemon.socket(), "whim drain --w", "--w"));
    assert_eq!(found, ["--wait"]);
}

/// Neither a daemon that is not there nor one that says nothing gives words or errors, or keeps anybody waiting.
#[test]
fn without_an_answer_there_are_no_words_and_no_errors() {
    let place = place();
    let script = script(place.path());
    let silent = place.path().join("silent.sock");
    let _listener = std::os::unix::net::UnixListener::bind(&silent).expect("a socket");
    for socket in [Path::new("/nonexistent/control.sock"), &silent] {
        for line in ["whim drain ", "whim why ", "whim tune "] {
            let begun = Instant::now();
            let output = press(&script, socket, line, "");
            assert!(output.stderr.is_empty(), "{line}: {output:?}");
            assert_eq!(words(&output), Vec::<String>::new(), "{line}");
            assert!(begun.elapsed() < PATIENCE, "{line}: {:?}", begun.elapsed());
        }
        // What needs no daemon is told before it is asked.
        let found = words(&press(&script, socket, "whim migrate 4711 ", ""));
        assert_eq!(found, ["home", "best"]);
    }
}
