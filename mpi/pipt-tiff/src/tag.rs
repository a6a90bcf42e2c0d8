//! Tags: the numbered values that describe an image.

/// Numbers of the tags that this crate knows (TIFF 6.0, TIFF Technical Notes, GeoTIFF 1.1, GDAL, XMP).
pub mod number {
    pub const NEW_SUBFILE_TYPE: u16 = 254;
    pub const IMAGE_WIDTH: u16 = 256;
    pub const IMAGE_LENGTH: u16 = 257;
    pub const BITS_PER_SAMPLE: u16 = 258;
    pub const COMPRESSION: u16 = 259;
    pub const PHOTOMETRIC: u16 = 262;
    pub const FILL_ORDER: u16 = 266;
    pub const IMAGE_DESCRIPTION: u16 = 270;
    pub const STRIP_OFFSETS: u16 = 273;
    pub const SAMPLES_PER_PIXEL: u16 = 277;
    pub const ROWS_PER_STRIP: u16 = 278;
    pub const STRIP_BYTE_COUNTS: u16 = 279;
    pub const X_RESOLUTION: u16 = 282;
    pub const Y_RESOLUTION: u16 = 283;
    pub const PLANAR_CONFIGURATION: u16 = 284;
    pub const T4_OPTIONS: u16 = 292;
    pub const RESOLUTION_UNIT: u16 = 296;
    pub const SOFTWARE: u16 = 305;
    pub const DATE_TIME: u16 = 306;
    pub const PREDICTOR: u16 = 317;
    pub const COLOR_MAP: u16 = 320;
    pub const TILE_WIDTH: u16 = 322;
    pub const TILE_LENGTH: u16 = 323;
    pub const TILE_OFFSETS: u16 = 324;
    pub const TILE_BYTE_COUNTS: u16 = 325;
    pub const EXTRA_SAMPLES: u16 = 338;
    pub const SAMPLE_FORMAT: u16 = 339;
    pub const JPEG_TABLES: u16 = 347;
    pub const YCBCR_SUBSAMPLING: u16 = 530;
    pub const XMP: u16 = 700;
    pub const IMAGE_DEPTH: u16 = 32997;
    pub const MODEL_PIXEL_SCALE: u16 = 33550;
    pub const MODEL_TIEPOINT: u16 = 33922;
    pub const MODEL_TRANSFORMATION: u16 = 34264;
    pub const ICC_PROFILE: u16 = 34675;
    pub const GEO_KEY_DIRECTORY: u16 = 34735;
    pub const GEO_DOUBLE_PARAMS: u16 = 34736;
    pub const GEO_ASCII_PARAMS: u16 = 34737;
    pub const GDAL_METADATA: u16 = 42112;
    pub const GDAL_NODATA: u16 = 42113;
}

use number as n;

/// Tags that say something of the image that stays true when its pixels are filtered, and that a writer
/// can take over: resolution, place on the Earth, profile, descriptions.
pub const CARRIED: [u16; 16] = [
    n::IMAGE_DESCRIPTION,
    n::X_RESOLUTION,
    n::Y_RESOLUTION,
    n::RESOLUTION_UNIT,
    n::SOFTWARE,
    n::DATE_TIME,
    n::XMP,
    n::MODEL_PIXEL_SCALE,
    n::MODEL_TIEPOINT,
    n::MODEL_TRANSFORMATION,
    n::ICC_PROFILE,
    n::GEO_KEY_DIRECTORY,
    n::GEO_DOUBLE_PARAMS,
    n::GEO_ASCII_PARAMS,
    n::GDAL_METADATA,
    n::GDAL_NODATA,
];

