//! What point operations ask for.

use super::histogram::range;
use super::{AssembleError, Assembled, Image};
use crate::operation::{Arithmetic, Both, Function, Point};
use crate::parameter::Values;
use crate::routine::Routine;
use pipt_raster::SampleType;

impl Assembled {
    /// Of one image, or of two.
    pub(super) fn points(
        &mut self,
        routine: &Routine,
        images: &[Image],
        values: &Values,
    ) -> Result<Image, AssembleError> {
        let kinds = images.iter().map(|image| self.graph.shape(image.node).kind);
        let kinds: Vec<SampleType> = kinds.collect();
        if let [one, other] = images {
            let arithmetic = arithmetic(routine, values);
            let kind = values.word("type").and_then(|name| name.parse().ok());
            let kind = kind.unwrap_or(kinds[0]);
            let of_bits = [Arithmetic::And, Arithmetic::Or, Arithmetic::Xor];
            let all = kinds.iter().chain([&kind]);
            if let (true, Some(float)) = (
                of_bits.contains(&arithmetic),
                all.copied().find(|kind| kind.is_float()),
            ) {
                return Err(AssembleError::Bits(float));
            }
            let by_zero = values.number("by-zero");
            let both = Both {
                arithmetic,
                kind,
                by_zero,
            };
            let made = self.other(&[one, other], kind, Box::new(both))?;
            let is_whole = arithmetic != Arithmetic::Divide || by_zero.is_some();
            let has_holes = made.has_holes || !is_whole;
            return Ok(Image { has_holes, ..made });
        }
        let (function, kind) = function(routine, values, kinds[0])?;
        let of = &images[0];
        let point = Box::new(Point { function, kind });
        let made = match function {
            Function::Within(..) => self.flags(&[of], point)?,
            _ => self.other(&[of], kind, point)?,
        };
        Ok(match function {
            // What is cut off, or becomes the middle of a step, stands for what it stood for.
            Function::Clip(..) | Function::Steps { middle: true, .. } => Image {
                scales: of.scales.clone(),
                ..made
            },
            _ => made,
        })
    }
}

fn arithmetic(routine: &Routine, values: &Values) -> Arithmetic {
    match (routine.name, values.word("bits")) {
        ("Subtract", _) => Arithmetic::Subtract,
        ("Multiply", _) => Arithmetic::Multiply,
        ("Divide", _) => Arithmetic::Divide,
        ("AndOrXor", Some("or")) => Arithmetic::Or,
        ("AndOrXor", Some("xor")) => Arithmetic::Xor,
        ("AndOrXor", _) => Arithmetic::And,
        _ => Arithmetic::Add,
    }
}

/// What is done, and the type of the result.
fn function(
    routine: &Routine,
    values: &Values,
    kind: SampleType,
) -> Result<(Function, SampleType), AssembleError> {
    let (least, most) = range(values, "range", kind);
    let limits = || {
        let lower = values.number("least").unwrap_or(f64::NEG_INFINITY);
        let upper = values.number("most").unwrap_or(f64::INFINITY);
        match lower <= upper {
            true => Ok((lower, upper)),
            false => Err(AssembleError::Limits(lower, upper)),
        }
    };
    Ok(match routine.name {
        "Invert" => (Function::Invert(least, most), kind),
        "LogExp" => {
            let base = match values.word("base") {
                Some("2") => 2.0,
                Some("10") => 10.0,
                _ => std::f64::consts::E,
            };
            let function = match values.word("function") {
                Some("exp") => Function::Power(base),
                _ => Function::Log(base),
            };
            (function, float_for(kind))
        }
        "Gamma" => {
            let power = values.number("gamma").unwrap_or(1.0);
            (Function::Gamma { power, least, most }, kind)
        }
        "Threshold" => {
            let (least, most) = limits()?;
            (Function::Within(least, most), SampleType::U8)
        }
        "Clip" => {
            let (least, most) = limits()?;
            (Function::Clip(least, most), kind)
        }
        _ => {
            let levels = values
                .whole("levels")
                .and_then(|levels| u32::try_from(levels).ok());
            let levels = levels.unwrap_or(16);
            let middle = values.word("as") == Some("middle");
            let function = Function::Steps {
                levels: levels.into(),
                least,
                most,
                middle,
            };
            let kind = match (middle, levels > 256) {
                (true, _) => kind,
                (false, true) => SampleType::U16,
                (false, false) => SampleType::U8,
            };
            (function, kind)
        }
    })
}

/// A float that has as many digits as the samples, or the most that there are.
pub(super) fn float_for(kind: SampleType) -> SampleType {
    match kind.bytes() {
        ..=2 => SampleType::F32,
        _ if kind == SampleType::F32 => kind,
        _ => SampleType::F64,
    }
}
