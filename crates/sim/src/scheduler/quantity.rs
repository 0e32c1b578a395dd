//! Amounts of resources: `100m`, `16Gi`, `1e3`.

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

/// The amount in thousandths, rounded up; 0 if it is not an amount. Amounts of `cpu` are counted like this.
pub fn milli(quantity: &Quantity) -> i64 {
    scaled(&quantity.0, 3).unwrap_or(0)
}

/// The amount in whole units, rounded up; 0 if it is not an amount.
pub fn units(quantity: &Quantity) -> i64 {
    scaled(&quantity.0, 0).unwrap_or(0)
}

/// A number of units, written in the shortest form.
pub fn from_units(units: i64) -> Quantity {
    Quantity(units.to_string())
}

/// `text` times ten to the power of `decimals`, rounded up and kept within 64 bits.
fn scaled(text: &str, decimals: i32) -> Option<i64> {
    let text = text.trim();
    let (negative, text) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, suffix) = text.split_at(end);
    let (base, mut exponent) = suffix_scale(suffix)?;
    let mut mantissa: i128 = 0;
    let mut digits = 0;
    let mut point = false;
    for c in number.chars() {
        match c.to_digit(10) {
            Some(digit) if mantissa < i128::MAX / 1_000_000 / (1 << 61) => {
                mantissa = mantissa * 10 + i128::from(digit);
                exponent -= i32::from(point);
                digits += 1;
            }
            // More digits than anybody counts with.
            Some(_) => {
                exponent += i32::from(!point);
                digits += 1;
            }
            None if !point => point = true,
            None => return None,
        }
    }
    if digits == 0 {
        return None;
    }
    let amount = shift(mantissa.saturating_mul(base), exponent + decimals);
    let amount = i64::try_from(amount).unwrap_or(i64::MAX);
    Some(if negative { -amount } else { amount })
}

/// Multiplies by a power of ten; what is lost is rounded away from zero, as Kubernetes does.
fn shift(amount: i128, exponent: i32) -> i128 {
    let power = 10_i128.checked_pow(exponent.unsigned_abs());
    match (exponent >= 0, power) {
        (true, Some(power)) => amount.saturating_mul(power),
        (true, None) => i128::MAX,
        (false, Some(power)) => amount / power + i128::from(amount % power != 0),
        (false, None) => i128::from(amount != 0),
    }
}

/// A factor and a power of ten.
fn suffix_scale(suffix: &str) -> Option<(i128, i32)> {
    let binary = |power: u32| Some((1_i128 << (10 * power), 0));
    match suffix {
        "" => Some((1, 0)),
        "n" => Some((1, -9)),
        "u" => Some((1, -6)),
        "m" => Some((1, -3)),
        "k" => Some((1, 3)),
        "M" => Some((1, 6)),
        "G" => Some((1, 9)),
        "T" => Some((1, 12)),
        "P" => Some((1, 15)),
        "E" => Some((1, 18)),
        "Ki" => binary(1),
        "Mi" => binary(2),
        "Gi" => binary(3),
        "Ti" => binary(4),
        "Pi" => binary(5),
        "Ei" => binary(6),
        _ => {
            let exponent = suffix.strip_prefix(['e', 'E'])?;
            Some((1, exponent.parse().ok().filter(|e: &i32| e.abs() < 40)?))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_read_as_kubernetes_writes_them() {
        let cases = [
            ("1", 1000, 1),
            ("100m", 100, 1),
            ("1500m", 1500, 2),
            ("0.1", 100, 1),
            (".5", 500, 1),
            ("2.", 2000, 2),
            ("1k", 1_000_000, 1000),
            ("1Ki", 1_024_000, 1024),
            ("16Gi", 17_179_869_184_000, 17_179_869_184),
            ("1.5Gi", 1_610_612_736_000, 1_610_612_736),
            ("1e3", 1_000_000, 1000),
            ("1E", i64::MAX, 1_000_000_000_000_000_000),
            ("1u", 1, 1),
            ("0", 0, 0),
            ("-1", -1000, -1),
            ("+2", 2000, 2),
            ("123456789012345678901234567890", i64::MAX, i64::MAX),
            ("1Zi", 0, 0),
            ("", 0, 0),
            ("1.2.3", 0, 0),
        ];
        for (text, thousandths, whole) in cases {
            let quantity = Quantity(text.to_owned());
            assert_eq!((milli(&quantity), units(&quantity)), (thousandths, whole), "{text}");
        }
    }
}
