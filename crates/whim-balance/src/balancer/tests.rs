//! Each verdict at its edge, what pending moves do to the next decisions, and failures.

use super::*;
use crate::cost::Size;

const MB: f64 = 1e6;
const HOME: NodeId = NodeId(1);
const OTHER: NodeId = NodeId(2);

fn known(node: NodeId, programs: &[Program]) -> Known {
    let empty = Node {
        node,
        size: Size {
            speed: 1.0,
            memory: 2000.0 * MB,
        },
        cores: 1.0,
        running: 0.0,
        urgency: 0.0,
        memory: 100.0 * MB,
    };
    let here = programs.iter().filter(|program| program.at == node);
    let add = |node: Node, program: &Program| decide::changed(&node, &program.task, 1.0);
    Known {
        node: here.fold(empty, add),
        at: 0,
        takes: true,
        growth: 0.0,
    }
}

fn program(process: u64) -> Program {
    Program {
        task: Task {
            process,
            cpus: 1.0,
            memory: 10.0 * MB,
            done: 100.0,
            age: 200.0,
            here: 200.0,
            loses_here: 0.0,
            loses_away: 0.0,
            home: HOME,
        },
        at: HOME,
        growth: 0.0,
        terminal: false,
        fixed: None,
        forbidden: Vec::new(),
        lasts: false,
    }
}

/// A guest of the other node, where it has been for a while.
fn away(process: u64) -> Program {
    Program {
        at: OTHER,
        ..program(process)
    }
}

fn balancer() -> Balancer {
    Balancer::new(HOME, Rules::default(), Habits::default())
}

/// One look of a balancer at two nodes that are as the programs make them.
fn decide(balancer: &mut Balancer, now: Millis, programs: &[Program]) -> Vec<Relocation> {
    let nodes = [HOME, OTHER].map(|node| Known {
        at: now,
        ..known(node, programs)
    });
    balancer.decide(now, 2, &nodes, programs)
}

/// The verdict on the first of two programs at home, after `change` was applied to it.
fn verdict(change: impl Fn(&mut Program)) -> Verdict {
    let mut balancer = balancer();
    let mut programs = [program(1), program(2)];
    // The other one stays, whatever happens.
    programs[1].fixed = Some(Fixed::Told);
    change(&mut programs[0]);
    decide(&mut balancer, 1_000, &programs);
    balancer.record(1).expect("a record").verdict
}

fn moves(verdict: Verdict) -> bool {
    matches!(verdict, Verdict::Move(_))
}

#[test]
fn one_of_two_goes_to_the_free_node() {
    let mut balancer = balancer();
    let relocations = decide(&mut balancer, 1_000, &[program(1), program(2)]);
    let [relocation] = relocations[..] else {
        panic!("{relocations:?}");
    };
    assert_eq!((relocation.from, relocation.to), (HOME, OTHER));
    assert_eq!(relocation.cause, Cause::Load);
    assert_eq!(balancer.under_way(), 1);
}

#[test]
fn who_may_not_move_stays() {
    for fixed in [Fixed::Told, Fixed::Interactive, Fixed::Placed] {
        let found = verdict(|program| program.fixed = Some(fixed));
        assert_eq!(found, Verdict::Fixed(fixed));
    }
    let nowhere = verdict(|program| program.forbidden = vec![OTHER]);
    assert_eq!(nowhere, Verdict::Stay(Stay::NoNode));
}

#[test]
fn the_young_and_the_light_stay() {
    let aged = |age| move |program: &mut Program| program.task.age = age;
    assert_eq!(verdict(aged(0.99)), Verdict::Young { least: 1.0 });
    assert!(moves(verdict(aged(1.0))));
    let lasts = |program: &mut Program| {
        program.task.age = 0.1;
        program.lasts = true;
    };
    assert!(moves(verdict(lasts)));
    let wants = |cpus| move |program: &mut Program| program.task.cpus = cpus;
    let light = Verdict::Light {
        cpus: 0.29,
        least: 0.3,
    };
    assert_eq!(verdict(wants(0.29)), light);
    assert!(!matches!(verdict(wants(0.3)), Verdict::Light { .. }));
}

#[test]
fn who_has_just_come_rests_for_a_tenth_of_its_age() {
    let came = |here| move |program: &mut Program| program.task.here = here;
    assert_eq!(verdict(came(19.9)), Verdict::Stay(Stay::JustCame));
    assert!(moves(verdict(came(20.0))));
}

