//! As much of PromQL as says which series an expression names. Whether it is right in all, Prometheus itself
//! says (`metrics::full::prometheus`).

use std::collections::{BTreeMap, BTreeSet};

use whim_system_tests::{Result, bail, ensure};

/// What is no name of a series: functions and aggregations that take an expression in brackets,
const FUNCTIONS: &[&str] = &[
    "sum",
    "min",
    "max",
    "count",
    "avg",
    "rate",
    "increase",
    "histogram_quantile",
    "time",
    "label_values",
];
/// and words between expressions.
const WORDS: &[&str] = &["and", "or", "unless", "bool"];
/// Those that are followed by names of labels.
const LISTS: &[&str] = &[
    "by",
    "without",
    "on",
    "ignoring",
    "group_left",
    "group_right",
];
/// What Prometheus adds by itself.
const OF_PROMETHEUS: &[&str] = &["instance", "job"];

/// A sample's labels.
pub(super) type Labels = BTreeMap<String, String>;

/// What was scraped: each series' name, and its labels.
#[derive(Debug, Default)]
pub(super) struct Scraped {
    pub series: BTreeMap<String, Vec<Labels>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    Name(String),
    Text(String),
    Sign(String),
}

fn tokens(expression: &str) -> Result<Vec<Token>> {
    let mut tokens = Vec::new();
    let mut rest = expression.trim_start();
    while let Some(first) = rest.chars().next() {
        let taken = if first.is_ascii_alphabetic() || first == '_' {
            let is_in = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
            let end = rest.find(|c| !is_in(c)).unwrap_or(rest.len());
            tokens.push(Token::Name(rest[..end].to_owned()));
            end
        } else if first == '"' {
            let Some(end) = rest[1..].find('"') else {
                bail!("A text does not end: {rest}");
            };
            tokens.push(Token::Text(rest[1..=end].to_owned()));
            end + 2
        } else if first.is_ascii_digit() {
            // Numbers and times, such as 0.95, 14, 200e6, 15m.
            let is_in = |c: char| c.is_ascii_alphanumeric() || c == '.';
            rest.find(|c| !is_in(c)).unwrap_or(rest.len())
        } else {
            let two = ["=~", "!~", "!=", "==", ">=", "<="];
            let sign = two.into_iter().find(|sign| rest.starts_with(sign));
            let one = "+-*/%^(){}[],=<>:";
            ensure!(sign.is_some() || one.contains(first), "No PromQL: {rest}");
            let sign = sign.map_or_else(|| first.to_string(), str::to_owned);
            tokens.push(Token::Sign(sign.clone()));
            sign.len()
        };
        rest = rest[taken..].trim_start();
    }
    Ok(tokens)
}

fn closed(tokens: &[Token]) -> Result<()> {
    let mut open = Vec::new();
    for token in tokens {
        let Token::Sign(sign) = token else { continue };
        match sign.as_str() {
            "(" | "[" | "{" => open.push(sign.as_str()),
            ")" | "]" | "}" => {
                let pair = format!("{}{sign}", open.pop().unwrap_or_default());
                ensure!(["()", "[]", "{}"].contains(&pair.as_str()), "'{pair}'");
            }
            _ => {}
        }
    }
    ensure!(open.is_empty(), "{open:?} does not end");
    Ok(())
}

