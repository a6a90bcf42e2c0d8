use super::*;
use crate::experiment::Livecd;

fn of(words: &str) -> Result<Asked, String> {
    let words = std::iter::once("pipt").chain(words.split_whitespace());
    let matches = command()
        .try_get_matches_from(words)
        .map_err(|error| error.to_string())?;
    asked(&matches).map_err(|error| error.to_string())
}

fn work(words: &str) -> Work {
    match of(words) {
        Ok(Asked::Run(work)) => work,
        other => panic!("{words}: {other:?}"),
    }
}

#[test]
fn the_command_is_whole() {
    command().debug_assert();
}

#[test]
fn one_routine_is_a_job() {
    let asked = work(
        "texture in.tif out.tif --window 5 --levels 32 --features energy,entropy --like grass --bands 2 --ram 2G --threads 3",
    );
    assert_eq!((asked.how.threads, asked.how.memory), (Some(3), 2 << 30));
    let From::Routine {
        routine, values, ..
    } = &asked.job.images[1].from
    else {
        panic!("no routine: {:?}", asked.job);
    };
    assert_eq!(
        (routine.name, values.whole("window"), values.word("like")),
        ("CoOccur", Some(5), Some("grass"))
    );
    assert!(values.is_given("window") && !values.is_given("offsets"));
    let From::File(input) = &asked.job.images[0].from else {
        panic!("no file: {:?}", asked.job);
    };
    assert_eq!(input.bands, Some(vec![1]));
    for (words, name) in [
        ("median a b", "SquareMedian"),
        (
            "median a b --kind cross-mean --size 7 --trim 0.25",
            "ATrimmedCrMean",
        ),
        (
            "noise a b --kind bit-error --probability 0.5",
            "AddBitError",
        ),
        ("noise a b --mean -3", "AddGaussian"),
    ] {
        let asked = work(words);
        assert!(
            matches!(&asked.job.images[1].from, From::Routine { routine, .. } if routine.name == name),
            "{words}"
        );
    }
}

#[test]
fn what_cannot_be_is_refused_as_in_a_batch_file() {
    for (words, expected) in [
        (
            "texture a b --window 4",
            "window=4 cannot be: it is an odd number from 3 to 63",
        ),
        ("median a b --ram 1", "--ram 1 is no number of bytes"),
        ("median a b --bbox 1,2,3", "--bbox 1,2,3 is no part"),
        ("median a b --threads 0", "--threads"),
        (
            "median a b --probability 1",
            "unexpected argument '--probability'",
        ),
        ("run /nowhere/job", "/nowhere/job cannot be read"),
        ("median a b --bands 0", "bands=0 cannot be"),
        ("verify a --relative 1", "--against"),
    ] {
        let said = of(words).expect_err(words);
        assert!(said.contains(expected), "{words}: {said}");
    }
}

#[test]
fn other_verbs_are_understood() {
    assert!(matches!(
        of("list CoOccur --json"),
        Ok(Asked::List {
            routine: Some(_),
            json: true
        })
    ));
    assert!(matches!(of("info a b"), Ok(Asked::Info { files, .. }) if files.len() == 2));
    assert!(matches!(of("median a b --plan"), Ok(Asked::Plan(_))));
    let verify = of("verify a --against b --relative 1e-5");
    assert!(matches!(
        verify,
        Ok(Asked::Verify(Verify {
            against: Some(_),
            relative: 1e-5,
            ..
        }))
    ));
}

#[test]
fn the_experiment_of_a_paper_has_its_options() {
    let livecd = |words: &str| match of(&format!("experiment livecd --images a --report b {words}"))
    {
        Ok(Asked::Experiment(livecd)) => livecd,
        other => panic!("{words}: {other:?}"),
    };
    let asked = livecd("");
    assert_eq!(
        (asked.nodes, asked.all_routines, asked.cpu),
        (5, false, None)
    );
    assert_eq!((asked.window, asked.levels, asked.moves_max), (15, 64, 4));
    assert_eq!(livecd("--small").nodes, 3);
    let asked = livecd(
        "--small --nodes 2 --routines 15 --cpu 0.5 --window 9 --levels 32 --instructions avx2 --moves-max 1",
    );
    let expected = Livecd {
        images: "a".into(),
        nodes: 2,
        all_routines: true,
        small: true,
        cpu: Some(0.5),
        report: "b".into(),
        window: 9,
        levels: 32,
        instructions: "avx2".to_owned(),
        moves_max: 1,
    };
    assert_eq!(asked, expected);
    for (words, expected) in [
        ("--nodes 1", "1 is not in 2..="),
        ("--routines 9", "'9'"),
        ("--cpu 0", "0"),
        ("--cpu much", "'much'"),
        ("--window 4", "'4'"),
        ("--levels 1", "1 is not in 2..=256"),
        ("--moves-max 0", "0"),
    ] {
        let words = format!("experiment livecd --images a --report b {words}");
        let said = of(&words).expect_err(&words);
        assert!(said.contains(expected), "{words}: {said}");
    }
    assert!(
        of("experiment livecd --images a")
            .expect_err("no report")
            .contains("--report")
    );
}
