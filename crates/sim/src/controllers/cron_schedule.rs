//! Cron schedules: parsing and the next activation time.

use std::str::FromStr;

use jiff::civil::{DateTime, Weekday};
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan};

/// Search horizon in years: the next 29th of February is never farther away.
const SEARCH_HORIZON_YEARS: i16 = 9;

const MONTHS: &[&str] = &["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
const DAYS: &[&str] = &["sun", "mon", "tue", "wed", "thu", "fri", "sat"];

/// The five fields of a cron expression, each a bit set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Schedule {
    minutes: u64,
    hours: u64,
    days: u64,
    months: u64,
    weekdays: u64,
    /// Whether day of month and day of week must both match: one of them is `*`.
    both_days: bool,
}

/// Why a cron expression is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ScheduleError {
    /// Not five fields.
    #[error("expected exactly 5 fields, found {0}: [{1}]")]
    Fields(usize, String),
    /// Unknown descriptor after `@`.
    #[error("unrecognized descriptor: {0}")]
    Descriptor(String),
    /// A field that is not a range.
    #[error("failed to parse int from {0}")]
    Number(String),
    /// A number outside the range of its field.
    #[error("{0} is out of range: {1}")]
    Range(u32, String),
}

impl FromStr for Schedule {
    type Err = ScheduleError;

    fn from_str(text: &str) -> Result<Self, ScheduleError> {
        let text = text.trim();
        let line = match text {
            "@yearly" | "@annually" => "0 0 1 1 *",
            "@monthly" => "0 0 1 * *",
            "@weekly" => "0 0 * * 0",
            "@daily" | "@midnight" => "0 0 * * *",
            "@hourly" => "0 * * * *",
            other if other.starts_with('@') => return Err(ScheduleError::Descriptor(other.to_owned())),
            other => other,
        };
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [minutes, hours, days, months, weekdays] = fields.as_slice() else {
            return Err(ScheduleError::Fields(fields.len(), fields.join(" ")));
        };
        let star = |field: &str| field.split(',').any(|part| part.starts_with(['*', '?']));
        let weekday_bits = bits(weekdays, 0, 7, DAYS, 0)?;
        Ok(Self {
            minutes: bits(minutes, 0, 59, &[], 0)?,
            hours: bits(hours, 0, 23, &[], 0)?,
            days: bits(days, 1, 31, &[], 0)?,
            months: bits(months, 1, 12, MONTHS, 1)?,
            // Sunday is 0 and 7.
            weekdays: (weekday_bits | weekday_bits >> 7) & 0x7f,
            both_days: star(days) || star(weekdays),
        })
    }
}

fn bits(field: &str, min: u32, max: u32, names: &[&str], first: u32) -> Result<u64, ScheduleError> {
    let number = |text: &str| -> Result<u32, ScheduleError> {
        let lower = text.to_ascii_lowercase();
        let number = match names.iter().position(|name| *name == lower) {
            Some(at) => u32::try_from(at).unwrap_or(0) + first,
            None => text.parse().map_err(|_| ScheduleError::Number(text.to_owned()))?,
        };
        if (min..=max).contains(&number) { Ok(number) } else { Err(ScheduleError::Range(number, field.to_owned())) }
    };
    let mut all = 0;
    for part in field.split(',') {
        let (range, step) = part.split_once('/').map_or((part, None), |(range, step)| (range, Some(step)));
        let (from, to) = match range {
            "*" | "?" => (min, max),
            range => match range.split_once('-') {
                Some((from, to)) => (number(from)?, number(to)?),
                // `5/10` means from 5 on.
                None if step.is_some() => (number(range)?, max),
                None => (number(range)?, number(range)?),
            },
        };
        let step = match step {
            Some(step) => step.parse::<usize>().ok().filter(|step| *step > 0),
            None => Some(1),
        };
        let step = step.ok_or_else(|| ScheduleError::Number(part.to_owned()))?;
        if from > to {
            return Err(ScheduleError::Range(from, field.to_owned()));
        }
        all |= (from..=to).step_by(step).fold(0, |bits, at| bits | 1 << at);
    }
    Ok(all)
}

