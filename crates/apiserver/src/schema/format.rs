//! String formats of CRD schemas.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::LazyLock;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::civil::Date;
use regex::Regex;

/// Whether Kubernetes validates this format.
pub fn known(format: &str) -> bool {
    check(format).is_some()
}

/// Whether `text` has this format; true for unknown formats.
pub fn holds(format: &str, text: &str) -> bool {
    check(format).is_none_or(|check| check(text))
}

fn check(format: &str) -> Option<fn(&str) -> bool> {
    // Names are normalized without dashes: `date-time` is `datetime`.
    Some(match format.replace('-', "").as_str() {
        "bsonobjectid" => |text| text.len() == 24 && text.bytes().all(|byte| byte.is_ascii_hexdigit()),
        "uri" => uri,
        "email" => email,
        "hostname" => hostname,
        "ipv4" => ipv4,
        "ipv6" => ipv6,
        "cidr" => cidr,
        "mac" => mac,
        "uuid" => |text| UUID.is_match(text),
        "uuid3" => |text| UUID3.is_match(text),
        "uuid4" => |text| UUID4.is_match(text),
        "uuid5" => |text| UUID5.is_match(text),
        "isbn" => |text| isbn10(text) || isbn13(text),
        "isbn10" => isbn10,
        "isbn13" => isbn13,
        "creditcard" => credit_card,
        "ssn" => |text| SSN.is_match(text),
        "hexcolor" => |text| HEX_COLOR.is_match(text),
        "rgbcolor" => |text| RGB_COLOR.is_match(text),
        "byte" => |text| !text.is_empty() && STANDARD.decode(text).is_ok(),
        "password" => |_| true,
        "date" => date,
        "duration" => duration,
        "datetime" => date_time,
        "k8sshortname" => |text| text.len() <= 63 && SHORT_NAME.is_match(text),
        "k8slongname" => |text| text.len() <= 253 && LONG_NAME.is_match(text),
        _ => return None,
    })
}

macro_rules! patterns {
    ($($name:ident = $pattern:expr;)*) => {
        $(static $name: LazyLock<Regex> = LazyLock::new(|| Regex::new($pattern).expect("the pattern is well-formed"));)*
    };
}

patterns! {
    UUID = r"(?i)^[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}$";
    UUID3 = r"(?i)^[0-9a-f]{8}-?[0-9a-f]{4}-?3[0-9a-f]{3}-?[0-9a-f]{4}-?[0-9a-f]{12}$";
    UUID4 = r"(?i)^[0-9a-f]{8}-?[0-9a-f]{4}-?4[0-9a-f]{3}-?[89ab][0-9a-f]{3}-?[0-9a-f]{12}$";
    UUID5 = r"(?i)^[0-9a-f]{8}-?[0-9a-f]{4}-?5[0-9a-f]{3}-?[89ab][0-9a-f]{3}-?[0-9a-f]{12}$";
    HOSTNAME = r"^([a-zA-Z0-9\p{S}\p{L}]((-?[a-zA-Z0-9\p{S}\p{L}]{0,62})?)|([a-zA-Z0-9\p{S}\p{L}](([a-zA-Z0-9\-\p{S}\p{L}]{0,61}[a-zA-Z0-9\p{S}\p{L}])?)(\.)){1,}([a-zA-Z\p{L}]){2,63})$";
    CREDIT_CARD = r"^(?:4[0-9]{12}(?:[0-9]{3})?|5[1-5][0-9]{14}|(222[1-9]|22[3-9][0-9]|2[3-6][0-9]{2}|27[01][0-9]|2720)[0-9]{12}|6(?:011|5[0-9][0-9])[0-9]{12}|3[47][0-9]{13}|3(?:0[0-5]|[68][0-9])[0-9]{11}|(?:2131|1800|35[0-9]{3})[0-9]{11}|6[27][0-9]{14})$";
    SSN = r"^[0-9]{3}[- ]?[0-9]{2}[- ]?[0-9]{4}$";
    HEX_COLOR = r"^#?([0-9a-fA-F]{3}|[0-9a-fA-F]{6})$";
    RGB_COLOR = r"^rgb\([\t\n\f\r ]*(0|[1-9][0-9]?|1[0-9][0-9]?|2[0-4][0-9]|25[0-5])[\t\n\f\r ]*,[\t\n\f\r ]*(0|[1-9][0-9]?|1[0-9][0-9]?|2[0-4][0-9]|25[0-5])[\t\n\f\r ]*,[\t\n\f\r ]*(0|[1-9][0-9]?|1[0-9][0-9]?|2[0-4][0-9]|25[0-5])[\t\n\f\r ]*\)$";
    TIME = r"^([0-9]{2}):([0-9]{2}):([0-9]{2})(.[0-9]+)?(z|([+-][0-9]{2}:[0-9]{2}))$";
    SHORT_NAME = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$";
    LONG_NAME = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$";
    LOOSE_DURATION = r"([0-9]+)[\t\n\f\r ]*([A-Za-zµ]+)";
}