#[test]
fn nobody_goes_where_there_is_no_room() {
    let with = |memory| move |program: &mut Program| program.task.memory = memory;
    // 1,900 MB are free there, and 64 MiB are kept.
    let rules = Rules {
        rate: f64::INFINITY,
        ..Rules::default()
    };
    let room = 1900.0 * MB - rules.reserve;
    let found = |change: &dyn Fn(&mut Program)| {
        let mut balancer = Balancer::new(HOME, rules, Habits::default());
        let mut programs = [program(1), program(2)];
        programs[1].fixed = Some(Fixed::Told);
        change(&mut programs[0]);
        // There is room at home, so it is the load that speaks for a move.
        let mut nodes = [HOME, OTHER].map(|node| known(node, &programs));
        nodes[0].node.size.memory = 10_000.0 * MB;
        balancer.decide(1_000, 2, &nodes, &programs);
        balancer.record(1).expect("a record").verdict
    };
    assert_eq!(
        found(&with(room + MB)),
        Verdict::Stay(Stay::NoRoom),
        "what is there"
    );
    let grows = |growth| {
        move |program: &mut Program| {
            program.task.memory = room - 100.0 * MB;
            program.growth = growth;
        }
    };
    assert_eq!(found(&grows(21.0 * MB)), Verdict::Stay(Stay::NoRoom));
    assert_ne!(found(&grows(19.0 * MB)), Verdict::Stay(Stay::NoRoom));
}

#[test]
fn a_terminal_brings_its_program_home_and_keeps_it() {
    assert_eq!(
        verdict(|program| program.terminal = true),
        Verdict::Terminal
    );
    let mut balancer = balancer();
    let sits = Program {
        terminal: true,
        ..away(1)
    };
    let relocations = decide(&mut balancer, 1_000, &[sits]);
    assert_eq!(
        (relocations[0].to, relocations[0].cause),
        (HOME, Cause::Terminal)
    );
}

#[test]
fn who_loses_too_much_away_goes_home_without_having_rested() {
    let loses = |loses| {
        let mut asks = away(1);
        asks.task.loses_here = loses;
        asks.task.loses_away = loses;
        asks.task.here = 1.0;
        let mut balancer = balancer();
        decide(&mut balancer, 1_000, &[asks])
    };
    let relocations = loses(0.21);
    assert_eq!(
        (relocations[0].to, relocations[0].cause),
        (HOME, Cause::Calls)
    );
    assert!(loses(0.2).is_empty());
}

#[test]
fn a_home_that_takes_no_guests_takes_its_own() {
    let mut asks = away(1);
    asks.task.loses_here = 0.5;
    asks.task.loses_away = 0.5;
    let nodes = [HOME, OTHER].map(|node| Known {
        takes: node == OTHER,
        ..known(node, std::slice::from_ref(&asks))
    });
    let relocations = balancer().decide(1_000, 2, &nodes, &[asks]);
    assert_eq!(relocations[0].to, HOME);
    let blocked = [HOME, OTHER].map(|node| Known {
        takes: node == HOME,
        ..known(node, &[program(1), program(2)])
    });
    let relocations = balancer().decide(1_000, 2, &blocked, &[program(1), program(2)]);
    assert!(relocations.is_empty());
}

#[test]
fn a_move_that_has_begun_counts_as_done() {
    let mut balancer = balancer();
    let programs = [program(1), program(2), program(3)];
    // One goes, and then its target is as full as this node.
    assert_eq!(decide(&mut balancer, 1_000, &programs).len(), 1);
    for second in 2..30 {
        assert!(decide(&mut balancer, second * 1000, &programs).is_empty());
    }
    let moved = |balancer: &Balancer| {
        let of = |process| balancer.record(process).map(|record| record.verdict);
        (1..=3).find(|process| of(*process) == Some(Verdict::Moving))
    };
    let process = moved(&balancer).expect("one is moving");
    balancer.ended(30_000, process, true);
    assert_eq!(balancer.under_way(), 0);
    // The nodes do not show the move yet.
    let mut nodes = [HOME, OTHER].map(|node| known(node, &programs));
    nodes.iter_mut().for_each(|node| node.at = 31_000);
    let now = programs
        .clone()
        .map(|program| match program.task.process == process {
            true => Program {
                at: OTHER,
                ..program
            },
            false => program,
        });
    assert!(balancer.decide(31_000, 2, &nodes, &now).is_empty());
    // Now they do.
    assert!(decide(&mut balancer, 40_000, &now).is_empty());
}

