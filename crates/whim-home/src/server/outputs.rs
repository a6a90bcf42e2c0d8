//! Which bytes of a call's buffers the kernel has written.

use whim_journey::message::{WireDirection, WireRegion, WireReturned};

/// Bytes of a region that travel back, by its rule and the call's result.
pub(super) fn returned_length(region: &WireRegion, result: i64) -> usize {
    if matches!(
        region.direction,
        WireDirection::In | WireDirection::Protected
    ) {
        return 0;
    }
    let done = u64::try_from(result).unwrap_or(0);
    let present = match region.direction {
        WireDirection::InOut => region.data_length,
        _ => region.length,
    };
    let wanted = match region.returned {
        WireReturned::Nothing => 0,
        WireReturned::Whole if result < 0 => 0,
        WireReturned::Whole | WireReturned::WholeAlways | WireReturned::Changed => present,
        WireReturned::ByResult { skip } => done.saturating_sub(skip).min(present),
        WireReturned::ByResultTimes { unit } => done.saturating_mul(unit).min(present),
    };
    usize::try_from(wanted).unwrap_or(0)
}

/// The data of those regions of which only changes travel back, in their order.
pub(super) fn kept(regions: &[WireRegion], tail: &[u8]) -> Vec<Vec<u8>> {
    let mut rest = tail;
    let mut kept = Vec::new();
    for region in regions {
        let length = usize::try_from(region.data_length).unwrap_or(usize::MAX);
        let (data, behind) = rest.split_at(length.min(rest.len()));
        rest = behind;
        if region.returned == WireReturned::Changed {
            kept.push(data.to_vec());
        }
    }
    kept
}

/// Bytes up to the last one that has changed.
pub(super) fn changed_length(before: &[u8], after: &[u8]) -> usize {
    let differs = |(before, after)| before != after;
    let last = before.iter().zip(after).rposition(differs);
    last.map_or(0, |last| last + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_kernel_wrote_travels_back() {
        let region = |direction, returned| WireRegion {
            address: 0,
            length: 100,
            direction,
            returned,
            data_length: 40,
        };
        use WireDirection::{In, InOut, Out};
        use WireReturned::{ByResult, ByResultTimes, Whole, WholeAlways};
        assert_eq!(returned_length(&region(In, Whole), 0), 0);
        assert_eq!(
            returned_length(&region(WireDirection::Protected, WholeAlways), 0),
            0
        );
        assert_eq!(returned_length(&region(Out, Whole), 0), 100);
        assert_eq!(returned_length(&region(Out, Whole), -14), 0);
        assert_eq!(returned_length(&region(InOut, WholeAlways), -4), 40);
        assert_eq!(returned_length(&region(Out, ByResult { skip: 0 }), 17), 17);
        assert_eq!(returned_length(&region(Out, ByResult { skip: 10 }), 17), 7);
        assert_eq!(
            returned_length(&region(Out, ByResult { skip: 0 }), 500),
            100
        );
        assert_eq!(
            returned_length(&region(Out, ByResultTimes { unit: 12 }), 2),
            24
        );
    }

    #[test]
    fn what_has_changed_is_found() {
        let region = |returned, data_length| WireRegion {
            address: 0,
            length: 10,
            direction: WireDirection::InOut,
            returned,
            data_length,
        };
        let regions = [
            region(WireReturned::Whole, 3),
            region(WireReturned::Changed, 4),
        ];
        assert_eq!(kept(&regions, b"abcdefg"), [b"defg".to_vec()]);
        assert_eq!(changed_length(b"defg", b"dXfg"), 2);
        assert_eq!(changed_length(b"defg", b"defg"), 0);
    }
}
