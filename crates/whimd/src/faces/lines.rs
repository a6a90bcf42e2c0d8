//! What a client of the control socket is told, line by line.

use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::net::unix::OwnedWriteHalf;
use whim_control::protocol::Answer;
use whim_monitor::plain;

/// A client that does not send its request within this time is dropped.
pub(crate) const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// A client that reads nothing of its answers for this time is dropped.
pub(crate) const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// All that a client is told passes through here, and is made harmless: it contains what users, members
/// and supervisors have said, and goes to terminals.
pub(crate) async fn write_line(write: &mut OwnedWriteHalf, answer: &Answer) -> std::io::Result<()> {
    write.write_all(&line(answer)?).await
}

fn line(answer: &Answer) -> serde_json::Result<Vec<u8>> {
    let mut line = match answer {
        // The file itself, with its ends of lines; nobody prints it.
        Answer::CaPart { .. } => serde_json::to_vec(answer)?,
        _ => plain::to_json(answer)?,
    };
    line.push(b'\n');
    Ok(line)
}

#[cfg(test)]
mod tests {
    use super::*;
    use whim_secret::Concealed;

    #[test]
    fn nothing_that_is_told_does_anything_to_a_terminal_but_files_stay_whole() {
        let reason = "It is \u{1b}]0;owned\u{7}\u{1b}[2J\u{202e}here\n".to_owned();
        let told = line(&Answer::Refused { reason }).expect("written");
        let text = String::from_utf8(told).expect("text");
        assert_eq!(
            text,
            "{\"answer\":\"refused\",\"reason\":\"It is  ]0;owned  [2J here \"}\n"
        );
        let file = "-----BEGIN-----\nabc\n";
        let part = Answer::CaPart {
            text: Concealed::new(file),
        };
        let told: Answer = serde_json::from_slice(&line(&part).expect("written")).expect("read");
        assert!(matches!(told, Answer::CaPart { text } if text.reveal() == file));
    }
}
