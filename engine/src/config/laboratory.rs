//! Values that are constants in the product, and that text can change in a build with the feature
//! `laboratory`. Tests of the module use it, and `lockstep-trace`, which compares the instructions
//! of two runs.

use lockstep_ops::Schedule;

use super::BackendChoice;
use super::setting::{Given, Setting};
use crate::config::Config;
use crate::mistakes::ConfigError;

/// These values. A pinned order of work is a property of the backend, so its entry is read after
/// the backend's.
pub(super) const LABORATORY: &[Setting] = &[
    value("max_lost", |config, given, text| {
        config.max_lost = given.number(text, 0, 1 << 20)?;
        Ok(())
    }),
    value("key_pool", |config, given, text| {
        config.key_pool = given.number(text, 0, 64)?;
        Ok(())
    }),
    value("check_every", |config, given, text| {
        config.check_every = given.number(text, 1, 1 << 20)?;
        Ok(())
    }),
    value("rsa_schedule", |config, given, text| {
        let schedule = Schedule::from_name(text);
        let schedule = schedule.ok_or_else(|| given.refuses(text, "an order of work of RSA"))?;
        if let Some(backend) = config.backend.resolve() {
            config.backend = BackendChoice::Named(backend.pinned(schedule));
        }
        Ok(())
    }),
];

const fn value(
    name: &'static str,
    set: fn(&mut Config, &Given<'_>, &str) -> Result<(), ConfigError>,
) -> Setting {
    Setting {
        name,
        default: "",
        values: "",
        meaning: "",
        set,
    }
}
