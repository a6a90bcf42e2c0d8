//! What the lab's tests share.

use std::path::PathBuf;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use whim_lab::{Bootstrap, Lab, NodeStatus, Options};
use whim_sys::namespace::{PidFd, Set};

/// How long anything that has to happen may take, on a machine with much else to do.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Ends the test with a loud remark unless it runs as root.
macro_rules! needs_root {
    () => {
        if !nix::unistd::geteuid().is_root() {
            eprintln!(
                "SKIPPED {}: this test makes namespaces and needs root",
                module_path!()
            );
            return;
        }
    };
}
pub(crate) use needs_root;

/// The lab's helper program.
pub(crate) fn helper() -> PathBuf {
    PathBuf::from(env!("CARGO_BIN_EXE_whim-lab-node"))
}

/// Options of a test's lab, with a `sleep` as daemon.
pub(crate) fn options(name: &str) -> Options {
    Options {
        // Several runs of the tests may be going on.
        name: format!("t{}-{name}", std::process::id()),
        helper: Some(helper()),
        daemon: [
            "sh",
            "-c",
            "echo daemon of {node} at {address}; exec sleep 100000",
        ]
        .map(str::to_owned)
        .to_vec(),
        bootstrap: Bootstrap::daemons_only(),
        ..Options::default()
    }
}

/// A lab that is taken down at the end of the test.
pub(crate) struct TestLab {
    pub lab: Lab,
}

impl TestLab {
    pub(crate) fn up(name: &str, change: impl FnOnce(&mut Options)) -> TestLab {
        let mut options = options(name);
        change(&mut options);
        TestLab {
            lab: Lab::up(&options).unwrap_or_else(|e| panic!("{e}")),
        }
    }

    /// A shell command on a node, not yet started.
    pub(crate) fn sh(&self, node: &str, script: &str) -> Command {
        let mut command = self
            .lab
            .command(node, None, "sh")
            .unwrap_or_else(|e| panic!("{e}"));
        command.args(["-c", script]);
        command
    }

    pub(crate) fn output(&self, node: &str, script: &str) -> Output {
        self.sh(node, script).output().expect("the helper starts")
    }

    /// What a shell command prints on a node; it has to succeed.
    pub(crate) fn out(&self, node: &str, script: &str) -> String {
        let output = self.output(node, script);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success(),
            "{script} on {node}: {:?} {errors}",
            output.status
        );
        String::from_utf8(output.stdout)
            .expect("text")
            .trim()
            .to_owned()
    }

    pub(crate) fn node(&self, name: &str) -> NodeStatus {
        let status = self.lab.status().unwrap();
        status
            .nodes
            .into_iter()
            .find(|n| n.name == name)
            .expect("the node exists")
    }

    /// Does something with sockets as a process of the node would, from this test process.
    pub(crate) fn on_network<T: Send>(&self, node: &str, work: impl FnOnce() -> T + Send) -> T {
        let pid = self.node(node).pid.expect("the node is on");
        std::thread::scope(|scope| {
            let thread = scope.spawn(move || {
                PidFd::open(pid)
                    .and_then(|p| p.enter(Set::NET))
                    .expect("entered");
                work()
            });
            thread
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }
}

impl Drop for TestLab {
    fn drop(&mut self) {
        if let Err(e) = Lab::down(self.lab.name()) {
            eprintln!("cannot take the lab down: {e}");
            assert!(std::thread::panicking(), "cannot take the lab down: {e}");
        }
    }
}

/// Asks again and again until the answer is there.
pub(crate) fn until<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(began.elapsed() < PATIENCE, "waited in vain for: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
