//! Words of sentences for people that several parts of the daemon say.

/// So many of something, which has these names if it is one and if there are more.
#[must_use]
pub(crate) fn counted(count: u64, one: &str, more: &str) -> String {
    match count {
        1 => format!("1 {one}"),
        count => format!("{count} {more}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_no_plural() {
        let said = [0, 1, 2].map(|count| counted(count, "process", "processes"));
        assert_eq!(said, ["0 processes", "1 process", "2 processes"]);
    }
}
