//! Machines of other kernels and CPUs, emulated: two Debian releases, CPUs with and without AVX2, and
//! this machine besides.

use std::net::TcpListener;
use std::process::Command;
use std::time::Duration;

use whim_system_tests::machine::{Machine, Plan, THIS_MACHINE, Workshop};
use whim_system_tests::process::{self, eventually};
use whim_system_tests::{Case, Context, Result, Running, ensure, place};

/// All programs, in one direction, on a machine that has much else to do.
const TRAVEL_LIMIT: Duration = Duration::from_secs(35 * 60);
const SHORT: Duration = Duration::from_secs(60);
/// How often each program goes there and back; twice as many moves.
const TIMES: u32 = 10;

/// Of one register layout (x87, SSE, AVX), and without (first) or with AVX2, FMA, BMI and others.
const OLD_CPU: &str = "SandyBridge";
pub(crate) const NEW_CPU: &str = "Haswell-noTSX";

pub(crate) fn cases() -> Vec<Case> {
    vec![
        Case::new("machines::full::from_debian_12_to_13", |_| {
            travel(("debian-12", NEW_CPU), ("debian-13", NEW_CPU), "")
        }),
        Case::new("machines::full::from_debian_13_to_12", |_| {
            travel(("debian-13", NEW_CPU), ("debian-12", NEW_CPU), "")
        }),
        Case::new("machines::full::portable_from_new_to_old", |_| {
            travel(("debian-12", NEW_CPU), ("debian-13", OLD_CPU), "--portable")
        }),
        Case::new("machines::full::not_portable", |_| not_portable()),
        Case::new("machines::full::pid_max", |_| pid_max()),
        Case::new("machines::full::skew_and_drift", |_| skew_and_drift()),
        Case::new("machines::full::stepped_dates", |_| stepped_dates()),
        Case::new("machines::full::plain_users_under_yama", |_| under_yama()),
        Case::new("machines::full::users_of_roots_daemon_under_yama", |_| {
            roots_under_yama()
        }),
        Case::new("machines::full::this_machine", |_| this_machine()),
    ]
}

/// Kernel and CPU.
type Kind<'a> = (&'a str, &'a str);

/// Two machines, of one cluster.
pub(crate) struct Pair {
    pub home: Machine,
    pub host: Machine,
    _workshop: Workshop,
}

impl Pair {
    /// Both run, and are members of one cluster: `a` and `b`.
    pub(crate) fn start(home: Kind<'_>, host: Kind<'_>) -> Result<Self> {
        let workshop = Workshop::open()?;
        let machine = |name, number, (kernel, cpu)| {
            workshop.start(Plan {
                name,
                kernel,
                cpu,
                number,
                outside: None,
            })
        };
        let mut home = machine("home", 1, home)?;
        let mut host = machine("host", 2, host)?;
        home.start_daemon()?;
        home.run("whim init --name a --advertise 10.0.0.1:7946")?;
        let token = home.run("whim token")?;
        host.start_daemon()?;
        host.run(&format!(
            "echo {} | whim join 10.0.0.1 --name b --advertise 10.0.0.2:7946",
            token.trim()
        ))?;
        let mut pair = Self {
            home,
            host,
            _workshop: workshop,
        };
        eventually(SHORT, "both know each other", || {
            let rows = pair.home.run("whim nodes --json")?;
            Ok((rows.matches("\"state\":\"up\"").count() == 2).then_some(()))
        })?;
        Ok(pair)
    }
}

/// Eleven programs go there and back, and write what they write when they stay.
fn travel(home: Kind<'_>, host: Kind<'_>, option: &str) -> Result<()> {
    let mut pair = Pair::start(home, host)?;
    println!("{}", pair.home.run("whim nodes")?);
    if home.1 != host.1 {
        without_the_option(&mut pair)?;
    }
    let command = format!("bash travel b {TIMES} {option}");
    let said = pair.home.ask(&command, TRAVEL_LIMIT);
    let explained = |pair: &mut Pair| pair.home.explain() + &pair.host.explain();
    let said = said.with_context(|| explained(&mut pair))?;
    println!("{}", said.output);
    ensure!(
        said.status == 0,
        "{}{}{}",
        said.output,
        said.errors,
        explained(&mut pair)
    );
    Ok(())
}

