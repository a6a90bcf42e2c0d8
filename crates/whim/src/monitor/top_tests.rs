use super::*;
use crate::monitor::drawn;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use whim_monitor::feed::Update;

/// As a daemon tells of nodes n1 to n3, and of programs that compute.
fn model() -> Model {
    let mut model = Model::default();
    for number in 1..=3 {
        let line = format!(
            r#"{{"update":"node","name":"n{number}","state":"up","load":1.5,"speed":1.0,"cpus":2.0,
               "memory_total_bytes":8589934592,"memory_available_bytes":4294967296,"guests":0,"class":"a-b"}}"#
        );
        tell(&mut model, &line);
    }
    for (pid, place, cpu, command) in [
        (11, "n1", 12.0, "sh build.sh"),
        (12, "n2", 99.5, "/usr/bin/xz -9 big"),
        (13, "n3", 50.0, "python3 sweep.py"),
    ] {
        let state = if place == "n1" { "home" } else { "away" };
        let line = format!(
            r#"{{"update":"process","pid":{pid},"home":"n1","where":"{place}","state":"{state}","reason":null,
               "moves":1,"cpu_percent":{cpu},"cpu_seconds":75.5,"memory_bytes":1048576,"stay":null,"user":"ada","parent":11,
               "home_supervisor_pid":null,"guest_supervisor_pid":null,"command":"{command}"}}"#
        );
        tell(&mut model, &line);
    }
    tell(&mut model, r#"{"update":"tick","time_ms":1000}"#);
    model
}

fn tell(model: &mut Model, line: &str) {
    let update: Update = serde_json::from_str(line).expect("a line");
    model.apply(update);
}

fn screen(top: &mut Top, model: &Model) -> Vec<String> {
    drawn(top, model, 12)
}

fn press(top: &mut Top, model: &Model, keys: &[KeyCode]) -> Order {
    let mut last = Order::Nothing;
    for key in keys {
        last = top.key(KeyEvent::from(*key), model);
    }
    last
}

fn key(pid: i32) -> Key {
    Key {
        home: "n1".into(),
        pid,
    }
}

#[test]
fn the_list_shows_who_is_where() {
    let (mut top, model) = (Top::default(), model());
    let lines = screen(&mut top, &model);
    assert!(
        lines[0].contains("3 of 3 nodes up   3 programs, 2 away   3 moves"),
        "{lines:#?}"
    );
    assert!(
        lines[1].contains("4.5 of 6.0]") && lines[2].contains("12.0 GiB of 24.0 GiB]"),
        "{lines:#?}"
    );
    assert!(lines[3].contains("CPU%▽"), "{lines:#?}");
    let words: Vec<&str> = lines[4].split_whitespace().collect();
    assert_eq!(
        words,
        [
            "12", "n1", "n2", "ada", "away", "1", "99.5", "1:15.50", "1.0", "MiB", "xz", "-9",
            "big"
        ]
    );
    assert!(lines[6].contains("sh build.sh"), "{lines:#?}");
    assert!(lines[11].contains("F1Help"), "{lines:#?}");
}

#[test]
fn keys_sort_filter_and_grow_a_tree() {
    let (mut top, model) = (Top::default(), model());
    press(&mut top, &model, &[KeyCode::Char('N')]);
    assert!(screen(&mut top, &model)[4].contains("sh build.sh"));
    press(&mut top, &model, &[KeyCode::Char('I')]);
    assert!(screen(&mut top, &model)[4].contains("sweep.py"));
    let filter = [
        KeyCode::F(4),
        KeyCode::Char('x'),
        KeyCode::Char('z'),
        KeyCode::Enter,
    ];
    press(&mut top, &model, &filter);
    let lines = screen(&mut top, &model);
    assert!(
        lines[4].contains("xz -9") && lines[5].trim().is_empty(),
        "{lines:#?}"
    );
    press(&mut top, &model, &[KeyCode::Esc, KeyCode::F(5)]);
    let lines = screen(&mut top, &model);
    assert!(
        lines[4].contains(" sh build.sh") && lines[5].contains("└─ python3"),
        "{lines:#?}"
    );
    press(
        &mut top,
        &model,
        &[KeyCode::F(6), KeyCode::End, KeyCode::Enter],
    );
    assert_eq!(top.choice.column, Column::Command);
}

#[test]
fn the_chosen_one_stays_chosen_while_lines_change_places() {
    let (mut top, mut model) = (Top::default(), model());
    screen(&mut top, &model);
    press(&mut top, &model, &[KeyCode::Down]);
    assert_eq!(top.chosen, Some(key(13)));
    let busier = r#"{"update":"process","pid":13,"home":"n1","where":"n3","state":"away","reason":null,"moves":1,
        "cpu_percent":100.0,"memory_bytes":1,"stay":null,"home_supervisor_pid":null,
        "guest_supervisor_pid":null,"command":"python3 sweep.py"}"#;
    tell(&mut model, busier);
    assert!(screen(&mut top, &model)[4].contains("sweep.py"));
    assert_eq!(top.chosen, Some(key(13)));
    let search = [
        KeyCode::Char('/'),
        KeyCode::Char('s'),
        KeyCode::Char('h'),
        KeyCode::Enter,
    ];
    press(&mut top, &model, &search);
    assert_eq!(top.chosen, Some(key(11)));
}

