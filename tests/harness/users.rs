//! A cluster that plain users have made between their accounts, one on each node, with daemons of
//! their own: nothing of it runs as root.

use std::fs::{self, File};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::PathBuf;
use std::process::Command;
use std::sync::{MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};

use crate::cluster::Cluster;
use crate::process::{Running, eventually};

/// The accounts' uids: different on each node, and no other account's.
const FIRST_UID: u32 = 61_001;
/// The usual port is taken: root's daemon, which is in no cluster, listens there.
const PORT: u16 = 7947;
const PATIENCE: Duration = Duration::from_secs(30);

/// A plain user's account on one node.
#[derive(Clone, Debug)]
pub struct Account {
    pub node: String,
    pub uid: u32,
    pub home: PathBuf,
}

impl Account {
    /// File with the number of the user's daemon on its node.
    #[must_use]
    pub fn daemon_number(&self) -> PathBuf {
        self.home.join("whimd.pid")
    }

    /// The command, as this user gives it.
    #[must_use]
    pub fn words<S: AsRef<str>>(&self, command: &[S]) -> Vec<String> {
        let uid = self.uid;
        let mut words: Vec<String> = ["setpriv", "--clear-groups"].map(str::to_owned).into();
        words.push(format!("--reuid={uid}"));
        words.push(format!("--regid={uid}"));
        words.extend(["env", "-u", "XDG_RUNTIME_DIR"].map(str::to_owned));
        words.push(format!("HOME={}", self.home.display()));
        words.extend(command.iter().map(|word| word.as_ref().to_owned()));
        words
    }
}

impl Cluster {
    /// Two nodes, on which two users have made a cluster.
    ///
    /// # Errors
    /// When it does not come up.
    pub fn up_of_users() -> Result<Self> {
        Self::up_of_confined_users("")
    }

    /// The same where the daemon of n2 is started by these words of shell.
    ///
    /// # Errors
    /// When it does not come up.
    pub fn up_of_confined_users(by: &str) -> Result<Self> {
        let mut cluster = Self::up_with(2, &["--no-cluster"])?;
        for (number, node) in (0..).zip(["n1", "n2"]) {
            let account = Account {
                node: node.to_owned(),
                uid: FIRST_UID + number,
                home: cluster.accounts_directory().join(node),
            };
            cluster.begin_account(account)?;
            let account = &cluster.accounts[cluster.accounts.len() - 1];
            cluster.start_daemon_of(account, if node == "n2" { by } else { "" })?;
        }
        fs::set_permissions(cluster.directory(), fs::Permissions::from_mode(0o777))?;
        let made = cluster.make_cluster();
        if made.is_err() {
            cluster.explain();
        }
        made.map(|()| cluster)
    }

    fn begin_account(&mut self, account: Account) -> Result<()> {
        let settings = account.home.join(".config/whim");
        fs::create_dir_all(&settings)?;
        let text = format!("listen = \"[::]:{PORT}\"\n");
        fs::write(settings.join("config.toml"), text)?;
        chown(&account.home, Some(account.uid), Some(account.uid))?;
        fs::set_permissions(&account.home, fs::Permissions::from_mode(0o700))?;
        self.accounts.push(account);
        Ok(())
    }

    /// Starts the daemon of a user, by these words of shell before its name.
    ///
    /// # Errors
    /// When it does not answer.
    pub fn start_daemon_of(&self, account: &Account, by: &str) -> Result<()> {
        let daemon = self.whimd_path();
        let number = account.daemon_number();
        let script = format!(
            "echo $$ > {} && exec {by} {} --no-balance",
            number.display(),
            daemon.display()
        );
        let log = account.home.join("whimd.log");
        let mut command = self.command(&account.node, &["sh", "-c", &script]);
        command
            .stdout(File::create(&log)?)
            .stderr(File::options().append(true).open(&log)?);
        let running = Running::spawn(&mut command)?;
        self.daemons().push(running);
        // By name: without it, root's daemon would answer until this one does.
        let socket = format!("/tmp/whim-{}/control.sock", account.uid);
        let ask = ["--socket", &socket, "--wait", "30", "nodes"];
        self.whim(&account.node, &ask)
            .with_context(|| {
                let said = fs::read_to_string(&log).unwrap_or_default();
                format!("The daemon of {} says: {said}", account.node)
            })
            .map(drop)
    }

    fn make_cluster(&self) -> Result<()> {
        self.whim("n1", &["init", "--node", "n1"])?;
        let token = self.whim("n1", &["token"])?;
        let host = format!("n1:{PORT}");
        self.join("n2", &host, &token)?;
        eventually(PATIENCE, "n1 sees n2", || {
            let nodes = self.whim("n1", &["nodes", "--json"])?;
            let up = |line: &str| line.contains("\"n2\"") && line.contains("\"up\"");
            Ok(nodes.lines().any(up).then_some(()))
        })
    }

    fn daemons(&self) -> MutexGuard<'_, Vec<Running>> {
        self.daemons.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Kills the users' daemons.
    ///
    /// # Errors
    /// When there is none.
    pub fn kill_daemons(&self) -> Result<()> {
        for account in &self.accounts {
            let number = fs::read_to_string(account.daemon_number())?;
            self.run(&account.node, &["kill", "-KILL", number.trim()])?;
        }
        self.daemons().clear();
        Ok(())
    }

    /// The account on this node, in a cluster of users.
    #[must_use]
    pub fn account(&self, node: &str) -> Option<&Account> {
        self.accounts.iter().find(|account| account.node == node)
    }

    /// A command that root gives on a node, still to be run.
    #[must_use]
    pub fn command_of_root<S: AsRef<str>>(&self, node: &str, words: &[S]) -> Command {
        let mut command = self.lab_command(&["exec", node, "--"]);
        command
            .args(words.iter().map(AsRef::as_ref))
            .env("LC_ALL", "C.UTF-8");
        command
    }
}
