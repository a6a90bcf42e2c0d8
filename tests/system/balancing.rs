//! The cluster balances itself, and can say why. What is checked here is order and outcome; how long things
//! take is measured by `make bench`.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use serde_json::Value;

use whim_system_tests::process::eventually;
use whim_system_tests::terminal::Terminal;
use whim_system_tests::{Case, Cluster, Context, Result, Running, Talk, bail, case, ensure};

/// A decision may have to wait for the minute's own (see `whim_balance::pace`), on a busy machine.
const QUARTERS: &[&str] = &["--cpu", "0.4,0.4,0.4,0.4"];
const PATIENCE: Duration = Duration::from_secs(100);
/// So often a program may come home for another reason than the one that is looked for.
const CALLS_MAX: u32 = 3;
/// Looks at a file four times a second, and does what it says until that is `end`: `compute`; `read`, which is
/// asking home again and again; `wait`, for a line.
const OBEDIENT: &str = "import os, sys, time
print('ready', os.getpid(), flush=True)
data = os.open('data', os.O_RDWR | os.O_CREAT)
os.pwrite(data, b'x' * 65536, 0)
count = 0
while True:
    with open('order') as order: what = order.read()
    until = time.monotonic() + 0.25
    if what == 'end': break
    elif what == 'wait': print(2 * sys.stdin.readline().strip(), flush=True)
    elif what == 'read':
        while time.monotonic() < until: count += len(os.pread(data, 512, count % 65536))
    else:
        while time.monotonic() < until:
            for _ in range(1000): count += 1
print('done', count > 0, flush=True)";

pub(crate) fn cases() -> Vec<Case> {
    let two = &["--cpu", "0.4,0.4"];
    vec![
        case("spreads_and_says_why", 3, &["--cpu", "0.3,0.3,0.3"], spread),
        case("full::a_reader_comes_home_and_leaves_again", 2, two, reader),
        case("full::a_script_of_forks_stays", 2, two, forks),
        case("who_waits_at_a_terminal_comes_home", 2, two, terminal),
        case("full::an_interactive_one_stays", 2, two, interactive),
        case("what_a_user_places_stays_there", 2, two, placed),
        case(
            "no_decision_is_told_from_before_a_move",
            2,
            two,
            after_a_move,
        ),
        case("who_was_told_to_stay_stays", 2, two, told),
        case("why_the_last_try_failed", 2, two, failed),
        case("memory_is_ushered", 3, &["--memory", "512M"], memory),
        case(
            "full::twice_as_fast_has_twice_as_many",
            2,
            &["--cpu", "0.6,0.3"],
            twice,
        ),
        Case::in_lab("balancing::nothing_moves_where_it_is_off", 2, off),
        case("full::hogs_come_to_rest", 4, QUARTERS, |cluster| {
            rest(cluster, None)
        }),
        case(
            "full::squares_of_1_s_come_to_rest",
            4,
            QUARTERS,
            |cluster| rest(cluster, Some(1)),
        ),
        case(
            "full::squares_of_10_s_come_to_rest",
            4,
            QUARTERS,
            |cluster| rest(cluster, Some(10)),
        ),
        case(
            "full::squares_of_60_s_come_to_rest",
            4,
            QUARTERS,
            |cluster| rest(cluster, Some(60)),
        ),
        case("full::some_of_many_are_asked", 11, &[], asked),
        Case::new("balancing::full::memory_is_ushered_20_times", |_| {
            usher_often()
        }),
    ]
}

fn case(
    name: &str,
    nodes: usize,
    options: &'static [&'static str],
    body: fn(&Cluster) -> Result<()>,
) -> Case {
    Case::new(format!("balancing::{name}"), move |_| {
        let cluster = Cluster::balancing(nodes, options)?;
        cluster.explaining(|| body(&cluster))
    })
}

/// Writes an order in one step: it may be read just now.
pub(crate) fn tell(file: &Path, order: &str) -> Result<()> {
    let next = file.with_extension("next");
    fs::write(&next, order)?;
    Ok(fs::rename(next, file)?)
}