fn uri(text: &str) -> bool {
    // What net/url accepts as a request URI: an absolute path or an absolute URI.
    if text.is_empty() || text.bytes().any(|byte| byte < 0x20 || byte == 0x7f) {
        return false;
    }
    if text == "*" || text.starts_with('/') {
        return !text.contains(' ') || !text.split('?').next().unwrap_or_default().contains('%');
    }
    let Some((scheme, rest)) = text.split_once(':') else { return false };
    let letters = scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte));
    let starts = scheme.bytes().next().is_some_and(|byte| byte.is_ascii_alphabetic());
    let authority = rest.strip_prefix("//").map(|rest| rest.split(['/', '?']).next().unwrap_or_default());
    letters && starts && rest.starts_with('/') && authority.is_none_or(|authority| !authority.contains(' '))
        || letters && starts && !rest.is_empty() && !rest.starts_with('/')
}

fn email(text: &str) -> bool {
    // `Name <local@domain>` or `local@domain`.
    let address = match (text.rfind('<'), text.ends_with('>')) {
        (Some(open), true) => &text[open + 1..text.len() - 1],
        _ => text.trim(),
    };
    let Some((local, domain)) = address.rsplit_once('@') else { return false };
    let atom = |part: &str| {
        !part.is_empty()
            && part.chars().all(|c| c.is_alphanumeric() || !c.is_ascii() || "!#$%&'*+-/=?^_`{|}~".contains(c))
    };
    let dotted = |part: &str| part.split('.').all(atom);
    let quoted = local.len() > 2 && local.starts_with('"') && local.ends_with('"');
    let literal = domain.starts_with('[') && domain.ends_with(']');
    (dotted(local) || quoted) && (dotted(domain) || literal)
}

fn hostname(text: &str) -> bool {
    HOSTNAME.is_match(text) && text.len() <= 255 && text.split('.').all(|part| part.len() <= 63)
}

fn ipv4(text: &str) -> bool {
    // Leading zeros are tolerated, and so is an IPv4 address inside an IPv6 one.
    text.contains('.') && (loose_ipv4(text) || text.parse::<Ipv6Addr>().is_ok())
}

fn loose_ipv4(text: &str) -> bool {
    let parts: Vec<&str> = text.split('.').collect();
    let octet = |part: &&str| {
        !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit()) && part.parse::<u32>().is_ok_and(|n| n < 256)
    };
    parts.len() == 4 && parts.iter().all(octet)
}

fn ipv6(text: &str) -> bool {
    text.contains(':') && text.parse::<Ipv6Addr>().is_ok()
}

fn cidr(text: &str) -> bool {
    let Some((address, bits)) = text.split_once('/') else { return false };
    let max = if loose_ipv4(address) || address.parse::<Ipv4Addr>().is_ok() {
        32
    } else if address.parse::<Ipv6Addr>().is_ok() {
        128
    } else {
        return false;
    };
    !bits.is_empty() && bits.bytes().all(|byte| byte.is_ascii_digit()) && bits.parse::<u32>().is_ok_and(|n| n <= max)
}

