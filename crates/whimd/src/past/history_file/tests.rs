use super::*;
use crate::past::recorder::Recorder;
use whim_control::history::{Outcome, Sample};

/// A minute of a day in September 2026.
const NOW: u64 = 1_790_000_040_000 / MINUTE * MINUTE;
const DAY: u64 = 24 * 60 * MINUTE;

fn sample(time_ms: u64, load: f64) -> SampleRow {
    let look = Sample {
        load,
        ..Sample::default()
    };
    let mut recorder = Recorder::default();
    recorder.add(time_ms, &look);
    recorder.end().sample.expect("one")
}

fn row(time_ms: u64, pid: i32) -> MoveRow {
    MoveRow {
        time_ms,
        pid,
        program: "program-of-a-usual-name".into(),
        uid: 1000,
        from: "node-17".into(),
        to: "node-18".into(),
        cause: whim_journey::cause::Cause::Load,
        outcome: Outcome::Failed,
        phase: Some("transfer".into()),
        reason: Some("Node node-18 does not answer: it is down".into()),
        bytes: 1 << 30,
        freeze_ms: 12.5,
        total_ms: 250.0,
    }
}

fn batch(time_ms: u64, moves: std::ops::Range<i32>) -> Batch {
    Batch {
        sample: Some(sample(time_ms, 1.0)),
        moves: moves.map(|pid| row(time_ms, pid)).collect(),
    }
}

fn file(directory: &Path) -> HistoryFile {
    HistoryFile::new(directory.join("history.redb"), Keep::Days(1))
}

/// What the file holds: minutes from `NOW` on, and pids.
fn held(file: &mut HistoryFile) -> (Vec<i64>, Vec<i32>) {
    let (samples, moves) = file.read(0, u64::MAX).expect("read");
    let since = |time_ms: u64| (time_ms.cast_signed() - NOW.cast_signed()) / MINUTE.cast_signed();
    (
        samples.iter().map(|sample| since(sample.time_ms)).collect(),
        moves.iter().map(|row| row.pid).collect(),
    )
}

#[test]
fn what_was_written_comes_back_and_what_is_old_goes() {
    let directory = tempfile::tempdir().expect("directory");
    let mut file = file(directory.path());
    assert_eq!(held(&mut file), (vec![], vec![]));
    for minute in 0..3 {
        let pid = i32::try_from(minute).expect("small") * 10;
        let now = NOW + minute * MINUTE;
        file.write(now, &batch(now, pid..pid + 2)).expect("written");
    }
    assert_eq!(held(&mut file), (vec![0, 1, 2], vec![0, 1, 10, 11, 20, 21]));
    let (samples, moves) = file.read(NOW + MINUTE, NOW + 2 * MINUTE).expect("read");
    assert_eq!(samples, [sample(NOW + MINUTE, 1.0)]);
    assert_eq!(moves, [row(NOW + MINUTE, 10), row(NOW + MINUTE, 11)]);
    assert_eq!(file.read(NOW + 1, NOW).expect("read"), (vec![], vec![]));
    // A day and a minute later the first minute is too old.
    let later = NOW + DAY + MINUTE;
    file.write(later, &batch(later, 30..31)).expect("written");
    assert_eq!(held(&mut file).1, [10, 11, 20, 21, 30]);
    // What a wrong clock wrote goes when the clock is right again.
    let wrong = NOW + 300 * DAY;
    file.write(wrong, &batch(wrong, 40..41)).expect("written");
    assert_eq!(held(&mut file).1, [40]);
    file.write(NOW, &batch(NOW, 50..51)).expect("written");
    assert_eq!(held(&mut file), (vec![0], vec![50]));
}

#[test]
fn a_minute_that_was_begun_by_another_daemon_is_finished() {
    let directory = tempfile::tempdir().expect("directory");
    let minute = |load| Batch {
        sample: Some(sample(NOW, load)),
        moves: Vec::new(),
    };
    file(directory.path())
        .write(NOW, &minute(1.0))
        .expect("written");
    let mut second = file(directory.path());
    second.write(NOW, &minute(3.0)).expect("written");
    let (samples, _) = second.read(0, u64::MAX).expect("read");
    let told = samples.iter().map(|s| (s.looks, s.load.min, s.load.max));
    assert_eq!(told.collect::<Vec<_>>(), [(2, 1.0, 3.0)]);
}

#[test]
fn nothing_is_kept_where_nothing_is_wanted() {
    let directory = tempfile::tempdir().expect("directory");
    let path = directory.path().join("history.redb");
    let mut file = HistoryFile::new(path.clone(), Keep::Off);
    assert!(matches!(
        file.write(NOW, &batch(NOW, 0..1)),
        Err(HistoryError::Off)
    ));
    assert!(matches!(file.read(0, 1), Err(HistoryError::Off)));
    assert!(!path.exists());
}

/// What a killed daemon leaves: its file, as it was written.
#[test]
fn what_a_killed_daemon_wrote_is_there() {
    let directory = tempfile::tempdir().expect("directory");
    let mut living = file(directory.path());
    for minute in 0..50 {
        let now = NOW + minute * MINUTE;
        living.write(now, &batch(now, 0..3)).expect("written");
        let copy = tempfile::tempdir().expect("directory");
        fs::copy(&living.path, copy.path().join("history.redb")).expect("copied");
        let mut found = file(copy.path());
        assert_eq!(held(&mut found), held(&mut living));
    }
}

