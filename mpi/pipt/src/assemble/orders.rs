//! What order statistics and morphology ask the kernels for.

use super::{AssembleError, edge};
use crate::operation::Order;
use crate::parameter::Values;
use crate::routine::Routine;
use pipt_simd::rank::{Even, Operation, Trim, Window};

/// One operation after the other.
pub(super) fn orders(routine: &Routine, values: &Values) -> Result<Vec<Order>, AssembleError> {
    let number = |name: &str| {
        let number = values.whole(name);
        number.and_then(|number| u32::try_from(number).ok())
    };
    let size = number("size").unwrap_or(3);
    let is_cross = match values.word("shape") {
        Some(shape) => shape == "cross",
        None => matches!(
            routine.name,
            "CrossMedian" | "ATrimmedCrMean" | "CrossMin" | "CrossMax" | "CrossRank"
        ),
    };
    let window = match is_cross {
        true => Window::Cross { arm: size / 2 },
        false => Window::square(size),
    };
    let least_of_greatest = [Operation::Maximum, Operation::Minimum];
    let greatest_of_least = [Operation::Minimum, Operation::Maximum];
    let median = [Operation::Median(Even::Lower)];
    let trimmed = [Operation::TrimmedMean(Trim::Fraction(
        values.number("trim").unwrap_or(0.0),
    ))];
    let rank = [Operation::Rank(number("rank").unwrap_or(0))];
    let operations: &[Operation] = match routine.name {
        "SquareMin" | "CrossMin" | "Erode" => &greatest_of_least[..1],
        "SquareMax" | "CrossMax" | "Dilate" => &least_of_greatest[..1],
        "Open" => &greatest_of_least,
        "Close" => &least_of_greatest,
        "SquareRank" | "CrossRank" => &rank,
        "ATrimmedSqMean" | "ATrimmedCrMean" => &trimmed,
        _ => &median,
    };
    let (fill, edge) = (values.flag("fill"), edge(values));
    let order = |operation: &Operation| Order::new(window, *operation, fill, edge);
    let all = operations.iter().map(order);
    all.collect::<Result<_, _>>().map_err(AssembleError::Rank)
}
