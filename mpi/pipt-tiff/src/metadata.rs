//! GDAL's tags: names and scales of bands in its metadata, and the value that stands for no data.

use std::fmt::Write;

/// Longer metadata than this are not searched for names, bytes.
const MAX_METADATA: usize = 1 << 24;

/// A number that GDAL wrote as the value of no data.
#[must_use]
pub fn nodata(text: &str) -> Option<f64> {
    let text = text.trim();
    match text.to_ascii_lowercase().as_str() {
        "nan" | "-nan" | "-1.#ind" | "1.#qnan" => Some(f64::NAN),
        "inf" | "1.#inf" => Some(f64::INFINITY),
        "-inf" | "-1.#inf" => Some(f64::NEG_INFINITY),
        _ => text.parse().ok(),
    }
}

/// From a sample to what it stands for: `offset + step * sample`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scale {
    pub offset: f64,
    pub step: f64,
}

/// A sample stands for itself.
pub const UNSCALED: Scale = Scale {
    offset: 0.0,
    step: 1.0,
};

/// An item of the metadata: `<Item name="..." sample="0" role="description">text</Item>`.
struct Item<'a> {
    whole: &'a str,
    head: &'a str,
    text: &'a str,
}

fn items(metadata: &str) -> impl Iterator<Item = Item<'_>> {
    let mut rest = if metadata.len() > MAX_METADATA {
        ""
    } else {
        metadata
    };
    std::iter::from_fn(move || {
        loop {
            let from = &rest[rest.find("<Item")?..];
            let head = &from[..from.find('>')?];
            let after = &from[head.len() + 1..];
            if head.ends_with('/') {
                rest = after;
                continue;
            }
            let text = &after[..after.find("</Item>")?];
            let length = head.len() + 1 + text.len() + "</Item>".len();
            rest = &from[length..];
            return Some(Item {
                whole: &from[..length],
                head,
                text,
            });
        }
    })
}

fn attribute<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    let begin = head.find(&format!(" {name}=\""))? + name.len() + 3;
    let value = &head[begin..];
    Some(&value[..value.find('"')?])
}

fn unescape(text: &str) -> String {
    text.replace("&lt;", "<")
        .replace("&gt;", ">")
        .replace("&quot;", "\"")
        .replace("&apos;", "'")
        .replace("&amp;", "&")
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

/// The text of each item that says this of a band, and the number of the band.
fn of_bands<'a>(
    metadata: &'a str,
    role: &'a str,
    bands: u32,
) -> impl Iterator<Item = (usize, &'a str)> {
    items(metadata).filter_map(move |item| {
        let sample = attribute(item.head, "sample")?;
        let band = sample.parse::<u32>().ok().filter(|band| *band < bands)?;
        let is_it = attribute(item.head, "role") == Some(role);
        is_it.then_some((band as usize, item.text))
    })
}

/// Names of bands; empty, if none has one.
#[must_use]
pub fn names(metadata: &str, bands: u32) -> Vec<String> {
    let mut names = Vec::new();
    for (band, text) in of_bands(metadata, "description", bands) {
        if names.is_empty() {
            names = vec![String::new(); bands as usize];
        }
        // GDAL escapes its texts twice, and so takes off two escapes.
        names[band] = unescape(&unescape(text));
    }
    names
}

/// Scales of bands; empty, if none has one.
#[must_use]
pub fn scales(metadata: &str, bands: u32) -> Vec<Scale> {
    let mut scales = Vec::new();
    for role in ["offset", "scale"] {
        for (band, text) in of_bands(metadata, role, bands) {
            let number = text.trim().parse().ok();
            let Some(number) = number.filter(|number: &f64| number.is_finite()) else {
                continue;
            };
            if scales.is_empty() {
                scales = vec![UNSCALED; bands as usize];
            }
            match role {
                "offset" => scales[band].offset = number,
                _ => scales[band].step = number,
            }
        }
    }
    scales
}

/// Metadata with these names and scales of bands. What is known of single bands in the metadata before is left
/// out, since these are other bands; what is known of the whole image stays.
#[must_use]
pub fn with_bands(before: Option<&str>, names: &[String], scales: &[Scale]) -> Option<String> {
    let mut all = String::new();
    let kept = items(before.unwrap_or_default());
    for item in kept.filter(|item| attribute(item.head, "sample").is_none()) {
        let _ = writeln!(all, "  {}", item.whole);
    }
    let mut item = |band: usize, name: &str, role: &str, text: &str| {
        let _ = writeln!(
            all,
            "  <Item name=\"{name}\" sample=\"{band}\" role=\"{role}\">{text}</Item>"
        );
    };
    for band in 0..names.len().max(scales.len()) {
        if let Some(name) = names.get(band).filter(|name| !name.is_empty()) {
            item(band, "DESCRIPTION", "description", &escape(&escape(name)));
        }
        if let Some(scale) = scales.get(band) {
            item(band, "OFFSET", "offset", &scale.offset.to_string());
            item(band, "SCALE", "scale", &scale.step.to_string());
        }
    }
    (!all.is_empty()).then(|| format!("<GDALMetadata>\n{all}</GDALMetadata>\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_bands_come_back_as_they_were() {
        let given = [
            "energy".to_owned(),
            String::new(),
            "a < b & \"c\"".to_owned(),
        ];
        let metadata = with_bands(None, &given, &[]).expect("names");
        assert_eq!(names(&metadata, 3), given);
        assert_eq!(
            names(&metadata, 1),
            ["energy"],
            "what is beyond is left out"
        );
        assert_eq!(with_bands(None, &[], &[]), None);
    }

    #[test]
    fn scales_of_bands_come_back_as_they_were() {
        let small = Scale {
            offset: -1.0,
            step: 2.0 / 65_534.0,
        };
        let given = [UNSCALED, small];
        let metadata = with_bands(None, &["x".to_owned()], &given).expect("scales");
        assert_eq!(scales(&metadata, 2), given);
        assert_eq!(names(&metadata, 2), ["x", ""]);
        assert_eq!(
            scales(&metadata, 1),
            [UNSCALED],
            "what is beyond is left out"
        );
        assert_eq!(scales("<Item name=\"A\">1</Item>", 2), []);
        let of_gdal = "<Item name=\"SCALE\" sample=\"1\" role=\"scale\"> 1e-3 </Item>\
                       <Item name=\"SCALE\" sample=\"0\" role=\"scale\">inf</Item>";
        assert_eq!(
            scales(of_gdal, 2)[1],
            Scale {
                step: 1e-3,
                ..UNSCALED
            }
        );
        assert_eq!(scales(of_gdal, 1), []);
    }

    #[test]
    fn what_is_known_of_the_whole_image_stays() {
        let before = "<GDALMetadata><Item name=\"A\">1</Item><Item name=\"B\" sample=\"0\">2</Item>\
                      <Item name=\"E\"/></GDALMetadata>";
        let after = with_bands(Some(before), &["x".to_owned()], &[]).expect("metadata");
        assert!(after.contains("<Item name=\"A\">1</Item>"), "{after}");
        assert!(!after.contains("\"B\""), "{after}");
        assert_eq!(names(&after, 1), ["x"]);
    }

    #[test]
    fn no_data_is_a_number_or_none() {
        assert_eq!(nodata(" -9999 "), Some(-9999.0));
        assert!(nodata("nan").is_some_and(f64::is_nan));
        assert_eq!(nodata("-inf"), Some(f64::NEG_INFINITY));
        assert_eq!(nodata("none"), None);
    }
}