/// Lets one of the programs at home be sent away, and arrive so many milliseconds after the look at 1 s.
/// Returns the programs as they are then.
fn send_one(
    balancer: &mut Balancer,
    nodes: &[NodeId],
    programs: &[Program],
    takes: Millis,
) -> Vec<Program> {
    let known: Vec<Known> = nodes.iter().map(|node| known(*node, programs)).collect();
    let relocations = balancer.decide(1_000, 3, &known, programs);
    balancer.ended(1_000 + takes, relocations[0].process, true);
    let mut now = programs.to_vec();
    for program in &mut now {
        if program.task.process == relocations[0].process {
            program.at = relocations[0].to;
            program.task.here = 0.0;
        }
    }
    now
}

#[test]
fn who_has_moved_is_not_moved_again_before_its_nodes_show_that() {
    let mut balancer = balancer();
    let mut young = program(1);
    (young.task.done, young.task.age) = (1.0, 4.0);
    let mut stays = program(2);
    stays.fixed = Some(Fixed::Told);
    let now = send_one(&mut balancer, &[HOME, OTHER], &[young, stays], 500);
    assert_eq!(now[0].at, OTHER);
    // The other program has ended and this one is alone. But it counts twice where it is, and besides its calls
    // ask for home.
    let mut alone = vec![now[0].clone()];
    alone[0].task.here = 3.0;
    (alone[0].task.loses_here, alone[0].task.loses_away) = (0.3, 0.3);
    for now in [2_000, 3_000, 4_000, 5_000] {
        assert!(decide(&mut balancer, now, &alone).is_empty(), "{now}");
        let record = balancer.record(1).expect("a record");
        assert_eq!(record.verdict, Verdict::Stay(Stay::JustCame));
    }
    // Now its nodes show the move.
    let relocations = decide(&mut balancer, 6_000, &alone);
    assert_eq!(
        (relocations[0].to, relocations[0].cause),
        (HOME, Cause::Calls)
    );
}

#[test]
fn who_came_from_a_node_that_fell_silent_is_judged_again() {
    let nodes = [HOME, OTHER];
    let mut balancer = balancer();
    let mut stays = program(2);
    stays.fixed = Some(Fixed::Told);
    let mut now = send_one(&mut balancer, &nodes, &[program(1), stays], 500);
    // The program has rested.
    now[0].task.here = 30.0;
    let verdict = |balancer: &mut Balancer, at| {
        let said = nodes.map(|node| Known {
            at: if node == HOME { at } else { 1_000 },
            ..known(node, &now)
        });
        balancer.decide(at, 2, &said, &now);
        balancer.record(1).expect("a record").verdict
    };
    assert_eq!(
        verdict(&mut balancer, 31_500),
        Verdict::Stay(Stay::JustCame)
    );
    assert_ne!(
        verdict(&mut balancer, 31_501),
        Verdict::Stay(Stay::JustCame)
    );
}

#[test]
fn who_waits_for_its_crowded_home_still_counts_where_it_was_sent() {
    let nodes = [HOME, OTHER, NodeId(3)];
    let mut came = 0;
    for takes in 0..64 {
        let mut balancer = balancer();
        let computes = |process| {
            let mut program = program(process);
            (program.task.done, program.task.age) = (1.0, 4.0);
            program
        };
        let mut programs = [computes(1), computes(2), computes(3)];
        programs[0].fixed = Some(Fixed::Told);
        programs[2].fixed = Some(Fixed::Told);
        let mut now = send_one(&mut balancer, &nodes, &programs, takes);
        let place = now[1].at;
        now[1].task.cpus = 0.2;
        now[1].task.here = 9.0;
        now[2].fixed = None;
        let said = nodes.map(|node| Known {
            at: 10_000 + takes,
            ..known(node, &now)
        });
        let relocations = balancer.decide(10_000 + takes, 3, &said, &now);
        assert_eq!(relocations[0].process, 3);
        assert_ne!(relocations[0].to, place, "{takes}");
        // Later, the demand that it shows is believed.
        now[1].task.here = 10.0;
        let mut later = Balancer::new(HOME, Rules::default(), Habits::default());
        later.wanted.clone_from(&balancer.wanted);
        let relocations = later.decide(10_000 + takes, 3, &said, &now);
        came += u32::from(relocations[0].to == place);
    }
    assert!(came > 0);
}

