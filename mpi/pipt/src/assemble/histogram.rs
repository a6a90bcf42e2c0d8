//! What routines for what follows from how often samples are ask for.

use super::{AssembleError, Assembled, Image, Setting};
use crate::parameter::Values;
use crate::routine::Routine;

impl Assembled {
    pub(super) fn histogram(
        &mut self,
        _routine: &Routine,
        of: &Image,
        _values: &Values,
        _setting: &Setting<'_>,
    ) -> Result<Image, AssembleError> {
        Ok(of.clone())
    }
}
