//! What `pipt list` and `pipt info` print.

use crate::input::File;
use crate::parameter::Parameter;
use crate::place::Affine;
use crate::routine::{self, Routine};
use serde_json::{Value, json};
use std::fmt::Write;

/// All routines by family, or one with its parameters.
///
/// # Errors
///
/// There is no such routine: what may have been meant.
pub fn list(name: Option<&str>) -> Result<String, String> {
    let Some(name) = name else {
        return Ok(all());
    };
    let routine = routine::of(name).ok_or_else(|| {
        let like = routine::like(name);
        let like = like.first().map(|like| format!(": is {like} meant?"));
        format!("There is no routine '{name}'{}", like.unwrap_or_default())
    })?;
    Ok(one(routine))
}

fn all() -> String {
    let mut text = String::new();
    let mut family = None;
    for routine in routine::listed() {
        if family != Some(routine.family) {
            let gap = if text.is_empty() { "" } else { "\n" };
            let _ = writeln!(text, "{gap}{}", routine.family.about());
            family = Some(routine.family);
        }
        let _ = writeln!(text, "  {:<22}{}", routine.name, routine.about);
    }
    text
}

fn one(routine: &Routine) -> String {
    let mut text = format!("{}: {}\n", routine.name, routine.about);
    for parameter in routine.parameters {
        let default = match parameter.default {
            Some("") => String::new(),
            Some(default) => format!(" [{default}]"),
            None => " (has to be given)".to_owned(),
        };
        let _ = writeln!(
            text,
            "\n  {}={}{default}\n      {}",
            parameter.name, parameter.kind, parameter.about
        );
    }
    text
}

/// The same as JSON, an object for each routine.
#[must_use]
pub fn list_json(name: Option<&str>) -> Vec<Value> {
    let parameter = |parameter: &Parameter| {
        let (least, most) = parameter.kind.limits();
        json!({
            "name": parameter.name,
            "is": parameter.kind.to_string(),
            "type": parameter.kind.name(),
            "least": least,
            "most": most,
            "words": parameter.kind.words(),
            "needed": parameter.default.is_none(),
            "default": parameter.default.filter(|default| !default.is_empty()),
            "about": parameter.about,
        })
    };
    let asked = routine::listed().filter(|routine| name.is_none_or(|name| routine.name == name));
    asked
        .map(|routine| {
            let parameters: Vec<Value> = routine.parameters.iter().map(parameter).collect();
            json!({
                "routine": routine.name,
                "family": format!("{:?}", routine.family).to_lowercase(),
                "about": routine.about,
                "images": routine.images,
                "optional_images": routine.optional,
                "parameters": parameters,
            })
        })
        .collect()
}

/// What an image is, as text.
#[must_use]
pub fn info(name: &str, file: &File) -> String {
    let info = file.info();
    let mut text = format!(
        "{name}: {} pixels, {} {} of {}\n",
        info.size,
        info.bands,
        if info.bands == 1 { "band" } else { "bands" },
        info.kind
    );
    let mut line = |what: &str, is: String| {
        let _ = writeln!(text, "  {what:<12}{is}");
    };
    line("read by", reader(file));
    line("parts of", info.grain.to_string());
    if let Some(nodata) = info.nodata {
        line("no data", nodata.to_string());
    }
    for (band, scale) in (1..).zip(file.scales()) {
        let is = format!("{} + {} * sample of band {band}", scale.offset, scale.step);
        line("stands for", is);
    }
    if !info.names.is_empty() {
        line("bands", info.names.join(", "));
    }
    if let Some(place) = Affine::of(&file.tags()) {
        let [left, upper, right, lower] = corners(place, file);
        line("lies at", format!("{left},{upper},{right},{lower}"));
    }
    text
}

/// The same as JSON.
#[must_use]
pub fn info_json(name: &str, file: &File) -> Value {
    let info = file.info();
    let place = Affine::of(&file.tags());
    json!({
        "file": name,
        "width": info.size.width,
        "height": info.size.height,
        "bands": info.bands,
        "type": info.kind.name(),
        "reader": reader(file),
        "part_width": info.grain.width,
        "part_height": info.grain.height,
        "nodata": info.nodata,
        "names": info.names,
        "scales": file.scales().iter().map(|scale| [scale.offset, scale.step]).collect::<Vec<_>>(),
        "lies_at": place.map(|place| corners(place, file)),
    })
}

fn reader(file: &File) -> String {
    match file {
        File::Tiff(_) => "pipt".to_owned(),
        File::Gdal(dataset) => format!("GDAL {}", dataset.version()),
    }
}

/// Coordinates of the upper left and the lower right corner.
fn corners(place: Affine, file: &File) -> [f64; 4] {
    let size = file.info().size;
    let (left, upper) = place.coordinates(0.0, 0.0);
    let (right, lower) = place.coordinates(f64::from(size.width), f64::from(size.height));
    [left, upper, right, lower]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routines_are_listed() {
        let text = list(None).expect("all");
        assert!(text.starts_with("Texture: grey-level"), "{text}");
        assert_eq!(
            text.matches("\n  ").count(),
            routine::listed().count(),
            "{text}"
        );
        let one = list(Some("ATrimmedSqMean")).expect("one");
        assert!(one.contains("  trim=a number from 0 to 0.5 [0.1]"), "{one}");
        let none = list(Some("crossmedian")).expect_err("none");
        assert_eq!(
            none,
            "There is no routine 'crossmedian': is CrossMedian meant?"
        );
        assert_eq!(list_json(None).len(), routine::listed().count());
        let median = &list_json(Some("CrossMedian"))[0];
        assert_eq!(
            (&median["family"], &median["images"]),
            (&json!("order"), &json!(1))
        );
        let size = &median["parameters"][0];
        assert_eq!(
            (&size["type"], &size["least"], &size["most"]),
            (&json!("odd"), &json!(1), &json!(255))
        );
        let value = &median["parameters"][2];
        assert_eq!(
            (&value["type"], &value["least"]),
            (&json!("number"), &Value::Null)
        );
        assert_eq!(median["parameters"][1]["words"][0], "reflect");
    }
}
