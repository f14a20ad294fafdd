//! Tables that fit the terminal.
//!
//! Start at [`Table::shown`]. Columns are as wide as their widest cell; where the whole is too wide, the last column is
//! cut first, then those marked as dispensable are left out from the right.

use unicode_width::UnicodeWidthStr as _;

use super::clean::{clean_line, cut};
use super::style::Style;

/// A column.
#[derive(Clone, Copy, Debug)]
pub(super) struct Column {
    /// Its head.
    pub(super) head: &'static str,
    /// Numbers stand right.
    pub(super) right: bool,
    /// It may be left out where there is no room.
    pub(super) dispensable: bool,
}

impl Column {
    /// Text that must be there.
    #[must_use]
    pub(super) const fn text(head: &'static str) -> Column {
        Column { head, right: false, dispensable: false }
    }
    /// A number that must be there.
    #[must_use]
    pub(super) const fn number(head: &'static str) -> Column {
        Column { head, right: true, dispensable: false }
    }
    /// The same column, which may be left out.
    #[must_use]
    pub(super) const fn dispensable(mut self) -> Column {
        self.dispensable = true;
        self
    }
}

/// A table; the cells are cleaned as they come in.
#[derive(Clone, Debug)]
pub(super) struct Table {
    columns: Vec<Column>,
    rows: Vec<Vec<String>>,
}

/// The least width of a last column before others give way to it.
const LAST_WIDTH_MIN: usize = 12;

impl Table {
    /// Without rows.
    #[must_use]
    pub(super) fn new(columns: &[Column]) -> Table {
        Table { columns: columns.to_vec(), rows: Vec::new() }
    }

    /// Adds a row; it has a cell for each column.
    pub(super) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        let row: Vec<String> = cells.into_iter().map(|cell| clean_line(&cell)).collect();
        assert_eq!(row.len(), self.columns.len(), "a row has a cell for each column");
        self.rows.push(row);
    }

    /// The table in lines of at most `width` columns; `None`: as wide as it is.
    #[must_use]
    pub(super) fn shown(&self, width: Option<usize>, style: Style) -> String {
        let mut widths: Vec<usize> = self.columns.iter().map(|column| column.head.width()).collect();
        for row in &self.rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.width());
            }
        }
        let mut kept: Vec<usize> = (0..self.columns.len()).collect();
        if let Some(width) = width {
            self.fit(&mut kept, &mut widths, width);
        }
        let line = |cells: &mut dyn Iterator<Item = &str>| {
            let cells: Vec<&str> = cells.collect();
            let mut line = String::new();
            for (place, at) in kept.iter().enumerate() {
                let cell = cut(cells[*at], widths[*at]);
                let space = " ".repeat(widths[*at] - cell.width());
                let (before, after) = if self.columns[*at].right { (space.as_str(), "") } else { ("", space.as_str()) };
                line.push_str(if place == 0 { "" } else { "  " });
                line.push_str(&format!("{before}{cell}{after}"));
            }
            line.trim_end().to_owned()
        };
        let mut text = style.dim(&line(&mut self.columns.iter().map(|column| column.head)));
        text.push('\n');
        for row in &self.rows {
            text.push_str(&line(&mut row.iter().map(String::as_str)));
            text.push('\n');
        }
        text
    }

    fn fit(&self, kept: &mut Vec<usize>, widths: &mut [usize], width: usize) {
        let total = |kept: &[usize], widths: &[usize]| {
            kept.iter().map(|at| widths[*at]).sum::<usize>() + 2 * kept.len().saturating_sub(1)
        };
        loop {
            let Some(last) = kept.last().copied() else { return };
            let over = total(kept, widths).saturating_sub(width);
            if over == 0 {
                return;
            }
            let least = widths[last].min(LAST_WIDTH_MIN);
            if widths[last] - least >= over {
                widths[last] -= over;
                return;
            }
            match kept.iter().rposition(|at| self.columns[*at].dispensable) {
                Some(place) => {
                    kept.remove(place);
                }
                None => {
                    widths[last] = widths[last].saturating_sub(over);
                    return;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_gives_way_from_the_right() {
        let mut table = Table::new(&[
            Column::number("PID"),
            Column::text("STATE"),
            Column::text("MODEL").dispensable(),
            Column::text("NAME"),
        ]);
        table.row(["7".into(), "running".into(), "small".into(), "count the\nwords in \x1b[31mevery file".into()]);
        table.row(["123".into(), "exited".into(), "日本".into(), "b".into()]);
        let shown: Vec<String> =
            [None, Some(40), Some(30), Some(12)].map(|width| table.shown(width, Style::plain())).into();
        for (text, width) in shown.iter().zip([99, 40, 30, 20]) {
            assert!(text.lines().all(|line| line.width() <= width), "{text}");
        }
        insta::assert_snapshot!(shown.join("\n"), @"
        PID  STATE    MODEL  NAME
          7  running  small  count the words in ␛[31mevery file
        123  exited   日本   b

        PID  STATE    MODEL  NAME
          7  running  small  count the words in…
        123  exited   日本   b

        PID  STATE    NAME
          7  running  count the words…
        123  exited   b

        PID  STATE
          7  running
        123  exited
        ");
    }
}
