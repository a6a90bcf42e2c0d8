//! What is said beside a command line that was not understood.
//!
//! The parser knows letters. It proposes what nobody is to type, takes an option that a verb has not for a value, and
//! does not know that `--wait` stands before the verb.

use clap::Command;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use whim_control::similar;

use crate::arguments;

/// The error of `words`, with tips that help.
pub(crate) fn mend(mut error: clap::Error, words: &[String]) -> clap::Error {
    let tip = match error.kind() {
        ErrorKind::InvalidSubcommand => {
            hide(&mut error);
            page(&mut error, words).or_else(|| of_others(&mut error, words))
        }
        ErrorKind::UnknownArgument => option(&mut error, words),
        _ => None,
    };
    if let Some(tip) = tip {
        let tips = ContextValue::StyledStrs(vec![tip.into()]);
        error.insert(ContextKind::Suggested, tips);
    }
    error
}

/// Leaves hidden verbs out of what may have been meant.
fn hide(error: &mut clap::Error) {
    let Some(proposed) = error.remove(ContextKind::SuggestedSubcommand) else {
        return;
    };
    let whole = arguments::command();
    let hidden = |name: &String| {
        whole
            .find_subcommand(name)
            .is_some_and(Command::is_hide_set)
    };
    let kept = match proposed {
        ContextValue::String(name) => vec![name],
        ContextValue::Strings(names) => names,
        other => {
            error.insert(ContextKind::SuggestedSubcommand, other);
            return;
        }
    };
    let kept: Vec<String> = kept.into_iter().filter(|name| !hidden(name)).collect();
    if !kept.is_empty() {
        error.insert(
            ContextKind::SuggestedSubcommand,
            ContextValue::Strings(kept),
        );
    }
}

/// Words for what our verbs do, of programs of our kind: what looks like them among our verbs does something else.
const OF_OTHERS: &[(&str, &str)] = &[
    ("list", "ps"),
    ("ls", "ps"),
    ("move", "migrate"),
    ("mv", "migrate"),
    ("send", "migrate"),
    ("start", "run"),
    ("exec", "run"),
    ("status", "nodes"),
    ("stat", "nodes"),
    ("info", "nodes"),
];

fn of_others(error: &mut clap::Error, words: &[String]) -> Option<String> {
    // Labs have verbs of their own.
    let verb = words.get(1)?;
    let (_, ours) = OF_OTHERS.iter().find(|(word, _)| word == verb)?;
    error.remove(ContextKind::SuggestedSubcommand);
    Some(format!(
        "'whim {ours}' does that; 'whim help' lists all verbs"
    ))
}

/// How the page is read that 'whim man VERB' asks for.
fn page(error: &mut clap::Error, words: &[String]) -> Option<String> {
    let asked = error.get(ContextKind::InvalidSubcommand)?;
    if !matches!(asked, ContextValue::String(verb) if verb == "man") {
        return None;
    }
    error.remove(ContextKind::SuggestedSubcommand);
    let whole = arguments::command();
    let mut path = vec!["whim"];
    let mut below = &whole;
    for word in words.iter().skip_while(|word| *word != "man").skip(1) {
        match below.find_subcommand(word) {
            Some(verb) if !verb.is_hide_set() => below = verb,
            _ => break,
        }
        path.push(word);
    }
    Some(format!(
        "'man {}' shows that page; '{} --help' says the same",
        path.join("-"),
        path.join(" ")
    ))
}

/// An option that the verb has not is no value of it.
fn option(error: &mut clap::Error, words: &[String]) -> Option<String> {
    let option = match error.get(ContextKind::InvalidArg)? {
        ContextValue::String(option) if option.starts_with("--") => option.clone(),
        _ => return None,
    };
    if let Some(ContextValue::StyledStrs(mut tips)) = error.remove(ContextKind::Suggested) {
        tips.retain(|tip| !tip.to_string().starts_with("to pass "));
        if !tips.is_empty() {
            error.insert(ContextKind::Suggested, ContextValue::StyledStrs(tips));
        }
    }
    // Labs have no daemon that could be waited for.
    let of_lab = words.get(1).is_some_and(|verb| verb == "lab");
    if of_lab || option.split('=').next() != Some("--wait") {
        return None;
    }
    error.remove(ContextKind::SuggestedArg);
    Some("'--wait' stands before the verb, as in 'whim --wait 30 nodes'".into())
}

