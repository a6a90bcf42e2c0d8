//! `whimd`: the daemon of a node.
#![forbid(unsafe_code)]

fn main() -> anyhow::Result<()> {
    whimd::main()
}