/// What `--portable` is for, and what its warning speaks of: with the C library's choice for home's CPU the
/// same program ends where that code does not run.
fn not_portable() -> Result<()> {
    let mut pair = Pair::start(("debian-12", NEW_CPU), ("debian-13", OLD_CPU))?;
    for (starter, expected) in [("env -u GLIBC_TUNABLES", 128 + 4), ("env", 0)] {
        let command = format!(
            "rm -f in; mkfifo in; whim run --portable -- {starter} library <in >out & pid=$!; \
             exec 3>in; sleep 4; whim migrate $pid b || exit 1; echo go >&3; exec 3>&-; wait $pid"
        );
        let said = pair.home.ask(&command, SHORT)?;
        println!("{starter}: {}", said.status);
        ensure!(said.status == expected, "{said:?}{}", pair.home.explain());
    }
    Ok(())
}

/// Before Linux 6.14 a host gives out numbers of processes up to its own `pid_max` alone: a program with a
/// higher one is refused with a sentence, goes on, and can move when that is mended.
fn pid_max() -> Result<()> {
    let mut pair = Pair::start(("debian-13", NEW_CPU), ("debian-12", NEW_CPU))?;
    let start = "echo 4194304 >/proc/sys/kernel/pid_max; echo 3000000 >/proc/sys/kernel/ns_last_pid; \
                 whim run -- sleep 3000 >/dev/null & echo $!; sleep 3";
    let pid = pair.home.run(start)?.trim().to_owned();
    let number: u32 = pid.parse().with_context(|| format!("No number: '{pid}'"))?;
    ensure!(number >= 3_000_000, "Its number is {pid}");
    let refused = pair.home.ask(&format!("whim migrate {pid} b"), SHORT)?;
    println!("{}", refused.errors);
    ensure!(
        refused.status == 1 && refused.errors.contains("kernel.pid_max"),
        "{refused:?}"
    );
    pair.host.run("echo 4194304 >/proc/sys/kernel/pid_max")?;
    for target in ["b", "home"] {
        pair.home.run(&format!("whim migrate {pid} {target}"))?;
    }
    pair.home.run(&format!("kill {pid}")).map(drop)
}

/// The host's clocks run faster or slower than home's, and its date is 80 ms off, either way: no clock of
/// a program goes back, no timer is early, and programs return (they wait for home's clock if need be).
fn skew_and_drift() -> Result<()> {
    let mut pair = Pair::start(("debian-13", NEW_CPU), ("debian-12", NEW_CPU))?;
    // Microseconds in a hundredth of a second: 1 % faster, and 100 ppm slower, the most that the
    // guest's lead (a message's way there and back) makes up for in stays of some seconds.
    for (tick, seconds) in [(10_100, "0.08"), (9_999, "-0.08")] {
        pair.host.run(&format!("adjtimex -t {tick} >/dev/null"))?;
        pair.host.run(&format!(
            "python3 -S -c 'import time; c = time.CLOCK_REALTIME; \
             time.clock_settime(c, time.clock_gettime(c) + {seconds})'"
        ))?;
        let command = "PROGRAMS='expiry library' bash travel b 4";
        let said = pair.home.ask(command, TRAVEL_LIMIT)?;
        println!("tick {tick}, {seconds} s: {}", said.output);
        ensure!(said.status == 0, "{said:?}{}", pair.home.explain());
    }
    Ok(())
}

