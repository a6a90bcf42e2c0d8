//! The verbs of a lab.

use std::fs::DirBuilder;
use std::io::Read;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use nix::sys::signal::Signal;

use crate::cgroup::CgroupSet;
use crate::command;
use crate::enter::TOLD;
use crate::error::LabError;
use crate::layout::{LabLock, Layout, labs_directory};
use crate::listing;
use crate::mounts;
use crate::network::{LinkEnds, NetStep, Network};
use crate::options::{LinkSettings, Options, OptionsError, check_name};
use crate::process::{ProcessId, find_helpers, signal_namespace, wait_gone};
use crate::role::{NetTask, NodeTask, Roles, SwitchTask, WireTask};
use crate::state::{LinkRecord, Stage, State, address4, address6};
use crate::status::{self, LabStatus, wire_name};
use crate::teardown;

/// How long a node may take to end before those who hold it up are ended as well.
const NODE_END_PATIENCE: Duration = Duration::from_secs(1);

/// A lab that is up.
#[derive(Debug, Clone)]
pub struct Lab {
    layout: Layout,
}

impl Lab {
    /// Makes a lab. What an interrupted `up` or `down` of the same name has left is cleared away
    /// first; when anything fails, so is everything made until then.
    pub fn up(options: &Options) -> Result<Lab, LabError> {
        options.check()?;
        for (program, package) in [("ip", "iproute2"), ("tc", "iproute2")] {
            if !command::is_installed(program) {
                return Err(LabError::MissingProgram(program, package));
            }
        }
        let layout = Layout::new(&options.name)?;
        let lock = layout.lock_new()?;
        // A state file that cannot be read is cleared away with the rest.
        let before = State::load(&layout).unwrap_or(None);
        if let Some(state) = before.as_ref().filter(|s| is_running(s)) {
            return Err(LabError::AlreadyUp(state.options.name.clone()));
        }
        teardown::clear(&layout, before.as_ref())?;
        let helper = match &options.helper {
            Some(helper) => helper.clone(),
            None => std::env::current_exe().map_err(LabError::file("find", "/proc/self/exe"))?,
        };
        let rootless = !nix::unistd::geteuid().is_root();
        let state = State::new(options.clone(), helper, rootless);
        let mut work = Work {
            layout,
            state,
            network: Network::of_this_machine(),
        };
        match work.build() {
            Ok(()) => Ok(Lab {
                layout: work.layout,
            }),
            Err(error) => {
                // The first error is the one that matters; a second one shows again in `down`.
                if teardown::clear(&work.layout, Some(&work.state)).is_ok() {
                    lock.remove();
                }
                Err(error)
            }
        }
    }

    /// The lab of this name; an error when there is none or it is not complete.
    pub fn open(name: &str) -> Result<Lab, LabError> {
        let lab = Lab {
            layout: Layout::new(name)?,
        };
        let state = lab.state()?;
        if state.stage != Stage::Up {
            return Err(LabError::Incomplete(name.to_owned()));
        }
        Ok(lab)
    }

    /// The names of this user's labs.
    pub fn list() -> Result<Vec<String>, LabError> {
        let directory = labs_directory();
        let entries = match std::fs::read_dir(&directory) {
            Ok(entries) => entries,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(e) => return Err(LabError::file("read", directory)(e)),
        };
        let mut names: Vec<String> = entries
            .flatten()
            .filter(|e| e.file_type().is_ok_and(|t| t.is_dir()))
            .filter_map(|e| e.file_name().into_string().ok())
            .filter(|name| check_name(name).is_ok())
            .collect();
        names.sort();
        Ok(names)
    }

    /// Ends the lab of this name and removes all of it, complete or not. An error when there is
    /// no trace of one.
    pub fn down(name: &str) -> Result<(), LabError> {
        let layout = Layout::new(name)?;
        if !layout.directory().exists()
            && find_helpers(&layout.directory()).is_empty()
            // All that an `up` leaves that was killed at its very start.
            && !layout.is_locked_or_was()
        {
            layout.remove_labs_directory();
            return Err(listing::missing(name));
        }
        let lock = layout.lock()?;
        let mut state = State::load(&layout).unwrap_or(None);
        if let Some(state) = &mut state {
            state.stage = Stage::Stopping;
            // On a full disk the note cannot be made; that is no reason not to clear up.
            let _ = state.save(&layout);
        }
        teardown::clear(&layout, state.as_ref())?;
        lock.remove();
        Ok(())
    }