#[test]
fn a_damaged_file_is_set_aside() {
    let directory = tempfile::tempdir().expect("directory");
    let path = directory.path().join("history.redb");
    let mut whole = file(directory.path());
    for minute in 0..40 {
        let now = NOW + minute * MINUTE;
        whole.write(now, &batch(now, 0..5)).expect("written");
    }
    drop(whole);
    let sound = fs::read(&path).expect("read");
    let mut aside = 0;
    let damaged = |length: usize, at: usize| {
        let mut bytes = sound[..length].to_vec();
        bytes
            .iter_mut()
            .skip(at)
            .take(64)
            .for_each(|byte| *byte ^= 0xa5);
        bytes
    };
    let places = (0..sound.len()).step_by(sound.len() / 60);
    let cases = places
        .map(|at| damaged(sound.len(), at))
        .chain([damaged(sound.len() / 2, usize::MAX), damaged(17, 0)])
        .chain([b"no database at all".repeat(4000)]);
    for bytes in cases {
        fs::write(&path, &bytes).expect("written");
        let mut file = file(directory.path());
        match file.read(0, u64::MAX) {
            // No row is there that was hit.
            Ok((samples, moves)) => assert!(samples.len() <= 40 && moves.len() <= 200),
            Err(HistoryError::Damaged {
                path: of,
                aside: to,
                ..
            }) => {
                aside += 1;
                assert_eq!(of, path);
                assert_eq!(fs::read(to).expect("set aside").len(), bytes.len());
            }
            Err(error) => panic!("{error}"),
        }
        // Whatever the damage was, history goes on.
        file.write(NOW, &batch(NOW, 7..8)).expect("written");
        assert!(held(&mut file).1.contains(&7));
        drop(file);
        let _ = fs::remove_file(&path);
    }
    assert!(aside >= 10, "{aside} were seen to be damaged");
}

#[test]
fn the_file_does_not_grow_for_ever() {
    let directory = tempfile::tempdir().expect("directory");
    let mut file = file(directory.path());
    let mut lengths = Vec::new();
    // A look every four minutes, with the moves of these four.
    for look in 0..3 * 360_u64 {
        let now = NOW + look * 4 * MINUTE;
        file.write(now, &batch(now, 0..8)).expect("written");
        if look % 360 == 359 {
            lengths.push(fs::metadata(&file.path).expect("there").len());
        }
    }
    let (samples, moves) = held(&mut file);
    assert!((360..=362).contains(&samples.len()) && moves.len() <= MOVES_TOLD_MAX);
    assert!(
        lengths[2] <= lengths[1] && lengths[1] <= 2 * lengths[0],
        "{lengths:?}"
    );
    assert!(lengths[2] < 4 << 20, "{lengths:?}");
}

#[test]
fn more_samples_than_an_answer_holds_are_put_together() {
    let directory = tempfile::tempdir().expect("directory");
    let mut file = HistoryFile::new(directory.path().join("history.redb"), Keep::Days(30));
    file.write(NOW, &batch(NOW, 0..0)).expect("written");
    let most = SAMPLES_TOLD_MAX;
    // All in one transaction, which nothing but a test does.
    let database = file.database.as_ref().expect("open");
    let transaction = database.begin_write().expect("begun");
    {
        let mut table = transaction.open_table(SAMPLES).expect("table");
        for minute in 1..=most {
            let row = sample(NOW + minute * MINUTE, 1.0);
            table
                .insert(row.time_ms, encode(&row).as_slice())
                .expect("put");
        }
    }
    transaction.commit().expect("committed");
    let (whole, _) = file.read(NOW, NOW + (most - 1) * MINUTE).expect("read");
    assert_eq!(u64::try_from(whole.len()).expect("few"), most - 1);
    let (together, _) = file.read(0, u64::MAX).expect("read");
    assert!(u64::try_from(together.len()).expect("few") <= most);
    let looks: u32 = together.iter().map(|sample| sample.looks).sum();
    assert_eq!(u64::from(looks), most + 1);
}

#[test]
fn of_more_moves_than_their_limits_the_newest_are_kept_and_told() {
    let directory = tempfile::tempdir().expect("directory");
    let mut file = file(directory.path());
    let most = i32::try_from(MOVES_MAX).expect("small");
    let one = |pid: i32| row(NOW + u64::from(pid.unsigned_abs()), pid);
    let moves = |pids: std::ops::Range<i32>| Batch {
        sample: None,
        moves: pids.map(one).collect(),
    };
    let count = |file: &HistoryFile| {
        let database = file.database.as_ref().expect("open");
        let transaction = database.begin_read().expect("read");
        let table = transaction.open_table(MOVES).expect("there");
        table.len().expect("counted")
    };
    file.write(NOW, &moves(0..most)).expect("written");
    assert_eq!(count(&file), MOVES_MAX);
    file.write(NOW, &moves(most..most + 1)).expect("written");
    assert_eq!(count(&file), MOVES_MAX);
    let told = held(&mut file).1;
    assert_eq!(told.len(), MOVES_TOLD_MAX);
    assert_eq!(told.last(), Some(&most));
    let length = fs::metadata(&file.path).expect("there").len();
    assert!(length < 32 << 20, "{length}");
}
