//! The numbers in JSON documents.

use serde::{Serialize, Serializer};

/// A number that is written with so many decimals; `null` where it is not finite.
#[derive(Clone, Copy, Debug)]
pub struct Decimal<const PLACES: usize>(pub f64);

impl<const PLACES: usize> Serialize for Decimal<PLACES> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if !self.0.is_finite() {
            return serializer.serialize_none();
        }
        if PLACES == 0 {
            return serializer.serialize_i64(self.0.round_ties_even() as i64);
        }
        let rounded = format!("{:.PLACES$}", self.0).parse();
        serializer.serialize_f64(rounded.unwrap_or(self.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_their_decimals_and_only_finite_ones_are_numbers() {
        let numbers = (
            Decimal::<1>(1.25),
            Decimal::<0>(961.4),
            Decimal::<3>(f64::NAN),
            None::<Decimal<4>>,
        );
        let text = serde_json::to_string(&numbers).unwrap();
        assert_eq!(text, "[1.2,961,null,null]");
    }
}