impl Schedule {
    /// The first activation time after `after`. Times that a DST change skips do not count.
    pub(crate) fn next(&self, after: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        let start = zone.to_datetime(after);
        let mut at = start.with().second(0).subsec_nanosecond(0).build().ok()?.checked_add(1.minute()).ok()?;
        let end = start.year().checked_add(SEARCH_HORIZON_YEARS)?;
        while at.year() <= end {
            match self.step(at)? {
                Some(later) => at = later,
                None => {
                    let found = zone.to_ambiguous_timestamp(at);
                    let gap = matches!(found.offset(), jiff::tz::AmbiguousOffset::Gap { .. });
                    match found.compatible() {
                        Ok(found) if !gap && found > after => return Some(found),
                        _ => at = at.checked_add(1.minute()).ok()?,
                    }
                }
            }
        }
        None
    }

    /// `None` if a time matches, otherwise the next candidate.
    fn step(&self, at: DateTime) -> Option<Option<DateTime>> {
        let has = |bits: u64, value: i8| bits >> value & 1 == 1;
        let midnight = at.date().to_datetime(jiff::civil::Time::midnight());
        let later = if !has(self.months, at.month()) {
            midnight.with().day(1).build().ok()?.checked_add(1.month()).ok()?
        } else if !self.has_day(at) {
            midnight.checked_add(1.day()).ok()?
        } else if !has(self.hours, at.hour()) {
            at.with().minute(0).build().ok()?.checked_add(1.hour()).ok()?
        } else if !has(self.minutes, at.minute()) {
            at.checked_add(1.minute()).ok()?
        } else {
            return Some(None);
        };
        Some(Some(later))
    }

    fn has_day(&self, at: DateTime) -> bool {
        let of_month = self.days >> at.day() & 1 == 1;
        let of_week = self.weekdays >> at.weekday().since(Weekday::Sunday) & 1 == 1;
        if self.both_days { of_month && of_week } else { of_month || of_week }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn next(schedule: &str, after: &str) -> String {
        let schedule: Schedule = schedule.parse().unwrap();
        schedule.next(after.parse().unwrap(), &TimeZone::UTC).unwrap().to_string()
    }

    #[test]
    fn next_times() {
        for (schedule, after, expected) in [
            ("* * * * *", "2026-01-01T00:00:00Z", "2026-01-01T00:01:00Z"),
            ("* * * * *", "2026-01-01T00:00:59Z", "2026-01-01T00:01:00Z"),
            ("*/15 * * * *", "2026-01-01T00:16:00Z", "2026-01-01T00:30:00Z"),
            ("5/20 * * * *", "2026-01-01T00:26:00Z", "2026-01-01T00:45:00Z"),
            ("0 3 * * *", "2026-01-01T03:00:00Z", "2026-01-02T03:00:00Z"),
            ("0 0 29 2 *", "2026-01-01T00:00:00Z", "2028-02-29T00:00:00Z"),
            ("30 4 1,15 * *", "2026-01-02T00:00:00Z", "2026-01-15T04:30:00Z"),
            ("0 0 * * mon-fri", "2026-01-02T12:00:00Z", "2026-01-05T00:00:00Z"),
            ("0 0 * * 7", "2026-01-01T00:00:00Z", "2026-01-04T00:00:00Z"),
            // With both given, either day of month or day of week matches.
            ("0 0 13 * fri", "2026-01-03T00:00:00Z", "2026-01-09T00:00:00Z"),
            ("@hourly", "2026-01-01T00:30:00Z", "2026-01-01T01:00:00Z"),
            ("@yearly", "2026-01-01T00:30:00Z", "2027-01-01T00:00:00Z"),
            ("0 12 * jun *", "2026-07-01T00:30:00Z", "2027-06-01T12:00:00Z"),
        ] {
            assert_eq!(next(schedule, after), expected, "{schedule} after {after}");
        }
    }

    #[test]
    fn what_is_no_schedule() {
        for text in ["", "* * * *", "* * * * * *", "60 * * * *", "* 24 * * *", "* * 0 * *", "a * * * *", "*/0 * * * *"]
        {
            assert!(text.parse::<Schedule>().is_err(), "{text}");
        }
        assert!("@never".parse::<Schedule>().is_err());
        let never: Schedule = "0 0 31 2 *".parse().unwrap();
        assert_eq!(never.next("2026-01-01T00:00:00Z".parse().unwrap(), &TimeZone::UTC), None);
    }

    #[test]
    fn skipped_times_do_not_count() {
        let zone = TimeZone::posix("CET-1CEST,M3.5.0,M10.5.0/3").unwrap();
        let schedule: Schedule = "30 2 * * *".parse().unwrap();
        let next = schedule.next("2026-03-28T12:00:00Z".parse().unwrap(), &zone).unwrap();
        assert_eq!(next.to_string(), "2026-03-30T00:30:00Z");
    }
}
