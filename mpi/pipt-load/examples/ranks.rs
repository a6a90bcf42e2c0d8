//! A rank that tries everything, for `tests/launchers.rs`:
//!
//! ```text
//! mpirun -n 4 ranks all DIRECTORY     everything; files are made in the directory
//! mpirun -n 2 ranks calm              whether a rank that waits leaves its processor to others
//! mpirun -n 2 ranks long              a message of more than 2 GiB (it takes 7 GiB of memory)
//! mpirun -n 2 ranks speed             how fast ranks 0 and 1 send to each other at once
//! mpirun -n 3 ranks panic             rank 1 panics, the others wait for it
//! mpirun -n 3 ranks abort             rank 1 ends all
//! ```
//!
//! A library is looked for beside the programs, in the directory above that of this example.

#![forbid(unsafe_code)]

use pipt_load::{LoadError, Mode, Reduction, View, World, launch};
use std::error::Error;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use std::{env, fs, process};

type Outcome = Result<(), Box<dyn Error>>;

/// Bytes of the messages of ranks 0 and 1 to each other, and of all others.
const LARGE: usize = 64 << 20;
const SMALL: usize = 1 << 20;
/// Bytes that each rank has at a time in the file, and how often.
const BLOCK: usize = 1000;
const BLOCKS: usize = 50;
/// Before the first of them.
const HEADER: usize = 123;

fn main() {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    if let Err(error) = run(&words) {
        eprintln!("{error}");
        process::exit(1);
    }
}

fn run(words: &[&str]) -> Outcome {
    let launch = launch(&|name| env::var(name).ok())?.ok_or(LoadError::Alone)?;
    let program = env::current_exe()?;
    let beside = program.parent().and_then(Path::parent);
    let places: Vec<PathBuf> = beside.into_iter().map(Path::to_owned).collect();
    let world = World::open(&launch, &places)?;
    let done = match words {
        ["all", directory] => all(&world, Path::new(directory)),
        ["calm"] => calm(&world),
        ["long"] => long(&world),
        ["speed"] => speed(&world),
        ["panic"] if world.rank() == 1 => panic!("rank 1 panics, as it was told"),
        ["abort"] if world.rank() == 1 => world.abort(7),
        ["panic" | "abort"] => world.wait().map(|_| ()).map_err(Into::into),
        _ => Err("ranks all DIRECTORY | calm | long | speed | panic | abort".into()),
    };
    if let Err(error) = done {
        eprintln!("rank {}: {error}", world.rank());
        world.abort(1);
    }
    if world.rank() == 0 {
        println!("{} ranks of {}: all well", world.size(), world.name());
    }
    Ok(())
}

fn all(world: &World, directory: &Path) -> Outcome {
    large_messages(world)?;
    order(world)?;
    nothing_is_there(world)?;
    refusals(world)?;
    collectives(world)?;
    blocks(world, &directory.join("blocks"))?;
    parts(world, &directory.join("parts"))?;
    wrong_files(world, directory)?;
    // What nobody receives keeps nobody from ending.
    world.send((world.rank() + 1) % world.size(), 9, &vec![9; SMALL])?;
    Ok(())
}

/// Fails with a text.
fn same<T: PartialEq + std::fmt::Debug>(what: &str, found: &T, wanted: &T) -> Outcome {
    if found == wanted {
        return Ok(());
    }
    Err(format!("{what}: {found:?} instead of {wanted:?}").into())
}