#[test]
fn a_node_has_in_use_what_our_own_programs_use_there() {
    let programs: Vec<Program> = (1..=5).map(program).collect();
    let mut balancer = balancer();
    // The sensors have seen none of the programs yet.
    let nodes = [HOME, OTHER, NodeId(3), NodeId(4)].map(|node| known(node, &[]));
    let relocations = balancer.decide(1_000, 4, &nodes, &programs);
    let mut targets: Vec<NodeId> = relocations.iter().map(|relocation| relocation.to).collect();
    targets.sort_unstable();
    assert_eq!(targets, [OTHER, NodeId(3), NodeId(4)]);
}

#[test]
fn no_more_moves_go_on_at_a_time_than_may() {
    let programs: Vec<Program> = (1..=40).map(program).collect();
    let mut balancer = balancer();
    // One move is reserved for memory.
    let most = Pace::AT_ONCE - 1;
    assert_eq!(decide(&mut balancer, 1_000, &programs).len(), most);
    let paced = (1..=40).filter(|process| {
        let record = balancer.record(*process).expect("a record");
        matches!(record.verdict, Verdict::Paced(_))
    });
    assert!(paced.count() > 0);
    assert!(decide(&mut balancer, 2_000, &programs).is_empty());
}

#[test]
fn failures_put_off_the_next_try_longer_and_longer() {
    let mut balancer = balancer();
    let mut programs = [program(1), program(2)];
    programs[1].fixed = Some(Fixed::Told);
    let mut now = 1_000;
    for wait in [
        10_000, 20_000, 40_000, 80_000, 160_000, 320_000, 640_000, 640_000,
    ] {
        // Other programs come and go, so that pace would allow a move.
        balancer.pace.news(now);
        assert_eq!(decide(&mut balancer, now, &programs).len(), 1, "{now}");
        balancer.ended(now, 1, false);
        assert_eq!(balancer.under_way(), 0);
        assert!(decide(&mut balancer, now + wait - 1, &programs).is_empty());
        let record = balancer.record(1).expect("a record");
        assert_eq!(record.verdict, Verdict::Failed { wait_ms: 1 });
        // It could only be moved six times in an hour.
        balancer.pace.retain(|_| false);
        now += wait;
    }
    balancer.pace.news(now);
    assert_eq!(decide(&mut balancer, now, &programs).len(), 1);
    balancer.ended(now, 1, true);
    assert!(balancer.failed.is_empty());
}

#[test]
fn so_many_moves_an_hour_and_no_more() {
    let mut balancer = balancer();
    let mut programs = [program(1), program(2)];
    programs[1].fixed = Some(Fixed::Told);
    for second in 1..=6 {
        balancer.pace.note(second * 1000, 1, Cause::Load);
    }
    balancer.pace.news(7_000);
    assert!(decide(&mut balancer, 7_000, &programs).is_empty());
    let spent = Verdict::Spent {
        cause: Cause::Load,
        most: 6,
    };
    assert_eq!(balancer.record(1).expect("a record").verdict, spent);
    balancer.pace.news(3_601_000);
    assert_eq!(decide(&mut balancer, 3_601_000, &programs).len(), 1);
}

#[test]
fn without_news_a_wish_has_to_last() {
    let mut balancer = balancer();
    let both = [program(1), program(2)];
    let alone = [program(1), {
        let mut light = program(2);
        light.task.cpus = 0.0;
        light
    }];
    decide(&mut balancer, 0, &alone);
    // The second program would be news for half a minute when it begins to compute.
    balancer.heavy.insert(2);
    let news = |balancer: &Balancer, now| balancer.pace.has_news(now);
    let first = 100_000;
    assert!(!news(&balancer, first));
    for now in (first..first + STEADY).step_by(1000) {
        assert!(decide(&mut balancer, now, &both).is_empty());
    }
    // It pauses for a moment, so the time begins anew.
    assert!(decide(&mut balancer, first + STEADY, &alone).is_empty());
    let again = first + STEADY + 1000;
    for now in (again..again + STEADY).step_by(1000) {
        assert!(decide(&mut balancer, now, &both).is_empty());
        let record = balancer.record(1).expect("a record");
        assert!(matches!(record.verdict, Verdict::Paced(_)), "{record:?}");
    }
    assert_eq!(decide(&mut balancer, again + STEADY, &both).len(), 1);
}