    /// The lab's name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.layout.name()
    }

    /// A directory that all nodes and the machine see at the same path.
    #[must_use]
    pub fn share(&self) -> PathBuf {
        self.layout.share()
    }

    /// What the lab is like now.
    pub fn status(&self) -> Result<LabStatus, LabError> {
        Ok(status::of(&self.layout, &self.state()?))
    }

    /// The status of a lab of this name even if it is not complete.
    pub fn status_of(name: &str) -> Result<LabStatus, LabError> {
        Lab {
            layout: Layout::new(name)?,
        }
        .status()
    }

    /// A command line that runs `program` on a node, as `user` or as the caller. Arguments are
    /// added with [`Command::arg`]; terminal, descriptors, environment, exit status and signals
    /// pass through. The caller may `exec` it or start it as a child.
    pub fn command(
        &self,
        node: &str,
        user: Option<&str>,
        program: impl AsRef<std::ffi::OsStr>,
    ) -> Result<Command, LabError> {
        self.enter(node, user, &[], program.as_ref())
    }

    /// As [`Lab::command`], for somebody who looks on: it says on standard error where the program starts, if the node
    /// does not see the caller's directory.
    pub fn told_command(
        &self,
        node: &str,
        user: Option<&str>,
        program: impl AsRef<std::ffi::OsStr>,
    ) -> Result<Command, LabError> {
        self.enter(node, user, &[TOLD], program.as_ref())
    }

    fn enter(
        &self,
        node: &str,
        user: Option<&str>,
        options: &[&str],
        program: &std::ffi::OsStr,
    ) -> Result<Command, LabError> {
        let state = self.state()?;
        state.running_init(node)?;
        if state.node(node)?.paused {
            return Err(LabError::NodePaused {
                lab: self.name().to_owned(),
                node: node.to_owned(),
            });
        }
        Ok(exec_command(
            &self.layout,
            &state,
            node,
            user,
            options,
            program,
        ))
    }

    /// Runs a program on a node, and gives what it has written to its output. After `limit` it is ended.
    pub fn ask(&self, node: &str, words: &[String], limit: Duration) -> Result<String, LabError> {
        let (program, arguments) = words.split_first().map_or(("", words), |(p, a)| (p, a));
        let failed = |why: String| LabError::Step {
            node: node.to_owned(),
            command: words.join(" "),
            why,
        };
        let mut asked = self.command(node, None, program)?;
        let outcome = command::run(asked.args(arguments), "", Some(limit))
            .map_err(|error| failed(format!("could not be started: {error}")))?;
        match outcome.status {
            Some(status) if status.success() => Ok(outcome.output),
            Some(status) => Err(failed(format!(
                "failed ({status}): {}",
                outcome.errors.trim()
            ))),
            None => Err(failed(format!("did not end within {limit:.0?}"))),
        }
    }

    /// Stops all packets between two nodes, without a sign to either.
    pub fn cut(&self, one: &str, other: &str) -> Result<(), LabError> {
        self.change(|work| work.set_cut(one, other, true))
    }

    /// Lets packets pass again.
    pub fn heal(&self, one: &str, other: &str) -> Result<(), LabError> {
        self.change(|work| work.set_cut(one, other, false))
    }

    /// Gives a link all these properties (and takes away any others that it had).
    pub fn link(&self, one: &str, other: &str, link: &LinkSettings) -> Result<(), LabError> {
        link.check()?;
        self.change(|work| {
            let index = work.state.link_index(one, other)?;
            work.set_link(index, link)
        })
    }

    /// Switches a node off as a loss of power does: nothing leaves it any more, then all of it
    /// ends. Its state directory stays.
    pub fn kill(&self, node: &str) -> Result<(), LabError> {
        self.change(|work| {
            work.state.node(node)?;
            work.switch_off(node)
        })
    }

    /// Switches a node on again, with its state directory, and starts its daemon.
    pub fn start(&self, node: &str) -> Result<(), LabError> {
        self.change(|work| {
            if work.state.running_init(node).is_ok() {
                let lab = work.layout.name().to_owned();
                return Err(LabError::NodeOn {
                    lab,
                    node: node.to_owned(),
                });
            }
            work.switch_off(node)?;
            work.switch_on(node)?;
            work.start_daemon(node)
        })
    }

    /// Starts the node's daemon (again), if the lab has one and it does not run.
    pub fn start_daemon(&self, node: &str) -> Result<(), LabError> {
        self.change(|work| {
            work.state.running_init(node)?;
            work.start_daemon(node)
        })
    }

    /// Stalls all processes of a node, which do not notice.
    pub fn pause(&self, node: &str) -> Result<(), LabError> {
        self.change(|work| work.set_paused(node, true))
    }

    /// Lets a paused node go on.
    pub fn resume(&self, node: &str) -> Result<(), LabError> {
        self.change(|work| work.set_paused(node, false))
    }

    fn state(&self) -> Result<State, LabError> {
        State::load(&self.layout)?.ok_or_else(|| listing::missing(self.name()))
    }

    fn change(&self, verb: impl FnOnce(&mut Work) -> Result<(), LabError>) -> Result<(), LabError> {
        self.state()?;
        let _lock: LabLock = self.layout.lock()?;
        let state = self.state()?;
        if state.stage != Stage::Up {
            return Err(LabError::Incomplete(self.name().to_owned()));
        }
        let network = Network::of_this_machine();
        let mut work = Work {
            layout: self.layout.clone(),
            state,
            network,
        };
        verb(&mut work)
    }
}