/// One that does what its file says.
pub(crate) struct Obedient {
    talk: Talk,
    pub(crate) pid: i32,
    order: PathBuf,
}

impl Obedient {
    pub(crate) fn start(
        cluster: &Cluster,
        name: &str,
        options: &[&str],
        order: &str,
    ) -> Result<Self> {
        let directory = cluster.directory().join(name);
        fs::create_dir_all(&directory)?;
        let file = directory.join("order");
        fs::write(&file, order)?;
        let python = ["python3", "-c", OBEDIENT];
        let (talk, pid) = Talk::run_in(cluster, name, options, &python)?;
        Ok(Self {
            talk,
            pid,
            order: file,
        })
    }

    pub(crate) fn tell(&self, order: &str) -> Result<()> {
        tell(&self.order, order)
    }

    pub(crate) fn end(mut self) -> Result<()> {
        self.tell("end")?;
        let said = self.talk.line()?;
        ensure!(said == "done True", "It said {said}");
        Ok(())
    }
}

/// Programs that compute on n1 and stay there.
pub(crate) fn busy(cluster: &Cluster, count: usize) -> Result<Vec<Running>> {
    let hog = ["sh", "-c", "while :; do :; done"];
    let start = || Running::spawn(&mut cluster.command("n1", &hog));
    (0..count).map(|_| start()).collect()
}

pub(crate) fn await_place(cluster: &Cluster, pid: i32, node: &str) -> Result<()> {
    eventually(PATIENCE, &format!("{pid} is on {node}"), || {
        let row = cluster
            .row(pid)?
            .with_context(|| format!("{pid} is gone"))?;
        Ok((row.place == node && row.state != "moving").then_some(()))
    })
}

fn why(cluster: &Cluster, pid: i32) -> Result<String> {
    cluster.whim("n1", &["why", &pid.to_string()])
}

fn await_why(cluster: &Cluster, pid: i32, sentence: &str) -> Result<()> {
    eventually(
        PATIENCE,
        &format!("'whim why {pid}' says '{sentence}'"),
        || Ok(why(cluster, pid)?.contains(sentence).then_some(())),
    )
}

/// In a large cluster, here one of eleven, a node asks some others before it moves anything. Without that it
/// would know nothing fresh: everybody tells one node a second, chosen by chance.
fn asked(cluster: &Cluster) -> Result<()> {
    cluster.configure("n1", "[balance]\nask_above = 3\n")?;
    cluster.restart_daemon("n1")?;
    let start = |name: &&str| Obedient::start(cluster, name, &[], "compute");
    let programs: Vec<Obedient> = ["one", "two", "three", "four"]
        .iter()
        .map(start)
        .collect::<Result<_>>()?;
    // The machine has fewer cores than the nodes together claim: that all of them leave is not said.
    eventually(PATIENCE, "programs leave n1", || {
        let rows = cluster.rows("n1", false)?;
        let away = rows.iter().filter(|row| row.place != "n1");
        Ok((away.count() >= 2).then_some(()))
    })?;
    programs.into_iter().try_for_each(Obedient::end)
}

/// What was decided about a process, the last one last.
fn decided(cluster: &Cluster, pid: i32) -> Result<Vec<String>> {
    let log = cluster.log()?;
    let of_it = log
        .iter()
        .filter(|row| row["what"] == "decided" && row["pid"] == pid);
    Ok(of_it
        .filter_map(|row| row["text"].as_str().map(str::to_owned))
        .collect())
}

fn spread(cluster: &Cluster) -> Result<()> {
    let names = ["one", "two", "three"];
    let start = |name: &&str| Obedient::start(cluster, name, &[], "compute");
    let programs: Vec<Obedient> = names.iter().map(start).collect::<Result<_>>()?;
    eventually(PATIENCE, "each has a node of its own", || {
        let mut places = Vec::new();
        for row in cluster.rows("n1", false)? {
            if row.state != "moving" {
                places.push(row.place);
            }
        }
        places.sort();
        Ok((places == ["n1", "n2", "n3"]).then_some(()))
    })?;
    for program in &programs {
        let decisions = decided(cluster, program.pid)?;
        let at_home = cluster.place(program.pid)? == "n1";
        ensure!(
            at_home || !decisions.is_empty(),
            "{} left without a decision",
            program.pid
        );
        for decision in &decisions {
            let has_numbers = decision.contains("programs wait ")
                && decision.contains("% of the strain that it takes off n1");
            ensure!(
                decision.starts_with("From n1 to n") && has_numbers,
                "{decision}"
            );
        }
    }
    for program in programs {
        program.end()?;
    }
    Ok(())
}

