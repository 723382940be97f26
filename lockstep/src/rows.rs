//! The items of a call.

/// The items of a call, by their number. A slice has its elements; [`rows`] makes items from a
/// function, for data in columns.
pub trait Rows<T>: Sync {
    /// Returns the number of items.
    fn len(&self) -> usize;

    /// Returns whether there are no items.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns an item. Several threads call this at once.
    fn row(&self, number: usize) -> T;
}

impl<T: Copy + Sync> Rows<T> for [T] {
    fn len(&self) -> usize {
        <[T]>::len(self)
    }

    fn row(&self, number: usize) -> T {
        self[number]
    }
}

impl<T: Copy + Sync> Rows<T> for Vec<T> {
    fn len(&self) -> usize {
        <[T]>::len(self)
    }

    fn row(&self, number: usize) -> T {
        self[number]
    }
}

impl<T: Copy + Sync, const N: usize> Rows<T> for [T; N] {
    fn len(&self) -> usize {
        N
    }

    fn row(&self, number: usize) -> T {
        self[number]
    }
}

/// Returns `count` items that a function makes.
///
/// # Examples
///
/// ```
/// use lockstep::{Key, Reason, Scheme, ToVerify, Workers, rows};
///
/// // Columns of fixed width: keys of 32 bytes, messages of 8, signatures of 64.
/// let (keys, messages, signatures) = (vec![7; 32 * 3], vec![0; 8 * 3], vec![1; 64 * 3]);
/// let items = rows(3, |number| ToVerify {
///     key: Key::Raw(&keys[32 * number..][..32]),
///     message: &messages[8 * number..][..8],
///     signature: &signatures[64 * number..][..64],
/// });
/// let verdicts = Workers::new().verify_many(Scheme::ED25519, &items)?;
/// assert!(verdicts.iter().all(|verdict| verdict.is_err()));
/// # Ok::<(), lockstep::Error>(())
/// ```
pub fn rows<T, F: Fn(usize) -> T + Sync>(count: usize, item: F) -> impl Rows<T> {
    struct Made<F>(usize, F);

    impl<T, F: Fn(usize) -> T + Sync> Rows<T> for Made<F> {
        fn len(&self) -> usize {
            self.0
        }

        fn row(&self, number: usize) -> T {
            (self.1)(number)
        }
    }

    Made(count, item)
}
