//! Arrays of NumPy as images, where they are.

use crate::errors::value;
use pipt::graph::{Failure, Part, Reading, Shape};
use pipt_raster::{Rect, Sample, SampleType, Size, each, of_type};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::ptr;

/// Bands that an array may have.
const BANDS_MAX: usize = 65_536;

/// An array of bands, rows and columns, of any strides; it is kept alive, and read and written where it lies.
pub(crate) struct Array {
    _owner: Py<PyAny>,
    address: usize,
    pub kind: SampleType,
    pub bands: usize,
    pub size: Size,
    /// From band to band, row to row, column to column, in bytes.
    strides: [isize; 3],
}

impl Array {
    /// # Errors
    ///
    /// It is no array of three axes and of samples as this machine has them, or not to be written into.
    pub(crate) fn new(array: &Bound<'_, PyAny>, write: bool) -> PyResult<Self> {
        let class = array.py().import("numpy")?.getattr("ndarray")?;
        // One of a subclass could say anything of its memory.
        if !array.get_type().is(&class) {
            return Err(PyTypeError::new_err("It is not numpy.ndarray itself"));
        }
        let about = array.getattr("__array_interface__")?;
        let about = about.cast::<PyDict>()?;
        let of = |name: &str| about.get_item(name)?.ok_or_else(|| value(name));
        let (address, is_fixed): (usize, bool) = of("data")?.extract()?;
        let shape: Vec<usize> = of("shape")?.extract()?;
        let name: String = of("typestr")?.extract()?;
        let &[bands, height, width] = shape.as_slice() else {
            return Err(value("An image has bands, rows and columns"));
        };
        if write && is_fixed {
            return Err(value("The array cannot be written into"));
        }
        let kind = kind(&name)?;
        if bands == 0 || height == 0 || width == 0 {
            return Err(value("An image has at least one pixel and one band"));
        }
        if bands > BANDS_MAX {
            return Err(value(format!(
                "An image has at most {BANDS_MAX} bands, not {bands}"
            )));
        }
        let side = |side: usize| u32::try_from(side).map_err(|_| value("A side is too long"));
        let size = Size::new(side(width)?, side(height)?);
        let given: Option<[isize; 3]> = array.getattr("strides")?.extract()?;
        Ok(Self {
            _owner: array.clone().unbind(),
            address,
            kind,
            bands,
            size,
            strides: given.ok_or_else(|| value("It has no strides"))?,
        })
    }

    pub(crate) fn shape(&self, nodata: Option<f64>) -> Shape {
        let name = |band: usize| match self.bands {
            1 => String::new(),
            _ => format!("band {}", band + 1),
        };
        Shape {
            size: self.size,
            kind: self.kind,
            bands: (0..self.bands).map(name).collect(),
            nodata,
        }
    }

    fn check(&self, band: u32, rect: Rect) -> Result<(), Failure> {
        match (band as usize) < self.bands && rect.is_within(self.size) {
            true => Ok(()),
            false => Err("A part lies outside of the array".into()),
        }
    }

    /// The address of a sample so many columns behind another.
    fn place_in_row(&self, first: usize, x: u32) -> usize {
        let x = isize::try_from(x).unwrap_or(isize::MAX);
        first.wrapping_add_signed(self.strides[2].wrapping_mul(x))
    }

    /// The address of a sample.
    fn place(&self, band: u32, x: u32, y: u32) -> usize {
        let along = |number: u32, axis: usize| {
            let number = isize::try_from(number).unwrap_or(isize::MAX);
            self.strides[axis].wrapping_mul(number)
        };
        let offset = along(band, 0)
            .wrapping_add(along(y, 1))
            .wrapping_add(along(x, 2));
        self.address.wrapping_add_signed(offset)
    }

    /// Whether the samples of a row lie one behind the other.
    fn has_whole_rows<T: Sample>(&self) -> bool {
        isize::try_from(size_of::<T>()) == Ok(self.strides[2])
    }

    fn read<T: Sample>(&self, band: u32, rect: Rect) -> Result<Vec<T>, Failure> {
        self.check(band, rect)?;
        if T::TYPE != self.kind {
            return Err("Other samples are wanted than the array has".into());
        }
        let width = rect.width as usize;
        let mut values: Vec<T> = Vec::with_capacity(width * rect.height as usize);
        for y in rect.y..rect.y + rect.height {
            let row = self.place(band, rect.x, y);
            if self.has_whole_rows::<T>() {
                values.reserve(width);
                let free = values.spare_capacity_mut().as_mut_ptr().cast::<u8>();
                // JUSTIFICATION: the interpreter's lock is not held, and samples one by one take several times as long.
                // SAFETY: the array is alive, and of this shape, these strides and this type; the row lies within it,
                // and room for it was made in memory that is not the array's. Any bytes are a sample. Who changes it
                // meanwhile gets one or the other sample, as with NumPy's own functions.
                unsafe {
                    ptr::copy_nonoverlapping(row as *const u8, free, width * size_of::<T>());
                    values.set_len(values.len() + width);
                }
                continue;
            }
            values.extend((0..rect.width).map(|x| {
                let place = self.place_in_row(row, x) as *const T;
                // JUSTIFICATION: the interpreter's lock is not held, and no copy of the array is made.
                // SAFETY: as above, of one sample.
                unsafe { place.read_unaligned() }
            }));
        }
        Ok(values)
    }