impl Scraped {
    /// Takes the text of one node in.
    pub(super) fn take(&mut self, text: &str) -> Result<()> {
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let end = line.find(['{', ' ']).unwrap_or(line.len());
            let (name, rest) = line.split_at(end);
            let mut labels = Labels::new();
            if let Some((inside, _)) = rest.strip_prefix('{').and_then(|r| r.split_once('}')) {
                for pair in inside.split(',') {
                    let (label, value) = pair.split_once('=').unwrap_or_default();
                    labels.insert(label.to_owned(), value.trim_matches('"').to_owned());
                }
            }
            self.series.entry(name.to_owned()).or_default().push(labels);
        }
        ensure!(!self.series.is_empty(), "No series in {text}");
        Ok(())
    }

    /// Every name, label and value that an expression names is there; gives the names of the series.
    pub(super) fn finds(&self, expression: &str) -> Result<BTreeSet<String>> {
        let tokens = tokens(expression)?;
        closed(&tokens)?;
        let mut names = BTreeSet::new();
        let mut lists = BTreeSet::new();
        let mut at = 0;
        while at < tokens.len() {
            let Token::Name(name) = &tokens[at] else {
                at += 1;
                continue;
            };
            let next = tokens.get(at + 1);
            let opens = |sign: &str| next == Some(&Token::Sign(sign.to_owned()));
            if LISTS.contains(&name.as_str()) {
                at = list(&tokens, at + 2, &mut lists)?;
            } else if FUNCTIONS.contains(&name.as_str()) {
                let grouped =
                    matches!(next, Some(Token::Name(word)) if LISTS.contains(&word.as_str()));
                ensure!(opens("(") || grouped, "'{name}' has nothing in brackets");
                at += 1;
                if name == "label_values" {
                    // Its second argument is a label.
                    if let Some(Token::Name(label)) = tokens.get(at + 3) {
                        lists.insert(label.clone());
                    }
                    if let Some(Token::Name(name)) = tokens.get(at + 1) {
                        self.is_there(name)?;
                        names.insert(name.clone());
                    }
                    break;
                }
            } else if WORDS.contains(&name.as_str()) {
                at += 1;
            } else {
                self.is_there(name)?;
                names.insert(name.clone());
                at += 1;
                if opens("{") {
                    at = self.matchers(&tokens, at + 1, name)?;
                }
            }
        }
        for label in lists {
            let has = |name: &String| self.labels(name).any(|labels| labels.contains_key(&label));
            ensure!(
                OF_PROMETHEUS.contains(&label.as_str()) || names.iter().any(has),
                "No series of {expression} has a label {label}"
            );
        }
        ensure!(!names.is_empty(), "It names no series");
        Ok(names)
    }

    fn labels(&self, name: &str) -> impl Iterator<Item = &Labels> {
        self.series.get(name).into_iter().flatten()
    }

    fn is_there(&self, name: &str) -> Result<()> {
        // Prometheus' own word on whether it could scrape.
        ensure!(
            name == "up" || self.series.contains_key(name),
            "No node tells {name}"
        );
        Ok(())
    }

    /// `label="value",...}`; where it ends.
    fn matchers(&self, tokens: &[Token], mut at: usize, name: &str) -> Result<usize> {
        loop {
            match &tokens[at..] {
                [Token::Sign(end), ..] if end == "}" => return Ok(at + 1),
                [Token::Sign(comma), ..] if comma == "," => at += 1,
                [Token::Name(label), Token::Sign(how), Token::Text(value), ..] => {
                    at += 3;
                    if OF_PROMETHEUS.contains(&label.as_str()) {
                        continue;
                    }
                    let mut of_label = self.labels(name).filter_map(|labels| labels.get(label));
                    let found = match how.as_str() {
                        "=" | "!=" => of_label.any(|known| known == value),
                        _ => of_label.next().is_some(),
                    };
                    ensure!(found, "{name} has no {label}{how}\"{value}\"");
                }
                other => bail!("Not understood: {other:?}"),
            }
        }
    }
}

/// Names up to the closing bracket; where it ends.
fn list(tokens: &[Token], mut at: usize, labels: &mut BTreeSet<String>) -> Result<usize> {
    loop {
        match tokens.get(at) {
            Some(Token::Name(label)) => drop(labels.insert(label.clone())),
            Some(Token::Sign(end)) if end == ")" => return Ok(at + 1),
            Some(Token::Sign(comma)) if comma == "," => {}
            other => bail!("{other:?} in a list of labels"),
        }
        at += 1;
    }
}

/// It finds what is wrong.
pub(super) fn is_strict() -> Result<()> {
    let mut scraped = Scraped::default();
    scraped.take("# TYPE a counter\na_total{state=\"x\"} 1\nb 2\n")?;
    for right in [
        "a_total",
        "b > 0 and rate(a_total{state=\"x\"}[5m]) == 0",
        "sum by (state) (increase(a_total[1h])) / 2",
        "count(count by (state, instance) (a_total{state=~\"y|z\",job=\"whim\"}))",
        "label_values(a_total, instance)",
    ] {
        scraped.finds(right)?;
    }
    for wrong in [
        "c",
        "a",
        "rate(c[5m])",
        "a_total{state=\"y\"}",
        "a_total{place=\"x\"}",
        "sum by (place) (a_total)",
        "sum(a_total",
        "rate(a_total[5m)]",
        "rates(a_total[5m])",
        "a_total; b",
        "a_total{state=\"x}",
        "1 + 2",
    ] {
        ensure!(scraped.finds(wrong).is_err(), "Nothing is wrong in {wrong}");
    }
    Ok(())
}
