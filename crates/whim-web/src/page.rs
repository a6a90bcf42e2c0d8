//! What is sent to the browser: one page, its style, its script, and an icon. None of it is fetched from
//! elsewhere.

use crate::backend::Greeting;
use askama::Template;

pub(crate) const STYLE: &str = include_str!("../assets/page.css");
pub(crate) const SCRIPT: [&str; 5] = [
    include_str!("../assets/model.js"),
    include_str!("../assets/map.js"),
    include_str!("../assets/rows.js"),
    include_str!("../assets/dialogs.js"),
    include_str!("../assets/page.js"),
];
pub(crate) const ICON: &str = include_str!("../assets/icon.svg");

/// The page of a session.
#[derive(Debug, Template)]
#[template(path = "page.html")]
pub(crate) struct Page<'a> {
    pub greeting: &'a Greeting,
    pub token: &'a str,
}

/// A sentence for a visitor who may not see the page.
#[derive(Debug, Template)]
#[template(path = "sentence.html")]
pub(crate) struct Sentence<'a> {
    pub sentence: &'a str,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_text() {
        let greeting = Greeting {
            node: "<n1>".into(),
            uid: 7,
            user: "\"&'".into(),
            admin: false,
        };
        let token = "token";
        let page = Page {
            greeting: &greeting,
            token,
        };
        let text = page.render().expect("rendered");
        assert!(!text.contains("<n1>") && !text.contains("\"&'"), "{text}");
        assert!(text.contains("content=\"token\""), "{text}");
    }

    #[test]
    fn nothing_comes_from_elsewhere() {
        let sources = SCRIPT.iter().chain([&STYLE, &ICON]);
        for source in sources {
            let source = source.replace("http://www.w3.org/2000/svg", "");
            for word in ["http:", "https:", "//cdn", "@import", "innerHTML", "eval("] {
                assert!(!source.contains(word), "{word}");
            }
        }
    }
}
