//! What point operations ask for.

use super::{AssembleError, Assembled, Image};
use crate::parameter::Values;
use crate::routine::Routine;

impl Assembled {
    /// Of one image, or of two.
    pub(super) fn points(
        &mut self,
        _routine: &Routine,
        images: &[Image],
        _values: &Values,
    ) -> Result<Image, AssembleError> {
        Ok(images[0].clone())
    }
}
