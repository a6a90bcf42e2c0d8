//! Reading a batch file.

use super::line::{Word, words};
use super::{
    BYTES_MAX, Fault, Faults, Foreach, From, Image, Input, Job, STATEMENTS_MAX, WRITE_TABLE, Write,
    written,
};
use crate::parameter::{Kind, Parameter, Values};
use crate::routine;
use std::path::Path;

/// Bands that can be chosen.
const BANDS_MAX: u32 = 65_536;

/// What may be said of a file that is read.
pub const INPUT: &[Parameter] = &[
    Parameter::new(
        "page",
        Kind::Whole(0, 65_535),
        "0",
        "of a file with several images, from 0",
    ),
    Parameter::new("bands", Kind::Text, "", "which, as 1,3-5; all without it"),
    Parameter::new(
        "nodata",
        Kind::Number(f64::MIN, f64::MAX),
        "",
        "a sample of this value is none",
    ),
    Parameter::new(
        "mask",
        Kind::Text,
        "",
        "a file of the same size: where it is 0 there is no data",
    ),
];

/// What may be said of a file that is written.
pub const OUTPUT: &[Parameter] = &[
    Parameter::new(
        "compress",
        Kind::Choice(&["none", "deflate", "zstd", "lzw"]),
        "zstd",
        "how",
    ),
    Parameter::new(
        "level",
        Kind::Whole(1, 22),
        "",
        "how hard it tries, with deflate (to 12) and zstd",
    ),
    Parameter::new(
        "tile",
        Kind::Whole(16, 8192),
        "512",
        "pixels to a side of its tiles, a multiple of 16",
    ),
    Parameter::new(
        "scale",
        Kind::Choice(&["i16", "u16"]),
        "",
        "samples as these integers, with scale and offset",
    ),
    Parameter::new(
        "overviews",
        Kind::YesNo,
        "no",
        "smaller images beside it, for viewers",
    ),
    Parameter::new(
        "bigtiff",
        Kind::Choice(&["auto", "yes", "no"]),
        "auto",
        "whether it may be larger than 4 GiB",
    ),
];

/// Words that are no names of images.
const RESERVED: [&str; 5] = ["in", "as", "write", "foreach", "each"];

/// Reads a batch file as a whole.
///
/// # Errors
///
/// Everything that is wrong with it.
pub fn parse(text: &str) -> Result<Job, Faults> {
    let whole = |what: String| Err(Faults::one(what));
    if text.len() > BYTES_MAX {
        return whole(format!("It has more than {BYTES_MAX} bytes"));
    }
    let mut reader = Reader::default();
    for (line, text) in (1..).zip(text.lines()) {
        if let Err(what) = reader.line(line, text) {
            reader.faults.push(Fault { line, what });
        }
        if reader.statements > STATEMENTS_MAX {
            return whole(format!("It has more than {STATEMENTS_MAX} statements"));
        }
    }
    reader.unused();
    if !reader.faults.is_empty() {
        return Err(Faults(reader.faults));
    }
    if reader.job.writes().next().is_none() {
        return whole("Nothing is written: a `write NAME FILE` is missing".to_owned());
    }
    Ok(reader.job)
}

#[derive(Default)]
struct Reader {
    job: Job,
    faults: Vec<Fault>,
    statements: usize,
    /// Whether an image is used by another one or written.
    used: Vec<bool>,
}

impl Reader {
    fn line(&mut self, line: usize, text: &str) -> Result<(), String> {
        let words = words(text).map_err(str::to_owned)?;
        let Some(first) = words.first() else {
            return Ok(());
        };
        self.statements += 1;
        match first.text.as_str() {
            "foreach" => self.foreach(&words[1..]),
            "in" => self.input(line, &words[1..]),
            "write" => self.write(line, &words[1..]),
            _ if words.get(1).is_some_and(|word| word.text == "=") => self.assign(line, &words),
            other => Err(format!(
                "'{other}' begins no statement: there are in, NAME = ROUTINE, write and foreach"
            )),
        }
    }

