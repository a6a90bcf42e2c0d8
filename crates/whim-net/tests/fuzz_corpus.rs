//! The fuzz entries on inputs that are made from good ones, for a bounded time on every test run.
#![forbid(unsafe_code)]

use whim_net::hello::fuzz_client_hello;

/// A small generator: the same inputs in every run.
struct Steps(u64);

impl Steps {
    fn next(&mut self, bound: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        usize::try_from(self.0 >> 33).expect("31 bits") % bound
    }
}

#[test]
fn client_hellos_of_a_real_library_survive_mutation() {
    let config = whim_net::tls::join_client_config([0; 32]).expect("config");
    let name = "j-7.guest.whim".try_into().expect("name");
    let mut client = rustls::ClientConnection::new(config, name).expect("client");
    let mut hello = Vec::new();
    client.write_tls(&mut hello).expect("written");
    assert_eq!(
        whim_net::hello::server_name(&hello),
        Ok(Some("j-7.guest.whim".into()))
    );
    let mut steps = Steps(7);
    for _ in 0..200_000 {
        let mut bytes = hello.clone();
        for _ in 0..=steps.next(4) {
            let at = steps.next(bytes.len());
            match steps.next(4) {
                0 => bytes[at] = u8::try_from(steps.next(256)).expect("a byte"),
                1 => bytes.truncate(at + 1),
                2 => bytes.insert(at, 0xff),
                _ => {
                    let piece = bytes[at..].to_vec();
                    bytes.extend_from_slice(&piece);
                }
            }
        }
        fuzz_client_hello(&bytes);
    }
}