#[test]
fn what_computes_again_after_it_came_home_is_news() {
    let mut balancer = balancer();
    let computes = [away(1), program(2)];
    decide(&mut balancer, 0, &computes);
    let mut reads = computes.clone();
    reads[0].task.cpus = 0.3;
    reads[0].task.loses_here = 0.7;
    reads[0].task.loses_away = 0.7;
    let relocations = decide(&mut balancer, 100_000, &reads);
    assert_eq!(relocations[0].cause, Cause::Calls);
    balancer.ended(100_500, 1, true);
    reads[0].at = HOME;
    reads[0].task.loses_here = 0.0;
    assert!(decide(&mut balancer, 110_000, &reads).is_empty());
    assert!(!balancer.pace.has_news(110_000));
    let both = [program(1), program(2)];
    assert_eq!(decide(&mut balancer, 120_000, &both).len(), 1);
}

#[test]
fn what_came_home_for_its_calls_is_not_sent_away_at_once() {
    let mut balancer = balancer();
    // The second time in an hour.
    balancer.pace.note(0, 1, Cause::Calls);
    let mut reads = away(1);
    reads.task.cpus = 0.3;
    reads.task.loses_here = 0.7;
    reads.task.loses_away = 0.7;
    let stays = Program {
        fixed: Some(Fixed::Told),
        ..program(2)
    };
    let relocations = decide(&mut balancer, 100_000, &[reads, stays.clone()]);
    assert_eq!(
        (relocations[0].process, relocations[0].cause),
        (1, Cause::Calls)
    );
    balancer.ended(100_500, 1, true);
    let both = [program(1), stays];
    assert!(decide(&mut balancer, 399_000, &both).is_empty());
    let record = balancer.record(1).expect("a record");
    assert_eq!(record.verdict, Verdict::Stay(Stay::JustCame));
    let relocations = decide(&mut balancer, 400_000, &both);
    assert_eq!((relocations[0].process, relocations[0].to), (1, OTHER));
}

#[test]
fn a_record_knows_since_when_the_verdict_is_of_its_kind() {
    let mut balancer = balancer();
    let alone = [program(1)];
    decide(&mut balancer, 1_000, &alone);
    decide(&mut balancer, 2_000, &alone);
    let record = *balancer.record(1).expect("a record");
    assert_eq!((record.since, record.at), (1_000, 2_000));
    decide(&mut balancer, 3_000, &[]);
    assert!(balancer.record(1).is_none());
}

#[test]
fn memory_that_will_be_lacking_makes_the_smallest_go_that_helps() {
    let mut balancer = balancer();
    balancer.rules.rate = f64::INFINITY;
    let with = |process, memory: f64, growth: f64| {
        let mut eater = program(process);
        eater.task.memory = memory;
        eater.task.cpus = 0.0;
        eater.growth = growth;
        eater
    };
    // 50 MB are left beyond the reserve, and 100 more will be wanted within the horizon.
    let used = 2000.0 * MB - Rules::default().reserve - (100.0 + 50.0) * MB;
    let programs = [
        with(1, 60.0 * MB, 0.0),
        with(2, 200.0 * MB, 0.0),
        with(3, used - 260.0 * MB, 0.0),
    ];
    let nodes = |growth: f64| {
        let mut nodes = [HOME, OTHER].map(|node| Known {
            at: 1_000,
            ..known(node, &programs)
        });
        nodes[0].growth = growth;
        nodes
    };
    let calm = nodes(1.0 * MB);
    assert!(balancer.decide(1_000, 2, &calm, &programs).is_empty());
    let relocations = balancer.decide(1_000, 2, &nodes(20.0 * MB), &programs);
    let chosen: Vec<(u64, Cause)> = relocations.iter().map(|o| (o.process, o.cause)).collect();
    assert_eq!(chosen, [(1, Cause::Memory)]);
}

