//! Shells, their pipelines, and tools that are used in pipelines.

use std::fs;
use std::os::unix::fs::symlink;

use whim_system_tests::program::{Launch, Program, Setup, interpreted};
use whim_system_tests::{Context, Result, guest};

/// Bytes of text in one unit of compression, and in a file that is decompressed.
const UNIT: u64 = 1 << 20;
const TEXT: u64 = 8 << 20;

pub(super) const PROGRAMS: &[Program] = &[
    Program::new("bash", 22, bash).runs(20),
    Program::new("dash", 60, dash),
    Program::new("sort_200_mb", 1, sort)
        .focus(&["sort"])
        .not_in_gate(),
    Program::new("xz_compress", 20, |s| compress(s, "xz -T1 -3")).focus(&["xz"]),
    Program::new("xz_decompress", 9, |s| decompress(s, "xz")).focus(&["xz"]),
    Program::new("gzip_compress", 40, |s| compress(s, "gzip -6")).focus(&["gzip"]),
    Program::new("gzip_decompress", 50, |s| decompress(s, "gzip"))
        .focus(&["gzip"])
        .not_in_gate(),
    Program::new("zstd_compress", 500, |s| compress(s, "zstd -q -T1 -12"))
        .focus(&["zstd"])
        .not_in_gate(),
    Program::new("zstd_decompress", 60, |s| decompress(s, "zstd -q"))
        .focus(&["zstd"])
        .not_in_gate(),
    Program::new("tar_xz_sha256sum", 50, tar)
        .each(&["tar", "xz", "sha256sum"])
        .not_in_gate(),
    Program::new("perl", 36, |s| interpreted("perl", "work.pl", s.size)),
    Program::new("gawk", 5, awk),
];

fn bash(setup: &Setup<'_>) -> Result<Launch> {
    interpreted("bash", "pipelines.bash", setup.size)
}

fn dash(setup: &Setup<'_>) -> Result<Launch> {
    interpreted("dash", "pipelines.dash", setup.size)
}

/// Makes a file of the cache appear among a program's inputs.
fn input(setup: &Setup<'_>, name: &str, source: &std::path::Path) -> Result<()> {
    let link = setup.prepared.join(name);
    symlink(source, &link).with_context(|| format!("Could not make {}", link.display()))
}

/// Sorts 200 MB as often as is asked for, each time by another field.
fn sort(setup: &Setup<'_>) -> Result<Launch> {
    input(setup, "text", &guest::text(200 << 20)?)?;
    let script = "
        set -e
        export LC_ALL=C
        i=0
        while [ $i -lt $1 ]; do
            i=$((i + 1))
            sort --parallel=1 -S 150M -T . -k $((i % 3 + 1)) ../prepared/text | sha256sum
        done
        sort -c -k 2 ../prepared/text 2>/dev/null || echo not sorted";
    Ok(Launch::script("sh", script, setup.size))
}

/// Compresses a text several times over, as one stream.
fn compress(setup: &Setup<'_>, tool: &str) -> Result<Launch> {
    let text = guest::text(UNIT)?;
    let copies: Vec<String> = (0..setup.size)
        .map(|_| "../prepared/text".to_owned())
        .collect();
    input(setup, "text", &text)?;
    fs::write(setup.prepared.join("list"), copies.join("\n"))?;
    let script = format!("xargs cat < ../prepared/list | {tool} -c > out; echo $?; wc -c < out");
    Ok(Launch::script("sh", &script, setup.size))
}

/// Decompresses a file several times over.
fn decompress(setup: &Setup<'_>, tool: &str) -> Result<Launch> {
    let text = guest::text(TEXT)?;
    let name = format!("{}-packed", tool.split(' ').next().unwrap_or(tool));
    let packed = guest::once(&name, |draft| {
        let script = format!("{tool} -c < {} > {}", text.display(), draft.display());
        let mut command = std::process::Command::new("sh");
        let limit = std::time::Duration::from_secs(120);
        whim_system_tests::process::succeed(command.args(["-c", &script]), limit).map(drop)
    })?;
    fs::copy(packed, setup.prepared.join("packed"))?;
    let copies: Vec<&str> = (0..setup.size).map(|_| "../prepared/packed").collect();
    let script = format!("{tool} -dc {} | cksum", copies.join(" "));
    Ok(Launch::script("sh", &script, setup.size))
}

fn tar(setup: &Setup<'_>) -> Result<Launch> {
    let text = guest::text(UNIT)?;
    let tree = setup.prepared.join("tree");
    for number in 0..setup.size {
        let directory = tree.join(format!("part-{number}"));
        fs::create_dir_all(&directory)?;
        fs::copy(&text, directory.join("text"))?;
        for small in 0..40 {
            fs::write(
                directory.join(format!("small-{small}")),
                format!("{number} {small}\n"),
            )?;
        }
        symlink("text", directory.join("link"))?;
    }
    let script = "
        tar --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner \\
            -C ../prepared -cf - tree | xz -T1 -3 | sha256sum";
    Ok(Launch::script("sh", script, setup.size))
}

fn awk(setup: &Setup<'_>) -> Result<Launch> {
    input(setup, "text", &guest::text(TEXT)?)?;
    let source = guest::script("work.awk")?.display().to_string();
    let size = format!("rounds={}", setup.size);
    Ok(Launch::new([
        "gawk".to_owned(),
        "-v".to_owned(),
        size,
        "-f".to_owned(),
        source,
        "../prepared/text".to_owned(),
    ]))
}
