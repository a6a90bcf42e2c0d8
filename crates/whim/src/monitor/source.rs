//! Where a feed comes from.

use anyhow::{Context, Result};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;
use whim_control::client::Client;
use whim_control::protocol::{ANSWER_MAX, Answer, Request};
use whim_monitor::feed::Update;

use super::Connect;

/// The daemon, or lines of a record.
pub(super) enum Source {
    Daemon(Client),
    Lines(Box<dyn BufRead + Send>),
}

impl Source {
    /// # Errors
    /// No daemon answers, or the record cannot be read.
    pub(super) fn open(connect: &Connect, from: Option<&Path>) -> Result<Self> {
        let Some(path) = from else {
            let mut client = connect()?;
            // It tells something each second.
            client.be_patient(crate::ANSWERS_WITHIN);
            client.send(&Request::Watch)?;
            return Ok(Self::Daemon(client));
        };
        if path == Path::new("-") {
            return Ok(Self::Lines(Box::new(BufReader::new(io::stdin()))));
        }
        let file = File::open(path)
            .with_context(|| format!("The record {} cannot be read", path.display()))?;
        Ok(Self::Lines(Box::new(BufReader::new(file))))
    }

    /// The next line; `None` at the end of a record.
    ///
    /// # Errors
    /// The connection breaks, the daemon refuses, or a line is not understood.
    pub(super) fn next(&mut self) -> Result<Option<Update>> {
        match self {
            Self::Daemon(client) => loop {
                if let Answer::Update(update) = client.receive()? {
                    return Ok(Some(update));
                }
            },
            Self::Lines(lines) => {
                let mut line = String::new();
                let limit = u64::try_from(ANSWER_MAX).unwrap_or(u64::MAX);
                if lines.take(limit).read_line(&mut line)? == 0 {
                    return Ok(None);
                }
                let update = serde_json::from_str(&line)
                    .context("A line of the record is no line of a feed")?;
                Ok(Some(update))
            }
        }
    }
}
