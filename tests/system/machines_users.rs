//! What local users attempt against root's daemon and each other, on kernels of two Debian releases. The first
//! one's does not say which process has connected to a unix socket: there the daemon asks for a descriptor.

use std::collections::HashMap;
use std::time::Duration;

use whim_attempts::{Attempt, Party};
use whim_system_tests::{Case, Context, Result, ensure};

use crate::machines::{NEW_CPU, Pair};

/// All attempts, on a machine that has much else to do.
const LIMIT: Duration = Duration::from_secs(30 * 60);
const JOIN_LIMIT: Duration = Duration::from_secs(5 * 60);

pub(crate) fn cases() -> Vec<Case> {
    vec![
        Case::new("machines::full::attempts_of_users_on_6_1", |_| {
            attempts("debian-12", "debian-13")
        }),
        Case::new("machines::full::attempts_of_users_on_6_12", |_| {
            attempts("debian-13", "debian-12")
        }),
    ]
}

/// As `tests/machines/users` names them, and what they are.
const ATTACKS: [(&str, &str); 33] = [
    (
        "kept connection",
        "replace another's --pin by a connection that was kept over a setuid exec",
    ),
    (
        "number that came round",
        "replace another's --pin by a connection of a process whose number it has",
    ),
    (
        "handed: its process",
        "replace another's --pin by handing over a descriptor of that process",
    ),
    (
        "handed: both",
        "replace another's --pin by handing over that process behind her own",
    ),
    ("handed: a pipe", "hand over a pipe in place of a process"),
    (
        "handed: a directory",
        "hand over another process's directory of /proc in place of a process",
    ),
    ("handed: nothing", "hand over nothing in place of a process"),
    (
        "handed before: its process",
        "replace another's --pin by a descriptor of that process with the request",
    ),
    (
        "descendants",
        "have another user's process taken up, and kept to a node, by descent",
    ),
    (
        "setuid at home",
        "execute a setuid program after it was registered",
    ),
    ("setuid away", "execute a setuid program while it is away"),
    (
        "setuid while it moves",
        "execute a setuid program while it is admitted, frozen and captured, over and over",
    ),
    ("journal", "write to the journal of her own program"),
    ("journal read", "read the journal of her own program"),
    (
        "directory",
        "fill /run by the directory of her supervisor's socket",
    ),
    (
        "deep tree",
        "make directories where the daemon removes them",
    ),
    ("socket", "listen in place of her supervisor"),
    (
        "stopped, root's file",
        "stop her supervisor, so that root waits for a file of root's that it maps",
    ),
    (
        "stopped, own file",
        "stop her supervisor, so that root waits for a file of her own that it maps",
    ),
    (
        "stopped, asked for",
        "keep others waiting by a supervisor of her own that she has stopped",
    ),
    (
        "capabilities",
        "find a capability in home's supervisor of her program",
    ),
    (
        "own supervisor",
        "at her own home supervisor: trace it, read its memory, descriptors, environment and mappings",
    ),
    (
        "another's supervisor",
        "at another's home supervisor: end, stop and trace it, connect to it, and read what it has",
    ),
    (
        "undumpable",
        "strand a program that forbids others to look at it away",
    ),
    ("move another's", "move another user's process"),
    ("adopt another's", "take up another user's process"),
    ("hold another's", "hold another user's process"),
    ("adopt root's", "take up a process of root's"),
    (
        "administrators",
        "have a token, a member's removal, a copy of the CA's key and a drained node",
    ),
    (
        "token as argument",
        "find a token in a command line, where it was given before",
    ),
    (
        "state of another",
        "have root's daemon keep its state in a directory of another user",
    ),
    (
        "configuration of another",
        "give root's daemon a configuration of another user",
    ),
    (
        "directory made ready",
        "make ready the directory of a daemon that another user is about to start",
    ),
];

const JOIN: [(&str, &str); 1] = [(
    "token in the open",
    "read the token of a join in /proc, by whoever looks on, root too",
)];

type Tries = HashMap<&'static str, Attempt>;

fn tries(attacks: &[(&'static str, &str)], kernel: &str) -> Tries {
    let attempt = |what: &str| {
        Attempt::new(
            Party::LocalUser,
            format!("with the kernel of {kernel}: {what}"),
        )
    };
    let named = attacks.iter().map(|(name, what)| (*name, attempt(what)));
    named.collect()
}

/// Each is heard to fail, or has succeeded.
fn judge(mut tries: Tries, said: &str) -> Result<()> {
    println!("{said}");
    for line in said.lines() {
        if let ["failed", name, how, _] = line.split('\t').collect::<Vec<_>>()[..] {
            let attempt = tries.remove(name);
            attempt
                .with_context(|| format!("Nobody tries '{name}'"))?
                .failed(how);
        }
    }
    let mut left: Vec<&str> = tries.keys().copied().collect();
    left.sort_unstable();
    ensure!(left.is_empty(), "Not seen to fail: {left:?}: {said}");
    Ok(())
}

fn attempts(home: &str, host: &str) -> Result<()> {
    let mut pair = Pair::start((home, NEW_CPU), (host, NEW_CPU))?;
    let begun = tries(&ATTACKS, home);
    let said = pair.home.ask("python3 -S /opt/whim/users attacks", LIMIT)?;
    let judged = judge(begun, &format!("{}{}", said.output, said.errors));
    judged.with_context(|| pair.home.explain() + &pair.host.explain())?;
    // A guest whose program was ended at home may be on its way to its end.
    pair.host.run("whim leave --force")?;
    let token = pair.home.run("whim token")?;
    // Before anybody looks on: the machine's own shell is told by a command line.
    let keep = format!("umask 077; echo {} >/run/token", token.trim());
    pair.host.run(&keep)?;
    let begun = tries(&JOIN, host);
    let joins = "python3 -S /opt/whim/users joins /run/token";
    let said = pair.host.ask(joins, JOIN_LIMIT)?;
    judge(begun, &format!("{}{}", said.output, said.errors))
}
