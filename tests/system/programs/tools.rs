//! Tools of a working day: a compiler, a data base, a download, a server.

use std::fmt::Write;
use std::fs;

use whim_system_tests::process::succeed;
use whim_system_tests::program::{Launch, Program, Setup, interpreted};
use whim_system_tests::random::Random;
use whim_system_tests::{Result, ensure, guest, place};

use super::languages::{PYTHON, server};

pub(super) const PROGRAMS: &[Program] = &[
    Program::new("make_gcc_lua", 1, make).runs(20),
    Program::new("sqlite_transactions", 500, sqlite).focus(&["sqlite3"]),
    Program::new("echo_server_100_clients", 250, echo).focus(&["echo_server"]),
    Program::new("curl_big_file", 120, curl).focus(&["curl"]),
];

/// Compiles Lua's interpreter from the distribution's sources with four jobs at once.
fn make(setup: &Setup<'_>) -> Result<Launch> {
    let source = place::toolchain().join("sources/lua5.4/src");
    ensure!(
        source.join("lua.c").is_file(),
        "The sources of lua5.4 are not below {}: run scripts/bootstrap test",
        place::toolchain().display()
    );
    let mut copy = std::process::Command::new("cp");
    copy.arg("-r").arg(&source).arg(setup.prepared.join("src"));
    succeed(&mut copy, std::time::Duration::from_secs(30))?;
    // Equal inputs give equal objects and archives: the files are compared, too.
    let script = "
        set -e
        cp -r ../prepared/src src
        for round in $(seq $1); do
            make -s -C src clean
            make -s -j4 -C src linux MYCFLAGS=-DROUND=$round
            src/lua -e 'local s = 0; for i = 1, 1000000 do s = s + i % 7 end; print(s)'
        done
        src/luac -l -l -p - <<END | grep -v 0x
        local function f(a, b) return a .. b end
        print(f(1, 2))
END";
    Ok(Launch::script("sh", script, setup.size))
}

fn sqlite(setup: &Setup<'_>) -> Result<Launch> {
    let mut random = Random::new(3);
    let mut script = String::from(
        "PRAGMA journal_mode=TRUNCATE;\n\
         CREATE TABLE stock (id INTEGER PRIMARY KEY, name TEXT, amount INTEGER CHECK (amount >= 0));\n\
         CREATE TABLE sale (id INTEGER PRIMARY KEY, stock INT REFERENCES stock, amount INT);\n\
         CREATE TRIGGER sold AFTER INSERT ON sale BEGIN\n\
         UPDATE stock SET amount = amount - new.amount WHERE id = new.stock; END;\n\
         WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1000)\n\
         INSERT INTO stock SELECT i, 'thing ' || i, 1000000 FROM n;\n",
    );
    for round in 0..setup.size {
        script.push_str("BEGIN;\n");
        for _ in 0..40 {
            let (stock, amount) = (1 + random.below(1000), random.below(20));
            writeln!(
                script,
                "INSERT INTO sale (stock, amount) VALUES ({stock}, {amount});"
            )?;
        }
        script.push_str(if round % 9 == 8 {
            "ROLLBACK;\n"
        } else {
            "COMMIT;\n"
        });
        if round % 10 == 0 {
            script.push_str(
                "SELECT count(*), sum(amount) FROM sale;\n\
                 SELECT name, s.amount, count(*), sum(x.amount) FROM stock s JOIN sale x\n\
                 ON x.stock = s.id GROUP BY s.id ORDER BY 4 DESC, 1 LIMIT 2;\n",
            );
        }
    }
    script.push_str("SELECT sum(amount) FROM stock;\nPRAGMA integrity_check;\nVACUUM;\n");
    fs::write(setup.prepared.join("script.sql"), script)?;
    Ok(Launch::script(
        "sh",
        "exec sqlite3 data.db < ../prepared/script.sql",
        setup.size,
    ))
}

fn echo(setup: &Setup<'_>) -> Result<Launch> {
    let server = guest::c("echo_server")?;
    fs::write(setup.prepared.join("server"), server.display().to_string())?;
    let mut launch = interpreted(PYTHON, "echo_clients.py", 100)?;
    launch.command.insert(1, "-B".to_owned());
    launch.command.push(setup.size.to_string());
    Ok(launch)
}

/// Fetches so many megabytes, at a rate that the link and the disk can hold.
fn curl(setup: &Setup<'_>) -> Result<Launch> {
    let address = format!("http://{{ready}}/big/{}", setup.size);
    let launch = Launch::new(
        [
            "curl",
            "-sS",
            "--limit-rate",
            "42M",
            "-o",
            "big",
            "-w",
            "%{size_download}\n",
        ]
        .map(str::to_owned)
        .into_iter()
        .chain([address]),
    );
    Ok(launch.with_companion(server()?))
}