/// The date of one machine and then of the other is stepped by an hour, forward and back, while a program
/// is away and while it is at home: leases, certificates and programs do not care, tokens say so.
fn stepped_dates() -> Result<()> {
    let mut pair = Pair::start(("debian-13", NEW_CPU), ("debian-12", NEW_CPU))?;
    let step = |machine: &mut Machine, seconds: i32| {
        machine.run(&format!(
            "python3 -S -c 'import time; c = time.CLOCK_REALTIME; \
             time.clock_settime(c, time.clock_gettime(c) + {seconds})'"
        ))
    };
    let count = "import itertools, time; file = open(\"/tmp/work/counted\", \"a\", 1); \
                 [(print(n, file=file), time.sleep(0.2)) for n in itertools.count(1)]";
    let start = format!("whim run -- python3 -S -c '{count}' >/dev/null 2>&1 & echo $!; sleep 5");
    let pid = pair.home.run(&start)?.trim().to_owned();
    let goes_on = |pair: &mut Pair| -> Result<()> {
        let length = |pair: &mut Pair| pair.home.run("wc -l </tmp/work/counted");
        let before = length(pair)?;
        eventually(SHORT, "the program goes on", || {
            Ok((length(pair)? != before).then_some(()))
        })
    };
    for seconds in [3600, -3600, -3600, 3600] {
        pair.home.run(&format!("whim migrate {pid} b"))?;
        step(&mut pair.home, seconds)?;
        goes_on(&mut pair)?;
        step(&mut pair.host, seconds)?;
        goes_on(&mut pair)?;
        pair.home.run(&format!("whim migrate {pid} home"))?;
        step(&mut pair.host, -seconds)?;
        pair.home.run(&format!("whim migrate {pid} b"))?;
        goes_on(&mut pair)?;
        pair.home.run(&format!("whim migrate {pid} home"))?;
        step(&mut pair.host, seconds)?;
    }
    // Each number is there, and once.
    let wrong = "awk '$1 != NR { print NR; exit }' /tmp/work/counted";
    ensure!(
        pair.home.run(wrong)?.trim().is_empty(),
        "Numbers are missing, or there twice"
    );
    let nodes = pair.home.run("whim nodes --json")?;
    ensure!(nodes.matches("\"state\":\"up\"").count() == 2, "{nodes}");
    Ok(())
}

/// A plain user's command there.
fn of_user(command: &str) -> String {
    format!("cd /tmp && su -s /bin/sh guest -c '{command}'")
}

/// Yama, which this machine's kernel may not have, at each of its levels: what it leaves to daemons
/// without root moves, and all else is refused with a sentence that names it.
fn under_yama() -> Result<()> {
    let mut pair = Pair::start(("debian-13", NEW_CPU), ("debian-12", NEW_CPU))?;
    let scope = |machine: &mut Machine, value: u8| {
        machine.run(&format!("echo {value} >/proc/sys/kernel/yama/ptrace_scope"))
    };
    for machine in [&mut pair.home, &mut pair.host] {
        scope(machine, 1)?;
        machine.run(&of_user(
            "setsid whimd --listen [::]:7950 >/tmp/daemon 2>&1 & \
             whim --socket /tmp/whim-1000/control.sock --wait 90 nodes >/dev/null",
        ))?;
    }
    pair.home
        .run(&of_user("whim init --name ua --advertise 10.0.0.1:7950"))?;
    let token = pair.home.run(&of_user("whim token"))?;
    let join = format!(
        "echo {} | whim join 10.0.0.1:7950 --name ub --advertise 10.0.0.2:7950",
        token.trim()
    );
    pair.host.run(&of_user(&join))?;
    eventually(SHORT, "both know each other", || {
        let rows = pair.home.run(&of_user("whim nodes --json"))?;
        Ok((rows.matches("\"state\":\"up\"").count() == 2).then_some(()))
    })?;
    let start = "whim run -- sleep 3000 >/dev/null 2>&1 & echo $!; \
                 whim run -- sh -c \"sleep 3001; true\" >/dev/null 2>&1 & sleep 4";
    let pid = pair.home.run(&of_user(start))?.trim().to_owned();
    let child = "whim ps --json | sed -n \"s/.*pid.:\\([0-9]*\\),.home.*sleep 3001\\\"}/\\1/p\"";
    let child = pair.home.run(&of_user(child))?.trim().to_owned();
    println!("program {pid}, child {child}");
    let to = |pid: &str, target: &str| of_user(&format!("whim migrate {pid} {target}"));
    let refused = |machine: &mut Machine, command: &str, words: &str| -> Result<()> {
        let said = machine.ask(command, SHORT)?;
        print!("{}", said.errors);
        ensure!(said.status == 1 && said.errors.contains(words), "{said:?}");
        Ok(())
    };
    pair.home.run(&to(&pid, "ub"))?;
    pair.home.run(&to(&pid, "home"))?;
    refused(&mut pair.home, &to(&child, "ub"), "ptrace_scope=1")?;
    // A host takes guests under the next level, too: they are its own descendants.
    scope(&mut pair.host, 2)?;
    pair.home.run(&to(&pid, "ub"))?;
    pair.home.run(&to(&pid, "home"))?;
    // Debian's own setting: no guests, and programs may still leave that machine.
    let clone = "/proc/sys/kernel/unprivileged_userns_clone";
    pair.host.run(&format!("echo 0 >{clone}"))?;
    let words = "kernel.unprivileged_userns_clone";
    refused(&mut pair.home, &to(&pid, "ub"), words)?;
    let said = pair.host.ask(&of_user("whim doctor"), SHORT)?;
    ensure!(
        said.output.contains("kernel.unprivileged_userns_clone=0"),
        "{said:?}"
    );
    pair.host.run(&format!("echo 1 >{clone}"))?;
    for level in [2, 3] {
        scope(&mut pair.home, level)?;
        let words = format!("ptrace_scope={level}");
        refused(&mut pair.home, &to(&pid, "ub"), &words)?;
        let said = pair.home.ask(&of_user("whim doctor"), SHORT)?;
        ensure!(said.output.contains(&words), "{said:?}");
    }
    pair.home.run(&format!("kill -0 {pid}")).map(drop)
}

