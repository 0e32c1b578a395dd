//! Quantities in the one form that Kubernetes writes: no fraction, and the largest unit that fits.

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

const DECIMAL: [(&str, i128); 7] = [
    ("E", 10_i128.pow(18)),
    ("P", 10_i128.pow(15)),
    ("T", 10_i128.pow(12)),
    ("G", 10_i128.pow(9)),
    ("M", 10_i128.pow(6)),
    ("k", 1000),
    ("", 1),
];
const SMALL: [(&str, i128); 3] = [("m", 10_i128.pow(6)), ("u", 1000), ("n", 1)];
const BINARY: [(&str, i128); 7] =
    [("Ei", 1 << 60), ("Pi", 1 << 50), ("Ti", 1 << 40), ("Gi", 1 << 30), ("Mi", 1 << 20), ("Ki", 1 << 10), ("", 1)];
/// The smallest part that a quantity knows.
const NANO: i128 = 1_000_000_000;

/// How many of a thing a quantity counts, rounded up; none where it is no quantity or too large.
pub fn whole(quantity: &Quantity) -> Option<i64> {
    let (nanos, _) = parse(&quantity.0)?;
    i64::try_from(nanos.div_euclid(NANO) + i128::from(nanos.rem_euclid(NANO) != 0)).ok()
}

/// Whether a quantity is more than nothing; none where it is no quantity.
pub fn is_positive(quantity: &Quantity) -> Option<bool> {
    parse(&quantity.0).map(|(nanos, _)| nanos > 0)
}

/// The quantity as Kubernetes writes it: `1.5` is `1500m`, `2048Mi` is `2Gi`. With an exponent, or if it is none, it stays.
pub fn canonical(quantity: &Quantity) -> String {
    let Some((nanos, unit)) = parse(&quantity.0) else { return quantity.0.clone() };
    if unit == Unit::Exponent {
        return quantity.0.clone();
    }
    if nanos == 0 {
        return "0".into();
    }
    let table: &[(&str, i128)] = if unit == Unit::Binary && nanos % NANO == 0 { &BINARY } else { &DECIMAL };
    let large = table.iter().map(|(suffix, factor)| (*suffix, factor * NANO));
    let fits = large.chain(SMALL).find(|(_, factor)| nanos % factor == 0);
    fits.map_or_else(|| quantity.0.clone(), |(suffix, factor)| format!("{}{suffix}", nanos / factor))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Unit {
    Decimal,
    Binary,
    Exponent,
}

/// A quantity in billionths, and how it was written.
fn parse(text: &str) -> Option<(i128, Unit)> {
    let (negative, text) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, suffix) = text.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.len() + fraction.len() == 0 || fraction.contains('.') || whole.len() > 18 || fraction.len() > 9 {
        return None;
    }
    let digits = |text: &str| if text.is_empty() { Some(0) } else { text.parse::<i128>().ok() };
    let scale = 10_i128.pow(u32::try_from(fraction.len()).ok()?);
    // The mantissa in billionths: whole.fraction * 10^9.
    let mantissa = digits(whole)? * NANO + digits(fraction)? * (NANO / scale);
    let of = |table: &[(&str, i128)]| table.iter().find(|(name, _)| *name == suffix).map(|(_, factor)| *factor);
    let (nanos, unit) = if let Some(factor) = of(&DECIMAL) {
        (mantissa.checked_mul(factor)?, Unit::Decimal)
    } else if let Some(factor) = of(&BINARY) {
        (mantissa.checked_mul(factor)?, Unit::Binary)
    } else if let Some(factor) = of(&SMALL) {
        (mantissa / (NANO / factor), Unit::Decimal)
    } else {
        let exponent: i32 = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
        let power = 10_i128.checked_pow(exponent.unsigned_abs())?;
        let nanos = if exponent < 0 { mantissa / power } else { mantissa.checked_mul(power)? };
        (nanos, Unit::Exponent)
    };
    Some((if negative { -nanos } else { nanos }, unit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_written_as_kubernetes_writes_them() {
        let cases = [
            ("1.5", "1500m"),
            ("80", "80"),
            ("2000", "2k"),
            ("40Gi", "40Gi"),
            ("1.5Gi", "1536Mi"),
            ("2048Mi", "2Gi"),
            ("1000Mi", "1000Mi"),
            ("1000m", "1"),
            ("0", "0"),
            ("0.5Gi", "512Mi"),
            ("1e3", "1e3"),
            ("nonsense", "nonsense"),
        ];
        for (text, expected) in cases {
            assert_eq!(canonical(&Quantity(text.into())), expected, "{text}");
        }
    }

    #[test]
    fn quantities_count() {
        for (text, expected) in [("512Mi", Some(536_870_912)), ("80", Some(80)), ("1500m", Some(2)), ("x", None)] {
            assert_eq!(whole(&Quantity(text.into())), expected, "{text}");
        }
        assert_eq!(is_positive(&Quantity("-1Gi".into())), Some(false));
    }
}
