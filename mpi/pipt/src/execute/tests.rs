use super::*;
use crate::graph::{Reading, Shape};
use pipt_raster::{Rect, SampleType, Samples, Size};
use std::sync::Mutex;

const SIZE: Size = Size::new(100, 70);

/// Fails at this pixel, if there is one.
struct Ramp(Option<(u32, u32)>);

impl Reading for Ramp {
    fn part(&self, _: u32, rect: Rect) -> Result<Part, Failure> {
        let (right, below) = (rect.x + rect.width, rect.y + rect.height);
        let has = |(x, y)| (rect.x..right).contains(&x) && (rect.y..below).contains(&y);
        if self.0.is_some_and(has) {
            return Err("a bad sector".into());
        }
        let rows = (rect.y..below).flat_map(|y| (rect.x..right).map(move |x| y * 1000 + x));
        Ok(Part {
            samples: rows.collect::<Vec<u32>>().into(),
            there: None,
        })
    }
}

fn graph(bad: Option<(u32, u32)>) -> (Graph, Group) {
    let mut graph = Graph::default();
    let shape = Shape {
        size: SIZE,
        kind: SampleType::U32,
        bands: vec![String::new()],
        nodata: None,
    };
    let node = graph.read(shape, Box::new(Ramp(bad)));
    let grid = Grid {
        size: SIZE,
        tile: 16,
    };
    let group = Group {
        grid,
        nodes: vec![node],
    };
    (graph, group)
}

/// Keeps what comes, and stops after so many blocks.
#[derive(Default)]
struct Kept {
    blocks: Mutex<Vec<(Block, Samples)>>,
    full_after: Option<usize>,
}

impl Sink for Kept {
    type Ready = Samples;

    fn ready(&self, image: usize, band: u32, _: &Block, part: Part) -> Result<Samples, Failure> {
        assert_eq!((image, band), (0, 0));
        Ok(part.samples)
    }

    fn keep(&self, block: &Block, mut ready: Vec<Samples>) -> Result<(), Failure> {
        let mut blocks = self.blocks.lock().expect("no panic");
        if self.full_after.is_some_and(|most| blocks.len() >= most) {
            return Err("the disk is full".into());
        }
        blocks.push((*block, ready.pop().expect("one")));
        Ok(())
    }
}

fn means(threads: usize, tiles: u32) -> Means {
    Means {
        threads,
        tiles,
        level: Level::Scalar,
    }
}

#[test]
fn blocks_come_in_their_order_from_any_number_of_threads() {
    for (threads, tiles, skip) in [(1, 1, 0), (4, 1, 0), (3, 2, 0), (8, 4, 0), (4, 1, 7)] {
        let (graph, group) = graph(None);
        let (kept, watch) = (Kept::default(), Watch::default());
        execute(&graph, &group, &kept, means(threads, tiles), skip, &watch).expect("done");
        let blocks = kept.blocks.into_inner().expect("no panic");
        let expected: Vec<Block> = group
            .grid
            .blocks(tiles)
            .skip(usize::try_from(skip).expect("few"))
            .collect();
        let came: Vec<Block> = blocks.iter().map(|(block, _)| *block).collect();
        assert_eq!(came, expected, "{threads} threads, {tiles}");
        let pixels: u64 = expected.iter().map(|block| block.rect.pixels()).sum();
        assert_eq!(watch.pixels.into_inner(), pixels);
        for (block, samples) in blocks {
            let first = block.rect.y * 1000 + block.rect.x;
            assert!(matches!(samples, Samples::U32(values) if values[0] == first));
        }
    }
}

#[test]
fn one_failure_ends_all_threads() {
    for threads in [1, 4] {
        let (bad, group) = graph(Some((50, 50)));
        let failed = execute(
            &bad,
            &group,
            &Kept::default(),
            means(threads, 1),
            0,
            &Watch::default(),
        );
        assert_eq!(failed.expect_err("bad").to_string(), "a bad sector");
        let (good, group) = graph(None);
        let full = Kept {
            full_after: Some(5),
            ..Kept::default()
        };
        let failed = execute(
            &good,
            &group,
            &full,
            means(threads, 1),
            0,
            &Watch::default(),
        );
        assert_eq!(failed.expect_err("full").to_string(), "the disk is full");
        assert_eq!(full.blocks.into_inner().expect("no panic").len(), 5);
    }
}

#[test]
fn work_is_stopped() {
    let (graph, group) = graph(None);
    let watch = Watch::default();
    watch.stop.store(true, Ordering::Relaxed);
    let stopped = execute(&graph, &group, &Kept::default(), means(2, 1), 0, &watch);
    assert!(matches!(stopped, Err(ExecuteError::Stopped)));
}

#[test]
fn memory_says_how_many_threads_work_on_how_much() {
    let (graph, group) = graph(None);
    // 16 x 16 samples of 4 bytes, and one for whether they are there; and 4 while they wait.
    let least = 256 * 9;
    assert_eq!(memory(&graph, &group, 1), least);
    let groups = [group];
    let of = |bytes, threads| super::means(&graph, &groups, bytes, threads, 64);
    assert!(matches!(of(least, 4), Ok((1, 1))));
    assert!(matches!(of(3 * least, 4), Ok((3, 1))));
    assert!(matches!(of(4 * 2 * least, 4), Ok((4, 2))));
    assert!(matches!(of(u64::MAX, 4), Ok((4, 4))));
    let refused = of(least - 1, 4).expect_err("too little").to_string();
    assert!(refused.contains("at least 1 MiB"), "{refused}");
}
