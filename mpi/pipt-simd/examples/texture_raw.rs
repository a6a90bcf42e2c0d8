//! Textures of a file of levels, for comparing with other programs:
//! `texture_raw FILE WIDTH grass|otb|itk|eight WINDOW LEVELS TO` reads one byte a pixel, row by row, and writes
//! 32-bit floats, output by output, for the pixels whose windows lie within the image. The names go to stdout.

use std::error::Error;

use pipt_simd::Level;
use pipt_simd::texture::{Feature, LevelImage, Levels, Offset, Parameters, Plan};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [file, width, which, window, levels, to] = &arguments[..] else {
        return Err("give FILE WIDTH grass|otb|itk|eight WINDOW LEVELS TO".into());
    };
    let (width, window, levels) = (width.parse::<usize>()?, window.parse()?, levels.parse()?);
    let parameters = match which.as_str() {
        "grass" => Parameters::grass(window, levels),
        "otb" => Parameters::otb(window, levels, Offset::new(1, 0)),
        "itk" => Parameters::itk(window, levels),
        _ => Parameters::new(window, levels, &Feature::EIGHT),
    };
    let plan = Plan::new(&parameters)?;
    let image = std::fs::read(file)?;
    let halo = plan.halo();
    let margin = |before: u32, after: u32| usize::try_from(before + after);
    let across = margin(halo.left, halo.right)?;
    let down = margin(halo.above, halo.below)?;
    let height = image.len() / width.max(1);
    if width <= across || height <= down {
        return Err("the image is smaller than a window".into());
    }
    let (inner, rows) = (width - across, height - down);
    let image = LevelImage::new(Levels::U8(&image), None, width, inner, rows);
    let names = plan.outputs();
    let mut outputs = vec![vec![0.0_f32; inner * rows]; names.len()];
    let mut slices: Vec<&mut [f32]> = outputs.iter_mut().map(Vec::as_mut_slice).collect();
    plan.run(Level::best(), &image, &mut slices)?;
    let bytes = outputs
        .iter()
        .flatten()
        .flat_map(|value| value.to_le_bytes());
    std::fs::write(to, bytes.collect::<Vec<u8>>())?;
    println!(
        "{inner} {rows} {} {} {}",
        halo.left,
        halo.above,
        names.join(" ")
    );
    Ok(())
}