/// It leaves home to compute, and is called home when it reads there. Other work on this machine can make
/// its host a bad place before it is seen how much it asks: then it comes home for that, and once more.
fn called_home(cluster: &Cluster, program: &Obedient) -> Result<()> {
    let mut decisions = Vec::new();
    for _ in 0..CALLS_MAX {
        program.tell("compute")?;
        await_place(cluster, program.pid, "n2")?;
        program.tell("read")?;
        await_place(cluster, program.pid, "n1")?;
        decisions = decided(cluster, program.pid)?;
        let last = decisions.last().context("Nothing was decided")?;
        if last.starts_with("From n2 to n1, since most of what it does is asking home") {
            return Ok(());
        }
    }
    bail!("It was never called home for what it asks: {decisions:?}")
}

fn reader(cluster: &Cluster) -> Result<()> {
    let hogs = busy(cluster, 1)?;
    let program = Obedient::start(cluster, "reader", &[], "compute")?;
    called_home(cluster, &program)?;
    numbers_are_those_of_the_record(cluster, program.pid)?;
    program.tell("compute")?;
    await_place(cluster, program.pid, "n2")?;
    drop(hogs);
    program.end()
}

/// What `whim why` says is what was decided.
fn numbers_are_those_of_the_record(cluster: &Cluster, pid: i32) -> Result<()> {
    let weighed = eventually(PATIENCE, "the nodes have been weighed for it", || {
        let told = cluster.whim("n1", &["why", "--json", &pid.to_string()])?;
        let told: Value = serde_json::from_str(&told)?;
        let stay = &told["decision"]["verdict"]["stay"];
        let numbers = [&stay["NotCheaper"], &stay["NotWorth"]];
        let numbers = numbers.into_iter().find(|numbers| numbers.is_object());
        Ok(numbers.cloned().map(|numbers| (numbers, told)))
    })?;
    let (numbers, told) = weighed;
    let number = |name: &str| {
        numbers[name]
            .as_f64()
            .with_context(|| format!("No {name} in {numbers}"))
    };
    let sentence = format!(
        "n2 gets {:.0}% of the strain that it takes off n1,",
        100.0 * number("adds")? / number("relieves")?
    );
    let sentences = told["sentences"].to_string();
    ensure!(
        sentences.contains(&sentence),
        "{sentence} is not in {sentences}"
    );
    ensure!(told["decision"]["nodes"]["n2"] == numbers["to"], "{told}");
    Ok(())
}

/// What was decided of a program where it was before is not told of it where it is.
fn after_a_move(cluster: &Cluster) -> Result<()> {
    let program = Obedient::start(cluster, "moved", &[], "compute")?;
    let before = "no node is better by enough: to n2";
    await_why(cluster, program.pid, before)?;
    cluster.move_to(program.pid, "n2")?;
    let said = why(cluster, program.pid)?;
    ensure!(!said.contains(before), "{said}");
    program.end()
}

