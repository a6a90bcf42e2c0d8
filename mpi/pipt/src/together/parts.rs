//! Files of each rank's own, and the VRT of GDAL that shows them as one image
//! (<https://gdal.org/drivers/raster/vrt.html>).

use crate::blocks::{Grid, Tile};
use crate::place::Affine;
use pipt_raster::{Info, Rect, SampleType, Size};
use pipt_tiff::tag::number::{GEO_KEY_DIRECTORY, MODEL_PIXEL_SCALE, MODEL_TRANSFORMATION};
use pipt_tiff::{Scale, Tag};
use std::fmt::Write;
use std::path::{Path, PathBuf};

/// Keys of a GeoTIFF: what a pixel is, and codes of coordinate systems of the EPSG.
const RASTER_TYPE: u64 = 1025;
const GEOGRAPHIC: u64 = 2048;
const PROJECTED: u64 = 3072;
/// The value of the first for pixels that are points; what is above the last is no code of the EPSG.
const IS_POINT: u64 = 2;
const EPSG_MAX: u64 = 32766;

/// A rectangle of an image, as ranks tell it: its first column and row, its width and height.
pub type Place = (u32, u32, u32, u32);

/// A file that has some of an image.
pub struct Has {
    /// Its name, beside the VRT.
    pub file: String,
    pub places: Vec<Place>,
}

/// The file of a rank.
#[must_use]
pub fn path_of_rank(path: &Path, rank: usize) -> PathBuf {
    path.with_extension(format!("{rank}.tif"))
}

/// Some of an image's tiles as rectangles, few and large.
#[must_use]
pub fn rectangles(grid: Grid, has: impl Fn(Tile) -> bool) -> Vec<Rect> {
    let mut done: Vec<Rect> = Vec::new();
    let mut open: Vec<Rect> = Vec::new();
    let tiles_of_row = |row: u32| {
        let columns = u64::from(grid.columns());
        let block = grid.block(grid.columns(), u64::from(row));
        let turns = u64::from(row) * columns..(u64::from(row) + 1) * columns;
        debug_assert_eq!(block.first, turns.start);
        grid.tiles(&block)
    };
    for row in 0..grid.rows() {
        let mut runs: Vec<Rect> = Vec::new();
        for tile in tiles_of_row(row).filter(|tile| has(*tile)) {
            match runs.last_mut() {
                Some(run) if run.x + run.width == tile.rect.x => run.width += tile.rect.width,
                _ => runs.push(tile.rect),
            }
        }
        // What lies right below one of the row before makes it higher.
        let mut next = Vec::new();
        for run in runs {
            let above = |above: &Rect| {
                (above.x, above.width) == (run.x, run.width) && above.y + above.height == run.y
            };
            match open.iter().position(above) {
                Some(place) => {
                    let above = open.swap_remove(place);
                    next.push(Rect::new(
                        above.x,
                        above.y,
                        above.width,
                        above.height + run.height,
                    ));
                }
                None => next.push(run),
            }
        }
        done.append(&mut open);
        open = next;
    }
    done.append(&mut open);
    done.sort_by_key(|rect| (rect.y, rect.x));
    done
}

/// The VRT of an image: its files, by their names beside it, and which parts of the image each has.
#[must_use]
pub fn vrt(info: &Info, scales: &[Scale], tags: &[Tag], sources: &[Has]) -> String {
    let Size { width, height } = info.size;
    let mut text = format!("<VRTDataset rasterXSize=\"{width}\" rasterYSize=\"{height}\">\n");
    if let Some(code) = epsg(tags) {
        let _ = writeln!(text, "  <SRS>EPSG:{code}</SRS>");
    }
    if let Some(place) = place(tags) {
        let numbers = place.map(|number| format!("{number}")).join(", ");
        let _ = writeln!(text, "  <GeoTransform>{numbers}</GeoTransform>");
    }
    for band in 0..info.bands {
        let kind = name_of(info.kind);
        let number = band + 1;
        let _ = writeln!(
            text,
            "  <VRTRasterBand dataType=\"{kind}\" band=\"{number}\">"
        );
        let name = info
            .names
            .get(band as usize)
            .filter(|name| !name.is_empty());
        if let Some(name) = name {
            let _ = writeln!(text, "    <Description>{}</Description>", escaped(name));
        }
        if let Some(nodata) = info.nodata {
            let _ = writeln!(text, "    <NoDataValue>{}</NoDataValue>", number_of(nodata));
        }
        if let Some(scale) = scales.get(band as usize) {
            let _ = writeln!(text, "    <Offset>{}</Offset>", scale.offset);
            let _ = writeln!(text, "    <Scale>{}</Scale>", scale.step);
        }
        for Has { file, places } in sources {
            for (x, y, width, height) in places {
                let place =
                    format!("xOff=\"{x}\" yOff=\"{y}\" xSize=\"{width}\" ySize=\"{height}\"");
                let _ = writeln!(
                    text,
                    "    <SimpleSource>\n      <SourceFilename relativeToVRT=\"1\">{}</SourceFilename>\n      \
                     <SourceBand>{number}</SourceBand>\n      <SrcRect {place}/>\n      <DstRect {place}/>\n    \
                     </SimpleSource>",
                    escaped(file)
                );
            }
        }
        text += "  </VRTRasterBand>\n";
    }
    text + "</VRTDataset>\n"
}

