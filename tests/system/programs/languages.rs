//! Programs for interpreters and run-time systems, which have threads and tricks of their own.

use whim_system_tests::program::{Launch, Program, Setup, interpreted};
use whim_system_tests::{Result, guest};

/// The distribution's own, which is the one that numpy is installed for.
pub(super) const PYTHON: &str = "/usr/bin/python3";

pub(super) const PROGRAMS: &[Program] = &[
    Program::new("python_numeric", 200, |s| python(s, "numeric.py"))
        .runs(20)
        .not_in_gate(),
    Program::new("python_threads", 1500, |s| python(s, "threads.py")),
    Program::new("python_subprocess", 130, |s| python(s, "children.py")).not_in_gate(),
    Program::new("python_sockets", 500, |s| python(s, "sockets.py")),
    Program::new("python_sqlite3", 120, |s| python(s, "database.py")),
    Program::new("python_imports", 12, |s| python(s, "imports.py")).not_in_gate(),
    Program::new("python_numpy", 90, |s| python(s, "arrays.py")).not_in_gate(),
    Program::new("java_threads", 100, |s| java(s, "Work")).between_kernels(),
    Program::new("java_sockets", 60, |s| java(s, "Echo")).not_in_gate(),
    Program::new("go_goroutines", 70, go)
        .runs(20)
        .between_kernels()
        .not_in_gate(),
    Program::new("go_http", 80, go_http),
    Program::new("node_workers", 90, |s| {
        interpreted("node", "workers.js", s.size)
    })
    .not_in_gate(),
    Program::new("node_timers", 50, |s| {
        interpreted("node", "timers.js", s.size)
    })
    .between_kernels(),
    Program::new("node_files", 130, |s| {
        interpreted("node", "files.js", s.size)
    })
    .not_in_gate(),
];

fn python(setup: &Setup<'_>, source: &str) -> Result<Launch> {
    let mut launch = interpreted(PYTHON, source, setup.size)?;
    // The guests' directory is part of the sources: nothing is to be written there.
    launch.command.insert(1, "-B".to_owned());
    Ok(launch)
}

fn java(setup: &Setup<'_>, class: &str) -> Result<Launch> {
    let classes = guest::java(class)?.display().to_string();
    let size = setup.size.to_string();
    Ok(Launch::new([
        "java", "-Xmx256m", "-cp", &classes, class, &size,
    ]))
}

fn go(setup: &Setup<'_>) -> Result<Launch> {
    let program = guest::go("work")?.display().to_string();
    Ok(Launch::new([program, setup.size.to_string()]))
}

fn go_http(setup: &Setup<'_>) -> Result<Launch> {
    let program = guest::go("client")?.display().to_string();
    let launch = Launch::new([program, "{ready}".to_owned(), setup.size.to_string()]);
    Ok(launch.with_companion(server()?))
}

/// A web server that does not move.
pub(super) fn server() -> Result<[String; 3]> {
    let source = guest::script("http_server.py")?.display().to_string();
    Ok([PYTHON.to_owned(), "-B".to_owned(), source])
}
