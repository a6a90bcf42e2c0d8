//! A job that several ranks do together.

use super::{One, WorkError, Written, begin, files, form, identity, kept, one, whole};
use crate::blocks::Tile;
use crate::command::Work;
use crate::execute::{Group, Means};
use crate::output::{self, Files, Form, Manner, Output};
use crate::ranks::{About, Ranks, Team, TeamError};
use crate::together::{self, Collect, Distribution, Has, Place, Task, TogetherError};
use pipt_tiff::writer;
use std::path::Path;
use std::time::Instant;
use xxhash_rust::xxh3::xxh3_64;

pub(super) fn run(
    work: &Work,
    ranks: &dyn Ranks,
    show: &(dyn Fn(u64, u64) + Sync),
) -> Result<Vec<Written>, WorkError> {
    let team = Team::greet(ranks, &About::this(sum(work))).map_err(WorkError::Team)?;
    let done = match work.how.distribution {
        Distribution::Files => own_files(work, &team, show),
        _ => all_files(work, &team, show),
    };
    match done {
        Err(error) if !error.is_elsewhere() => {
            let sentence = error.to_string();
            match team.fail(&sentence) {
                true => Err(error),
                false => Err(WorkError::Team(TeamError::Elsewhere(0, sentence))),
            }
        }
        done => done,
    }
}

/// Of all that has to be the same at all ranks.
fn sum(work: &Work) -> u64 {
    let how = &work.how;
    let how = (
        how.part,
        how.overwrite,
        how.resume,
        how.distribution,
        how.collect,
        how.tile,
    );
    xxh3_64(format!("{:?} {how:?}", work.job).as_bytes())
}

/// Each rank does whole files by itself.
fn own_files(
    work: &Work,
    team: &Team<'_>,
    show: &(dyn Fn(u64, u64) + Sync),
) -> Result<Vec<Written>, WorkError> {
    let files: Vec<String> = files(&work.job)?.into_iter().flatten().collect();
    if files.is_empty() {
        return Err(WorkError::NoFiles);
    }
    // Where each machine has files of its own of these names, their sizes may differ: rank 0's count.
    let bytes = |file: &String| std::fs::metadata(file).map_or(0, |about| about.len());
    let sizes = team
        .is_manager()
        .then(|| files.iter().map(bytes).collect::<Vec<u64>>());
    let sizes = team.of_manager(sizes).map_err(WorkError::Team)?;
    let owners = together::files(&sizes, team.ranks().size());
    let mut work = Work {
        job: work.job.clone(),
        how: work.how.clone(),
    };
    work.how.threads = Some(work.how.threads.unwrap_or(team.threads()));
    work.how.collect = Collect::Direct;
    let mut written = Vec::new();
    let own = files.iter().zip(&owners);
    for (file, _) in own.filter(|(_, owner)| **owner == team.ranks().rank()) {
        written.extend(whole(&work, Some(file), show)?);
    }
    let all = team.gather(&written).map_err(WorkError::Team)?;
    Ok(all.into_iter().flatten().collect())
}

/// All ranks do one file after the other.
fn all_files(
    work: &Work,
    team: &Team<'_>,
    show: &(dyn Fn(u64, u64) + Sync),
) -> Result<Vec<Written>, WorkError> {
    let mut written = Vec::new();
    for file in files(&work.job)? {
        let file = file.as_deref();
        let one = one(work, file, Some(team))?;
        if team.is_manager() {
            begin(work, file, &one)?;
        }
        for ((group, writes), means) in one.groups.iter().zip(&one.means) {
            let tiles = team.shortest(means.tiles).map_err(WorkError::Team)?;
            let means = Means { tiles, ..*means };
            let part = Part {
                work,
                one: &one,
                team,
                group,
                writes,
                means,
            };
            written.extend(match work.how.collect {
                Collect::Parts => part.own_files(show)?,
                _ => part.one_file(show)?,
            });
        }
    }
    // Who has it is told that all have it.
    team.of_manager(Some(written)).map_err(WorkError::Team)
}

/// Files that are written together.
struct Part<'a> {
    work: &'a Work,
    one: &'a One,
    team: &'a Team<'a>,
    group: &'a Group,
    writes: &'a [usize],
    means: Means,
}

