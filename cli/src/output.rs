//! Standard output. That nobody reads to its end, as with `| head`, is no failure and no reason to
//! panic.

use std::fmt;
use std::io::{self, ErrorKind, Write as _};

/// `print!` for readers that may have gone.
macro_rules! out {
    ($($argument:tt)*) => {
        $crate::output::write(format_args!($($argument)*))
    };
}

/// `println!` for readers that may have gone.
macro_rules! outln {
    ($($argument:tt)*) => {
        $crate::output::write(format_args!("{}\n", format_args!($($argument)*)))
    };
}

/// Writes to standard output; where that fails for another reason than a closed pipe, the program
/// ends.
pub fn write(text: fmt::Arguments<'_>) {
    if let Err(error) = io::stdout().write_fmt(text)
        && error.kind() != ErrorKind::BrokenPipe
    {
        eprintln!("lockstep: cannot write: {error}");
        std::process::exit(1);
    }
}
