//! Entries of the fuzz targets in `fuzz/`; their corpus is replayed by the tests of this crate.

pub mod end;
mod host;
mod say;
mod sequence;
pub mod thread;

use crate::frame::{FRAME_PAYLOAD_MAX, HEADER_LENGTH, Header};
use crate::message::{self, CallRequest, Hello, PageRequest, Tails, ToGuest, ToHome};
use whim_model::ProcessImage;

pub use sequence::sequence;

/// A header that is accepted survives its own encoding and respects the limit.
pub fn frame(data: &[u8]) {
    let Some((head, _)) = data.split_first_chunk::<HEADER_LENGTH>() else {
        return;
    };
    if let Ok(header) = Header::decode(head) {
        assert!(header.length <= FRAME_PAYLOAD_MAX);
        assert_eq!(Header::decode(&header.encode()), Ok(header));
    }
}

/// Messages decode or fail; what decodes and passes its check respects every limit.
pub fn message(data: &[u8]) {
    let _ = message::decode::<Hello>(data);
    let _ = message::decode::<PageRequest>(data);
    let _ = message::decode::<ToGuest>(data);
    if let Ok((ToHome::Call(request), tail)) = message::decode::<ToHome>(data) {
        check_call(&request);
        let mut tails = Tails::default();
        let _ = tails.add(data);
        assert!(tails.finish(request.tid, tail).len() >= tail.len());
    }
}

fn check_call(request: &CallRequest) {
    if request.check().is_ok() {
        assert!(request.regions.len() <= message::REGIONS_MAX);
        assert!(
            request
                .regions
                .iter()
                .all(|region| region.data_length <= region.length)
        );
    }
}

/// An image that decodes encodes to the same bytes again.
pub fn image(data: &[u8]) {
    if let Ok((image, rest)) = message::decode::<ProcessImage>(data) {
        let Ok(bytes) = message::encode(&image) else {
            return;
        };
        let again = message::decode::<ProcessImage>(&bytes).map(|(image, _)| image);
        assert_eq!(again.as_ref(), Ok(&image));
        assert!(rest.len() <= data.len());
    }
}

#[cfg(test)]
mod tests {
    use whim_corpus::replay;

    #[test]
    fn corpus_of_frames() {
        replay("frame", super::frame);
    }

    #[test]
    fn corpus_of_messages() {
        replay("message", super::message);
    }

    #[test]
    fn corpus_of_images() {
        replay("image", super::image);
    }
    #[test]
    fn corpus_of_sequences() {
        replay("sequence", super::sequence);
    }
}
