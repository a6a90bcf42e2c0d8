//! Images of all formats that an installed GDAL reads.
//!
//! Nothing is linked: the library is opened when an image is wanted that nothing else reads, by the names
//! that distributions give it; without it that image is refused, and the sentence names the package. Only
//! functions of its C interface are called, which has kept its promises since GDAL 2.0 (gdal.h, cpl_error.h,
//! cpl_vsi.h).
//!
//! Names of images are GDAL's: also `/vsizip/scene.zip/scene.tif`, `/vsicurl/https://...` and
//! `NETCDF:"a.nc":band`.

mod dataset;
mod functions;

pub use dataset::{Dataset, GdalError};
pub use functions::{Gdal, LoadError};
