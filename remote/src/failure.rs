//! Reasons for which the daemon gives no result.

use std::fmt;
use std::path::PathBuf;

use lockstep_ring::{Client, Closing, Lost, Refused, Reply};
use zeroize::Zeroizing;

use crate::protocol::{Verdict, status};

/// Reason why there is no result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The socket cannot be reached, or nobody listens there.
    Unreachable(PathBuf, String),
    /// The daemon rejects this client.
    Rejected(Verdict),
    /// This process has no free descriptor for the socket or the ring.
    NoDescriptor,
    /// The other side does not speak the protocol of this version.
    Protocol,
    /// The connection ended before the answer, or the daemon has dropped the request.
    Lost,
    /// The connection ended before the request was made: no daemon has it.
    Gone,
    /// The daemon does not answer this client's greeting, or has stopped computing.
    Silent,
    /// There was no answer in time to this request, nor to another one over its connection.
    TimedOut,
    /// There was no answer in time, while the daemon answered others.
    Late,
    /// There is no key of this name, or the client may not use it.
    NoKey,
    /// The key of this name has another public half.
    OtherKey,
    /// The client may not use the key for this operation.
    Forbidden,
    /// The input does not fit the key.
    Unfit,
    /// The client has exceeded its rate.
    Busy,
    /// All slots of this client are in use.
    Full,
    /// The daemon failed to compute the result.
    Failed,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            Failure::Unreachable(socket, reason) => {
                return write!(
                    f,
                    "the key daemon cannot be reached at {} ({reason}); start it, with \
                     systemd by `systemctl start lockstep-keyd`",
                    socket.display()
                );
            }
            Failure::Rejected(Verdict::Full) => {
                "the key daemon serves as many processes as its configuration allows; raise \
                 max_clients or max_clients_per_user there"
            }
            Failure::Rejected(Verdict::Stranger) => {
                "the key daemon has no key that this user may use; see the users and groups of the \
                 key in its configuration, and whether it could read the key: `lockstep keyd check`"
            }
            Failure::Rejected(Verdict::OtherVersion) => {
                "the key daemon is of another version; restart it, and this program"
            }
            Failure::Rejected(_) => {
                "the key daemon cannot serve this program now; its log says why, and `lockstep \
                 keyd check` whether its configuration is at fault"
            }
            Failure::NoDescriptor => {
                "this program has as many files open as it may, so it cannot connect to the key \
                 daemon; raise its limit of open files (LimitNOFILE in its unit)"
            }
            Failure::Protocol => {
                "the program at the socket does not answer as a key daemon of this version does; \
                 see what listens there, and restart the key daemon"
            }
            Failure::Lost | Failure::Gone => "the key daemon ended before it answered",
            Failure::Silent => {
                "the key daemon does not answer: it is stopped, or does not start; see its log, \
                 with systemd by `systemctl status lockstep-keyd`, and start it"
            }
            Failure::TimedOut | Failure::Late => {
                "the key daemon did not answer in time; see its log and its load"
            }
            Failure::NoKey => {
                "the key daemon does not have this key, could not read it, or does not let this \
                 user use it; see `lockstep keyd check`"
            }
            Failure::OtherKey => {
                "the key daemon has another key of this name, and no longer this one; make the \
                 reference anew by `lockstep keyd export-reference`, or have the daemon keep it \
                 (`references` in its configuration)"
            }
            Failure::Forbidden => {
                "the key daemon does not let this user use the key so; see its `uses` in the \
                 configuration"
            }
            Failure::Unfit => "the key daemon finds that the input does not fit the key",
            Failure::Busy => {
                "this program makes more requests a second than the key daemon allows; raise \
                 rate in the daemon's configuration"
            }
            Failure::Full => {
                "as many requests of this program wait as the key daemon allows; raise queue in \
                 the daemon's configuration"
            }
            Failure::Failed => "the key daemon could not compute the result; its log may say why",
        };
        f.write_str(text)
    }
}

impl std::error::Error for Failure {}

impl From<Refused> for Failure {
    fn from(refused: Refused) -> Failure {
        match refused {
            Refused::Full => Failure::Full,
            Refused::TooLong => Failure::Unfit,
            _ => Failure::Gone,
        }
    }
}

impl From<Lost> for Failure {
    fn from(lost: Lost) -> Failure {
        match lost {
            Lost::Broken => Failure::Protocol,
            _ => Failure::Lost,
        }
    }
}

/// Returns the meaning of a failure over this ring: [`Failure::Gone`] instead of [`Failure::Lost`]
/// if the daemon has dropped this client as idle, at the moment of its request. Such a request has
/// not made the daemon crash, so it may be repeated.
pub(crate) fn over(client: &Client, failure: Failure) -> Failure {
    let is_idle = || matches!(client.closing(), Some((Closing::Idle, _)));
    match failure {
        Failure::Lost if is_idle() => Failure::Gone,
        failure => failure,
    }
}

/// The wait of a request for its answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wait {
    /// Number of answers over the connection before the wait.
    before: u64,
    /// Whether the daemon has refused the request because of its client's rate.
    pub(crate) is_refused: bool,
}

impl Wait {
    /// Starts a wait after this number of answers.
    pub(crate) fn since(answers: u64) -> Wait {
        Wait {
            before: answers,
            is_refused: false,
        }
    }

    /// Returns the failure at the end of the wait, after this number of answers.
    pub(crate) fn failure(self, answers: u64) -> Failure {
        match answers == self.before {
            _ if self.is_refused => Failure::Busy,
            true => Failure::TimedOut,
            false => Failure::Late,
        }
    }
}

/// Returns the result in an answer, which must have `length` bytes; `None` if the client has
/// exceeded its rate, and may repeat the request.
pub(crate) fn outcome(
    Reply { status, output, .. }: Reply,
    length: usize,
) -> Option<Result<Zeroizing<Vec<u8>>, Failure>> {
    Some(match status {
        status::DONE if output.len() == length => Ok(output),
        status::FORBIDDEN => Err(Failure::Forbidden),
        status::UNFIT => Err(Failure::Unfit),
        status::BUSY => return None,
        // The daemon's thread has ended, or the daemon sees this client as gone.
        lockstep_ring::status::DROPPED => Err(Failure::Lost),
        _ => Err(Failure::Failed),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_says_what_helps() {
        for (failure, remedy) in [
            (
                Failure::Unreachable("/run/a".into(), "none".to_owned()),
                "at /run/a (none); start it",
            ),
            (Failure::Rejected(Verdict::Full), "max_clients"),
            (Failure::Rejected(Verdict::Stranger), "lockstep keyd check"),
            (Failure::Rejected(Verdict::OtherVersion), "restart it"),
            (Failure::Rejected(Verdict::Failed), "its log says why"),
            (Failure::NoDescriptor, "LimitNOFILE"),
            (Failure::Silent, "systemctl status"),
            (Failure::OtherKey, "export-reference"),
            (Failure::Busy, "rate"),
            (Failure::Full, "queue"),
        ] {
            assert!(failure.to_string().contains(remedy), "{failure}");
        }
    }

    #[test]
    fn what_the_ring_says_keeps_its_meaning() {
        assert_eq!(Failure::from(Refused::Full), Failure::Full);
        assert_eq!(Failure::from(Refused::TooLong), Failure::Unfit);
        assert_eq!(Failure::from(Refused::Gone), Failure::Gone);
        assert_eq!(Failure::from(Refused::Forked), Failure::Gone);
        assert_eq!(Failure::from(Lost::Broken), Failure::Protocol);
        assert_eq!(Failure::from(Lost::Gone), Failure::Lost);
    }
}