    /// Writes a rectangle of a band. No two threads write one sample: each has a rectangle of its own.
    ///
    /// # Errors
    ///
    /// It lies outside, or the values are not as many.
    pub(crate) fn write<T: Sample>(
        &self,
        band: u32,
        rect: Rect,
        values: &[T],
    ) -> Result<(), Failure> {
        self.check(band, rect)?;
        if values.len() as u64 != rect.pixels() || T::TYPE != self.kind {
            return Err("Other samples are given than the array takes".into());
        }
        let rows = values.chunks_exact(rect.width as usize);
        for (y, values) in (rect.y..).zip(rows) {
            let row = self.place(band, rect.x, y);
            if self.has_whole_rows::<T>() {
                let from = values.as_ptr().cast::<u8>();
                // JUSTIFICATION: threads write into the array of the result, without the interpreter's lock.
                // SAFETY: the array is alive, was made for the result, may be written into, and the row lies within
                // it, of samples of this type, and not in the memory of the values.
                unsafe { ptr::copy_nonoverlapping(from, row as *mut u8, size_of_val(values)) };
                continue;
            }
            for (x, value) in (0..).zip(values) {
                let place = self.place_in_row(row, x) as *mut T;
                // JUSTIFICATION: the same, where samples lie apart.
                // SAFETY: as above, of one sample.
                unsafe { place.write_unaligned(*value) };
            }
        }
        Ok(())
    }
}

/// The type of an array's samples; bool is read as 0 and 1.
pub(crate) fn kind(name: &str) -> PyResult<SampleType> {
    let native = name.trim_start_matches([
        '|',
        if cfg!(target_endian = "little") {
            '<'
        } else {
            '>'
        },
    ]);
    Ok(match native {
        "u1" | "b1" => SampleType::U8,
        "u2" => SampleType::U16,
        "u4" => SampleType::U32,
        "u8" => SampleType::U64,
        "i1" => SampleType::I8,
        "i2" => SampleType::I16,
        "i4" => SampleType::I32,
        "i8" => SampleType::I64,
        "f4" => SampleType::F32,
        "f8" => SampleType::F64,
        _ => {
            return Err(PyTypeError::new_err(format!(
                "Samples of type {name} are not computed with: take integers of 8 to 64 bits, float32 or float64"
            )));
        }
    })
}

/// The name that NumPy has for a type.
pub(crate) fn name(kind: SampleType) -> &'static str {
    match kind {
        SampleType::U8 => "uint8",
        SampleType::U16 => "uint16",
        SampleType::U32 => "uint32",
        SampleType::U64 => "uint64",
        SampleType::I8 => "int8",
        SampleType::I16 => "int16",
        SampleType::I32 => "int32",
        SampleType::I64 => "int64",
        SampleType::F32 => "float32",
        SampleType::F64 => "float64",
    }
}

/// An image in an array, perhaps with a mask: what is not 0 there has no data.
pub(crate) struct Source {
    pub array: Array,
    pub mask: Option<Array>,
    pub nodata: Option<f64>,
}

fn there<T: Sample>(values: &[T], nodata: Option<f64>) -> Vec<bool> {
    let nodata = nodata.filter(|nodata| T::of_f64(*nodata).to_f64() == *nodata);
    let nodata = nodata.map(T::of_f64);
    let is = |value: &T| !value.is_nan() && Some(*value) != nodata;
    values.iter().map(is).collect()
}

impl Reading for Source {
    fn part(&self, band: u32, rect: Rect) -> Result<Part, Failure> {
        let array = &self.array;
        let samples = of_type!(array.kind, T => array.read::<T>(band, rect)?.into());
        let may_lack = array.kind.is_float() || self.nodata.is_some() || self.mask.is_some();
        if !may_lack {
            return Ok(Part {
                samples,
                there: None,
            });
        }
        let mut all: Vec<bool> = each!(&samples, values => there(values, self.nodata));
        if let Some(mask) = &self.mask {
            let mask = mask.read::<u8>(band, rect)?;
            all.iter_mut()
                .zip(mask)
                .for_each(|(there, mask)| *there &= mask == 0);
        }
        let there = all.contains(&false).then_some(all);
        Ok(Part { samples, there })
    }
}
