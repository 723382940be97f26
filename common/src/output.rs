//! Standard output. A reader that ends early, as `| head` does, is not an error.

use std::fmt;
use std::io::{self, ErrorKind, Write as _};

/// `print!` that ignores readers that have gone.
#[macro_export]
macro_rules! out {
    ($($argument:tt)*) => {
        $crate::write(format_args!($($argument)*))
    };
}

/// `println!` that ignores readers that have gone.
#[macro_export]
macro_rules! outln {
    ($($argument:tt)*) => {
        $crate::write(format_args!("{}\n", format_args!($($argument)*)))
    };
}

/// Writes to standard output. Ends the program if that fails for another reason than a closed pipe.
pub fn write(text: fmt::Arguments<'_>) {
    if let Err(error) = io::stdout().write_fmt(text)
        && error.kind() != ErrorKind::BrokenPipe
    {
        eprintln!("cannot write to standard output: {error}");
        std::process::exit(1);
    }
}