fn forks(cluster: &Cluster) -> Result<()> {
    let hogs = busy(cluster, 2)?;
    let script =
        "echo ready $$; n=0; while [ -e go ]; do n=$((n + 1)); /bin/true; done; echo $((n > 99))";
    let directory = cluster.directory().join("forks");
    fs::create_dir_all(&directory)?;
    fs::write(directory.join("go"), "")?;
    let (mut talk, pid) = Talk::run_in(cluster, "forks", &[], &["sh", "-c", script])?;
    // A node without anything to do is next to it, and still it is not worth while.
    await_why(cluster, pid, "trips home a second")?;
    eventually(PATIENCE, "it has been weighed many times", || {
        let said = why(cluster, pid)?;
        let weighed = said.contains("it stays, since a move costs more than it gains")
            || said.contains("it stays, since no node is better by enough")
            || said.contains("it wants 0.");
        let age: u32 = cluster
            .run("n1", &["ps", "-o", "etimes=", "-p", &pid.to_string()])?
            .trim()
            .parse()?;
        Ok((weighed && age >= 8).then_some(()))
    })?;
    let row = cluster.row(pid)?.context("It is gone")?;
    ensure!(row.moves == 0, "{row:?}");
    fs::remove_file(directory.join("go"))?;
    let said = talk.line()?;
    ensure!(said == "1", "It said {said}");
    drop(hogs);
    Ok(())
}

/// One that does what a file says, before a user: the terminal, its pid, and the file.
pub(crate) fn at_terminal(cluster: &Cluster) -> Result<(Terminal, i32, PathBuf)> {
    let directory = cluster.directory().join("terminal");
    fs::create_dir_all(&directory)?;
    fs::write(directory.join("order"), "compute")?;
    let mut command = cluster.run_command("n1", &["python3", "-c", OBEDIENT]);
    command.current_dir(&directory);
    let screen = Terminal::start(&command)?;
    let pid = cluster.find("import os, sys, time")?;
    Ok((screen, pid, directory.join("order")))
}

fn terminal(cluster: &Cluster) -> Result<()> {
    let hogs = busy(cluster, 1)?;
    let (mut screen, pid, order) = at_terminal(cluster)?;
    await_place(cluster, pid, "n2")?;
    tell(&order, "wait")?;
    await_place(cluster, pid, "n1")?;
    let decisions = decided(cluster, pid)?;
    ensure!(
        decisions
            .last()
            .is_some_and(|last| last.contains("it waits for its user at a terminal")),
        "{decisions:?}"
    );
    await_why(cluster, pid, "it stays, since its user sits before it")?;
    tell(&order, "end")?;
    screen.press("key\n")?;
    screen.wait_for("keykey")?;
    screen.wait_for("done True")?;
    drop(hogs);
    Ok(())
}

fn interactive(cluster: &Cluster) -> Result<()> {
    let hogs = busy(cluster, 2)?;
    let program = Obedient::start(
        cluster,
        "interactive",
        &["--class", "interactive"],
        "compute",
    )?;
    let other = Obedient::start(cluster, "batch", &["--class", "batch"], "compute")?;
    await_place(cluster, other.pid, "n2")?;
    ensure!(
        !decided(cluster, other.pid)?.is_empty(),
        "Nothing was decided"
    );
    await_why(cluster, program.pid, "started with '--class interactive'")?;
    ensure!(cluster.place(program.pid)? == "n1");
    drop(hogs);
    other.end()?;
    program.end()
}

fn placed(cluster: &Cluster) -> Result<()> {
    let program = Obedient::start(cluster, "placed", &[], "read")?;
    cluster.move_to(program.pid, "n2")?;
    // It loses there, and goes home as soon as that is the balancer's business.
    await_why(
        cluster,
        program.pid,
        "it stays where its user has just put it",
    )?;
    ensure!(cluster.place(program.pid)? == "n2");
    program.end()
}

fn told(cluster: &Cluster) -> Result<()> {
    let hogs = busy(cluster, 2)?;
    let pinned = Obedient::start(cluster, "pinned", &["--pin"], "compute")?;
    let elsewhere = Obedient::start(cluster, "elsewhere", &["--avoid", "n2"], "compute")?;
    let free = Obedient::start(cluster, "free", &[], "compute")?;
    await_place(cluster, free.pid, "n2")?;
    await_why(cluster, pinned.pid, "it stays, as it was told or has to")?;
    await_why(cluster, elsewhere.pid, "no other node may have it")?;
    for program in [&pinned, &elsewhere] {
        ensure!(cluster.place(program.pid)? == "n1");
    }
    drop(hogs);
    for program in [pinned, elsewhere, free] {
        program.end()?;
    }
    Ok(())
}

