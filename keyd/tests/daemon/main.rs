//! The daemon as it is shipped, `lockstep keyd` of `LOCKSTEP_DIST`: its end ([`ending`]), many
//! clients ([`crowd`]), clients that are killed at any moment ([`killed`]), clients that attack it
//! ([`hostile`]), its use of resources meanwhile ([`peaks`]), long signatures ([`post_quantum`]),
//! keys that cannot be served ([`left_out`]), file systems that do not answer ([`hung`]), a daemon
//! that is killed while it writes ([`left_behind`]), renewed keys ([`renewed`]), and its own rights
//! ([`rights`]). Beside clients that are killed or attack, a witness signs all the time, and must
//! always get the right answer.

mod crowd;
mod ending;
mod hostile;
mod hung;
mod killed;
mod left_behind;
mod left_out;
mod peaks;
mod post_quantum;
mod renewed;
mod rights;
mod site;