    fn foreach(&mut self, words: &[Word]) -> Result<(), String> {
        if self.statements > 1 {
            return Err("foreach stands before everything else, and once".to_owned());
        }
        let [pattern, word, name] = words else {
            return Err("it is `foreach PATTERN as NAME`".to_owned());
        };
        if word.text != "as" {
            return Err("it is `foreach PATTERN as NAME`".to_owned());
        }
        name_of(&name.text)?;
        self.job.foreach = Some(Foreach {
            pattern: pattern.text.clone(),
            name: name.text.clone(),
        });
        Ok(())
    }

    fn input(&mut self, line: usize, words: &[Word]) -> Result<(), String> {
        let (path, rest) = words.split_first().ok_or("it is `in FILE`")?;
        let (name, rest) = match rest {
            [word, name, rest @ ..] if word.text == "as" => (Some(name.text.clone()), rest),
            _ => (None, rest),
        };
        let of_each = self.job.foreach.as_ref();
        let is_each = of_each.is_some_and(|each| each.name == path.text && !path.quoted);
        let name = match name {
            Some(name) => name,
            None if is_each => path.text.clone(),
            None => stem(&path.text).ok_or_else(|| {
                format!(
                    "'{}' gives no name: write `in {} as NAME`",
                    path.text, path.text
                )
            })?,
        };
        self.is_new(&name)?;
        let values = Values::read(INPUT, settings(rest)?).map_err(|error| error.to_string())?;
        let bands = values.word("bands").map(bands).transpose()?;
        let path = (!is_each).then(|| path.text.clone());
        let from = From::File(Input {
            path,
            values,
            bands,
        });
        self.add(name, line, from);
        Ok(())
    }

    fn assign(&mut self, line: usize, words: &[Word]) -> Result<(), String> {
        let (name, rest) = (&words[0].text, &words[2..]);
        self.is_new(name)?;
        let (routine, rest) = rest
            .split_first()
            .ok_or("it is `NAME = ROUTINE IMAGE ...`")?;
        let routine = routine::of(&routine.text).ok_or_else(|| unknown(&routine.text))?;
        let plain = |word: &Word| word.quoted || !word.text.contains('=');
        let inputs = rest.iter().take_while(|word| plain(word)).count();
        let most = routine.images + routine.optional;
        if !(routine.images..=most).contains(&inputs) {
            let images = match (routine.images, most) {
                (1, 1) => "one image".to_owned(),
                (1, 2) => "one or two images".to_owned(),
                (several, _) => format!("{several} images"),
            };
            return Err(format!("{} takes {images}, not {inputs}", routine.name));
        }
        let (names, rest) = rest.split_at(inputs);
        let images = names.iter().map(|name| self.place(&name.text));
        let images = images.collect::<Result<Vec<_>, _>>()?;
        let values = Values::read(routine.parameters, settings(rest)?)
            .map_err(|error| format!("{}: {error}", routine.name))?;
        for path in written(&values) {
            self.is_of_each(path)?;
        }
        let is_table = values.word(WRITE_TABLE).is_some();
        for image in &images {
            self.used[*image] = true;
        }
        let from = From::Routine {
            routine,
            images,
            values,
        };
        self.add(name.clone(), line, from);
        // A table may be all that is wanted.
        if let Some(used) = self.used.last_mut() {
            *used = is_table;
        }
        Ok(())
    }

    fn write(&mut self, line: usize, words: &[Word]) -> Result<(), String> {
        let [name, path, rest @ ..] = words else {
            return Err("it is `write NAME FILE`".to_owned());
        };
        let image = self.place(&name.text)?;
        let values = Values::read(OUTPUT, settings(rest)?).map_err(|error| error.to_string())?;
        if values.whole("tile").is_some_and(|tile| tile % 16 != 0) {
            return Err("tile= is a multiple of 16: readers of the format rely on it".to_owned());
        }
        let path = path.text.clone();
        if let Some(other) = self.job.writes.iter().find(|write| write.path == path) {
            return Err(format!("{path} is written in line {} already", other.line));
        }
        self.is_of_each(&path)?;
        let reads = |image: &Image| match &image.from {
            From::File(input) => input.path.as_deref() == Some(path.as_str()),
            From::Routine { .. } => false,
        };
        if self.job.images.iter().any(reads) {
            return Err(format!("{path} is read, and cannot be written too"));
        }
        self.used[image] = true;
        self.job.writes.push(Write {
            line,
            image,
            path,
            values,
        });
        Ok(())
    }

