//! The two text formats that Prometheus reads, and which of them it asks for.

/// Format of the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Format {
    /// OpenMetrics 1.0.
    OpenMetrics,
    /// The text format 0.0.4, which everything understands.
    Plain,
}

/// The most media ranges of an Accept header that are read.
pub(crate) const RANGES_MAX: usize = 32;

impl Format {
    /// The Content-Type of the answer.
    #[must_use]
    pub fn content_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Plain => "text/plain; version=0.0.4; charset=utf-8",
        }
    }
}

/// The format that suits an Accept header best; the plain one if the header is missing or names none that we
/// have. Between formats that are equally welcome, OpenMetrics is chosen.
#[must_use]
pub fn negotiate(accept: Option<&str>) -> Format {
    let ranges = accept.unwrap_or_default().split(',').take(RANGES_MAX);
    let mut open: Option<f64> = None;
    let mut plain: Option<f64> = None;
    for range in ranges {
        let mut parts = range.split(';').map(str::trim);
        let kind = parts.next().unwrap_or_default().to_ascii_lowercase();
        let mut quality = 1.0;
        let mut version = None;
        for part in parts {
            match part.split_once('=') {
                Some((name, value)) if name.eq_ignore_ascii_case("q") => {
                    quality = value.trim().parse().unwrap_or(0.0);
                }
                Some((name, value)) if name.eq_ignore_ascii_case("version") => {
                    version = Some(value.trim_matches('"').to_owned());
                }
                _ => {}
            }
        }
        let of = match (kind.as_str(), version.as_deref()) {
            ("application/openmetrics-text", None | Some("1.0.0")) => &mut open,
            ("text/plain", None | Some("0.0.4")) => &mut plain,
            ("text/*" | "*/*", None) if plain.is_none() => &mut plain,
            _ => continue,
        };
        *of = Some(of.map_or(quality, |known| known.max(quality)));
    }
    match (open, plain) {
        (Some(open), plain) if open > 0.0 && open >= plain.unwrap_or(0.0) => Format::OpenMetrics,
        _ => Format::Plain,
    }
}

/// Turns OpenMetrics into the plain format: a counter has its suffix in all lines, and there are no lines for
/// units and for the end.
#[must_use]
pub(crate) fn plain(text: &str) -> String {
    let counter = |line: &str| {
        let rest = line.strip_prefix("# TYPE ")?;
        rest.strip_suffix(" counter").map(str::to_owned)
    };
    let counters: std::collections::HashSet<String> = text.lines().filter_map(counter).collect();
    let mut plain = String::with_capacity(text.len());
    for line in text.lines() {
        let words: Vec<&str> = line.splitn(4, ' ').collect();
        match words[..] {
            ["#", "EOF" | "UNIT", ..] => continue,
            ["#", what @ ("HELP" | "TYPE"), name, rest] if counters.contains(name) => {
                plain.push_str(&format!("# {what} {name}_total {rest}"));
            }
            _ => plain.push_str(line),
        }
        plain.push('\n');
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_form_that_is_asked_for_is_taken() {
        use Format::{OpenMetrics, Plain};
        let prometheus = "application/openmetrics-text;version=1.0.0,\
            application/openmetrics-text;version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
        for (accept, wanted) in [
            (None, Plain),
            (Some(""), Plain),
            (Some("*/*"), Plain),
            (Some("text/html, application/json"), Plain),
            (Some(prometheus), OpenMetrics),
            (Some("application/openmetrics-text"), OpenMetrics),
            (
                Some("Application/OpenMetrics-Text ; Version=\"1.0.0\""),
                OpenMetrics,
            ),
            (Some("application/openmetrics-text; version=0.0.1"), Plain),
            (Some("application/openmetrics-text;q=0"), Plain),
            (
                Some("application/openmetrics-text;q=0.4,text/plain;q=0.5"),
                Plain,
            ),
            (
                Some("application/openmetrics-text;q=0.4,text/*;q=0.3"),
                OpenMetrics,
            ),
            (Some("application/openmetrics-text;q=x"), Plain),
        ] {
            assert_eq!(negotiate(accept), wanted, "{accept:?}");
        }
    }

    #[test]
    fn no_more_ranges_are_looked_at_than_their_limit() {
        let accept = |others: usize| "a/b,".repeat(others) + "application/openmetrics-text";
        assert_eq!(
            negotiate(Some(&accept(RANGES_MAX - 1))),
            Format::OpenMetrics
        );
        assert_eq!(negotiate(Some(&accept(RANGES_MAX))), Format::Plain);
    }

    #[test]
    fn counters_have_their_suffix_in_all_lines_of_the_plain_form() {
        let open = "# HELP a_bytes Of a.\n# TYPE a_bytes counter\n# UNIT a_bytes bytes\na_bytes_total 1\n\
                    # HELP b Of b.\n# TYPE b gauge\nb 2\n# EOF\n";
        let wanted = "# HELP a_bytes_total Of a.\n# TYPE a_bytes_total counter\na_bytes_total 1\n\
                      # HELP b Of b.\n# TYPE b gauge\nb 2\n";
        assert_eq!(plain(open), wanted);
    }
}
