//! The language of `policy.yaml`: from a text to compiled tables.
//!
//! Start at [`compile`]. What always holds: an unknown key, a duplicate key, a value of the wrong shape, a pattern that
//! cannot be read or an obligation that cannot be met refuses the whole file, with every such fault and its place.

mod labels;
mod role;
pub(crate) mod rule;
mod settings;

use sha2::Digest as _;

use crate::fault::{Fault, nearest};
use crate::policy::Tables;
use crate::read::Reader;
use crate::yaml;

/// The only version of the language so far.
const VERSION: &str = "1";

pub(crate) fn compile(text: &str) -> Result<Tables, Vec<Fault>> {
    let node = yaml::read(text, "version: 1").map_err(|fault| vec![fault])?;
    let mut reader = Reader::default();
    let tables = tables(&mut reader, &node, text);
    reader.faults.sort_by_key(|fault| (fault.line, fault.column));
    match tables {
        Some(tables) if reader.faults.is_empty() => Ok(tables),
        _ => Err(reader.faults),
    }
}

fn tables(reader: &mut Reader, node: &yaml::Node, text: &str) -> Option<Tables> {
    let known = ["version", "default_role", "limits", "roles", "labels", "personal_data", "proposals"];
    let fields = reader.fields(node, "the file", &known)?;
    let mut tables = Tables { generation: generation(text), ..Tables::default() };
    if let Some(version) = reader.need(&fields, "version") {
        reader.word(version, "version of the language", &[VERSION]);
    }
    if let Some(limits) = fields.get("limits") {
        tables.limits = settings::limits(reader, limits);
    }
    if let Some(roles) = reader.need(&fields, "roles") {
        for (key, node) in reader.named(roles, "`roles`") {
            if let Some(role) = role::role(reader, &key.name, node) {
                tables.roles.insert(key.name.clone(), role);
            }
        }
    }
    if let Some(node) = reader.need(&fields, "default_role")
        && let Some(name) = reader.text(node, "`default_role`")
    {
        let names: Vec<&str> = fields
            .get("roles")
            .map(|roles| reader.named(roles, "`roles`"))
            .unwrap_or_default()
            .iter()
            .map(|(key, _)| key.name.as_str())
            .collect();
        if names.contains(&name) {
            tables.default_role = name.to_owned();
        } else {
            reader.fault(node, format!("there is no role `{name}`"), nearest(name, &names));
        }
    }
    if let Some(node) = fields.get("labels") {
        labels::labels(reader, node, &mut tables);
    }
    if let Some(node) = fields.get("personal_data") {
        let (data, detector) = settings::personal_data(reader, node);
        (tables.personal_data, tables.detector) = (data, detector.into());
    }
    if let Some(node) = fields.get("proposals") {
        tables.proposals = settings::proposals(reader, node);
    }
    Some(tables)
}

fn generation(text: &str) -> String {
    sha2::Sha256::digest(text.as_bytes()).iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}
