//! The daemon as it is shipped, `lockstep keyd` of `LOCKSTEP_DIST`: when it is told to end
//! ([`ending`]), among many clients ([`crowd`]), among clients that end at any moment ([`killed`])
//! and clients that attack it ([`hostile`]), its use of resources meanwhile ([`peaks`]), with
//! long signatures ([`post_quantum`]), without some of its keys ([`left_out`]), beside file systems
//! that do not answer ([`hung`]), killed while it writes ([`left_behind`]), while keys are renewed
//! ([`renewed`]), and its own rights ([`rights`]). Beside clients that end or attack a
//! witness signs all the time, and must always get the right answer.

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