/// The other node has as many guests as it takes, which it says when it is asked for room.
fn failed(cluster: &Cluster) -> Result<()> {
    cluster.configure("n2", "[guests]\nmax = 1\n")?;
    cluster.restart_daemon("n2")?;
    crate::orders::knows(cluster, "n2", "state", &"up".into())?;
    let only = Obedient::start(cluster, "only", &[], "compute")?;
    cluster.move_to(only.pid, "n2")?;
    only.tell("wait")?;
    let hogs = busy(cluster, 2)?;
    let free = Obedient::start(cluster, "free", &[], "compute")?;
    await_why(cluster, free.pid, "it stays, since the last try failed")?;
    let said = why(cluster, free.pid)?;
    ensure!(said.contains("(To n2: Node n2 has 1 guest"), "{said}");
    drop(hogs);
    free.end()
}

/// Three that together need more than a node has.
fn memory(cluster: &Cluster) -> Result<()> {
    let eater = "import os, sys, time
print('ready', os.getpid(), flush=True)
b = []
for _ in range(90):
    b.append(bytearray(b'x') * (2 << 20))
    time.sleep(0.1)
sys.stdin.readline()
print(sum(c[0] + c[-1] for c in b), flush=True)";
    ushered(cluster, eater, 90).map(drop)
}

/// One node has twice the share of a core: as many programs are twice as many there.
fn twice(cluster: &Cluster) -> Result<()> {
    let names = ["one", "two", "three", "four", "five", "six"];
    let start = |name: &&str| Obedient::start(cluster, name, &[], "compute");
    let programs: Vec<Obedient> = names.iter().map(start).collect::<Result<_>>()?;
    eventually(PATIENCE, "four are on n1 and two on n2", || {
        let rows = cluster.rows("n1", false)?;
        let settled = rows.iter().filter(|row| row.state != "moving");
        let on = |node: &str| settled.clone().filter(|row| row.place == node).count();
        Ok(((on("n1"), on("n2")) == (4, 2)).then_some(()))
    })?;
    for program in programs {
        program.end()?;
    }
    Ok(())
}

/// One program more than there are nodes, for ten minutes (`WHIM_REST_MINUTES`); each computes all the time, or
/// for so many seconds of twice as many.
fn rest(cluster: &Cluster, half_period: Option<u32>) -> Result<()> {
    let script = match half_period {
        None => "import os\nprint('ready', os.getpid(), flush=True)\nwhile True: pass".to_owned(),
        Some(seconds) => format!(
            "import os, time\nprint('ready', os.getpid(), flush=True)\nwhile True:\n \
             until = time.monotonic() + {seconds}\n while time.monotonic() < until: pass\n \
             time.sleep({seconds})"
        ),
    };
    let start = |_| Talk::run(cluster, &[], &["python3", "-c", &script]);
    let programs: Vec<(Talk, i32)> = (0..5).map(start).collect::<Result<_>>()?;
    let minutes = u64::from(case::number("WHIM_REST_MINUTES")?.unwrap_or(10));
    let settled = now_ms()? + 30_000;
    let end = Instant::now() + Duration::from_secs(30 + 60 * minutes);
    // What is observed is that nothing happens.
    while Instant::now() < end {
        ensure!(
            cluster.rows("n1", false)?.len() == programs.len(),
            "A program is gone"
        );
        std::thread::sleep(Duration::from_secs(5));
    }
    let log = cluster.log()?;
    let for_load = |row: &&Value| {
        let text = row["text"].as_str().unwrap_or_default();
        row["what"] == "decided" && text.contains("since there is less to wait for")
    };
    let moves: Vec<&Value> = log.iter().filter(for_load).collect();
    let after = moves
        .iter()
        .filter(|row| row["time_ms"].as_u64() > Some(settled));
    let times: Vec<u64> = after.filter_map(|row| row["time_ms"].as_u64()).collect();
    println!(
        "{} moves for load, {} of them after 30 s",
        moves.len(),
        times.len()
    );
    for (number, at) in times.iter().enumerate() {
        let within = times[number..]
            .iter()
            .take_while(|other| **other < at + 60_000);
        ensure!(
            within.count() <= 1,
            "More than one move within a minute: {times:?}"
        );
    }
    for (_, pid) in &programs {
        let own = moves.iter().filter(|row| row["pid"] == *pid).count();
        ensure!(own <= 6, "{pid} was moved {own} times");
    }
    Ok(())
}