/// Root's daemon moves its users' programs under each level of Yama that lets a tracer without rights look
/// into them, and its supervisors have no capability left while they are away; under 2 they stay.
fn roots_under_yama() -> Result<()> {
    let mut pair = Pair::start(("debian-13", NEW_CPU), ("debian-12", NEW_CPU))?;
    for level in [0, 1] {
        let scope = format!("echo {level} >/proc/sys/kernel/yama/ptrace_scope");
        pair.home.run(&scope)?;
        // The child of one that was declared: nobody has allowed for it to be traced.
        let start = "whim run -- sh -c \"sleep 3001; true\" >/dev/null 2>&1 & sleep 4";
        pair.home.run(&of_user(start))?;
        let child =
            "whim ps --json | sed -n \"s/.*pid.:\\([0-9]*\\),.home.*sleep 3001\\\"}/\\1/p\"";
        let pid = eventually(SHORT, "the child is listed", || {
            let pid = pair.home.run(&of_user(child))?.trim().to_owned();
            Ok((!pid.is_empty()).then_some(pid))
        })?;
        println!("level {level}: process {pid}");
        for _ in 0..2 {
            let leave = of_user(&format!("whim migrate {pid} b"));
            // A machine that is this slow may not answer in the time that a user would wait.
            eventually(3 * SHORT, "it moves", || {
                let said = pair.home.ask(&leave, SHORT)?;
                print!("{}", said.errors);
                Ok((said.status == 0).then_some(()))
            })?;
            let sets = pair
                .home
                .run("cat /proc/$(pidof whim-home)/task/*/status | grep ^Cap | sort | uniq -c")?;
            println!("level {level}:\n{sets}");
            let empty = |line: &str| line.ends_with("\t0000000000000000");
            ensure!(
                sets.lines().count() == 5 && sets.lines().all(empty),
                "{sets}"
            );
            pair.home
                .run(&of_user(&format!("whim migrate {pid} home")))?;
        }
        pair.home.run(&format!("kill {pid}"))?;
    }
    pair.home
        .run("echo 2 >/proc/sys/kernel/yama/ptrace_scope")?;
    let stays = "whim run -- sleep 3000 >/dev/null 2>&1 & sleep 4; whim migrate $! b";
    let said = pair.home.ask(&of_user(stays), SHORT)?;
    ensure!(
        said.status == 1 && said.errors.contains("ptrace_scope=2"),
        "{said:?}"
    );
    Ok(())
}

