//! Labs with real namespaces: nodes, links, `exec`. Needs root; says so and passes otherwise.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "tests")]

mod support;
mod lab_tests {
    mod exec;
    mod leftovers;
    mod nodes;
    mod plain_user;
    mod traffic;
}