#[test]
fn a_node_whose_own_memory_grows_gets_nothing_that_it_will_have_no_room_for() {
    let mut balancer = balancer();
    let mut eater = program(1);
    eater.task.memory = 1800.0 * MB;
    eater.growth = 20.0 * MB;
    let programs = [eater];
    let nodes = |growth: f64| {
        let mut nodes = [HOME, OTHER].map(|node| known(node, &programs));
        nodes[0].growth = 20.0 * MB;
        nodes[1].node.memory = 0.0;
        nodes[1].growth = growth;
        nodes
    };
    assert!(
        balancer
            .decide(0, 2, &nodes(20.0 * MB), &programs)
            .is_empty()
    );
    assert_eq!(balancer.decide(0, 2, &nodes(0.0), &programs).len(), 1);
}

#[test]
fn those_who_decide_at_the_same_moment_choose_different_targets() {
    let target = |number: u64| {
        let own = NodeId(100 + number);
        let mut programs = [program(1), program(2)];
        for program in &mut programs {
            program.at = own;
            program.task.home = own;
        }
        let nodes = [own, NodeId(2), NodeId(3), NodeId(4), NodeId(5)];
        let nodes = nodes.map(|node| known(node, &programs));
        let mut balancer = Balancer::new(own, Rules::default(), Habits::default());
        balancer.decide(1_000, 5, &nodes, &programs)[0].to
    };
    let targets: HashSet<NodeId> = (0..20).map(target).collect();
    assert_eq!(targets.len(), 4);
}

#[test]
fn who_shares_a_node_with_others_guests_waits_for_its_turn() {
    // Seconds until a guest leaves that shares its node with another home's guest.
    let waits = |process: u64| {
        let mut balancer = balancer();
        let guest = [away(process)];
        let mut nodes = [HOME, OTHER].map(|node| known(node, &guest));
        nodes[1].node.running += 1.0;
        nodes[1].node.urgency += 0.01;
        (0..60).find(|second| {
            let now = 1_000_000 + second * 1000;
            nodes.iter_mut().for_each(|node| node.at = now);
            balancer.pace.news(now);
            !balancer.decide(now, 2, &nodes, &guest).is_empty()
        })
    };
    let all: Vec<u64> = (1..40).filter_map(waits).collect();
    assert_eq!(all.len(), 39);
    assert!(all.iter().all(|seconds| *seconds <= 16));
    let different: HashSet<u64> = all.into_iter().collect();
    assert!(different.len() > 8, "{different:?}");
}

/// Two of three programs share a CPU, and nothing new happens. Returns the turns that are taken at this moment.
fn turns(fair: bool, change: impl Fn(&mut [Program])) -> Vec<Relocation> {
    let habits = Habits {
        fair,
        ..Habits::default()
    };
    let mut balancer = Balancer::new(HOME, Rules::default(), habits);
    let mut programs = [program(1), program(2), away(3)];
    programs[2].task.done = 200.0;
    // Of the two programs, the second has got more.
    programs[1].task.done = 110.0;
    change(&mut programs);
    assert_eq!(decide(&mut balancer, 1_000, &programs), []);
    decide(&mut balancer, 1_000 + Pace::NEWS_LASTS, &programs)
}

#[test]
fn who_shares_a_cpu_takes_turns_where_that_is_wanted() {
    assert_eq!(turns(false, |_| {}), []);
    let taken = turns(true, |_| {});
    let [relocation] = taken[..] else {
        panic!("{taken:?}");
    };
    assert_eq!((relocation.process, relocation.to), (2, OTHER));
    assert_eq!(relocation.cause, Cause::Turn);
    // The first has had 100 s less than the third, in the same time.
    assert!(
        (relocation.numbers.gain - 100.0).abs() < 1.0,
        "{relocation:?}"
    );
    assert_eq!(turns(true, |programs| programs[0].task.here = 119.0), []);
    assert_eq!(turns(true, |programs| programs[2].task.done = 100.0), []);
    assert_eq!(
        turns(true, |programs| programs[1].forbidden = vec![OTHER])[0].process,
        1
    );
    let told = |programs: &mut [Program]| {
        programs[0].fixed = Some(Fixed::Told);
        programs[1].fixed = Some(Fixed::Told);
    };
    assert_eq!(turns(true, told), []);
}
