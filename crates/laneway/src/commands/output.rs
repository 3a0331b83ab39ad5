//! What a command prints: a table for a person, tab-separated lines for a pipe, JSON for a program.

use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use serde::Serialize;

/// Who reads standard output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// A person at a terminal: aligned columns under a heading.
    Table,
    /// The next program of a pipe: one row a line, columns separated by tabs, no heading.
    Plain,
    /// `--json`: one object a line.
    Json,
}

impl Style {
    /// The style that fits standard output, unless JSON was asked for.
    pub fn detect(json: bool) -> Self {
        match (json, io::stdout().is_terminal()) {
            (true, _) => Self::Json,
            (false, true) => Self::Table,
            (false, false) => Self::Plain,
        }
    }
}

/// A row of a list: its cells for people and pipes; its fields, through `Serialize`, for JSON.
pub trait Row: Serialize {
    /// Headings of the columns.
    const HEADINGS: &'static [&'static str];

    /// One text for each heading, in the form that a table or a pipe wants.
    fn cells(&self, style: Style) -> Vec<String>;
}

/// Writes rows in a style. An empty list is a heading (table), or nothing.
pub fn write_rows<R: Row>(out: &mut dyn Write, style: Style, rows: &[R]) -> io::Result<()> {
    match style {
        Style::Json => rows.iter().try_for_each(|row| write_json(out, row)),
        Style::Plain => {
            for row in rows {
                let cells: Vec<String> = row.cells(style).iter().map(|cell| plain(cell)).collect();
                writeln!(out, "{}", cells.join("\t"))?;
            }
            Ok(())
        }
        Style::Table => write_table(out, rows),
    }
}

/// Writes one value as JSON on its own line.
pub fn write_json<T: Serialize + ?Sized>(out: &mut dyn Write, value: &T) -> io::Result<()> {
    serde_json::to_writer(&mut *out, value)?;
    writeln!(out)
}

fn write_table<R: Row>(out: &mut dyn Write, rows: &[R]) -> io::Result<()> {
    let mut widths: Vec<usize> = R::HEADINGS.iter().map(|heading| heading.chars().count()).collect();
    let cells: Vec<Vec<String>> =
        rows.iter().map(|row| row.cells(Style::Table).iter().map(|cell| printable(cell)).collect()).collect();
    for row in &cells {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let headings: Vec<String> = R::HEADINGS.iter().map(|heading| heading.to_uppercase()).collect();
    for row in std::iter::once(&headings).chain(&cells) {
        let line: Vec<String> =
            row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        writeln!(out, "{}", line.join("  ").trim_end())?;
    }
    Ok(())
}

/// A name may hold any character; a tab or a newline would make two columns or rows out of one.
fn plain(cell: &str) -> String {
    cell.replace('\\', "\\\\").replace('\t', "\\t").replace('\n', "\\n").replace('\r', "\\r")
}

/// Names come from other people: control characters must not reach a terminal.
pub fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c }).collect()
}

/// A number of bytes for people: `17 B`, `4.2 MiB`.
pub fn bytes_text(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut value = bytes as f64 / 1024.0;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{value:.1} {}", UNITS.get(unit).unwrap_or(&""))
}

/// A number for people, digits in groups of three: `1,234,567`.
pub fn count_text(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// So many of something: `1 message`, `2,500 messages`. For words that take an s.
pub fn counted(count: u64, what: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{} {what}{plural}", count_text(count))
}

/// A duration for people, in the unit that shows it best.
pub fn time_text(time: Duration) -> String {
    match time.as_micros() {
        0..1000 => format!("{} us", time.as_micros()),
        1000..1_000_000 => format!("{:.2} ms", time.as_secs_f64() * 1000.0),
        _ => format!("{:.2} s", time.as_secs_f64()),
    }
}

/// A moment as RFC 3339 in UTC with microseconds, `2026-11-30T16:25:16.000001Z`.
pub fn moment_text(micros: u64) -> String {
    let (days, rest) = (micros / 86_400_000_000, micros % 86_400_000_000);
    let (year, month, day) = civil_date(days);
    let (seconds, fraction) = (rest / 1_000_000, rest % 1_000_000);
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{fraction:06}Z")
}

/// The date of a day since 1970-01-01 in the proleptic Gregorian calendar. Years begin in March here, so that the
/// leap day is the last of its year and every month but the last has its fixed start.
fn civil_date(days_since_1970: u64) -> (u64, u64, u64) {
    const DAYS_TO_1970: u64 = 719_468; // from 0000-03-01
    let days = days_since_1970 + DAYS_TO_1970;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 { march_month + 3 } else { march_month - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Serialize)]
    struct Fruit {
        name: &'static str,
        count: u32,
    }

    impl Row for Fruit {
        const HEADINGS: &'static [&'static str] = &["name", "count"];

        fn cells(&self, _: Style) -> Vec<String> {
            vec![self.name.to_string(), self.count.to_string()]
        }
    }

    #[track_caller]
    fn check(style: Style, rows: &[Fruit], expected: &str) {
        let mut out = Vec::new();
        write_rows(&mut out, style, rows).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }

    #[test]
    fn rows_in_every_style() {
        let rows = [Fruit { name: "fig", count: 12 }, Fruit { name: "a\tb\nc", count: 3 }];
        check(Style::Table, &rows, "NAME   COUNT\nfig    12\na\u{fffd}b\u{fffd}c  3\n");
        check(Style::Plain, &rows, "fig\t12\na\\tb\\nc\t3\n");
        check(Style::Json, &rows, "{\"name\":\"fig\",\"count\":12}\n{\"name\":\"a\\tb\\nc\",\"count\":3}\n");
        check(Style::Table, &[], "NAME  COUNT\n");
        check(Style::Plain, &[], "");
        check(Style::Json, &[], "");
    }

    #[test]
    fn numbers_for_people() {
        assert_eq!([bytes_text(0), bytes_text(1023), bytes_text(1024)], ["0 B", "1023 B", "1.0 KiB"]);
        assert_eq!([bytes_text(4_404_019), bytes_text(u64::MAX)], ["4.2 MiB", "16.0 EiB"]);
        assert_eq!([count_text(0), count_text(999), count_text(1000)], ["0", "999", "1,000"]);
        assert_eq!(count_text(1_234_567), "1,234,567");
        let counts = [0, 1, 2500].map(|count| counted(count, "line"));
        assert_eq!(counts, ["0 lines", "1 line", "2,500 lines"]);
        let times = [750, 9_990, 2_500_000].map(|micros| time_text(Duration::from_micros(micros)));
        assert_eq!(times, ["750 us", "9.99 ms", "2.50 s"]);
    }

    #[test]
    fn moments_are_utc() {
        assert_eq!(moment_text(0), "1970-01-01T00:00:00.000000Z");
        assert_eq!(moment_text(951_782_400_000_001), "2000-02-29T00:00:00.000001Z");
        assert_eq!(moment_text(1_700_000_000_000_000), "2023-11-14T22:13:20.000000Z");
        assert_eq!(moment_text(4_102_444_799_999_999), "2099-12-31T23:59:59.999999Z");
    }
}
