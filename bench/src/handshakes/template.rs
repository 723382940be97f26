//! Templates of pages and pictures.

use lockstep_common::Failure;
use minijinja::value::Serde;
use minijinja::{AutoEscape, Environment};
use serde::Serialize;

/// A template with its holes filled; what goes into them is escaped.
pub fn render(template: &str, values: &impl Serialize) -> Result<String, Failure> {
    let failed =
        |error: minijinja::Error| Failure::new(format!("cannot write the report: {error:#}"));
    let mut templates = Environment::new();
    templates.set_auto_escape_callback(|_| AutoEscape::Html);
    templates.add_template("it", template).map_err(failed)?;
    let template = templates.get_template("it").map_err(failed)?;
    template.render(Serde(values)).map_err(failed)
}
