//! What a benchmark found, as a table for people or as JSON for programs.

use std::fmt::Write as _;
use std::io::Write as _;

use anyhow::Result;
use serde_json::{Map, Value, json};

/// A table with the circumstances that it was made under.
#[derive(Debug, Default)]
pub(crate) struct Report {
    /// The subcommand.
    pub(crate) name: &'static str,
    /// What the numbers are, one sentence.
    pub(crate) title: String,
    /// Circumstances: a name and a value each.
    pub(crate) setup: Vec<(&'static str, String)>,
    pub(crate) columns: Vec<String>,
    pub(crate) rows: Vec<Vec<Cell>>,
}

/// One field of a table.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Cell {
    None,
    Text(String),
    Count(u64),
    /// With two decimals.
    Ratio(f64),
    /// A change, with its sign and one decimal.
    Percent(f64),
    /// Least and greatest.
    Spread(u64, u64),
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl Cell {
    fn text(&self) -> String {
        match self {
            Self::None => "-".to_owned(),
            Self::Text(text) => text.clone(),
            Self::Count(count) => thousands(*count),
            Self::Ratio(ratio) => format!("{ratio:.2}"),
            Self::Percent(percent) => format!("{percent:+.1} %"),
            Self::Spread(least, greatest) => {
                format!("{}-{}", thousands(*least), thousands(*greatest))
            }
        }
    }

    fn json(&self) -> Value {
        match self {
            Self::None => Value::Null,
            Self::Text(text) => json!(text),
            Self::Count(count) => json!(count),
            Self::Ratio(ratio) => json!(ratio),
            Self::Percent(percent) => json!(percent),
            Self::Spread(least, greatest) => json!([least, greatest]),
        }
    }
}

impl Report {
    /// Writes the report to standard output.
    pub(crate) fn print(&self, as_json: bool) -> Result<()> {
        let mut out = std::io::stdout().lock();
        if as_json {
            writeln!(out, "{}", self.json())?;
        } else {
            write!(out, "{}", self.text()?)?;
        }
        Ok(())
    }

    fn json(&self) -> Value {
        let rows: Vec<Value> = self
            .rows
            .iter()
            .map(|row| {
                let fields = self.columns.iter().cloned().zip(row.iter().map(Cell::json));
                Value::Object(fields.collect())
            })
            .collect();
        let setup: Map<String, Value> =
            self.setup.iter().map(|(name, value)| ((*name).to_owned(), json!(value))).collect();
        json!({ "benchmark": self.name, "title": self.title, "setup": setup, "rows": rows })
    }

    /// A Markdown table, its columns aligned.
    fn text(&self) -> Result<String> {
        let cells: Vec<Vec<String>> =
            self.rows.iter().map(|row| row.iter().map(Cell::text).collect()).collect();
        let widths: Vec<usize> = self
            .columns
            .iter()
            .enumerate()
            .map(|(index, column)| {
                let cells = cells.iter().filter_map(|row| row.get(index));
                cells
                    .map(|cell| cell.chars().count())
                    .chain([column.chars().count()])
                    .max()
                    .unwrap_or(0)
            })
            .collect();
        let mut text = format!("{}: {}\n", self.name, self.title);
        for (name, value) in &self.setup {
            writeln!(text, "  {name}: {value}")?;
        }
        text += "\n";
        text += &line(&self.columns, &widths)?;
        let dashes: Vec<String> = widths.iter().map(|width| "-".repeat(*width)).collect();
        text += &line(&dashes, &widths)?;
        for row in &cells {
            text += &line(row, &widths)?;
        }
        text.push('\n');
        Ok(text)
    }
}

fn line(cells: &[String], widths: &[usize]) -> Result<String> {
    let mut text = String::from("|");
    for (index, (cell, width)) in cells.iter().zip(widths).enumerate() {
        if index == 0 {
            write!(text, " {cell:<width$} |")?;
        } else {
            write!(text, " {cell:>width$} |")?;
        }
    }
    text.push('\n');
    Ok(text)
}

/// A number with a comma each three digits.
fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> Report {
        Report {
            name: "ops",
            title: "times".into(),
            setup: vec![("memory", "anonymous".into())],
            columns: vec!["operation".into(), "ns".into()],
            rows: vec![
                vec!["read".into(), Cell::Count(1_234_567)],
                vec!["stat".into(), Cell::Spread(1, 1000)],
            ],
        }
    }

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let text = report().text().unwrap();
        assert!(text.contains("| operation |        ns |\n"), "{text}");
        assert!(text.contains("| read      | 1,234,567 |\n"), "{text}");
        assert!(text.contains("| stat      |   1-1,000 |\n"), "{text}");
    }

    #[test]
    fn json_has_a_field_for_each_column() {
        let json = report().json();
        assert_eq!(json["rows"][0]["ns"], 1_234_567);
        assert_eq!(json["rows"][1]["ns"], json!([1, 1000]));
        assert_eq!(json["setup"]["memory"], "anonymous");
    }
}
