//! Entry of a fuzz target in `fuzz/`; its corpus is replayed by the tests of this crate.

use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
use tokio::sync::mpsc::Receiver;
use whim_monitor::feed::Update;

use crate::guard::Guard;
use crate::listen::{Connected, talk};
use crate::serve::Web;
use crate::{Backend, Greeting, Order, Told};

/// The most bytes of an input.
const INPUT_MAX: usize = 64 << 10;

/// A daemon that no request may reach, because nobody has a session.
#[derive(Debug)]
struct Untouched;

impl Backend for Untouched {
    type Who = ();

    fn greeting(&self, (): &()) -> Greeting {
        panic!("somebody without a session is greeted")
    }

    fn follow(&self, (): ()) -> Receiver<Vec<Update>> {
        panic!("somebody without a session is told what there is")
    }

    async fn order(&self, (): (), order: Order) -> Result<Told, String> {
        panic!("somebody without a session gives the order {order:?}")
    }
}

/// Whatever comes over a connection to the page, while there is a link and no session, is answered or dropped,
/// and nothing is asked of the daemon.
///
/// # Panics
/// On a fault.
pub fn page(data: &[u8]) {
    let data = &data[..data.len().min(INPUT_MAX)];
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .expect("a runtime");
    let answer = runtime.block_on(async {
        let guard = Guard::new(false, &["n1".into()], 7947);
        let web = Web::new(Untouched, guard, false, 7947);
        web.invite(7, ()).expect("room");
        let (mut client, server) = duplex(INPUT_MAX);
        let asked = async {
            client.write_all(data).await.expect("room for it");
            client.shutdown().await.expect("still there");
            let mut answer = Vec::new();
            client.read_to_end(&mut answer).await.expect("no fault");
            answer
        };
        let (answer, ()) = tokio::join!(asked, talk(server, web.router(), Connected(Some(7))));
        answer
    });
    assert!(
        // A request in version 1.0 is answered in that version.
        answer.is_empty() || answer.starts_with(b"HTTP/1.1 ") || answer.starts_with(b"HTTP/1.0 "),
        "an answer begins with its version"
    );
    let answer = String::from_utf8_lossy(&answer).to_ascii_lowercase();
    assert!(
        !answer.contains("set-cookie"),
        "a session was opened: {answer}"
    );
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_corpus_is_understood() {
        whim_corpus::replay("page", super::page);
    }
}
