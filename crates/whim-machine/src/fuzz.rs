//! Entries of fuzz targets in `fuzz/`; their corpus is replayed by the tests of this crate.

use crate::processes::{Stat, parse_stat, parse_status};

/// What /proc says of a process. Its name is chosen by its user, so it must not be taken for
/// anything else.
pub fn processes(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    if let Some(stat) = parse_stat(&text) {
        assert!(text.contains(&stat.name));
    }
    let _ = parse_status(&text, 7);
    let name: Vec<u8> = data
        .iter()
        .copied()
        .filter(|byte| *byte != 0)
        .take(15)
        .collect();
    let shown = String::from_utf8_lossy(&name).into_owned();
    let fields: String = (4..=52).map(|number| format!(" {number}")).collect();
    let expected = Stat {
        pid: 70,
        name: shown.clone(),
        state: 'S',
        parent: 4,
        group: 5,
        terminal: 7,
        foreground: 8,
        reaped_faults: 11,
        cpu_ticks: 14 + 15,
        threads: 20,
        start_time: 22,
        resident_bytes: 24 * 4096,
        code: (26, 27),
    };
    assert_eq!(
        parse_stat(&format!("70 ({shown}) S{fields}\n")),
        Some(expected)
    );
    let escaped = shown.replace('\\', "\\\\").replace('\n', "\\n");
    let rest = "\nTracerPid:\t3\nUid:\t1\t2\t3\t4\nGid:\t5\t6\t7\t8\nGroups:\t9 10 \nCapPrm:\t0000000000000011\n";
    let credentials =
        parse_status(&format!("Name:\t{escaped}{rest}"), 2).expect("as it is written");
    assert_eq!((credentials.uids, credentials.gids), ([1, 2, 3], [5, 6, 7]));
    assert_eq!(
        (credentials.tracer, credentials.permitted_capabilities),
        (3, 0x11)
    );
    assert_eq!(credentials.groups, [9, 10]);
    assert!(credentials.dumpable);
}

#[cfg(test)]
mod tests {
    use whim_corpus::replay;

    #[test]
    fn corpus_of_processes() {
        replay("processes", super::processes);
    }
}
