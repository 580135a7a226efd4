//! Time stamps without a calendar library.

use std::time::{SystemTime, UNIX_EPOCH};

/// The present moment as `YYYY-MM-DDThh:mm:ssZ`.
pub(super) fn now() -> String {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
    stamp(seconds)
}

/// `seconds` since 1970 in the proleptic Gregorian calendar, UTC.
fn stamp(seconds: u64) -> String {
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    // Days since 0000-03-01, in eras of 400 years (Howard Hinnant's civil-from-days).
    let z = days + 719_468;
    let (era, day_of_era) = (z / 146_097, z % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    let (hour, minute, second) = (rest / 3600, rest / 60 % 60, rest % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::stamp;

    #[test]
    fn known_moments() {
        assert_eq!(stamp(0), "1970-01-01T00:00:00Z");
        assert_eq!(stamp(951_827_696), "2000-02-29T12:34:56Z");
        assert_eq!(stamp(1_000_000_000), "2001-09-09T01:46:40Z");
        assert_eq!(stamp(4_102_444_799), "2099-12-31T23:59:59Z");
    }
}
