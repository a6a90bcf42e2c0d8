use super::*;
use crate::snapshot::{Guests, Members, Processes};
use std::collections::{BTreeMap, BTreeSet};

/// A snapshot in which every value is known, and none is 0.
fn full() -> Snapshot {
    let mut processes = Processes::default();
    for state in State::ALL {
        for place in Place::ALL {
            processes.add(*state, *place);
        }
    }
    Snapshot {
        load_ratio: 0.5,
        cpus: 2.0,
        throttled_cpus: 0.25,
        speed_ratio: 1.5,
        memory_total_bytes: 8.0 * 1_073_741_824.0,
        memory_available_bytes: 4.0 * 1_073_741_824.0,
        memory_promised_bytes: 1_073_741_824.0,
        cpu_pressure_ratio: Some(0.1),
        memory_pressure_ratio: Some(0.2),
        blocked: true,
        stays: true,
        draining: true,
        guests: Guests {
            starting: 1,
            started: 2,
        },
        processes,
        members: Members {
            up: 3,
            suspect: 1,
            down: 1,
            draining: 1,
        },
        certificate_remaining_seconds: Some(86_400.0),
        balances: true,
        daemon_cpu_seconds: 1.25,
        daemon_resident_bytes: 20.0 * 1_048_576.0,
        daemon_start_seconds: 1.7e9,
    }
}

/// Increases every counter.
fn moved(counters: &Counters) {
    for cause in Cause::ALL {
        counters.move_begun(cause);
        counters.move_done(cause, 4096, 0.012, 0.2);
        counters.move_failed(cause, Phase::Transfer);
    }
    Phase::ALL
        .into_iter()
        .for_each(|phase| counters.move_failed(Cause::User, phase));
    Refusal::ALL
        .iter()
        .for_each(|reason| counters.move_refused(*reason));
    counters.guest_admitted();
    Unadmitted::ALL
        .iter()
        .for_each(|reason| counters.guest_refused(*reason));
    counters.looked(Verdict::ALL.iter().copied());
    counters.link_lost();
    counters.link_healed();
    counters.history_lost();
}

/// Values of each family, by the name in its TYPE line.
fn families(text: &str) -> BTreeMap<String, Vec<f64>> {
    let mut families: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    let mut family = String::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            family = rest.split(' ').next().expect("a name").to_owned();
            families.insert(family.clone(), Vec::new());
        } else if !line.starts_with('#') {
            assert!(line.starts_with(&family), "{line} stands below {family}");
            let value = line.rsplit(' ').next().expect("a value");
            let values = families.get_mut(&family).expect("its type came before");
            values.push(value.parse().expect("a number"));
        }
    }
    families
}

#[test]
fn every_series_is_set_by_something() {
    let metrics = Metrics::new("1.2.3");
    moved(metrics.counters());
    let text = metrics.text(&full(), Format::Plain);
    for (family, values) in families(&text) {
        assert!(!values.is_empty(), "{family} has no series");
        // The lower buckets of a histogram may well be empty.
        let dead = values.iter().filter(|value| **value == 0.0).count();
        let histogram = text.contains(&format!("# TYPE {family} histogram"));
        assert!(dead == 0 || histogram && dead < values.len(), "{family}");
    }
}

#[test]
fn all_series_are_there_before_anything_has_happened() {
    let count = |metrics: &Metrics| metrics.text(&full(), Format::Plain).lines().count();
    let (fresh, used) = (Metrics::new("1"), Metrics::new("1"));
    moved(used.counters());
    assert_eq!(count(&fresh), count(&used));
    // Nothing that runs on a node adds a series.
    assert!(count(&fresh) < 250, "{}", count(&fresh));
}

#[test]
fn what_is_not_known_has_no_series() {
    let metrics = Metrics::new("1");
    let known = metrics.text(&full(), Format::Plain);
    assert!(known.contains("\nwhim_certificate_remaining_seconds 86400.0\n"));
    let unknown = Snapshot {
        certificate_remaining_seconds: None,
        cpu_pressure_ratio: None,
        memory_pressure_ratio: None,
        ..full()
    };
    let text = metrics.text(&unknown, Format::Plain);
    for name in [
        "whim_certificate_remaining_seconds ",
        "whim_node_cpu_pressure_ratio ",
        "whim_node_memory_pressure_ratio ",
    ] {
        assert!(known.contains(&format!("\n{name}")), "{known}");
        assert!(!text.contains(&format!("\n{name}")), "{text}");
    }
}

#[test]
fn both_forms_tell_the_same() {
    let metrics = Metrics::new("1.2.3");
    moved(metrics.counters());
    let values = |text: &str| -> BTreeSet<String> {
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        lines.map(str::to_owned).collect()
    };
    let open = metrics.text(&full(), Format::OpenMetrics);
    let plain = metrics.text(&full(), Format::Plain);
    assert!(open.ends_with("# EOF\n") && !plain.contains("# EOF"));
    assert_eq!(values(&open), values(&plain));
    assert!(plain.contains("whim_build_info{version=\"1.2.3\"} 1.0\n"));
    assert!(plain.contains("# TYPE whim_moves_done_total counter\n"));
    assert!(plain.contains("\nwhim_processes{state=\"in-doubt\",place=\"elsewhere\"} 1.0\n"));
}

#[test]
fn names_tell_their_unit_and_have_help() {
    let text = Metrics::new("1").text(&full(), Format::Plain);
    for family in families(&text).keys() {
        assert!(family.starts_with("whim_"), "{family}");
        let help = format!("# HELP {family} ");
        assert!(text.contains(&help), "{family} has no help");
        let quantity = ["memory", "time", "duration", "freeze", "cpu_", "sent"];
        let units = [
            "_bytes",
            "_seconds",
            "_ratio",
            "_bytes_total",
            "_seconds_total",
        ];
        if quantity.iter().any(|word| family.contains(word)) {
            let named = units.iter().any(|unit| family.ends_with(unit));
            assert!(named, "{family} has no unit");
        }
    }
}

#[test]
fn every_metric_is_in_the_documentation_and_nothing_else() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/metrics.md");
    let document = std::fs::read_to_string(path).expect("docs/metrics.md");
    let text = Metrics::new("1").text(&full(), Format::Plain);
    let defined: BTreeSet<String> = families(&text).into_keys().collect();
    let rows = document.lines().filter_map(|line| {
        let name = line.strip_prefix("| `whim_")?.split('`').next()?;
        Some(format!("whim_{name}"))
    });
    let documented: BTreeSet<String> = rows.collect();
    assert_eq!(defined, documented);
}
