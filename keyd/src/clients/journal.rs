//! Lines for the log that clients cause, with a limit for each account.

use std::collections::HashMap;
use std::fmt::{Arguments, Display};
use std::time::Instant;

use crate::clients::limits::Rate;
use crate::fault::{EVERY_LINE, is_planted};
use crate::keys::access::Account;
use crate::system::log::log;

/// Maximum number of lines about one account: at once, and per second on average.
const AT_ONCE: u32 = 200;
const A_SECOND: u32 = 1;

/// Lines about each account. All processes that may use no key share one limit, since one person
/// may run them under any number of user IDs.
#[derive(Default)]
pub struct Journal {
    accounts: HashMap<Option<Account>, Lines>,
}

struct Lines {
    rate: Rate,
    left_out: u64,
}

impl Journal {
    /// Writes a line that this account has caused, within its limit.
    pub fn log(&mut self, account: Option<Account>, line: Arguments<'_>) {
        if let Some(left_out) = self.permits(account, Instant::now()) {
            if left_out > 0 {
                let whom: &dyn Display = match &account {
                    Some(account) => account,
                    None => &"users who may use no key",
                };
                log(format_args!("left out {left_out} lines about {whom}"));
            }
            log(line);
        }
    }

    /// Returns the number of lines that were left out since the last written line; `None` if the
    /// new line must be left out, too.
    fn permits(&mut self, account: Option<Account>, now: Instant) -> Option<u64> {
        let lines = self.accounts.entry(account).or_insert_with(|| Lines {
            rate: Rate::new(A_SECOND, AT_ONCE, now),
            left_out: 0,
        });
        match lines.rate.take(now) || is_planted(EVERY_LINE) {
            true => Some(std::mem::take(&mut lines.left_out)),
            false => {
                lines.left_out += 1;
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn one_account_makes_no_other_ones_lines_few() {
        let mut journal = Journal::default();
        let start = Instant::now();
        let user = Some(Account::User(7));
        let permitted = (0..500).filter(|_| journal.permits(user, start).is_some());
        assert_eq!(permitted.count(), 200);
        for other in [Some(Account::User(8)), Some(Account::Group(7)), None] {
            assert_eq!(journal.permits(other, start), Some(0));
        }
        let later = start + Duration::from_secs(1);
        assert_eq!(journal.permits(user, later), Some(300));
        assert_eq!(journal.permits(user, later), None);
    }
}
