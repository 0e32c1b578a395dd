//! Parser of cron schedules, with errors worded as by kube-apiserver's parser.

/// Bounds of a field, and names of its values.
struct Field {
    least: u32,
    most: u32,
    names: &'static [&'static str],
}

const FIELDS: [Field; 5] = [
    Field { least: 0, most: 59, names: &[] },
    Field { least: 0, most: 23, names: &[] },
    Field { least: 1, most: 31, names: &[] },
    Field {
        least: 1,
        most: 12,
        names: &["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"],
    },
    Field { least: 0, most: 6, names: &["sun", "mon", "tue", "wed", "thu", "fri", "sat"] },
];

/// Checks a schedule.
pub(super) fn parse(schedule: &str) -> Result<(), String> {
    let mut spec = schedule;
    for prefix in ["TZ=", "CRON_TZ="] {
        if let Some(rest) = spec.strip_prefix(prefix) {
            let (zone, rest) = rest.split_once(' ').unwrap_or((rest, ""));
            if zone != "UTC" && jiff::tz::TimeZone::get(zone).is_err() {
                return Err(format!("provided bad location {zone}: unknown time zone {zone}"));
            }
            spec = rest.trim();
        }
    }
    if let Some(descriptor) = spec.strip_prefix('@') {
        return match descriptor {
            "yearly" | "annually" | "monthly" | "weekly" | "daily" | "midnight" | "hourly" => Ok(()),
            every if every.starts_with("every ") => {
                let length = every.trim_start_matches("every ");
                crate::schema::format::go_duration(length)
                    .map(drop)
                    .ok_or_else(|| format!("failed to parse duration @{every}: time: invalid duration {length:?}"))
            }
            _ => Err(format!("unrecognized descriptor: {spec}")),
        };
    }
    let fields: Vec<&str> = spec.split_whitespace().collect();
    if fields.len() != FIELDS.len() {
        return Err(format!("expected exactly 5 fields, found {}: {fields}", fields.len(), fields = list(&fields)));
    }
    fields.iter().zip(&FIELDS).try_for_each(|(text, field)| text.split(',').try_for_each(|part| range(part, field)))
}

fn list(fields: &[&str]) -> String {
    format!("[{}]", fields.join(" "))
}

fn range(text: &str, field: &Field) -> Result<(), String> {
    let (span, step) = match text.split('/').collect::<Vec<_>>().as_slice() {
        [span] => (*span, None),
        [span, step] => (*span, Some(*step)),
        _ => return Err(format!("too many slashes: {text}")),
    };
    let ends: Vec<&str> = span.split('-').collect();
    let (start, mut end, single) = match ends.as_slice() {
        ["*" | "?"] => (field.least, field.most, false),
        [one] => {
            let value = number(one, field)?;
            (value, value, true)
        }
        [from, to] => (number(from, field)?, number(to, field)?, false),
        _ => return Err(format!("too many hyphens: {text}")),
    };
    if let Some(step) = step {
        let step = plain(step)?;
        if single {
            end = field.most;
        }
        if step == 0 {
            return Err(format!("step of range should be a positive number: {text}"));
        }
    }
    if start < field.least {
        return Err(format!("beginning of range ({start}) below minimum ({}): {text}", field.least));
    }
    if end > field.most {
        return Err(format!("end of range ({end}) above maximum ({}): {text}", field.most));
    }
    if start > end {
        return Err(format!("beginning of range ({start}) beyond end of range ({end}): {text}"));
    }
    Ok(())
}

fn number(text: &str, field: &Field) -> Result<u32, String> {
    let name = field.names.iter().position(|name| name.eq_ignore_ascii_case(text));
    match name {
        Some(index) => Ok(field.least + u32::try_from(index).unwrap_or(0)),
        None => plain(text),
    }
}

fn plain(text: &str) -> Result<u32, String> {
    let value: i64 = text
        .parse()
        .map_err(|_| format!("failed to parse int from {text}: strconv.Atoi: parsing {text:?}: invalid syntax"))?;
    u32::try_from(value).map_err(|_| format!("negative number ({value}) not allowed: {text}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schedules_are_read() {
        for good in ["* * * * *", "*/5 0-6,12 1 jan MON", "@hourly", "@every 1h30m", "0 0 ? * 0", "TZ=UTC 0 0 * * *"] {
            assert_eq!(parse(good), Ok(()), "{good}");
        }
    }
}
