//! Tables for people: each column is as wide as its widest cell.

use std::fmt;

/// Lines of cells. The first columns begin below each other, and all others end so.
pub struct Table {
    left: usize,
    /// A line without cells is empty.
    lines: Vec<Vec<String>>,
}

impl Table {
    /// A table with so many columns that begin below each other, and these heads, which bars
    /// divide.
    pub fn new(left: usize, heads: &str) -> Table {
        let heads = heads.split('|').map(|head| head.trim().to_owned());
        let lines = vec![heads.collect()];
        Table { left, lines }
    }

    pub fn add(&mut self, cells: impl IntoIterator<Item = String>) {
        self.lines.push(cells.into_iter().collect());
    }

    /// Leaves a line empty.
    pub fn add_gap(&mut self) {
        self.lines.push(Vec::new());
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = |column: usize| {
            let cells = self.lines.iter().filter_map(|line| line.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        for line in &self.lines {
            let mut text = String::new();
            for (column, cell) in line.iter().enumerate() {
                let width = width(column);
                text += &match column < self.left {
                    true => format!("{cell:<width$}  "),
                    false => format!("{cell:>width$}  "),
                };
            }
            writeln!(f, "{}", text.trim_end())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_cells() {
        let mut table = Table::new(1, "name | a | a second");
        table.add(["x".to_owned(), "12,345 ×".to_owned(), "1".to_owned()]);
        table.add_gap();
        table.add(["a long one", "1", ""].map(str::to_owned));
        let expected = "name               a  a second\n\
                        x           12,345 ×         1\n\n\
                        a long one         1\n";
        assert_eq!(table.to_string(), expected);
    }
}