fn is_running(state: &State) -> bool {
    state.stage == Stage::Up && state.switch.is_some_and(|s| s.is_alive())
}

pub(crate) fn exec_command(
    layout: &Layout,
    state: &State,
    node: &str,
    user: Option<&str>,
    options: &[&str],
    program: &std::ffi::OsStr,
) -> Command {
    let roles = Roles {
        program: &state.helper,
        layout,
    };
    let mut command = roles.command("exec", node);
    if let Some(user) = user {
        command.arg("--user").arg(user);
    }
    command.args(options).arg("--").arg(program);
    command
}

/// A lab that is being changed, under its lock.
pub(crate) struct Work {
    pub(crate) layout: Layout,
    pub(crate) state: State,
    pub(crate) network: Network,
}

impl Work {
    pub(crate) fn roles(&self) -> Roles<'_> {
        Roles {
            program: &self.state.helper,
            layout: &self.layout,
        }
    }

    pub(crate) fn save(&self) -> Result<(), LabError> {
        self.state.save(&self.layout)
    }

    pub(crate) fn node_names(&self) -> Vec<String> {
        self.state.nodes.iter().map(|n| n.name.clone()).collect()
    }

    fn build(&mut self) -> Result<(), LabError> {
        self.make_directories()?;
        self.state.cgroups = CgroupSet::plan(self.layout.name());
        self.state.shares = self.shares()?;
        self.save()?;
        self.make_cgroups()?;
        if !self.network.ipv6 {
            self.state
                .warnings
                .push("This machine has no IPv6, so the nodes have none".to_owned());
        }
        self.start_switch()?;
        for node in self.node_names() {
            self.switch_on(&node)?;
        }
        let link = self.state.options.link.clone();
        if !link.is_plain() {
            for index in 0..self.state.links.len() {
                self.set_link(index, &link)?;
            }
        }
        self.bootstrap()?;
        self.state.stage = Stage::Up;
        self.save()
    }

    fn make_directories(&self) -> Result<(), LabError> {
        let make = |path: &Path, mode: u32| {
            DirBuilder::new()
                .mode(mode)
                .create(path)
                .map_err(LabError::file("make", path))
        };
        make(&self.layout.directory(), 0o755)?;
        make(&self.layout.share(), 0o755)?;
        // Any user of a node may write there, as in /tmp; the mode is not subject to the umask.
        let open = std::fs::Permissions::from_mode(0o1777);
        std::fs::set_permissions(self.layout.share(), open)
            .map_err(LabError::file("open up", self.layout.share()))?;
        for node in &self.state.nodes {
            make(&self.layout.node(&node.name), 0o755)?;
            make(&self.layout.node_state(&node.name), 0o755)?;
            make(&self.layout.node_stage(&node.name), 0o700)?;
        }
        Ok(())
    }

    /// Directories that would be hidden by a node's own /tmp, /run and /dev/shm but are wanted
    /// there: those asked for, the working directory, and where the programs are.
    fn shares(&self) -> Result<Vec<PathBuf>, LabError> {
        let mut wanted = vec![self.layout.share()];
        for share in &self.state.options.shares {
            let found = std::fs::canonicalize(share).ok().filter(|p| p.is_dir());
            let wrong = || OptionsError::Share(share.display().to_string());
            wanted.push(found.ok_or_else(wrong)?);
        }
        wanted.extend(std::env::current_dir().ok());
        wanted.extend(self.state.helper.parent().map(Path::to_owned));
        let daemon = self.state.options.daemon.first().map(PathBuf::from);
        wanted.extend(daemon.and_then(|d| d.parent().map(Path::to_owned)));
        let private: Vec<PathBuf> = mounts::PRIVATE
            .iter()
            .filter_map(|(d, _)| std::fs::canonicalize(d).ok())
            .collect();
        let hidden = |path: &PathBuf| private.iter().any(|p| path.starts_with(p) && path != p);
        let mut shares: Vec<PathBuf> = wanted
            .iter()
            .filter_map(|path| std::fs::canonicalize(path).ok())
            .filter(hidden)
            .collect();
        shares.sort();
        // What lies in another shared directory is seen already.
        shares.dedup_by(|later, earlier| later.starts_with(earlier));
        Ok(shares)
    }

    fn make_cgroups(&mut self) -> Result<(), LabError> {
        let options = self.state.options.clone();
        let names = self.node_names();
        self.state.cgroups.create(&names)?;
        for (index, name) in names.iter().enumerate() {
            self.state
                .cgroups
                .limit(name, options.cpu_of(index), options.memory_of(index))?;
        }
        if self.state.cgroups.is_empty() {
            let why = self.state.cgroups.refusals();
            self.state.warnings.push(format!(
                "No cgroup can be written, so nodes cannot be limited in CPU or memory ({why})"
            ));
        }
        self.save()
    }

    fn start_switch(&mut self) -> Result<(), LabError> {
        let task = SwitchTask {
            rootless: self.state.rootless,
            cgroup_entries: self.state.cgroups.entries("switch"),
            steps: self.network.switch(),
        };
        let pending = self.roles().start("switch", "switch", &task)?;
        self.state.switch = Some(pending.process);
        self.save()?;
        pending.go()
    }

    fn configure_switch(&self, steps: Vec<NetStep>) -> Result<(), LabError> {
        let task = NetTask {
            switch: self.switch()?,
            rootless: self.state.rootless,
            cgroup_entries: self.state.cgroups.entries("switch"),
            steps,
        };
        self.roles().perform("net", "switch", &task)
    }

    fn switch(&self) -> Result<ProcessId, LabError> {
        self.state
            .switch
            .filter(|s| s.is_alive())
            .ok_or_else(|| LabError::Network {
                lab: self.layout.name().to_owned(),
                why: format!(
                    "its switch process is gone; end the lab with `whim lab down --name {}`",
                    self.layout.name()
                ),
            })
    }

    fn switch_on(&mut self, name: &str) -> Result<(), LabError> {
        let task = self.node_task(name)?;
        let number = self.state.node(name)?.number;
        let pending = self.roles().start("node", name, &task)?;
        let node = self.state.node_mut(name)?;
        node.init = Some(pending.process);
        node.on = true;
        node.daemon = None;
        self.save()?;
        let mut steps = self.network.detach(number);
        steps.extend(self.network.attach(number, pending.process.pid));
        self.configure_switch(steps)?;
        pending.go()?;
        self.configure_switch(self.network.unsilence(number))
    }

    fn node_task(&self, name: &str) -> Result<NodeTask, LabError> {
        let node = self.state.node(name)?;
        let hosts: String = self
            .state
            .nodes
            .iter()
            .map(|n| {
                format!(
                    "{}\t{}\n{}\t{}\n",
                    address4(n.number),
                    n.name,
                    address6(n.number),
                    n.name
                )
            })
            .collect();
        Ok(NodeTask {
            lab: self.layout.name().to_owned(),
            name: name.to_owned(),
            user_namespace_of: if self.state.rootless {
                Some(self.switch()?)
            } else {
                None
            },
            cgroup_entries: self.state.cgroups.entries(name),
            clock_offset_ms: self.state.options.clock_offset_of(node.number - 1),
            stage: self.layout.node_stage(name),
            state_directory: self.layout.node_state(name),
            shares: self.state.shares.clone(),
            hosts,
            secret: self.kept_random(name, "secret")?,
            machine_id: self.kept_random(name, "machine-id")?,
            steps: self.network.node(node.number),
        })
    }

    /// 128 random bits in hexadecimal that stay the same for the node when it is off.
    fn kept_random(&self, node: &str, what: &str) -> Result<String, LabError> {
        let path = self.layout.node(node).join(what);
        if let Ok(kept) = std::fs::read_to_string(&path) {
            return Ok(kept);
        }
        let mut bytes = [0; 16];
        let source = "/dev/urandom";
        std::fs::File::open(source)
            .and_then(|mut f| f.read_exact(&mut bytes))
            .map_err(LabError::file("read", source))?;
        let text: String = bytes.iter().map(|b| format!("{b:02x}")).collect();
        std::fs::write(&path, &text).map_err(LabError::file("write", &path))?;
        Ok(text)
    }

    fn switch_off(&mut self, name: &str) -> Result<(), LabError> {
        let number = self.state.node(name)?.number;
        // Noted first: if this command is ended half way, the node counts as off and a `start`
        // begins with doing the rest.
        let node = self.state.node_mut(name)?;
        node.on = false;
        node.paused = false;
        let init = node.init;
        self.save()?;
        let mut silence = self.network.unsilence(number);
        silence.extend(self.network.silence(number));
        self.configure_switch(silence)?;
        if let Some(handle) = init.and_then(ProcessId::kill) {
            self.state.cgroups.thaw(name)?;
            self.see_it_end(name, &handle)?;
        }
        self.configure_switch(self.network.detach(number))?;
        let node = self.state.node_mut(name)?;
        node.init = None;
        node.daemon = None;
        self.save()
    }

    fn see_it_end(&self, name: &str, handle: &whim_sys::namespace::PidFd) -> Result<(), LabError> {
        if handle.wait_end(NODE_END_PATIENCE)? {
            return Ok(());
        }
        // The end of a PID namespace waits for parents outside to collect their children; those
        // are stand-ins of `exec`, and one may have been stopped.
        for helper in find_helpers(&self.layout.directory()) {
            if helper.role == "exec" && helper.subject == name {
                helper.id.kill();
            }
        }
        wait_gone(handle, name)
    }

    fn set_cut(&mut self, one: &str, other: &str, cut: bool) -> Result<(), LabError> {
        let index = self.state.link_index(one, other)?;
        let LinkRecord {
            a, b, cut: before, ..
        } = self.state.links[index];
        if before != cut {
            let mut steps = self.network.heal(a, b);
            if cut {
                steps.extend(self.network.cut(a, b));
            }
            self.configure_switch(steps)?;
            self.state.links[index].cut = cut;
        }
        self.save()
    }

    fn set_link(&mut self, index: usize, link: &LinkSettings) -> Result<(), LabError> {
        let LinkRecord { a, b, wire, .. } = self.state.links[index];
        let fail = |lab: &Layout, e: LabError| match e {
            LabError::Role { why, .. } => LabError::Network {
                lab: lab.name().to_owned(),
                why,
            },
            other => other,
        };
        if link.is_plain() {
            self.configure_switch(self.network.unlead(a, b))?;
        }
        // From here on the pair's packets lead nowhere until the new way stands, rather than
        // overtaking on the plain way what is under way in the old one.
        if let Some(wire) = wire {
            wire.kill_and_wait(&wire_name(a, b))?;
            self.state.links[index].wire = None;
        }
        self.configure_switch(self.network.drop_cable(a, b))?;
        self.state.links[index].settings = link.clone();
        self.save()?;
        if link.is_plain() {
            return Ok(());
        }
        let ends = if link.needs_wire() {
            self.start_wire(index, link)?
        } else {
            self.configure_switch(self.network.make_cable(a, b))?;
            LinkEnds::cable(a, b)
        };
        self.configure_switch(self.network.lead(a, b, &ends, link))
            .map_err(|e| fail(&self.layout, e))
    }

    fn start_wire(&mut self, index: usize, link: &LinkSettings) -> Result<LinkEnds, LabError> {
        let LinkRecord { a, b, .. } = self.state.links[index];
        let ends = LinkEnds::wire(a, b);
        let task = WireTask {
            switch: self.switch()?,
            rootless: self.state.rootless,
            cgroup_entries: self.state.cgroups.entries("switch"),
            device_a: ends.a.clone(),
            device_b: ends.b.clone(),
            node_a: a,
            node_b: b,
            link: link.clone(),
            counters: self.layout.wire_counters(&wire_name(a, b)),
        };
        let pending = self.roles().start("wire", &wire_name(a, b), &task)?;
        self.state.links[index].wire = Some(pending.process);
        self.save()?;
        pending.go()?;
        Ok(ends)
    }

    fn set_paused(&mut self, name: &str, paused: bool) -> Result<(), LabError> {
        let init = self.state.running_init(name)?;
        let done = if paused {
            self.state.cgroups.freeze(name)?
        } else {
            self.state.cgroups.thaw(name)?
        };
        if !done {
            signal_namespace(
                init,
                if paused {
                    Signal::SIGSTOP
                } else {
                    Signal::SIGCONT
                },
            )?;
        }
        self.state.node_mut(name)?.paused = paused;
        self.save()
    }
}