#[test]
fn orders_name_the_chosen_program() {
    let (mut top, model) = (Top::default(), model());
    screen(&mut top, &model);
    let to_third = [KeyCode::Char('m'), KeyCode::End, KeyCode::Enter];
    let order = press(&mut top, &model, &to_third);
    assert_eq!(
        order,
        Order::Move {
            key: key(12),
            to: "n3".into()
        }
    );
    let order = press(&mut top, &model, &[KeyCode::Char('m'), KeyCode::Enter]);
    assert_eq!(
        order,
        Order::Move {
            key: key(12),
            to: "home".into()
        }
    );
    let order = press(
        &mut top,
        &model,
        &[KeyCode::F(9), KeyCode::Down, KeyCode::Enter],
    );
    assert_eq!(
        order,
        Order::Signal {
            key: key(12),
            signal: Signal::SIGKILL
        }
    );
    assert_eq!(
        press(&mut top, &model, &[KeyCode::Char('k'), KeyCode::Esc]),
        Order::Nothing
    );
    assert_eq!(
        press(&mut top, &model, &[KeyCode::Char('w')]),
        Order::Why(key(12))
    );
    assert_eq!(press(&mut top, &model, &[KeyCode::Char('q')]), Order::Quit);
    // Nobody is there to be moved.
    let (mut top, empty) = (Top::default(), Model::default());
    screen(&mut top, &empty);
    assert_eq!(
        press(&mut top, &empty, &[KeyCode::Char('m'), KeyCode::Enter]),
        Order::Nothing
    );
}

#[test]
fn a_held_picture_does_not_change() {
    let (mut top, mut model) = (Top::default(), model());
    press(&mut top, &model, &[KeyCode::Char(' ')]);
    tell(
        &mut model,
        r#"{"update":"process-gone","home":"n1","pid":12}"#,
    );
    assert!(screen(&mut top, &model)[4].contains("xz -9"));
    press(&mut top, &model, &[KeyCode::Char(' ')]);
    assert!(!screen(&mut top, &model)[4].contains("xz -9"));
}

#[test]
fn a_small_terminal_is_no_reason_to_fail() {
    let (mut top, model) = (Top::default(), model());
    for (width, height) in [(1, 1), (20, 3), (10, 40)] {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("a terminal");
        for keys in [
            KeyCode::F(1),
            KeyCode::Esc,
            KeyCode::F(6),
            KeyCode::Esc,
            KeyCode::Char('m'),
        ] {
            press(&mut top, &model, &[keys]);
            terminal
                .draw(|frame| top.draw(frame, &model))
                .expect("drawn");
        }
        press(&mut top, &model, &[KeyCode::Esc]);
    }
}

#[test]
fn what_keeps_a_program_is_told_before_it_is_moved() {
    let (mut top, mut model) = (Top::default(), model());
    let row = |pid: i32, stay: &str, reason: &str, state: &str| {
        format!(
            r#"{{"update":"process","pid":{pid},"home":"n1","where":"n1","state":"{state}","reason":{reason},
               "moves":0,"cpu_percent":200.0,"memory_bytes":1,"stay":{stay},"user":"ada",
               "home_supervisor_pid":null,"guest_supervisor_pid":null,"command":"x"}}"#
        )
    };
    let stay = r#""It has a device open.""#;
    tell(&mut model, &row(14, stay, "null", "home"));
    let lines = screen(&mut top, &model);
    assert!(lines[4].contains(" stays "), "{lines:#?}");
    assert!(lines[4].contains(" x  (It has a device"), "{lines:#?}");
    // The first drawing chooses; from then on the line above the keys is about the chosen one.
    let lines = screen(&mut top, &model);
    assert!(
        lines[10].contains("n1:14 stays: It has a device open."),
        "{lines:#?}"
    );
    tell(&mut model, &row(14, "null", "null", "moving"));
    let lines = screen(&mut top, &model);
    assert!(lines[4].contains(" moving "), "{lines:#?}");
    assert!(lines[10].contains("n1:14 can move"), "{lines:#?}");
}

#[test]
fn an_overloaded_cluster_is_told_in_words_and_sorted_by_time() {
    let (mut top, mut model) = (Top::default(), model());
    let line = r#"{"update":"node","name":"n1","state":"up","load":90.0,"speed":1.0,"cpus":0.5,
        "memory_total_bytes":8589934592,"memory_available_bytes":4294967296,"guests":0,"class":"a-b"}"#;
    tell(&mut model, line);
    let busy = r#"{"update":"process","pid":13,"home":"n1","where":"n3","state":"away","reason":null,"moves":1,
        "cpu_percent":1.0,"cpu_seconds":7509.0,"memory_bytes":1,"stay":null,"home_supervisor_pid":null,
        "guest_supervisor_pid":null,"command":"python3 sweep.py"}"#;
    tell(&mut model, busy);
    press(&mut top, &model, &[KeyCode::Char('T')]);
    let lines = screen(&mut top, &model);
    assert!(lines[0].contains("1 overloaded: n1 180x"), "{lines:#?}");
    assert!(
        lines[1].contains("overloaded 21x, 93.0 of 4.5]"),
        "{lines:#?}"
    );
    assert!(lines[3].contains("TIME+▽"), "{lines:#?}");
    assert!(lines[4].contains("2h05:09"), "{lines:#?}");
}
