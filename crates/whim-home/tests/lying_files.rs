//! A host that lies about files which its guest maps.
#![forbid(unsafe_code)]

mod support;

use nix::errno::Errno;
use support::{Converted, Program, convert_program};
use whim_attempts::{Attempt, Party};
use whim_home::server::{FileRemapping, Server};
use whim_journey::message::{PageRequest, RELEASED_MAX, ToGuest};
use whim_model::{Backing, MappingId};

/// What makes a sound request a lie, and what kind of lie.
type Lie<'a> = (&'a str, &'a dyn Fn(&mut FileRemapping));

fn tries(what: impl Into<String>) -> Attempt {
    Attempt::new(Party::LyingHost, what)
}

/// The answer to the request of a mapping: result, and the mapping if there is one.
fn mapping_answer(server: &mut Server) -> (i64, Option<MappingId>) {
    let answer = server.outgoing.pop().expect("an answer");
    let ToGuest::Reply {
        result, mapping, ..
    } = answer.message
    else {
        panic!("{answer:?}");
    };
    (result, mapping)
}

/// Two files of the program's, with the length of the first, and a request to make that longer.
fn two_files(converted: &Converted) -> (MappingId, u64, FileRemapping) {
    let files = converted.captured.image.mappings.iter();
    let mut ids = files.filter_map(|mapping| match mapping.backing {
        Backing::File { id, .. } => Some((id, mapping.len())),
        _ => None,
    });
    let (id, length) = ids.next().expect("a file is mapped");
    let (neighbour, _) = ids.next().expect("and another one");
    let request = FileRemapping {
        tid: converted.tid(),
        sequence: 0,
        mapping: id,
        offset: 0,
        length,
        new_length: length + 4096,
        ends: (id, 0, 0),
    };
    (neighbour, length, request)
}

#[test]
fn mappings_of_files_are_made_longer_within_them_only() {
    let mut converted = convert_program(Program::python());
    let (neighbour, length, sound) = two_files(&converted);
    let id = sound.mapping;
    let last = u64::MAX - 4095;
    let lies: [Lie<'_>; 9] = [
        ("of none", &|lie| lie.mapping = MappingId(60_000)),
        ("from behind a file on", &|lie| lie.offset = length),
        ("from an offset on that wraps", &|lie| lie.offset = last),
        ("of a length that wraps", &|lie| lie.new_length = last),
        ("of half a page", &|lie| lie.new_length = length + 5),
        ("of nothing", &|lie| lie.length = 0),
        ("that is shorter", &|lie| lie.new_length = 0),
        ("over two files", &|lie| lie.ends = (neighbour, 0, length)),
        ("over what is far away", &|lie| lie.ends = (id, 0, last)),
    ];
    for (sequence, (what, lie)) in (1..).zip(lies) {
        let attempt = tries(format!("make a file mapping longer: one {what}"));
        let mut request = FileRemapping {
            sequence,
            ..sound.clone()
        };
        lie(&mut request);
        converted.server.remap_file(&request).expect("answered");
        let (result, mapping) = mapping_answer(&mut converted.server);
        assert!(result < 0 && mapping.is_none(), "{what}: {result}");
        attempt.failed(Errno::from_raw(i32::try_from(-result).expect("an errno")));
    }
    converted.comes_home_unharmed();
}

#[test]
fn mappings_that_are_given_back_are_gone() {
    let mut converted = convert_program(Program::python());
    let (_, _, sound) = two_files(&converted);
    let id = sound.mapping;
    let ask = |server: &mut Server, sequence| {
        server.remap_file(&FileRemapping {
            sequence,
            ..sound.clone()
        })
    };
    let page = |server: &mut Server, mapping| {
        server.pages(PageRequest {
            request: 1,
            mapping,
            offset: 0,
            length: 4096,
        })
    };
    let server = &mut converted.server;
    ask(server, 1).expect("answered");
    let (result, made) = mapping_answer(server);
    let made = made.expect("it is made");
    assert_eq!(result, 0);
    assert_eq!(page(server, made), page(server, id));
    // Giving back what is not there changes nothing.
    for given in [made, made, MappingId(60_000)] {
        server.give_back(vec![given]).expect("noted");
    }
    ask(server, 2).expect("answered");
    assert!(mapping_answer(server).1.is_some_and(|next| next != made));
    let attempt = tries("ask for pages of a file that was given back");
    attempt.failed(page(server, made).expect_err("it is gone"));
    // What is not there any more is not noted.
    for _ in 0..3 {
        let noted = server.give_back(vec![made, MappingId(60_000)]);
        noted.expect("noted");
    }
    let attempt = tries("give back more mappings at once than a message may name");
    let refused = server.give_back(vec![made; RELEASED_MAX + 1]);
    attempt.failed(refused.expect_err("too many"));
    converted.comes_home_unharmed();
}