/// To be put behind the sentence that there is no program of this name, which `whim run` has read where the program
/// stands: a name that begins as an option does was meant as one.
pub(crate) fn of_program(name: &str) -> String {
    let Some(word) = name.strip_prefix('-') else {
        return String::new();
    };
    let word = word.trim_start_matches('-').split('=').next();
    let word = format!("--{}", word.unwrap_or_default());
    if word == "--wait" {
        return ": --wait stands before 'run', as in 'whim --wait 30 run'".into();
    }
    let whole = arguments::command();
    let known = whole.find_subcommand("run").into_iter();
    let known = known
        .flat_map(Command::get_arguments)
        .filter(|option| !option.is_hide_set());
    let known: Vec<String> = known
        .filter_map(|option| option.get_long())
        .map(|long| format!("--{long}"))
        .collect();
    let meant = similar::question(&word, known.iter().map(String::as_str));
    format!(", nor an option: 'whim run --help' lists those{meant}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arguments::Arguments;
    use clap::Parser;

    fn said(line: &str) -> String {
        let words: Vec<String> = line.split(' ').map(ToString::to_string).collect();
        match Arguments::try_parse_from(&words) {
            Ok(arguments) => panic!("{line}: {arguments:?}"),
            Err(error) => mend(error, &words).to_string(),
        }
    }

    #[test]
    fn what_is_hidden_is_not_proposed() {
        for (line, meant) in [
            ("whim migrat 4711 n2", "'migrate'"),
            ("whim complet bash", "'completions'"),
            ("whim drian n2", "'drain'"),
        ] {
            let said = said(line);
            assert!(said.contains(meant), "{said}");
            assert!(!said.contains("generate"), "{said}");
            assert!(!said.contains("complete-words"), "{said}");
        }
        let said = said("whim generat man x");
        assert!(!said.contains("'generate'"), "{said}");
    }

    /// It wrote all pages into a new directory that was called as the verb, without a word.
    #[test]
    fn who_asks_for_a_page_is_told_how_it_is_read() {
        for (line, page, help) in [
            ("whim man", "'man whim'", "'whim --help'"),
            ("whim man run", "'man whim-run'", "'whim run --help'"),
            (
                "whim man lab up",
                "'man whim-lab-up'",
                "'whim lab up --help'",
            ),
            ("whim --wait 3 man generate", "'man whim'", "'whim --help'"),
        ] {
            let said = said(line);
            assert!(said.contains(page) && said.contains(help), "{said}");
            assert!(!said.contains("similar"), "{said}");
        }
    }

    /// 'stay' was proposed for 'status', and 'remove' for 'move'.
    #[test]
    fn verbs_of_others_are_translated() {
        for (line, ours) in [
            ("whim move 3 n2", "'whim migrate'"),
            ("whim status", "'whim nodes'"),
            ("whim list", "'whim ps'"),
        ] {
            let said = said(line);
            assert!(said.contains(ours) && !said.contains("similar"), "{said}");
        }
        assert!(!said("whim lab ls").contains("whim ps"));
    }

    #[test]
    fn an_option_that_a_verb_has_not_is_no_value() {
        for line in [
            "whim drain --json n2",
            "whim undrain --json n2",
            "whim adopt --hold 4711",
        ] {
            let said = said(line);
            assert!(said.contains("unexpected argument"), "{said}");
            assert!(!said.contains("as a value"), "{said}");
        }
        let said = said("whim migrate -5 n2");
        assert!(said.contains("as a value"), "{said}");
    }

    #[test]
    fn a_program_that_is_called_as_an_option_was_meant_as_one() {
        for (name, meant) in [
            ("-on", " (did you mean --on?)"),
            ("--onn=n2", " (did you mean --on?)"),
            ("--prot", ""),
            ("-j", ""),
            ("--", ""),
        ] {
            let said = of_program(name);
            let told = format!(", nor an option: 'whim run --help' lists those{meant}");
            assert_eq!(said, told, "{name}");
        }
        assert!(of_program("--wait").contains("'whim --wait 30 run'"));
        assert_eq!(of_program("make-it"), "");
    }

    #[test]
    fn who_waits_behind_the_verb_is_told_where_it_stands() {
        let tip = "'--wait' stands before the verb, as in 'whim --wait 30 nodes'";
        for line in [
            "whim nodes --wait 3",
            "whim ps --wait=3",
            "whim adopt --wait 3 4711",
        ] {
            let said = said(line);
            assert!(said.contains(tip), "{said}");
        }
        let said = said("whim lab status --wait 3");
        assert!(!said.contains(tip), "{said}");
    }
}
