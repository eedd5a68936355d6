//! Columns for people, JSON for programs.

use std::io::Write;

use serde::Serialize;

use super::failure::Failure;

/// Prints rows below their headings, columns as wide as they need; numbers to the right.
pub(crate) fn print_table(headings: &[&str], rows: &[Vec<String>]) -> Result<(), Failure> {
    let mut widths: Vec<usize> = headings.iter().map(|heading| heading.chars().count()).collect();
    for row in rows {
        assert_eq!(row.len(), headings.len(), "a row has every column");
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let mut text = String::new();
    let headings: Vec<String> = headings.iter().map(|heading| (*heading).to_owned()).collect();
    for row in std::iter::once(&headings).chain(rows) {
        let cells: Vec<String> = row.iter().zip(&widths).map(|(cell, width)| pad(cell, *width)).collect();
        text.push_str(cells.join("  ").trim_end());
        text.push('\n');
    }
    print(text.as_bytes())
}

fn pad(cell: &str, width: usize) -> String {
    let number = cell.starts_with(|first: char| first.is_ascii_digit()) && cell.ends_with(|last: char| last.is_ascii_digit());
    if number { format!("{cell:>width$}") } else { format!("{cell:<width$}") }
}

/// Prints one JSON value, indented.
pub(crate) fn print_json(value: &impl Serialize) -> Result<(), Failure> {
    let mut text = serde_json::to_vec_pretty(value).map_err(|error| Failure::Failed(error.to_string()))?;
    text.push(b'\n');
    print(&text)
}

/// Prints bytes to standard output.
pub(crate) fn print(bytes: &[u8]) -> Result<(), Failure> {
    std::io::stdout().write_all(bytes).map_err(|error| Failure::of_output(&error))
}

/// A size for people: 12.3 MiB.
pub(crate) fn size_text(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut scaled = bytes as f64 / 1024.0;
    let mut unit = 0;
    while scaled >= 1024.0 && unit + 1 < UNITS.len() {
        scaled /= 1024.0;
        unit += 1;
    }
    format!("{scaled:.1} {}", UNITS[unit])
}

#[cfg(test)]
mod tests {
    use super::size_text;

    #[test]
    fn sizes_have_the_unit_that_fits() {
        let cases = [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (1536, "1.5 KiB"), (5 << 30, "5.0 GiB")];
        for (bytes, text) in cases {
            assert_eq!(size_text(bytes), text);
        }
    }
}