/// Bytes that differ for each pair of ranks, and at each place.
fn bytes_of(from: usize, to: usize, length: usize) -> Vec<u8> {
    let mut state = (from as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15) + to as u64;
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        bytes.extend((state >> 8).to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}

fn length_of(from: usize, to: usize) -> usize {
    if from.max(to) == 1 && from != to {
        LARGE
    } else {
        SMALL + from * 1000 + to
    }
}

/// All ranks send to all ranks at once, and only then receive.
fn large_messages(world: &World) -> Outcome {
    let (own, size) = (world.rank(), world.size());
    for to in 0..size {
        world.send(to, 1, &bytes_of(own, to, length_of(own, to)))?;
    }
    let mut seen = vec![false; size];
    for _ in 0..size {
        let message = world.wait()?;
        let wanted = bytes_of(message.from, own, length_of(message.from, own));
        same("the tag", &message.tag, &1)?;
        same("the length", &message.bytes.len(), &wanted.len())?;
        if message.bytes != wanted {
            return Err(format!("the bytes of rank {} differ", message.from).into());
        }
        seen[message.from] = true;
    }
    same("messages of all", &seen, &vec![true; size])?;
    world.barrier()?;
    Ok(())
}

/// Messages of one rank come in their order, whatever their tags and lengths.
fn order(world: &World) -> Outcome {
    const MESSAGES: u32 = 120;
    for number in 0..MESSAGES {
        let length = [0, 10, 5_000, 300_000][number as usize % 4];
        let mut bytes = number.to_le_bytes().to_vec();
        bytes.resize(4 + length, 7);
        world.send(0, 1000 - number, &bytes)?;
    }
    if world.rank() == 0 {
        let mut next = vec![0_u32; world.size()];
        for _ in 0..MESSAGES as usize * world.size() {
            let message = world.wait()?;
            let number = message
                .bytes
                .first_chunk()
                .map(|bytes| u32::from_le_bytes(*bytes));
            same("the number", &number, &Some(next[message.from]))?;
            same("the tag", &message.tag, &(1000 - next[message.from]))?;
            next[message.from] += 1;
        }
    }
    world.barrier()?;
    Ok(())
}

/// A look at nothing gives nothing, and does not wait.
fn nothing_is_there(world: &World) -> Outcome {
    let before = Instant::now();
    for _ in 0..10 {
        same("a message", &world.poll()?, &None)?;
    }
    if before.elapsed() > Duration::from_secs(5) {
        return Err(format!("ten looks took {:?}", before.elapsed()).into());
    }
    same("what waits", &world.unsent(), &0)?;
    world.barrier()?;
    Ok(())
}

/// What cannot be sent is refused, and ends nobody.
fn refusals(world: &World) -> Outcome {
    let size = world.size();
    let wanted = Err(LoadError::NoRank(size, size));
    same("a message to nobody", &world.send(size, 1, &[1]), &wanted)?;
    let tag = world.send(0, u32::MAX, &[1]);
    if !matches!(tag, Err(LoadError::Tag(u32::MAX, most)) if most >= 32_767) {
        return Err(format!("the largest tag gives {tag:?}").into());
    }
    let wanted = Err(LoadError::NoRank(size + 1, size));
    same(
        "bytes of nobody",
        &world.broadcast(size + 1, &mut Vec::new()),
        &wanted,
    )?;
    world.barrier()?;
    Ok(())
}

fn collectives(world: &World) -> Outcome {
    let (own, size) = (world.rank(), world.size());
    for root in 0..size {
        for length in [0, 1, 3 << 20] {
            let mut bytes = match own == root {
                true => bytes_of(root, 77, length),
                false => vec![1; own],
            };
            world.broadcast(root, &mut bytes)?;
            if bytes != bytes_of(root, 77, length) {
                return Err(format!("{length} bytes of rank {root} differ").into());
            }
        }
    }
    // The first has none.
    let all = world.all_gather(&bytes_of(own, 5, own * 100_001))?;
    let wanted: Vec<_> = (0..size)
        .map(|rank| bytes_of(rank, 5, rank * 100_001))
        .collect();
    same("the gathered bytes are right", &(all == wanted), &true)?;
    let numbers: Vec<u64> = (0..size as u64)
        .map(|rank| rank * rank + (1 << 40))
        .collect();
    let mine = numbers[own];
    same("numbers", &world.all_gather_numbers(mine)?, &numbers)?;
    let before: u64 = numbers[..own].iter().sum();
    same("the sum before", &world.exclusive_sum(mine)?, &before)?;
    let (whole, part) = (own as u64, own as f64 / 4.0);
    let last = size as u64 - 1;
    let sum: u64 = (0..size as u64).sum();
    for (how, of_whole) in [
        (Reduction::Minimum, vec![0, 10]),
        (Reduction::Maximum, vec![last, 10 + last]),
        (Reduction::Sum, vec![sum, 10 * size as u64 + sum]),
    ] {
        let found = world.reduce_u64(how, &[whole, 10 + whole])?;
        same("numbers put together", &found, &of_whole)?;
        // Quarters are exact.
        let of_part: f64 = of_whole[0] as f64 / 4.0;
        same(
            "fractions put together",
            &world.reduce_f64(how, &[part])?,
            &vec![of_part],
        )?;
    }
    Ok(())
}

/// Each rank writes its blocks between those of the others, and sees those of its neighbour.
fn blocks(world: &World, path: &Path) -> Outcome {
    let (own, size) = (world.rank(), world.size());
    let view = View::Blocks {
        block: BLOCK as u64,
        stride: (BLOCK * size) as u64,
    };
    let start = |rank: usize| (HEADER + rank * BLOCK) as u64;
    let file = world.open_file(path, Mode::Create)?;
    file.set_length(0)?;
    file.see(start(own), &view)?;
    // The first half by itself, and the rest with all others; the cut is within a block.
    let bytes = bytes_of(own, 3, BLOCK * BLOCKS);
    let cut = BLOCK * BLOCKS / 2 + 17;
    file.write_at(0, &bytes[..cut])?;
    file.write_all(cut as u64, &bytes[cut..])?;
    file.close()?;
    if own == 0 {
        let mut wanted = vec![0; HEADER];
        for block in 0..BLOCKS {
            for rank in 0..size {
                let of_rank = bytes_of(rank, 3, BLOCK * BLOCKS);
                wanted.extend(&of_rank[block * BLOCK..][..BLOCK]);
            }
        }
        same("the file is right", &(fs::read(path)? == wanted), &true)?;
    }
    let file = world.open_file(path, Mode::Read)?;
    let whole = (HEADER + size * BLOCK * BLOCKS) as u64;
    same("the file's length", &file.length()?, &whole)?;
    let other = (own + 1) % size;
    file.see(start(other), &view)?;
    let wanted = bytes_of(other, 3, BLOCK * BLOCKS);
    let mut read = vec![0; BLOCK * BLOCKS];
    same("bytes read", &file.read_all(0, &mut read)?, &read.len())?;
    same("they are right", &(read == wanted), &true)?;
    // Beyond the end there are none.
    let mut read = vec![0; BLOCK];
    let near = (BLOCK * BLOCKS - 300) as u64;
    same("the last bytes", &file.read_at(near, &mut read)?, &300)?;
    same(
        "they are right",
        &(read[..300] == wanted[wanted.len() - 300..]),
        &true,
    )?;
    // All call it, but the others have nothing to read.
    let mut read = vec![0; if own == 0 { BLOCK } else { 0 }];
    same("bytes of one", &file.read_all(0, &mut read)?, &read.len())?;
    file.close()?;
    Ok(())
}

/// Each rank writes its columns of an image, which is then looked at as a whole.
fn parts(world: &World, path: &Path) -> Outcome {
    const ROWS: u32 = 37;
    const ELEMENT: u32 = 4;
    let (own, size) = (world.rank(), world.size());
    let columns = |rank: usize| 3 + u32::try_from(rank).unwrap_or(0);
    let before = |rank: usize| (0..rank).map(columns).sum::<u32>();
    let width = before(size);
    let file = world.open_file(path, Mode::Create)?;
    let bytes = (ROWS * columns(own) * ELEMENT) as usize;
    file.see(
        8,
        &View::Part {
            element: ELEMENT,
            sides: vec![ROWS, width],
            part: vec![ROWS, columns(own)],
            start: vec![0, before(own)],
        },
    )?;
    file.write_all(0, &bytes_of(own, 4, bytes))?;
    file.close()?;
    if own == 0 {
        let mut wanted = vec![0; 8];
        for row in 0..ROWS {
            for rank in 0..size {
                let length = (columns(rank) * ELEMENT) as usize;
                let of_rank = bytes_of(rank, 4, length * ROWS as usize);
                wanted.extend(&of_rank[row as usize * length..][..length]);
            }
        }
        same("the image is right", &(fs::read(path)? == wanted), &true)?;
    }
    world.barrier()?;
    Ok(())
}

/// What cannot be done with files is told, and ends nobody.
fn wrong_files(world: &World, directory: &Path) -> Outcome {
    let missing = world
        .open_file(&directory.join("missing"), Mode::Read)
        .err();
    let said = missing.map(|error| error.to_string()).unwrap_or_default();
    let known = said.contains("does not exist") || said.to_lowercase().contains("no such file");
    if !said.contains("/missing: ") || !known {
        return Err(format!("a missing file gives {said:?}").into());
    }
    let file = world.open_file(&directory.join("parts"), Mode::Write)?;
    let wide = View::Part {
        element: 1,
        sides: vec![4, 4],
        part: vec![2, 3],
        start: vec![0, 2],
    };
    for wrong in [
        View::Blocks {
            block: 5,
            stride: 4,
        },
        View::Blocks {
            block: 0,
            stride: 4,
        },
        wide,
    ] {
        if file.see(0, &wrong).is_ok() {
            return Err(format!("{wrong:?} is no view").into());
        }
    }
    file.set_length(5)?;
    same("the length", &file.length()?, &5)?;
    file.close()?;
    Ok(())
}

/// The time that this process has occupied a processor, in hundredths of a second.
fn occupied() -> Result<u64, Box<dyn Error>> {
    let stat = fs::read_to_string("/proc/self/stat")?;
    let (_, fields) = stat.rsplit_once(')').ok_or("no name in /proc/self/stat")?;
    let fields: Vec<&str> = fields.split_whitespace().collect();
    let (user, system): (u64, u64) = (fields[11].parse()?, fields[12].parse()?);
    Ok(user + system)
}

/// One rank computes for a second, and the others wait for it in every way that there is.
fn calm(world: &World) -> Outcome {
    let computing = || {
        let before = Instant::now();
        while before.elapsed() < Duration::from_secs(1) {}
    };
    let before = occupied()?;
    if world.rank() == 1 {
        computing();
        world.send(0, 1, &[])?;
        computing();
        world.barrier()?;
        computing();
        world.exclusive_sum(1)?;
        return Ok(());
    }
    world.wait()?;
    world.barrier()?;
    world.exclusive_sum(1)?;
    let occupied = occupied()? - before;
    println!("{occupied} hundredths of a second of 300");
    if occupied > 60 {
        return Err(format!("who waited for three seconds has used {occupied} hundredths").into());
    }
    Ok(())
}

/// A message of more bytes than MPI counts to.
fn long(world: &World) -> Outcome {
    const LONG: usize = (2 << 30) + 12_345;
    if world.rank() == 1 {
        let mut bytes = vec![3; LONG];
        bytes[LONG - 1] = 4;
        world.send(0, 1, &bytes)?;
        world.broadcast(1, &mut bytes)?;
        return Ok(());
    }
    let message = world.wait()?;
    let mut bytes = message.bytes;
    for what in ["sent", "given to all"] {
        same(what, &bytes.len(), &LONG)?;
        same(
            what,
            &(bytes[LONG - 1], bytes[LONG - 2], bytes[1 << 30]),
            &(4, 3, 3),
        )?;
        if what == "sent" {
            bytes = Vec::new();
            world.broadcast(1, &mut bytes)?;
        }
    }
    Ok(())
}

/// Ranks 0 and 1 send messages to each other at once, of several lengths.
fn speed(world: &World) -> Outcome {
    for (length, messages) in [(64, 2000), (64 << 10, 1000), (4 << 20, 30), (64 << 20, 6)] {
        world.barrier()?;
        let before = Instant::now();
        let bytes = vec![1; length];
        for _ in 0..messages {
            world.send(1 - world.rank(), 1, &bytes)?;
            world.wait()?;
        }
        let seconds = before.elapsed().as_secs_f64();
        if world.rank() == 0 {
            let each = seconds / f64::from(messages);
            let rate = length as f64 / each / 1e6;
            println!(
                "{length} bytes: {:.1} us each, {rate:.0} MB/s each way",
                each * 1e6
            );
        }
    }
    Ok(())
}