/// What a tag is called in the specification, for messages.
#[must_use]
pub const fn name(tag: u16) -> &'static str {
    match tag {
        n::IMAGE_WIDTH => "ImageWidth",
        n::IMAGE_LENGTH => "ImageLength",
        n::BITS_PER_SAMPLE => "BitsPerSample",
        n::COMPRESSION => "Compression",
        n::PHOTOMETRIC => "PhotometricInterpretation",
        n::FILL_ORDER => "FillOrder",
        n::STRIP_OFFSETS => "StripOffsets",
        n::SAMPLES_PER_PIXEL => "SamplesPerPixel",
        n::ROWS_PER_STRIP => "RowsPerStrip",
        n::STRIP_BYTE_COUNTS => "StripByteCounts",
        n::PLANAR_CONFIGURATION => "PlanarConfiguration",
        n::T4_OPTIONS => "T4Options",
        n::PREDICTOR => "Predictor",
        n::TILE_WIDTH => "TileWidth",
        n::TILE_LENGTH => "TileLength",
        n::TILE_OFFSETS => "TileOffsets",
        n::TILE_BYTE_COUNTS => "TileByteCounts",
        n::SAMPLE_FORMAT => "SampleFormat",
        n::JPEG_TABLES => "JPEGTables",
        n::YCBCR_SUBSAMPLING => "YCbCrSubSampling",
        n::IMAGE_DEPTH => "ImageDepth",
        _ => "not named here",
    }
}

/// Type of a tag's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FieldType {
    Byte,
    Ascii,
    Short,
    Long,
    Rational,
    SignedByte,
    Undefined,
    SignedShort,
    SignedLong,
    SignedRational,
    Float,
    Double,
    Ifd,
    Long8,
    SignedLong8,
    Ifd8,
}

impl FieldType {
    const CODES: [(u16, Self); 16] = [
        (1, Self::Byte),
        (2, Self::Ascii),
        (3, Self::Short),
        (4, Self::Long),
        (5, Self::Rational),
        (6, Self::SignedByte),
        (7, Self::Undefined),
        (8, Self::SignedShort),
        (9, Self::SignedLong),
        (10, Self::SignedRational),
        (11, Self::Float),
        (12, Self::Double),
        (13, Self::Ifd),
        (16, Self::Long8),
        (17, Self::SignedLong8),
        (18, Self::Ifd8),
    ];

    /// Of the number that stands for it in a file.
    #[must_use]
    pub fn of_code(code: u16) -> Option<Self> {
        let mut all = Self::CODES.into_iter();
        all.find(|(is, _)| *is == code).map(|(_, kind)| kind)
    }

    /// The number that stands for it in a file.
    #[must_use]
    pub fn code(self) -> u16 {
        let mut all = Self::CODES.into_iter();
        all.find(|(_, kind)| *kind == self)
            .map_or(7, |(code, _)| code)
    }

    /// Bytes of one value.
    #[must_use]
    pub const fn bytes(self) -> usize {
        match self {
            Self::Byte | Self::Ascii | Self::SignedByte | Self::Undefined => 1,
            Self::Short | Self::SignedShort => 2,
            Self::Long | Self::SignedLong | Self::Float | Self::Ifd => 4,
            Self::Rational | Self::SignedRational | Self::Double => 8,
            Self::Long8 | Self::SignedLong8 | Self::Ifd8 => 8,
        }
    }

    /// Bytes that change their order with the file's: a rational is two numbers of 4.
    #[must_use]
    pub const fn word(self) -> usize {
        match self {
            Self::Rational | Self::SignedRational => 4,
            _ => self.bytes(),
        }
    }
}

/// A tag with all its values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tag {
    pub number: u16,
    pub kind: FieldType,
    /// How many values there are.
    pub count: u64,
    /// The values, least significant byte first, whatever the file's order is.
    pub bytes: Vec<u8>,
}

impl Tag {
    fn of<const BYTES: usize>(
        number: u16,
        kind: FieldType,
        values: impl ExactSizeIterator<Item = [u8; BYTES]>,
    ) -> Self {
        Self {
            number,
            kind,
            count: values.len() as u64,
            bytes: values.flatten().collect(),
        }
    }

