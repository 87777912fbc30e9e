//! Sizes as people write and read them: powers of 1024, K to T.

use novale_policy::SlotLines;

const UNITS: [(char, u32); 4] = [('K', 10), ('M', 20), ('G', 30), ('T', 40)];

/// Reads `4096`, `64M`, `64MB` or `64MiB`.
pub(crate) fn parse_size(text: &str) -> Result<u64, String> {
    let wanted =
        || format!("'{text}' is no size: a number, and one of K, M, G, T behind it if need be");
    let upper = text.trim().to_ascii_uppercase();
    let bare = upper.strip_suffix("IB").or_else(|| upper.strip_suffix('B')).unwrap_or(&upper);
    let unit = UNITS.iter().find_map(|(unit, shift)| Some((bare.strip_suffix(*unit)?, *shift)));
    let (digits, shift) = unit.unwrap_or((bare, 0));
    let number: u64 = digits.trim().parse().map_err(|_| wanted())?;
    number.checked_mul(1 << shift).filter(|bytes| *bytes > 0).ok_or_else(wanted)
}

/// Reads a size, or 0.
pub(crate) fn parse_pace(text: &str) -> Result<u64, String> {
    if text == "0" { Ok(0) } else { parse_size(text) }
}

/// Reads what a slot of method `lawn` has.
pub(crate) fn parse_lawn_slot(text: &str) -> Result<SlotLines, String> {
    let bytes = u32::try_from(parse_size(text)?).unwrap_or(u32::MAX);
    let all = || SlotLines::ALL.map(|slot| slot.bytes().to_string()).join(", ");
    SlotLines::of_bytes(bytes).ok_or_else(|| format!("{text} is none of {} bytes", all()))
}

/// Three digits and a unit: `64.0 MiB`.
pub(crate) fn show_size(bytes: u64) -> String {
    let unit = UNITS.iter().rev().find(|(_, shift)| bytes >> shift > 0);
    let Some((unit, shift)) = unit else { return format!("{bytes} bytes") };
    let tenths = (u128::from(bytes) * 10) >> shift;
    format!("{}.{} {unit}iB", tenths / 10, tenths % 10)
}

/// Reads how many writes a cell endures: `100000000`, `1e8`, or a kind of memory (the WASA paper's table I;
/// of pcm the least).
pub(crate) fn parse_endurance(text: &str) -> Result<u64, String> {
    let wanted = || {
        format!("'{text}' is no endurance: a number of writes, also as 1e8, or dram, stt-ram, pcm")
    };
    let lower = text.trim().to_ascii_lowercase();
    let lower = match lower.as_str() {
        "dram" => "1e18",
        "stt-ram" => "1e15",
        "pcm" => "1e8",
        number => number,
    };
    let (digits, zeros) = lower.split_once('e').unwrap_or((lower, "0"));
    let number: u64 = digits.parse().map_err(|_| wanted())?;
    let zeros: u32 = zeros.parse().map_err(|_| wanted())?;
    let power = 10u64.checked_pow(zeros);
    power
        .and_then(|power| number.checked_mul(power))
        .filter(|writes| *writes > 0)
        .ok_or_else(wanted)
}

#[cfg(test)]
mod tests {
    use super::{parse_endurance, parse_size, show_size};

    #[test]
    fn endurance_is_a_number_or_a_kind_of_memory() {
        for (text, writes) in [("1000", 1000), ("1e8", 100_000_000), ("PCM", 100_000_000)] {
            assert_eq!(parse_endurance(text), Ok(writes));
        }
        for text in ["", "0", "e8", "1e99", "-1", "1.5e8", "flash"] {
            assert!(parse_endurance(text).is_err(), "{text}");
        }
    }

    #[test]
    fn sizes_are_read_with_and_without_units() {
        for (text, bytes) in [("4096", 4096), ("64k", 65536), ("2G", 2 << 30), ("1MiB", 1 << 20)] {
            assert_eq!(parse_size(text), Ok(bytes));
        }
        for text in ["", "G", "-1", "1.5G", "0", "64X", "16777216T"] {
            assert!(parse_size(text).is_err(), "{text}");
        }
    }

    #[test]
    fn sizes_are_shown_in_the_largest_unit_that_fits() {
        assert_eq!(show_size(1023), "1023 bytes");
        assert_eq!(show_size(64 << 20), "64.0 MiB");
        assert_eq!(show_size((3 << 30) + (512 << 20)), "3.5 GiB");
    }
}