fn now_ms() -> Result<u64> {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?;
    Ok(u64::try_from(now.as_millis())?)
}

/// Nodes of 2 GiB, and three programs on one of them that grow by 50 MB a second to 800 MB each.
fn usher_often() -> Result<()> {
    let eater = "import os, sys, time
print('ready', os.getpid(), flush=True)
b, next = [], time.monotonic()
for _ in range(160):
    b.append(bytearray(b'x') * 5000000)
    next += 0.1
    time.sleep(max(0, next - time.monotonic()))
sys.stdin.readline()
print(sum(c[0] + c[-1] for c in b), flush=True)";
    let mut longest: u64 = 0;
    for time in 1..=20 {
        let cluster = Cluster::balancing(3, &["--memory", "2G"])?;
        let stalled = cluster.explaining(|| ushered(&cluster, eater, 160))?;
        println!("{time}: memory pressure {stalled} us");
        longest = longest.max(stalled);
        ensure!(
            stalled < 100_000,
            "All stood still for {stalled} us for want of memory"
        );
    }
    println!("at most {longest} us of full memory pressure");
    Ok(())
}

/// Runs three of them on n1; microseconds during which all stood still there for want of memory.
fn ushered(cluster: &Cluster, eater: &str, pieces: usize) -> Result<u64> {
    let start = |_| Talk::run(cluster, &[], &["python3", "-c", eater]);
    let mut eaters: Vec<(Talk, i32)> = (0..3).map(start).collect::<Result<_>>()?;
    for (talk, _) in &mut eaters {
        talk.say("enough")?;
    }
    for (talk, pid) in &mut eaters {
        let said = talk.line()?;
        ensure!(said == (pieces * 2 * 120).to_string(), "{pid} said {said}");
    }
    let mut moved = Vec::new();
    for (_, pid) in &eaters {
        moved.extend(decided(cluster, *pid)?);
    }
    ensure!(
        moved
            .iter()
            .any(|text| text.starts_with("From n1 to n") && text.contains("memory runs out")),
        "{moved:?}"
    );
    let group = cluster.memory_group("n1").context("n1 has no limit")?;
    for file in ["memory.oom_control", "memory.events"] {
        let text = fs::read_to_string(group.join(file)).unwrap_or_default();
        let killed = text.lines().find_map(|line| line.strip_prefix("oom_kill "));
        ensure!(killed.is_none_or(|count| count == "0"), "{text}");
    }
    let most = |file: &str| -> Option<u64> {
        fs::read_to_string(group.join(file))
            .ok()?
            .trim()
            .parse()
            .ok()
    };
    if let (Some(peak), Some(limit)) = (
        most("memory.max_usage_in_bytes").or_else(|| most("memory.peak")),
        most("memory.limit_in_bytes").or_else(|| most("memory.max")),
    ) {
        println!(
            "n1 used {} % of its memory at most",
            peak * 100 / limit.max(1)
        );
    }
    Ok(stalled_us(cluster))
}

/// The total of full memory pressure of n1's group, where the kernel counts it.
fn stalled_us(cluster: &Cluster) -> u64 {
    let group = cluster.pressure_group("n1").unwrap_or_default();
    let text = fs::read_to_string(group.join("memory.pressure")).unwrap_or_default();
    let full = text.lines().find_map(|line| line.strip_prefix("full "));
    let total = full.and_then(|line| line.split("total=").nth(1)?.trim().parse().ok());
    total.unwrap_or(0)
}

fn off(cluster: &Cluster) -> Result<()> {
    let hogs = busy(cluster, 2)?;
    let program = Obedient::start(cluster, "off", &["--class", "batch"], "compute")?;
    await_why(cluster, program.pid, "This node moves nothing by itself")?;
    ensure!(cluster.place(program.pid)? == "n1");
    drop(hogs);
    program.end()
}
