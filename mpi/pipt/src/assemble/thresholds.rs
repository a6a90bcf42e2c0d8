//! Grey levels in a file: found for one image, and taken for others of a series.
//!
//! A line has the number at which a level begins; the first level begins nowhere. `band 2` on a line of its own
//! begins those of the second band; without such lines they are those of all bands. `#` begins a comment.

use super::AssembleError;
use pipt_raster::Sample;
use pipt_simd::texture::Quantiser;
use std::fmt::Write as _;
use std::fs;

/// A file of thresholds has at most so many bytes.
const FILE_MAX: u64 = 64 << 20;

const HEAD: &str =
    "# Grey levels begin at these numbers; `thresholds=` with this file makes the same ones.\n";

fn wrong(name: &str, what: impl Into<String>) -> AssembleError {
    AssembleError::Thresholds(name.to_owned(), what.into())
}

/// The levels of each band of an image.
pub(super) fn read(name: &str, bands: usize) -> Result<Vec<Quantiser>, AssembleError> {
    let unread = |error: std::io::Error| wrong(name, format!("cannot be read: {error}"));
    let about = fs::metadata(name).map_err(unread)?;
    if about.len() > FILE_MAX {
        return Err(wrong(name, format!("are more than {FILE_MAX} bytes")));
    }
    let text = fs::read_to_string(name).map_err(unread)?;
    let parts = parse(&text).map_err(|what| wrong(name, what))?;
    let of_band = |bounds: &Vec<f64>| {
        Quantiser::bounds(bounds).map_err(|error| wrong(name, format!("cannot be: {error}")))
    };
    match parts.as_slice() {
        [(false, bounds)] => Ok(vec![of_band(bounds)?; bands]),
        _ if parts.len() == bands => parts.iter().map(|(_, bounds)| of_band(bounds)).collect(),
        _ => Err(wrong(
            name,
            format!(
                "are of {} bands, and the image has {bands}: choose bands=",
                parts.len()
            ),
        )),
    }
}

/// Numbers, and whether they are those of one band.
fn parse(text: &str) -> Result<Vec<(bool, Vec<f64>)>, String> {
    let mut parts: Vec<(bool, Vec<f64>)> = Vec::new();
    for (line, text) in (1..).zip(text.lines()) {
        let text = text.split('#').next().unwrap_or_default().trim();
        if text.is_empty() {
            continue;
        }
        if let Some(band) = text.strip_prefix("band ") {
            let next = parts.len() + 1;
            let is_next = band.trim().parse() == Ok(next);
            if !is_next || parts.first().is_some_and(|(of_band, _)| !of_band) {
                return Err(format!("are in no order: line {line} is '{text}'"));
            }
            parts.push((true, Vec::new()));
            continue;
        }
        let number = text.parse().ok().filter(|number: &f64| !number.is_nan());
        let number = number.ok_or_else(|| format!("are no numbers: line {line} is '{text}'"))?;
        match parts.last_mut() {
            Some((_, numbers)) => numbers.push(number),
            None => parts.push((false, vec![number])),
        }
    }
    match parts.is_empty() {
        true => Err("are none: give a number a line".to_owned()),
        false => Ok(parts),
    }
}

/// What [`read`] makes the same levels of.
pub(super) fn text(name: &str, quantisers: &[Quantiser]) -> Result<String, AssembleError> {
    let mut text = HEAD.to_owned();
    let are_same = quantisers.windows(2).all(|pair| pair[0] == pair[1]);
    let count = if are_same { 1 } else { quantisers.len() };
    for (band, quantiser) in (1..).zip(&quantisers[..count]) {
        if count > 1 {
            let _ = writeln!(text, "band {band}");
        }
        let bounds = bounds(quantiser);
        if bounds.windows(2).any(|pair| pair[0] >= pair[1]) {
            let what =
                "cannot be written: its range has fewer numbers than levels; ask for fewer levels";
            return Err(wrong(name, what));
        }
        for bound in bounds {
            let _ = writeln!(text, "{bound}");
        }
    }
    Ok(text)
}

/// The least number of each level but the first, to the last bit: rounding in the division of a range is so
/// repeated by comparisons.
fn bounds(quantiser: &Quantiser) -> Vec<f64> {
    let level = |key: u64| quantiser.level(f64::of_key(key)).unwrap_or(0);
    let most = f64::INFINITY.key();
    let mut least = f64::NEG_INFINITY.key();
    let bound = |wanted: u32| {
        // Levels grow with numbers, so the first number of one is behind that of the last one.
        let (mut begin, mut end) = (least, most);
        while begin < end {
            let middle = begin + (end - begin) / 2;
            match level(middle) < wanted {
                true => begin = middle + 1,
                false => end = middle,
            }
        }
        least = begin;
        // Both zeros are one number.
        f64::of_key(begin) + 0.0
    };
    (1..quantiser.levels()).map(bound).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_is_no_file_of_thresholds_is_refused() {
        for (text, expected) in [
            ("", "are none"),
            ("# only this", "are none"),
            ("1\nx", "line 2 is 'x'"),
            ("nan", "are no numbers"),
            ("1\nband 1\n2", "line 2 is 'band 1'"),
            ("band 2\n1", "line 1 is 'band 2'"),
        ] {
            let said = parse(text).expect_err(text);
            assert!(said.contains(expected), "{text}: {said}");
        }
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("t.txt");
        let name = path.to_str().expect("UTF-8");
        for (text, expected) in [
            (
                "band 1\n1\nband 2\n2",
                "are of 2 bands, and the image has 3",
            ),
            ("2\n1", "Bound number 1"),
        ] {
            fs::write(&path, text).expect("a file");
            let said = read(name, 3).expect_err(text).to_string();
            assert!(said.contains(expected), "{text}: {said}");
        }
        let narrow = Quantiser::equal(1.0, 1.0 + 4.0 * f64::EPSILON, 64).expect("levels");
        let said = text(name, &[narrow]).expect_err("too narrow").to_string();
        assert!(said.contains("ask for fewer levels"), "{said}");
    }

    proptest! {
        #[test]
        fn the_same_levels_come_back(
            least in -1e6..1e6f64,
            width in prop::sample::select(vec![1e-3, 1.0, 255.0, 1e9]),
            levels in 2..300u32,
            samples in prop::collection::vec(-0.2..1.2f64, 50),
        ) {
            let own = Quantiser::equal(least, least + width, levels).expect("levels");
            let other = Quantiser::equal(0.0, 1.0, 5).expect("levels");
            let text = text("t", &[own.clone(), other.clone()]).expect("text");
            let read = parse(&text).expect("numbers");
            for (own, (_, bounds)) in [own, other].iter().zip(&read) {
                let back = Quantiser::bounds(bounds).expect("levels");
                prop_assert_eq!(back.levels(), own.levels());
                let ends = bounds.iter().flat_map(|bound| [bound.next_down(), *bound, bound.next_up()]);
                let samples = samples.iter().map(|part| least + part * width);
                for sample in samples.chain(ends).chain([f64::MIN, f64::INFINITY]) {
                    prop_assert_eq!(back.level(sample), own.level(sample), "{}", sample);
                }
            }
        }
    }
}