    fn add(&mut self, name: String, line: usize, from: From) {
        self.job.images.push(Image { name, line, from });
        self.used.push(false);
    }

    /// Whether a file that is written has another name for each file of `foreach`.
    fn is_of_each(&self, path: &str) -> Result<(), String> {
        let each = self.job.foreach.as_ref().map(Foreach::in_names);
        match each.filter(|each| !path.contains(each)) {
            Some(each) => Err(format!(
                "each file would overwrite the last one: put {each} into '{path}'"
            )),
            None => Ok(()),
        }
    }

    fn is_new(&self, name: &str) -> Result<(), String> {
        name_of(name)?;
        match self.job.images.iter().find(|image| image.name == name) {
            Some(image) => Err(format!(
                "'{name}' is an image already, by line {}",
                image.line
            )),
            None => Ok(()),
        }
    }

    fn place(&self, name: &str) -> Result<usize, String> {
        let known = self.job.images.iter().position(|image| image.name == name);
        known.ok_or_else(|| format!("no image is called '{name}' before this line"))
    }

    /// Who computes something and uses it nowhere has mistyped a name.
    fn unused(&mut self) {
        for (image, used) in self.job.images.iter().zip(&self.used) {
            if !used && self.faults.is_empty() {
                self.faults.push(Fault {
                    line: image.line,
                    what: format!("'{}' is used nowhere", image.name),
                });
            }
        }
    }
}

fn unknown(name: &str) -> String {
    match routine::like(name).first() {
        Some(like) => format!("'{name}' is no routine: is {like} meant?"),
        None => format!("'{name}' is no routine: `pipt list` has all of them"),
    }
}

/// A name is a letter, then letters, digits, `_` and `-`.
fn name_of(name: &str) -> Result<(), String> {
    let mut letters = name.chars();
    let begins = letters.next().is_some_and(char::is_alphabetic);
    let goes_on = letters.all(|letter| letter.is_alphanumeric() || "_-".contains(letter));
    if !begins || !goes_on || RESERVED.contains(&name) {
        return Err(format!(
            "'{name}' cannot be a name: it is a letter, then letters, digits, '_' and '-'"
        ));
    }
    Ok(())
}

/// The name of a file without directory and extension, if that can be a name.
fn stem(path: &str) -> Option<String> {
    let stem = Path::new(path).file_stem()?.to_str()?;
    name_of(stem).ok().map(|()| stem.to_owned())
}

fn settings(words: &[Word]) -> Result<Vec<(&str, &str)>, String> {
    let one = |word: &'_ Word| -> Result<(usize, usize), String> {
        match word.text.find('=') {
            Some(place) if !word.quoted => Ok((place, place + 1)),
            _ => Err(format!("'{}' is not NAME=VALUE", word.text)),
        }
    };
    words
        .iter()
        .map(|word| one(word).map(|(end, begin)| (&word.text[..end], &word.text[begin..])))
        .collect()
}

