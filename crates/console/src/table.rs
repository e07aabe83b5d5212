//! Tables and paragraphs that fit a terminal: columns of names keep their width, columns of sentences wrap between words.

use std::io::IsTerminal as _;

use comfy_table::{ContentArrangement, presets};

use pumice_protocol::visible_text;

use crate::args::nonempty_env;

/// Characters of a column of sentences where no terminal limits the table.
const SENTENCE_WIDTH: usize = 60;
/// Columns between two cells, and around a table.
const CELL_PADDING: usize = 2;

/// Width that text on standard output has to fit: `COLUMNS`, else the terminal's. `None`: output goes to a file or pipe.
pub fn output_width() -> Option<usize> {
    let given = nonempty_env("COLUMNS").and_then(|text| text.to_str()?.parse().ok());
    given.filter(|width| *width > 0).or_else(|| {
        let terminal = std::io::stdout().is_terminal();
        let size = terminal.then(terminal_size::terminal_size).flatten();
        size.map(|(terminal_size::Width(columns), _)| usize::from(columns))
            .filter(|width| *width > 0)
    })
}

/// Rows under a head.
#[derive(Debug)]
pub struct TextTable {
    head: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl TextTable {
    /// Table of no rows yet under these titles of columns.
    pub fn new<H: IntoIterator<Item = S>, S: Into<String>>(head: H) -> Self {
        TextTable {
            head: head.into_iter().map(Into::into).collect(),
            rows: Vec::new(),
        }
    }

    /// Adds a row of one cell per column.
    pub fn row<R: IntoIterator<Item = S>, S: Into<String>>(&mut self, row: R) {
        let visible = |cell: S| visible_text(&cell.into()).into_owned();
        self.rows.push(row.into_iter().map(visible).collect());
    }

    /// Lines of the table in a width, the head first. A table of names alone may be wider.
    pub fn lines(&self, width: Option<usize>) -> Vec<String> {
        let widths = self.column_widths(width);
        let mut table = comfy_table::Table::new();
        table
            .load_style(presets::NOTHING)
            .set_content_arrangement(ContentArrangement::Disabled);
        table.set_header(self.head.clone());
        for row in &self.rows {
            let cells = row.iter().zip(&widths).map(|(cell, width)| wrap(cell, *width, 2));
            table.add_row(cells.collect::<Vec<String>>());
        }
        table.lines().map(|line| line.trim_end().to_owned()).collect()
    }

    /// Widths of the columns: the widest column of sentences gives way first, down to its longest word.
    fn column_widths(&self, width: Option<usize>) -> Vec<usize> {
        let mut columns: Vec<ColumnSize> = self.head.iter().map(|head| ColumnSize::of_head(head)).collect();
        for row in &self.rows {
            for (column, cell) in columns.iter_mut().zip(row) {
                column.include(cell);
            }
        }
        let Some(width) = width else {
            let capped = columns
                .iter()
                .map(|column| column.width.min(SENTENCE_WIDTH).max(column.least()));
            return capped.collect();
        };
        let total = |columns: &[ColumnSize]| columns.iter().map(|column| column.width + CELL_PADDING).sum::<usize>();
        while total(&columns) > width {
            let over = total(&columns) - width;
            let wide = columns.iter_mut().filter(|column| column.width > column.least());
            let Some(widest) = wide.max_by_key(|column| column.width) else {
                break;
            };
            // Step by step, so that several wide columns share what is missing.
            let step = over.div_ceil(4).min(widest.width - widest.least());
            widest.width -= step;
        }
        columns.iter().map(|column| column.width).collect()
    }
}

/// Size of a column's contents.
struct ColumnSize {
    width: usize,
    longest_word: usize,
    /// True if a cell has a space: the column may then wrap.
    wraps: bool,
}

impl ColumnSize {
    fn of_head(head: &str) -> Self {
        ColumnSize {
            width: head.chars().count(),
            longest_word: head.chars().count(),
            wraps: false,
        }
    }

    fn include(&mut self, cell: &str) {
        for line in cell.lines() {
            self.width = self.width.max(line.chars().count());
            self.wraps |= line.trim().contains(' ');
            let words = line.split_whitespace().map(|word| word.chars().count());
            // A continued line is indented by two.
            self.longest_word = self.longest_word.max(words.max().unwrap_or(0) + 2);
        }
    }

    /// Least width that cuts no word.
    fn least(&self) -> usize {
        if self.wraps {
            self.longest_word.min(self.width)
        } else {
            self.width
        }
    }
}

/// A text in lines of at most `width` characters, broken between words. A line that continues another is indented like it
/// and by `hanging` more. A word that is longer than a line stays whole.
pub fn wrap(text: &str, width: usize, hanging: usize) -> String {
    let mut lines = Vec::new();
    for line in text.lines() {
        if line.chars().count() <= width {
            lines.push(line.to_owned());
            continue;
        }
        let indent = line.chars().take_while(|letter| *letter == ' ').count();
        let mut open = " ".repeat(indent);
        let mut empty = true;
        for word in line.split_whitespace() {
            let needed = open.chars().count() + usize::from(!empty) + word.chars().count();
            if needed > width && !empty {
                lines.push(std::mem::replace(&mut open, " ".repeat(indent + hanging)));
                empty = true;
            }
            if !empty {
                open.push(' ');
            }
            open.push_str(word);
            empty = false;
        }
        lines.push(open);
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rejections() -> TextTable {
        let mut table = TextTable::new(["NODES", "REASON", "EXAMPLE"]);
        let reason = "Queue <research> has insufficient <NVIDIA-H100> quota: requested <8 cards>, total would be <12 cards>, \
                      but capability is <8 cards>";
        table.row([
            "1523",
            reason,
            "gpu-node-with-a-long-name-0001: requested 8 cards, total 12 cards",
        ]);
        table
    }

    #[test]
    fn a_table_fits_the_width_and_cuts_no_word() {
        for width in [60, 80, 100, 120, 200] {
            let lines = rejections().lines(Some(width));
            let widest = lines.iter().map(|line| line.chars().count()).max().unwrap();
            assert!(widest <= width, "{width}: {lines:#?}");
            let text = lines.join("\n");
            for word in ["gpu-node-with-a-long-name-0001:", "<research>", "insufficient"] {
                assert!(text.contains(word), "{width}: {text}");
            }
        }
    }

    #[test]
    fn without_a_terminal_sentences_wrap_and_names_do_not() {
        let mut table = rejections();
        let name = "a-name-".repeat(20);
        table.row(["1", "short", &name]);
        let lines = table.lines(None);
        assert!(lines.iter().any(|line| line.contains(&name)), "{lines:#?}");
        assert!(lines.len() > 3, "the sentence wraps: {lines:#?}");
    }

    #[test]
    fn continued_lines_are_indented() {
        assert_eq!(wrap("  → a hint of words", 12, 2), "  → a hint\n    of words");
        assert_eq!(wrap("unbreakable-name", 4, 2), "unbreakable-name");
        assert_eq!(wrap("a b\nc", 80, 2), "a b\nc");
    }
}
