//! Golden files: hexadecimal lines, and comments that start with `#`.

/// Reads the bytes of a golden file.
pub fn parse(text: &str) -> Vec<u8> {
    let digits: String = text.lines().filter(|line| !line.starts_with('#')).flat_map(str::chars).collect();
    let digits: Vec<u8> =
        digits.chars().filter_map(|digit| digit.to_digit(16)).map(|digit| digit as u8).collect();
    assert!(digits.len().is_multiple_of(2), "whole bytes");
    digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

/// The text of a golden file.
pub fn format(comment: &str, bytes: &[u8]) -> String {
    let mut text = format!("# {comment}\n");
    for row in bytes.chunks(32) {
        row.iter().for_each(|byte| text.push_str(&format!("{byte:02x}")));
        text.push('\n');
    }
    text
}