/// Bands from 1, as `1,3-5`; in the order given, each once. Gives them from 0.
///
/// # Errors
///
/// It is something else.
pub fn bands(text: &str) -> Result<Vec<u32>, String> {
    let wrong = || format!("bands={text} cannot be: it is numbers from 1, as 1,3-5, each once");
    let number = |text: &str| {
        let number: u32 = text.parse().ok()?;
        (1..=BANDS_MAX).contains(&number).then(|| number - 1)
    };
    let mut all = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (
            number(first).ok_or_else(wrong)?,
            number(last).ok_or_else(wrong)?,
        );
        if first > last {
            return Err(wrong());
        }
        for band in first..=last {
            if all.len() >= BANDS_MAX as usize {
                return Err(wrong());
            }
            all.push(band);
        }
    }
    let mut sorted = all.clone();
    sorted.sort_unstable();
    sorted.dedup();
    if sorted.len() < all.len() {
        return Err(wrong());
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const JOB: &str = "
        # What the study ran
        foreach scenes/*.tif as scene
        in scene bands=1,3-4 nodata=0
        calm = SquareMedian scene size=15
        rough = CoOccurEntropy calm window=9 levels=64   # fused
        write calm out/{scene}-calm.tif
        write rough \"out dir/{scene}-rough.tif\" compress=deflate tile=256
    ";

    #[test]
    fn a_job_is_read() {
        let job = parse(JOB).expect("a job");
        let each = job.foreach.as_ref().expect("files");
        assert_eq!(
            (each.pattern.as_str(), each.name.as_str()),
            ("scenes/*.tif", "scene")
        );
        let names: Vec<&str> = job.images.iter().map(|image| image.name.as_str()).collect();
        assert_eq!(names, ["scene", "calm", "rough"]);
        let From::File(input) = &job.images[0].from else {
            panic!("no file: {:?}", job.images[0]);
        };
        assert_eq!((&input.path, &input.bands), (&None, &Some(vec![0, 2, 3])));
        let From::Routine {
            routine,
            images,
            values,
        } = &job.images[2].from
        else {
            panic!("no routine: {:?}", job.images[2]);
        };
        assert_eq!(
            (routine.name, &images[..], values.whole("levels")),
            ("CoOccurEntropy", &[1][..], Some(64))
        );
        assert_eq!(job.writes[1].path, "out dir/{scene}-rough.tif");
        assert_eq!(job.writes[1].values.word("compress"), Some("deflate"));
    }

    #[test]
    fn everything_that_is_wrong_is_said_at_once() {
        let faults =
            parse("in a.tif\nb = SquareMedain a\nc = SquareMedian x\nwrite a a.tif\nlook a\n");
        let said = faults.expect_err("faults").to_string();
        let lines: Vec<&str> = said.lines().collect();
        assert_eq!(
            lines,
            [
                "Line 2: 'SquareMedain' is no routine: is SquareMedian meant?",
                "Line 3: no image is called 'x' before this line",
                "Line 4: a.tif is read, and cannot be written too",
                "Line 5: 'look' begins no statement: there are in, NAME = ROUTINE, write and foreach",
            ]
        );
    }

    #[test]
    fn what_cannot_be_meant_is_refused() {
        for (text, expected) in [
            ("in a.tif", "'a' is used nowhere"),
            ("", "Nothing is written"),
            (
                "in a.tif\nin b/a.tif\nwrite a o.tif",
                "'a' is an image already, by line 1",
            ),
            ("in 2.tif\nwrite a o.tif", "'2.tif' gives no name"),
            ("in a.tif bands=2-1\nwrite a o.tif", "bands=2-1 cannot be"),
            ("in a.tif bands=0\nwrite a o.tif", "bands=0 cannot be"),
            ("in a.tif\nwrite a o.tif tile=100", "a multiple of 16"),
            (
                "in a.tif\nwrite a o.tif\nwrite a o.tif",
                "in line 2 already",
            ),
            (
                "in a.tif\nforeach *.tif as x\nwrite a o.tif",
                "before everything else",
            ),
            (
                "foreach *.tif as x\nin x\nwrite x o.tif",
                "put {x} into 'o.tif'",
            ),
            (
                "foreach *.tif as x\nin x\nt = CoOccur x write-thresholds=t\nwrite t {x}.o.tif",
                "put {x} into 't'",
            ),
            (
                "in a.tif\nb = SquareMedian a a\nwrite b o.tif",
                "takes one image, not 2",
            ),
            (
                "in a.tif\nb = SquareMedian a size=4\nwrite b o.tif",
                "SquareMedian: size=4 cannot be",
            ),
            ("in a.tif\nwrite a o.tif \"tile=16\"", "is not NAME=VALUE"),
        ] {
            let said = parse(text).expect_err(text).to_string();
            assert!(said.contains(expected), "{text}: {said}");
        }
        let long = "#".repeat(BYTES_MAX + 1);
        assert!(parse(&long).is_err());
        let many = "in a.tif\n".repeat(STATEMENTS_MAX + 1);
        let said = parse(&many).expect_err("many").to_string();
        assert!(said.contains("more than 1000 statements"), "{said}");
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "([a-z=# \"]|in |write |foreach |SquareMedian |\n){0,60}") {
            if let Err(faults) = parse(&text) {
                prop_assert!(!faults.0.is_empty());
            }
        }
    }
}