impl Part<'_> {
    fn manner(&self) -> Manner {
        Manner {
            overwrite: self.work.how.overwrite,
            resume: self.work.how.resume,
            threads: self.means.threads,
            identity: identity(self.work),
            sparse: self.work.how.collect == Collect::Parts,
        }
    }

    fn task(&self) -> Task<'_> {
        Task {
            team: self.team,
            graph: &self.one.all.graph,
            group: self.group,
            means: self.means,
            distribution: self.work.how.distribution,
            kept: kept(&self.work.how),
        }
    }

    /// What the files will be; `path` gives each its name.
    fn forms(&self, path: impl Fn(&Path) -> std::path::PathBuf) -> Result<Vec<Form>, WorkError> {
        let of = |number: &usize| {
            let path = path(&self.one.paths[*number]);
            form(self.work, self.one, *number, &path, self.manner())
        };
        let forms: Result<_, _> = self.writes.iter().map(of).collect();
        forms.map_err(WorkError::Output)
    }

    fn written(&self, number: usize, path: &Path, bytes: u64, seconds: f64) -> Written {
        let shape = self.one.all.graph.shape(self.group.nodes[number]);
        Written {
            path: path.to_owned(),
            bytes,
            pixels: shape.size.pixels(),
            bands: shape.bands.len(),
            seconds,
            threads: self.means.threads,
            ranks: self.team.ranks().size(),
        }
    }

    fn one_file(&self, show: &dyn Fn(u64, u64)) -> Result<Vec<Written>, WorkError> {
        let begun = Instant::now();
        let forms = self.forms(Path::to_owned)?;
        let begin = |form: &Form| Output::begin(form.clone(), self.manner());
        let outputs = match self.team.is_manager() {
            true => Some(forms.iter().map(begin).collect::<Result<Vec<_>, _>>()),
            false => None,
        };
        let outputs = outputs.transpose().map_err(WorkError::Output)?;
        let collect = self.work.how.collect;
        let outputs = together::one_file(&self.task(), &forms, outputs, collect, show);
        let mut written = Vec::new();
        for (number, output) in (0..).zip(outputs.map_err(of_group)?.into_iter().flatten()) {
            let finished = output.finish().map_err(WorkError::Output)?;
            let seconds = begun.elapsed().as_secs_f64();
            written.push(self.written(number, &finished.path, finished.bytes, seconds));
        }
        Ok(written)
    }

    /// A file of each rank's own, and a VRT over all.
    fn own_files(&self, show: &dyn Fn(u64, u64)) -> Result<Vec<Written>, WorkError> {
        let begun = Instant::now();
        let rank = self.team.ranks().rank();
        let forms = self.forms(|path| together::path_of_rank(path, rank))?;
        let begin = |form: &Form| Output::begin(form.clone(), self.manner());
        let outputs: Result<Vec<Output>, _> = forms.iter().map(begin).collect();
        let files = Files {
            outputs: outputs.map_err(WorkError::Output)?,
            grid: self.group.grid,
        };
        together::parts(&self.task(), &files, show).map_err(of_group)?;
        let has = |output: &Output| {
            let planes = output.writer.design().planes();
            let has = |tile: Tile| output.writer.is_done(tile.turn * planes);
            let all = together::rectangles(self.group.grid, has).into_iter();
            all.map(|rect| (rect.x, rect.y, rect.width, rect.height))
                .collect()
        };
        let own: Vec<Vec<Place>> = files.outputs.iter().map(has).collect();
        // When this is told all ranks have all their tiles; only then do files get their names.
        let parts = self.team.gather(&own).map_err(WorkError::Team)?;
        let finish = |output: Output| output.finish().map_err(WorkError::Output);
        let finished: Vec<_> = files
            .outputs
            .into_iter()
            .map(finish)
            .collect::<Result<_, _>>()?;
        let bytes: Vec<u64> = finished.iter().map(|finished| finished.bytes).collect();
        let bytes = self.team.gather(&bytes).map_err(WorkError::Team)?;
        let mut written = Vec::new();
        for (number, form) in forms.iter().enumerate() {
            let parts: Vec<_> = parts
                .iter()
                .map(|of_rank| of_rank.get(number).cloned().unwrap_or_default())
                .collect();
            let bytes = bytes.iter().filter_map(|of_rank| of_rank.get(number)).sum();
            let path = &self.one.paths[self.writes[number]];
            if self.team.is_manager() {
                self.write_vrt(form, number, path, parts)?;
            }
            let seconds = begun.elapsed().as_secs_f64();
            written.push(self.written(number, path, bytes, seconds));
        }
        // The VRT is there: nothing is to be resumed any more.
        self.team.gather(&()).map_err(WorkError::Team)?;
        for form in &forms {
            let path = form.path().to_owned();
            let of = |error| output::OutputError::Tiff(path, Box::new(error));
            writer::forget(form.path())
                .map_err(of)
                .map_err(WorkError::Output)?;
        }
        Ok(written)
    }

    fn write_vrt(
        &self,
        form: &Form,
        number: usize,
        path: &Path,
        parts: Vec<Vec<Place>>,
    ) -> Result<(), WorkError> {
        let image = &self.one.all.images[self.work.job.writes[self.writes[number]].image];
        let name = |rank: usize| {
            let path = together::path_of_rank(path, rank);
            let name = path.file_name().unwrap_or_default();
            name.to_string_lossy().into_owned()
        };
        let sources = parts.into_iter().enumerate().map(|(rank, places)| Has {
            file: name(rank),
            places,
        });
        let sources: Vec<Has> = sources.collect();
        let scales = form.scales().unwrap_or(&image.scales);
        let text = together::vrt(form.design().info(), scales, &image.tags, &sources);
        output::text(path, &text, self.work.how.overwrite).map_err(WorkError::Output)
    }
}

fn of_group(error: TogetherError) -> WorkError {
    WorkError::Together(error)
}
