//! Chunks that are images of another format: JPEG and WebP.

use std::io::Cursor;

use zune_core::bytestream::ZCursor;
use zune_core::colorspace::ColorSpace;
use zune_core::options::DecoderOptions;
use zune_jpeg::JpegDecoder;

use super::{Colours, Shape};

/// More passes than this are not taken from a progressive JPEG stream: its encoders write about ten.
const MAX_SCANS: usize = 100;

fn fits(width: usize, height: usize, shape: Shape) -> Result<(), String> {
    let (wanted, rows) = (shape.width as usize, shape.rows as usize);
    // The last chunk may be written as high as the others.
    let most = shape.most / shape.bytes.max(1) * rows + rows;
    if width == wanted && height >= rows && height <= most {
        return Ok(());
    }
    Err(format!(
        "its stream has {width} x {height} pixels, and should have {wanted} x {rows}"
    ))
}

pub(super) fn webp(data: &[u8], shape: Shape) -> Result<Vec<u8>, String> {
    let text = |error: image_webp::DecodingError| error.to_string();
    let mut decoder = image_webp::WebPDecoder::new(Cursor::new(data)).map_err(text)?;
    let (width, height) = decoder.dimensions();
    fits(width as usize, height as usize, shape)?;
    decoder.set_memory_limit(shape.most.saturating_mul(8));
    let size = decoder.output_buffer_size().ok_or("it is too large")?;
    let mut pixels = vec![0; size];
    decoder.read_image(&mut pixels).map_err(text)?;
    let has = if decoder.has_alpha() { 4 } else { 3 };
    let mut out = match (has, shape.bands) {
        (4, 3) => {
            let pixels = pixels.as_chunks::<4>().0.iter();
            pixels.flat_map(|[r, g, b, _]| [*r, *g, *b]).collect()
        }
        // A stream without alpha is opaque.
        (3, 4) => {
            let pixels = pixels.as_chunks::<3>().0.iter();
            pixels.flat_map(|[r, g, b]| [*r, *g, *b, 255]).collect()
        }
        _ => pixels,
    };
    out.truncate(shape.bytes);
    Ok(out)
}

/// One stream of what all chunks have in common and of what this one has.
fn joined(data: &[u8], tables: &[u8]) -> Vec<u8> {
    // The tables lie between a start and an end of an image, FFD8 and FFD9.
    let tables = tables.strip_prefix(&[0xff, 0xd8]).unwrap_or_default();
    let tables = tables.strip_suffix(&[0xff, 0xd9]).unwrap_or(tables);
    let (start, rest) = data.split_at(data.len().min(2));
    [start, tables, rest].concat()
}

/// Kinds of JPEG that are not decoded here, by the markers of their frames (ITU-T T.81, table B.1).
const FOREIGN_FRAMES: [(u8, &str); 10] = [
    (0xc3, "lossless JPEG"),
    (0xc5, "hierarchical JPEG"),
    (0xc6, "hierarchical progressive JPEG"),
    (0xc7, "hierarchical lossless JPEG"),
    (0xc9, "JPEG with arithmetic coding"),
    (0xca, "progressive JPEG with arithmetic coding"),
    (0xcb, "lossless JPEG with arithmetic coding"),
    (0xcd, "hierarchical JPEG with arithmetic coding"),
    (0xce, "hierarchical progressive JPEG with arithmetic coding"),
    (0xcf, "hierarchical lossless JPEG with arithmetic coding"),
];

/// The name of a JPEG stream's kind if it is one that is not decoded here.
pub(super) fn foreign_jpeg(data: &[u8]) -> Option<&'static str> {
    let mut rest = data.strip_prefix(&[0xff, 0xd8])?;
    loop {
        let [0xff, marker, high, low, ..] = *rest else {
            return None;
        };
        if let Some((_, name)) = FOREIGN_FRAMES.iter().find(|(frame, _)| *frame == marker) {
            return Some(name);
        }
        // The frame's kind is said before its samples.
        if matches!(marker, 0xc0..=0xc2 | 0xda) {
            return None;
        }
        rest = rest.get(2 + usize::from(u16::from_be_bytes([high, low]))..)?;
    }
}

pub(super) fn jpeg(
    data: &[u8],
    tables: &[u8],
    colours: Colours,
    shape: Shape,
) -> Result<Vec<u8>, String> {
    let data = joined(data, tables);
    let text = |error: zune_jpeg::errors::DecodeErrors| format!("{error:?}");
    let options = DecoderOptions::default()
        .set_strict_mode(true)
        .jpeg_set_max_scans(MAX_SCANS);
    let mut decoder = JpegDecoder::new_with_options(ZCursor::new(&data[..]), options);
    decoder.decode_headers().map_err(text)?;
    let info = decoder.info().ok_or("it has no header")?;
    fits(info.width.into(), info.height.into(), shape)?;
    let bands = shape.bands as usize;
    let given = decoder.input_colorspace().ok_or("it has no header")?;
    if usize::from(info.components) != bands {
        return Err(format!(
            "its stream has {} bands, not {bands}",
            info.components
        ));
    }
    let wanted = match colours {
        _ if bands != 3 => given,
        Colours::ToRgb => ColorSpace::RGB,
        Colours::ByMarker if is_jfif(&data) => ColorSpace::RGB,
        Colours::Raw | Colours::ByMarker => given,
    };
    decoder.set_options(options.jpeg_set_out_colorspace(wanted));
    let mut out = decoder.decode().map_err(text)?;
    if out.len() < shape.bytes {
        return Err(super::short(out.len(), shape.bytes));
    }
    out.truncate(shape.bytes);
    Ok(out)
}

/// Whether a stream begins with a JFIF marker.
fn is_jfif(data: &[u8]) -> bool {
    data.get(6..11) == Some(b"JFIF\0")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_of_jpeg_that_are_not_decoded_have_names() {
        let stream = |frame: u8| [0xff, 0xd8, 0xff, 0xe0, 0, 4, 1, 2, 0xff, frame, 0, 9, 8];
        assert_eq!(foreign_jpeg(&stream(0xc3)), Some("lossless JPEG"));
        assert_eq!(
            foreign_jpeg(&stream(0xc9)),
            Some("JPEG with arithmetic coding")
        );
        for known in 0xc0..=0xc2 {
            assert_eq!(foreign_jpeg(&stream(known)), None);
        }
        for end in 0..13 {
            foreign_jpeg(&stream(0xc8)[..end]);
        }
    }
}
