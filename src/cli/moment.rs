//! Places in a topic as people name them: beginning, end, an offset, a time.

use std::str::FromStr;

use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use jiff::{Timestamp, Zoned};

/// Where to begin or end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Moment {
    Beginning,
    End,
    Offset(u64),
    /// Milliseconds since 1970.
    Time(i64),
}

const WANTED: &str = "`beginning`, `end`, an offset such as 1200, a time such as 2026-11-24T14:00 (local), \
                      2026-11-24T14:00Z, 2026-11-24T14:00+01:00[Europe/Zurich], or an age such as 2h or 30m";

impl FromStr for Moment {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        parse(text, &TimeZone::system(), Timestamp::now())
    }
}

/// `zone` is for times that name none, `now` for ages.
fn parse(text: &str, zone: &TimeZone, now: Timestamp) -> Result<Moment, String> {
    match text {
        "beginning" | "earliest" => return Ok(Moment::Beginning),
        "end" | "latest" => return Ok(Moment::End),
        _ => {}
    }
    if text.bytes().all(|byte| byte.is_ascii_digit()) && !text.is_empty() {
        return text.parse().map(Moment::Offset).map_err(|_| format!("`{text}` is too large for an offset"));
    }
    if let Ok(zoned) = text.parse::<Zoned>() {
        return Ok(Moment::Time(zoned.timestamp().as_millisecond()));
    }
    if let Ok(timestamp) = text.parse::<Timestamp>() {
        return Ok(Moment::Time(timestamp.as_millisecond()));
    }
    if let Ok(local) = text.parse::<DateTime>() {
        let zoned = local.to_zoned(zone.clone()).map_err(|error| format!("`{text}`: {error}"))?;
        return Ok(Moment::Time(zoned.timestamp().as_millisecond()));
    }
    if let Ok(age) = text.parse::<broker::config::Span>() {
        let age_ms = i64::try_from(age.0.as_millis()).unwrap_or(i64::MAX);
        return Ok(Moment::Time(now.as_millisecond().saturating_sub(age_ms)));
    }
    Err(format!("`{text}` is no place in a topic: give {WANTED}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_to_name_a_place() {
        let zone = TimeZone::fixed(jiff::tz::offset(1));
        let now = Timestamp::from_millisecond(10_000_000).expect("in range");
        let cases = [
            ("beginning", Moment::Beginning),
            ("end", Moment::End),
            ("1200", Moment::Offset(1200)),
            ("1970-01-01T02:00", Moment::Time(3_600_000)),
            ("1970-01-01 02:00:00.5", Moment::Time(3_600_500)),
            ("1970-01-02", Moment::Time(82_800_000)),
            ("1970-01-01T01:00Z", Moment::Time(3_600_000)),
            ("1970-01-01T01:00-02:00", Moment::Time(10_800_000)),
            ("30m", Moment::Time(10_000_000 - 1_800_000)),
        ];
        for (text, moment) in cases {
            assert_eq!(parse(text, &zone, now), Ok(moment), "{text}");
        }
        for text in ["", "soon", "2026-13-01", "-5", "99999999999999999999999"] {
            assert!(parse(text, &zone, now).is_err(), "{text}");
        }
    }
}
