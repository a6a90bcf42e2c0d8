//! GDAL's tags: names of bands in its metadata, and the value that stands for no data.

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

fn is_name(item: &Item<'_>) -> bool {
    attribute(item.head, "role") == Some("description")
}

/// Names of bands; empty, if none has one.
#[must_use]
pub fn names(metadata: &str, bands: u32) -> Vec<String> {
    let mut names = Vec::new();
    for item in items(metadata).filter(is_name) {
        let band = attribute(item.head, "sample").and_then(|band| band.parse::<u32>().ok());
        if let Some(band) = band.filter(|band| *band < bands) {
            if names.is_empty() {
                names = vec![String::new(); bands as usize];
            }
            // GDAL escapes its texts twice, and so takes off two escapes.
            names[band as usize] = unescape(&unescape(item.text));
        }
    }
    names
}

/// Metadata with these names of bands. What is known of single bands in the metadata before is left out,
/// since these are other bands; what is known of the whole image stays.
#[must_use]
pub fn with_names(before: Option<&str>, names: &[String]) -> Option<String> {
    let kept = items(before.unwrap_or_default())
        .filter(|item| attribute(item.head, "sample").is_none())
        .map(|item| format!("  {}\n", item.whole));
    let named = names
        .iter()
        .enumerate()
        .filter(|(_, name)| !name.is_empty());
    let named = named.map(|(band, name)| {
        let name = escape(&escape(name));
        format!(
            "  <Item name=\"DESCRIPTION\" sample=\"{band}\" role=\"description\">{name}</Item>\n"
        )
    });
    let items: String = kept.chain(named).collect();
    (!items.is_empty()).then(|| format!("<GDALMetadata>\n{items}</GDALMetadata>\n"))
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
        let metadata = with_names(None, &given).expect("names");
        assert_eq!(names(&metadata, 3), given);
        assert_eq!(
            names(&metadata, 1),
            ["energy"],
            "what is beyond is left out"
        );
        assert_eq!(with_names(None, &[]), None);
    }

    #[test]
    fn what_is_known_of_the_whole_image_stays() {
        let before = "<GDALMetadata><Item name=\"A\">1</Item><Item name=\"B\" sample=\"0\">2</Item>\
                      <Item name=\"E\"/></GDALMetadata>";
        let after = with_names(Some(before), &["x".to_owned()]).expect("metadata");
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
