//! Real programs go out, onward and home, between real supervisors on loopback.
//!
//! No test harness: this program is the home supervisor too.

mod support;

use std::io::BufRead;
use support::{Program, World};
use whim_journey::job::HomeJob;

/// Answers each line with its computation; everything it does in between goes home.
const CALCULATOR: &str = "
import sys, os
total = 0
for line in sys.stdin:
    total += int(line)
    print(os.getpid() == int(sys.argv[1]) if len(sys.argv) > 1 else '', total, flush=True)
sys.exit(total % 100)
";

fn python_goes_out_and_home() {
    let world = World::new();
    let mut program = Program::start("python3", &["-c", CALCULATOR]);
    assert_eq!(program.ask("5"), " 5");
    let home = world.home("calc", program.pid());
    let host = world.host("n2", "calc", 1);
    let report = home.travel(&host.slot);
    println!("  out: {:.1} ms frozen, {} bytes", report.freeze_ms, report.bytes);
    for sum in 6..20 {
        assert_eq!(program.ask("1"), format!(" {sum}"));
    }
    let report = home.bring();
    println!("  home: {:.1} ms frozen, {} bytes", report.freeze_ms, report.bytes);
    assert_eq!(program.ask("10"), " 29");
    assert_eq!(program.finish(), 29);
}

fn python_ends_while_away() {
    let world = World::new();
    let mut program = Program::start("python3", &["-c", CALCULATOR]);
    assert_eq!(program.ask("5"), " 5");
    let home = world.home("exit", program.pid());
    let host = world.host("n2", "exit", 1);
    home.travel(&host.slot);
    assert_eq!(program.ask("38"), " 43");
    assert_eq!(program.finish(), 43);
}

fn bash_goes_on_to_a_third_node() {
    let world = World::new();
    let script = "n=0; while read -r line; do n=$((n+line)); echo $n; done; exit 7";
    let mut program = Program::start("bash", &["-c", script]);
    assert_eq!(program.ask("5"), "5");
    let home = world.home("bash", program.pid());
    let second = world.host("n2", "bash", 1);
    home.travel(&second.slot);
    assert_eq!(program.ask("1"), "6");
    let third = world.host("n3", "bash", 2);
    let report = home.travel(&third.slot);
    println!("  onward: {:.1} ms frozen", report.freeze_ms);
    assert_eq!(program.ask("1"), "7");
    home.bring();
    assert_eq!(program.ask("1"), "8");
    assert_eq!(program.finish(), 7);
}

fn home() {
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line).expect("a job");
    let job: HomeJob = serde_json::from_str(&line).expect("a job");
    whim_home::supervisor::run(job).expect("the home supervisor");
}

fn main() {
    let filter = std::env::var("WHIM_LOG").unwrap_or_else(|_| "warn".into());
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    let cases: [(&str, fn()); 3] = [
        ("python_goes_out_and_home", python_goes_out_and_home),
        ("python_ends_while_away", python_ends_while_away),
        ("bash_goes_on_to_a_third_node", bash_goes_on_to_a_third_node),
    ];
    let wanted = std::env::args().nth(1).unwrap_or_default();
    if wanted == "--home" {
        return home();
    }
    for (name, case) in cases {
        if name.contains(&wanted) {
            println!("test {name} ...");
            case();
            println!("test {name} ... ok");
        }
    }
}
