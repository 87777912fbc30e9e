//! What kind a message is of: its words without what differs from image to image.

/// Kinds are told apart by so many letters.
const LETTERS_MAX: usize = 160;
/// What an opening for writing adds to the first damage that it found.
const ADVICE: [&str; 2] = [" (the first of ", "; what it owns is unknown"];

/// The message without its numbers, its advice, and the repetitions in its lists.
pub(super) fn kind_of(message: &str) -> String {
    let ends = ADVICE.iter().filter_map(|advice| message.find(advice));
    let end = ends.min().unwrap_or(message.len());
    let mut kind = String::new();
    for part in without_numbers(message.get(..end).unwrap_or(message)).split(", ") {
        let (text, comma) = if kind.is_empty() { (part, "") } else { (part, ", ") };
        if !kind.ends_with(text) {
            kind.push_str(comma);
            kind.push_str(text);
        }
    }
    kind.chars().take(LETTERS_MAX).collect()
}

fn without_numbers(text: &str) -> String {
    let mut words = String::new();
    let mut in_number = false;
    for letter in text.chars() {
        let digit = letter.is_ascii_digit() || in_number && letter.is_ascii_hexdigit();
        if digit && !in_number {
            words.push('#');
        } else if !digit {
            words.push(letter);
        }
        // A hexadecimal number goes on after its x.
        in_number = digit || in_number && letter == 'x';
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_of_one_kind_are_one() {
        let kind = "inode # log page at #:#x: checksum: expected #x, found #x";
        for message in [
            "inode 7 log page at 0:0x4a000: checksum: expected 0xbeef, found 0x17",
            "inode 12 log page at 3:0x9000: checksum: expected 0x0, found 0xdeadbeef (the first of 2 \
             damaged places); what it owns is unknown, and writing could destroy it",
        ] {
            assert_eq!(kind_of(message), kind);
        }
        assert_eq!(kind_of("missing: slot 1, slot 22, slot 3"), "missing: slot #");
        assert_ne!(kind_of("inode 7 log"), kind_of("inode 7 log page"));
    }
}