    /// A text: its bytes and a zero.
    #[must_use]
    pub fn text(number: u16, text: &str) -> Self {
        let mut bytes = text.as_bytes().to_vec();
        bytes.push(0);
        Self {
            number,
            kind: FieldType::Ascii,
            count: bytes.len() as u64,
            bytes,
        }
    }

    /// Numbers of 16 bits.
    #[must_use]
    pub fn shorts(number: u16, values: &[u16]) -> Self {
        Self::of(
            number,
            FieldType::Short,
            values.iter().map(|value| value.to_le_bytes()),
        )
    }

    /// Numbers of 32 bits.
    #[must_use]
    pub fn longs(number: u16, values: &[u32]) -> Self {
        Self::of(
            number,
            FieldType::Long,
            values.iter().map(|value| value.to_le_bytes()),
        )
    }

    /// Numbers of 64 bits, for BigTIFF alone.
    #[must_use]
    pub fn longs8(number: u16, values: &[u64]) -> Self {
        Self::of(
            number,
            FieldType::Long8,
            values.iter().map(|value| value.to_le_bytes()),
        )
    }

    /// Floats of 64 bits.
    #[must_use]
    pub fn doubles(number: u16, values: &[f64]) -> Self {
        Self::of(
            number,
            FieldType::Double,
            values.iter().map(|value| value.to_le_bytes()),
        )
    }

    /// The values, where they are integers without a sign.
    #[must_use]
    pub fn numbers(&self) -> Option<Vec<u64>> {
        match self.kind {
            FieldType::Byte
            | FieldType::Short
            | FieldType::Long
            | FieldType::Ifd
            | FieldType::Long8
            | FieldType::Ifd8 => {
                let values = self.bytes.chunks_exact(self.kind.bytes());
                Some(values.map(little).collect())
            }
            _ => None,
        }
    }

    /// The values, where they are floats.
    #[must_use]
    pub fn floats(&self) -> Option<Vec<f64>> {
        match self.kind {
            FieldType::Float => {
                let values = self.bytes.as_chunks::<4>().0.iter();
                Some(
                    values
                        .map(|value| f32::from_le_bytes(*value).into())
                        .collect(),
                )
            }
            FieldType::Double => {
                let values = self.bytes.as_chunks::<8>().0.iter();
                Some(values.map(|value| f64::from_le_bytes(*value)).collect())
            }
            _ => None,
        }
    }

    /// The text up to its first zero, where it is one; what is not UTF-8 is replaced.
    #[must_use]
    pub fn as_text(&self) -> Option<String> {
        let is_text = matches!(self.kind, FieldType::Ascii | FieldType::Byte);
        let end = self.bytes.iter().position(|byte| *byte == 0);
        let text = &self.bytes[..end.unwrap_or(self.bytes.len())];
        is_text.then(|| String::from_utf8_lossy(text).into_owned())
    }
}

fn little(bytes: &[u8]) -> u64 {
    let bytes = bytes.iter().rev();
    bytes.fold(0, |number, byte| number << 8 | u64::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_come_back_as_they_were() {
        assert_eq!(Tag::shorts(1, &[7, 65535]).numbers(), Some(vec![7, 65535]));
        assert_eq!(
            Tag::longs(1, &[u32::MAX]).numbers(),
            Some(vec![u32::MAX.into()])
        );
        assert_eq!(Tag::longs8(1, &[u64::MAX]).numbers(), Some(vec![u64::MAX]));
        assert_eq!(Tag::doubles(1, &[0.5]).floats(), Some(vec![0.5]));
        let text = Tag::text(270, "a text");
        assert_eq!((text.as_text().as_deref(), text.count), (Some("a text"), 7));
        assert_eq!((text.numbers(), text.floats()), (None, None));
    }

    #[test]
    fn types_have_their_numbers() {
        for code in 0..30 {
            if let Some(kind) = FieldType::of_code(code) {
                assert_eq!(kind.code(), code);
                assert_eq!(kind.bytes() % kind.word(), 0);
            }
        }
        assert_eq!(FieldType::of_code(14), None);
    }
}