/// A program that was not started to be portable is refused, and told what is missing.
fn without_the_option(pair: &mut Pair) -> Result<()> {
    let said = pair.home.ask(
        "whim run -- sleep 1000 & pid=$!; sleep 3; whim migrate $pid b; status=$?; kill $pid; exit $status",
        SHORT,
    )?;
    println!("{}", said.errors);
    ensure!(
        said.status == 1 && said.errors.contains("its CPU lacks") && said.errors.contains("avx2"),
        "{said:?}"
    );
    let told = pair
        .home
        .run("whim run --portable -- env | grep GLIBC_TUNABLES")?;
    for word in ["-AVX2", "-FMA", "-BMI2", "-LZCNT", "-MOVBE"] {
        ensure!(told.contains(word), "The C library is told '{told}'");
    }
    Ok(())
}

/// This machine joins an emulated one's cluster. Their CPUs differ, so programs stay, each way, and say
/// why.
fn this_machine() -> Result<()> {
    let workshop = Workshop::open()?;
    let (port, own_port) = (free_port()?, free_port()?);
    let mut machine = workshop.start(Plan {
        name: "a",
        kernel: "debian-12",
        cpu: NEW_CPU,
        number: 1,
        outside: Some(port),
    })?;
    machine.start_daemon()?;
    machine.run(&format!("whim init --name a --advertise 127.0.0.1:{port}"))?;
    let token = machine.run("whim token")?;
    let programs = place::programs("machines")?;
    let room = std::env::temp_dir().join(format!("whim-outside-{}", std::process::id()));
    let mut daemon = Command::new(programs.join("whimd"));
    daemon.arg("--allow-root");
    daemon.arg("--state").arg(room.join("state"));
    daemon.arg("--run").arg(room.join("run"));
    daemon.args(["--listen", &format!("127.0.0.1:{own_port}")]);
    daemon.args(["--advertise", &format!("{THIS_MACHINE}:{own_port}")]);
    let _daemon = Running::spawn(&mut daemon)?;
    let whim = |words: &[&str]| {
        let mut command = Command::new(programs.join("whim"));
        command.arg("--socket").arg(room.join("run/control.sock"));
        command.args(["--wait", "30"]).args(words);
        command
    };
    let host = format!("127.0.0.1:{port}");
    // A machine that is this slow may not answer in the time that a user would wait.
    eventually(SHORT, "the emulated machine answers in time", || {
        let mut join = whim(&["join", &host, "--name", "b"]);
        let said = process::output_fed(&mut join, &token, SHORT)?;
        print!("{}", String::from_utf8_lossy(&said.stderr));
        Ok(said.status.success().then_some(()))
    })?;
    eventually(SHORT, "the machines know each other", || {
        let ours = process::succeed(&mut whim(&["nodes", "--json"]), SHORT)?;
        let its = machine.run("whim nodes --json")?;
        let up = |rows: &str| rows.matches("\"state\":\"up\"").count() == 2;
        Ok((up(&ours) && up(&its)).then_some(()))
    })?;
    let mut sleeper = Running::spawn(&mut whim(&["run", "--", "sleep", "1000"]))?;
    let pid = eventually(SHORT, "the program runs", || {
        let rows = process::succeed(&mut whim(&["ps", "--json"]), SHORT)?;
        let row = rows.lines().find(|row| row.contains("sleep 1000"));
        let row = row.and_then(|row| serde_json::from_str::<serde_json::Value>(row).ok());
        Ok(row.map(|row| row["pid"].to_string()))
    })?;
    let refused = process::output(&mut whim(&["migrate", &pid, "a"]), SHORT)?;
    let ours = String::from_utf8_lossy(&refused.stderr).into_owned();
    sleeper.signal(nix::sys::signal::Signal::SIGKILL);
    let its = machine.ask(
        "whim run -- sleep 1000 & pid=$!; sleep 3; whim migrate $pid b; status=$?; kill $pid; exit $status",
        SHORT,
    )?;
    println!("{ours}{}", its.errors);
    ensure!(
        refused.status.code() == Some(1) && its.status == 1,
        "{ours}{its:?}"
    );
    for (said, node) in [(&ours, "a"), (&its.errors, "b")] {
        let expected = format!("Node {node} is of another kind than this one: its CPU");
        ensure!(said.contains(&expected), "{said}");
    }
    drop(_daemon);
    let _ = std::fs::remove_dir_all(&room);
    Ok(())
}

/// A port of the loopback device that nobody has at the moment.
fn free_port() -> Result<u16> {
    Ok(TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port())
}