fn mac(text: &str) -> bool {
    let (separator, width) = match text.as_bytes() {
        [_, _, b':', ..] => (':', 2),
        [_, _, b'-', ..] => ('-', 2),
        [_, _, _, _, b'.', ..] => ('.', 4),
        _ => return false,
    };
    let parts: Vec<&str> = text.split(separator).collect();
    let bytes = parts.len() * width / 2;
    [6, 8, 20].contains(&bytes)
        && parts.iter().all(|part| part.len() == width && part.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

fn digits_of(text: &str) -> String {
    text.chars().filter(|c| *c != '-' && *c != ' ').collect()
}

fn isbn10(text: &str) -> bool {
    let text = digits_of(text);
    if text.len() != 10 || !text[..9].bytes().all(|byte| byte.is_ascii_digit()) {
        return false;
    }
    let value = |c: char| if c == 'X' { Some(10) } else { c.to_digit(10) };
    let sum: Option<u32> = text.chars().zip(1..).map(|(c, weight)| value(c).map(|value| value * weight)).sum();
    sum.is_some_and(|sum| sum % 11 == 0)
}

fn isbn13(text: &str) -> bool {
    let text = digits_of(text);
    let digits: Option<Vec<u32>> = text.chars().map(|c| c.to_digit(10)).collect();
    let Some(digits) = digits.filter(|digits| digits.len() == 13) else { return false };
    digits.iter().zip([1, 3].iter().cycle()).map(|(digit, weight)| digit * weight).sum::<u32>() % 10 == 0
}

fn credit_card(text: &str) -> bool {
    let text: String = text.chars().filter(char::is_ascii_digit).collect();
    if !CREDIT_CARD.is_match(&text) {
        return false;
    }
    let sum: u32 = text
        .chars()
        .rev()
        .filter_map(|c| c.to_digit(10))
        .zip([1, 2].iter().cycle())
        .map(|(digit, factor)| digit * factor)
        .map(|digit| if digit > 9 { digit - 9 } else { digit })
        .sum();
    sum.is_multiple_of(10)
}

fn date(text: &str) -> bool {
    text.len() == 10 && text.parse::<Date>().is_ok()
}

fn date_time(text: &str) -> bool {
    let lower = text.to_lowercase();
    let Some((day, time)) = lower.split_once('t') else { return false };
    let time = time.split('t').next().unwrap_or_default();
    let Some(parts) = TIME.captures(time).filter(|_| date(day)) else { return false };
    &parts[1] <= "23" && &parts[2] <= "59" && &parts[3] <= "59"
}

fn duration(text: &str) -> bool {
    duration_nanoseconds(text).is_some()
}

/// Nanoseconds of a duration in Go or Scala notation: `1h30m`, `2 days`.
pub fn duration_nanoseconds(text: &str) -> Option<i64> {
    go_duration(text).or_else(|| {
        let mut total: Option<i64> = None;
        for found in LOOSE_DURATION.captures_iter(text) {
            let count: i64 = found[1].parse().ok()?;
            if let Some(unit) = loose_unit(&found[2]) {
                total = Some(total.unwrap_or(0).wrapping_add(count.wrapping_mul(unit)));
            }
        }
        total
    })
}

/// Nanoseconds of a unit of Scala durations: abbreviations exactly, words by prefix.
fn loose_unit(unit: &str) -> Option<i64> {
    const UNITS: &[(&[&str], &str, i64)] = &[
        (&["ns"], "nano", 1),
        (&["us", "µs"], "micro", 1_000),
        (&["ms"], "milli", 1_000_000),
        (&["s"], "sec", 1_000_000_000),
        (&["m"], "min", 60_000_000_000),
        (&["h", "hr"], "hour", 3_600_000_000_000),
        (&["d"], "day", 86_400_000_000_000),
        (&["w", "wk"], "week", 604_800_000_000_000),
    ];
    let unit = unit.to_lowercase();
    let found = UNITS.iter().find(|(short, word, _)| short.contains(&unit.as_str()) || unit.starts_with(word));
    found.map(|(_, _, nanoseconds)| *nanoseconds)
}

/// Nanoseconds of a duration as parsed by Go's `time.ParseDuration`: `1h30m`, `-1.5s`, `0`.
pub fn go_duration(text: &str) -> Option<i64> {
    let (negative, mut rest) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    if rest == "0" {
        return Some(0);
    }
    if rest.is_empty() {
        return None;
    }
    let mut total: f64 = 0.0;
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, tail) = rest.split_at(end);
        if !number.bytes().any(|byte| byte.is_ascii_digit()) || number.matches('.').count() > 1 {
            return None;
        }
        let unit_end = tail.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(unit_end);
        let nanoseconds = match unit {
            "ns" => 1.0,
            "us" | "µs" | "μs" => 1e3,
            "ms" => 1e6,
            "s" => 1e9,
            "m" => 60e9,
            "h" => 3600e9,
            _ => return None,
        };
        total += format!("0{number}0")
            .parse::<f64>()
            .ok()
            .filter(|_| number.contains('.'))
            .unwrap_or_else(|| number.parse::<f64>().unwrap_or(f64::INFINITY))
            * nanoseconds;
        rest = tail;
    }
    let total = if negative { -total } else { total };
    (total.abs() < 9.223_372_036_854_776e18).then_some(total as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats() {
        let cases: &[(&str, &[&str], &[&str])] = &[
            (
                "date-time",
                &["2024-02-29T12:00:00Z", "2024-01-01t23:59:59.5+02:00"],
                &["2024-02-30T12:00:00Z", "2024-01-01T24:00:00Z", "x"],
            ),
            ("date", &["2024-02-29"], &["2023-02-29", "2024-1-1"]),
            ("duration", &["1h30m", "0", "-1.5s", "2 days", "3 weeks"], &["", "1", "fast"]),
            ("ipv4", &["10.0.0.1", "010.0.0.1"], &["10.0.0", "::1", "256.0.0.1"]),
            ("ipv6", &["::1", "fe80::1"], &["10.0.0.1", "1"]),
            ("cidr", &["10.0.0.0/8", "::/0"], &["10.0.0.0", "10.0.0.0/33"]),
            ("mac", &["00:00:5e:00:53:01", "0000.5e00.5301"], &["00:00:5e:00:53", "zz:00:5e:00:53:01"]),
            ("uuid", &["123e4567-e89b-12d3-a456-426614174000"], &["123"]),
            ("email", &["a@b.c", "A B <a@b>"], &["a", "a@", "a b@c"]),
            ("hostname", &["example.com", "a"], &["-a", "a..b"]),
            ("uri", &["https://example.com/x", "/path"], &["", "example.com", "http//x"]),
            ("byte", &["aGk="], &["aGk", "!"]),
            ("isbn", &["0321751043", "978-0321751041"], &["0321751044"]),
            ("creditcard", &["4111 1111 1111 1111"], &["4111 1111 1111 1112"]),
            ("hexcolor", &["#fff", "00FF00"], &["#ff"]),
            ("rgbcolor", &["rgb(255, 0,1)"], &["rgb(256,0,0)"]),
            ("k8s-short-name", &["a-b"], &["A", "a.b"]),
            ("k8s-long-name", &["a.b"], &["a..b"]),
            ("bsonobjectid", &["507f1f77bcf86cd799439011"], &["507f"]),
            ("nonsense", &["anything"], &[]),
        ];
        for (format, good, bad) in cases {
            for text in *good {
                assert!(holds(format, text), "{text:?} is a {format}");
            }
            for text in *bad {
                assert!(!holds(format, text), "{text:?} is no {format}");
            }
        }
    }

    #[test]
    fn durations_of_go() {
        for (text, nanoseconds) in
            [("1h", Some(3_600_000_000_000)), ("1.5s", Some(1_500_000_000)), (".5s", Some(500_000_000)), ("1", None)]
        {
            assert_eq!(go_duration(text), nanoseconds, "{text}");
        }
    }
}
