//! What a document has its reader type, on which machine and as whom.
//!
//! A block that begins with ```` ```sh ```` and the name of a machine is typed there whole, by the user. In any other block
//! the lines that begin with a prompt are typed: `n1$ ` on n1 by the user, `n1# ` there by root, `all$ ` and
//! `all# ` on each machine in turn; a line that ends with a backslash goes on in the next one. All else in a block is
//! what one sees. A comment `<!-- here: WHAT -->` between blocks says what happens to the machines meanwhile.

use whim_system_tests::{Context, Result, bail, ensure};

pub(crate) const MACHINES: [&str; 3] = ["n1", "n2", "n3"];
const HAPPENS: (&str, &str) = ("<!-- here: ", " -->");
const FENCE: &str = "```";

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Who {
    User,
    Root,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum What {
    Typed {
        machines: Vec<String>,
        who: Who,
        text: String,
    },
    Happens(String),
}

/// One step, and the title of the section that it stands in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) section: String,
    pub(crate) what: What,
}

/// The steps of a document, in its order.
pub(crate) fn steps(document: &str) -> Result<Vec<Step>> {
    let mut steps = Vec::new();
    let mut section = String::new();
    let mut lines = document.lines();
    while let Some(line) = lines.next() {
        let step = |what| Step {
            section: section.clone(),
            what,
        };
        if let Some(title) = line.strip_prefix("## ") {
            title.clone_into(&mut section);
        } else if let Some(rest) = line.strip_prefix(HAPPENS.0) {
            let what = rest.strip_suffix(HAPPENS.1);
            let what = what.with_context(|| format!("{line:?} does not end on its line"))?;
            steps.push(step(What::Happens(what.to_owned())));
        } else if let Some(kind) = line.strip_prefix(FENCE) {
            let block: Vec<&str> = lines.by_ref().take_while(|line| *line != FENCE).collect();
            let typed = typed(kind, &block).with_context(|| format!("In section {section:?}"))?;
            steps.extend(typed.into_iter().map(step));
        }
    }
    Ok(steps)
}

fn typed(kind: &str, block: &[&str]) -> Result<Vec<What>> {
    if let Some(name) = kind.strip_prefix("sh ") {
        return Ok(vec![What::Typed {
            machines: machines(name)?,
            who: Who::User,
            text: block.join("\n"),
        }]);
    }
    let mut typed = Vec::new();
    let mut lines = block.iter();
    while let Some(line) = lines.next() {
        let Some((name, who, first)) = prompt(line) else {
            // What is neither typed nor an answer would be a command that nobody tries.
            let command = ["whim ", "sudo "].iter().any(|word| line.starts_with(word));
            ensure!(!command, "{line:?} does not say where it is typed");
            continue;
        };
        let mut text = first.to_owned();
        while text.ends_with('\\') {
            let next = lines.next().context("A command does not end")?;
            text = format!("{text}\n{next}");
        }
        typed.push(What::Typed {
            machines: machines(name)?,
            who,
            text,
        });
    }
    Ok(typed)
}

/// The machine's name, who types there, and what.
pub(crate) fn prompt(line: &str) -> Option<(&str, Who, &str)> {
    let (prompt, text) = line.split_once(' ')?;
    let (name, who) = match (prompt.strip_suffix('$'), prompt.strip_suffix('#')) {
        (Some(name), _) => (name, Who::User),
        (_, Some(name)) => (name, Who::Root),
        (None, None) => return None,
    };
    let is_name = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric());
    is_name.then(|| (name, who, text.trim_start()))
}

fn machines(name: &str) -> Result<Vec<String>> {
    Ok(match name {
        "all" => MACHINES.map(str::to_owned).to_vec(),
        known if MACHINES.contains(&known) => vec![known.to_owned()],
        other => bail!("Something is for {other:?}, which is no machine"),
    })
}

const SAMPLE: &str = "\
# A title

Text with `n1$ something`, which is no block.

## First

```sh all
one
  two
```

```
n2# whim init      # a remark
said by it
n3$ first \\
    second
```

<!-- here: n1 is lost -->

## Second

```console
n1$ last
```
";

/// Where, as whom and in which section; and what nobody could type is refused.
pub(crate) fn knows_where() -> Result<()> {
    let expected: [(&str, &str, &str); 5] = [
        ("First", "n1 n2 n3 User", "one\n  two"),
        ("First", "n2 Root", "whim init      # a remark"),
        ("First", "n3 User", "first \\\n    second"),
        ("First", "", "n1 is lost"),
        ("Second", "n1 User", "last"),
    ];
    let found = steps(SAMPLE)?;
    ensure!(found.len() == expected.len(), "{found:?}");
    for (step, (section, place, text)) in found.iter().zip(expected) {
        let (at, said) = match &step.what {
            What::Typed {
                machines,
                who,
                text,
            } => (format!("{} {who:?}", machines.join(" ")), text),
            What::Happens(what) => (String::new(), what),
        };
        ensure!(
            (step.section.as_str(), at.as_str(), said.as_str()) == (section, place, text),
            "{step:?}"
        );
    }
    for bad in [
        "```sh n9\nwhim ps\n```\n",
        "```\nfirst# whim init\n```\n",
        "```\nwhim ps\n```\n",
        "```\nn1$ ends \\\n```\n",
        "<!-- here: it goes\non -->\n",
    ] {
        ensure!(steps(bad).is_err(), "{bad:?} is taken");
    }
    Ok(())
}