/// As GDAL names them.
fn name_of(kind: SampleType) -> &'static str {
    match kind {
        SampleType::U8 => "Byte",
        SampleType::I8 => "Int8",
        SampleType::U16 => "UInt16",
        SampleType::I16 => "Int16",
        SampleType::U32 => "UInt32",
        SampleType::I32 => "Int32",
        SampleType::U64 => "UInt64",
        SampleType::I64 => "Int64",
        SampleType::F32 => "Float32",
        SampleType::F64 => "Float64",
    }
}

fn number_of(number: f64) -> String {
    match number.is_nan() {
        true => "nan".to_owned(),
        false => format!("{number}"),
    }
}

fn escaped(text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;");
    text.replace('>', "&gt;").replace('"', "&quot;")
}

/// The value of a key of a GeoTIFF that is in the directory of keys itself.
fn key(tags: &[Tag], wanted: u64) -> Option<u64> {
    let keys = tags
        .iter()
        .find(|tag| tag.number == GEO_KEY_DIRECTORY)?
        .numbers()?;
    let entries = keys.as_chunks::<4>().0;
    let of = entries
        .iter()
        .skip(1)
        .find(|entry| entry[0] == wanted && entry[1] == 0);
    of.map(|entry| entry[3])
}

fn epsg(tags: &[Tag]) -> Option<u64> {
    let code = key(tags, PROJECTED).or_else(|| key(tags, GEOGRAPHIC));
    code.filter(|code| (1..=EPSG_MAX).contains(code))
}

/// The transform as GDAL has it: of the corners of pixels, also where the tags are of their middles.
fn place(tags: &[Tag]) -> Option<[f64; 6]> {
    let is_place = |tag: &Tag| [MODEL_PIXEL_SCALE, MODEL_TRANSFORMATION].contains(&tag.number);
    let affine = tags
        .iter()
        .any(is_place)
        .then(|| Affine::of(tags))
        .flatten()?;
    let shift = if key(tags, RASTER_TYPE) == Some(IS_POINT) {
        -0.5
    } else {
        0.0
    };
    let at = |column: f64, row: f64| affine.coordinates(column + shift, row + shift);
    let (origin, right, below) = (at(0.0, 0.0), at(1.0, 0.0), at(0.0, 1.0));
    Some([
        origin.0,
        right.0 - origin.0,
        below.0 - origin.0,
        origin.1,
        right.1 - origin.1,
        below.1 - origin.1,
    ])
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn rectangles_cover_the_tiles_and_no_others(
            has in proptest::collection::vec(any::<bool>(), 48), width in 1..130_u32, height in 1..100_u32,
        ) {
            let grid = Grid { size: Size::new(width, height), tile: 16 };
            let all = rectangles(grid, |tile| has[usize::try_from(tile.turn).expect("small") % has.len()]);
            let mut covered = vec![0; (width * height) as usize];
            for rect in &all {
                for y in rect.y..rect.y + rect.height {
                    for x in rect.x..rect.x + rect.width {
                        covered[(y * width + x) as usize] += 1;
                    }
                }
            }
            for tile in grid.blocks(1).flat_map(|block| grid.tiles(&block)) {
                let wanted = i32::from(has[usize::try_from(tile.turn).expect("small") % has.len()]);
                for y in tile.rect.y..tile.rect.y + tile.rect.height {
                    for x in tile.rect.x..tile.rect.x + tile.rect.width {
                        prop_assert_eq!(covered[(y * width + x) as usize], wanted);
                    }
                }
            }
        }
    }

    #[test]
    fn a_slice_of_rows_is_one_rectangle() {
        let grid = Grid {
            size: Size::new(100, 90),
            tile: 16,
        };
        let slice = rectangles(grid, |tile| tile.turn >= 7 && tile.turn < 28);
        assert_eq!(slice, [Rect::new(0, 16, 100, 48)]);
    }

    #[test]
    fn the_vrt_says_where_everything_lies() {
        let info = Info {
            size: Size::new(20, 10),
            bands: 1,
            kind: SampleType::F32,
            nodata: Some(f64::NAN),
            names: vec!["a < b".to_owned()],
            grain: Size::new(16, 16),
        };
        let keys = [1, 1, 0, 2, 1025, 0, 1, 2, 3072, 0, 1, 32631];
        let tags = [
            Tag::doubles(33550, &[2.0, 2.0, 0.0]),
            Tag::doubles(33922, &[0.0, 0.0, 0.0, 100.0, 50.0, 0.0]),
            Tag::shorts(34735, &keys),
        ];
        let sources = [Has {
            file: "out.0.tif".to_owned(),
            places: vec![(0, 0, 20, 10)],
        }];
        let text = vrt(&info, &[], &tags, &sources);
        for wanted in [
            "<SRS>EPSG:32631</SRS>",
            "<GeoTransform>99, 2, 0, 51, 0, -2</GeoTransform>",
            "<Description>a &lt; b</Description>",
            "<NoDataValue>nan</NoDataValue>",
            "dataType=\"Float32\"",
            "<DstRect xOff=\"0\" yOff=\"0\" xSize=\"20\" ySize=\"10\"/>",
        ] {
            assert!(text.contains(wanted), "{wanted}: {text}");
        }
    }
}
