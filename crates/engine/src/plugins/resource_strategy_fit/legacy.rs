//! Keys of earlier Volcano versions, which Volcano ignores today; served under `corrected`.
//!
//! Three generations exist:
//! - flat: `sra.policy: retention`, `sra.resources`, `sra.retention.weight` (missing: 1), `sra.retention.<resource>`;
//! - nested: `sra: {policy, resources, retention: {weight, <resource>}, proportional: {<resource>.cpu, …}}`, where the
//!   policy is `retention` or `proportional`;
//! - before both, proportional was part of the plugin `predicates`: `predicate.ProportionalEnable`,
//!   `predicate.resources`, `predicate.resources.<resource>.cpu` and `.memory`.
//!
//! The flat documents name `sra.policy: proportional` and refer to the third generation. So the flat ratios may be
//! written `sra.proportional.<resource>.cpu` or `predicate.resources.<resource>.cpu`. Flat spellings of today's keys
//! (`sra.enable`, `sra.weight`, `sra.resourceWeight.<resource>`) are read as well. A block in today's spelling has
//! precedence.

use std::collections::{BTreeMap, BTreeSet};

use super::arguments::ArgumentReader;
use super::proportional::ProportionalReserve;
use super::sra::SraConfig;
use crate::policy::{ArgumentMap, DocumentLocation, ErrorCode, PluginArgument, PluginArguments, Severity};

/// Fields of the nested block `sra` that are read here.
pub(super) const NESTED_FIELDS: [&str; 3] = ["policy", "retention", "proportional"];

/// Keys that are read here, without `sra.`, for suggestions.
const KEYS: [&str; 8] = [
    "enable",
    "policy",
    "resources",
    "weight",
    "retention.weight",
    PREDICATE_ENABLE,
    PREDICATE_RESOURCES,
    "proportional",
];

const SRA_PREFIX: &str = "sra.";
const PREDICATE_ENABLE: &str = "predicate.ProportionalEnable";
const PREDICATE_RESOURCES: &str = "predicate.resources";
const PREDICATE_PREFIX: &str = "predicate.resources.";

/// Arguments in an old spelling: flat keys without `sra.`, or nested ones in the form of flat ones.
pub(super) struct LegacyArguments<'a> {
    keys: Vec<(String, PluginArgument<'a>)>,
    used: BTreeSet<String>,
    at: DocumentLocation,
}

/// Arguments in today's spelling.
#[derive(Default)]
pub(super) struct TranslatedArguments {
    pub(super) sra: Option<SraConfig>,
    pub(super) proportional: Option<ProportionalReserve>,
}

/// True if a top-level key is a flat one; [`LegacyArguments::translate`] checks its meaning.
pub(super) fn is_flat_key(key: &str) -> bool {
    key.starts_with(SRA_PREFIX)
        || key.starts_with(PREDICATE_PREFIX)
        || [PREDICATE_ENABLE, PREDICATE_RESOURCES].contains(&key)
}

impl<'a> LegacyArguments<'a> {
    /// Flat keys, if there are any.
    pub(super) fn from_flat_keys(arguments: &'a PluginArguments) -> Option<Self> {
        let flat = arguments.iter().filter(|(key, _)| is_flat_key(key));
        let keys: Vec<_> = flat
            .map(|(key, argument)| (key.strip_prefix(SRA_PREFIX).unwrap_or(key).to_owned(), argument))
            .collect();
        Self::of(keys)
    }

    /// Old fields of the nested block, if it has a policy.
    pub(super) fn from_block(block: &ArgumentMap<'a>, reading: &mut ArgumentReader<'_>) -> Option<Self> {
        let policy = block.field("policy")?;
        let mut keys = vec![("policy".to_owned(), policy)];
        keys.extend(
            block
                .field("resources")
                .map(|resources| ("resources".to_owned(), resources)),
        );
        for name in ["retention", "proportional"] {
            let inner = reading.map_field(block, name).into_iter();
            keys.extend(inner.map(|(key, argument)| (format!("{name}.{key}"), argument)));
        }
        Self::of(keys)
    }

    fn of(keys: Vec<(String, PluginArgument<'a>)>) -> Option<Self> {
        let at = keys.first()?.1.at();
        Some(Self {
            keys,
            used: BTreeSet::new(),
            at,
        })
    }

    fn take(&mut self, key: &str) -> Option<PluginArgument<'a>> {
        let (_, argument) = self.keys.iter().find(|(own, _)| own == key)?;
        self.used.insert(key.to_owned());
        Some(argument.clone())
    }

    fn take_prefixed(&mut self, prefix: &str) -> Vec<(String, PluginArgument<'a>)> {
        let mut taken = Vec::new();
        for (key, argument) in &self.keys {
            if let Some(rest) = key.strip_prefix(prefix)
                && self.used.insert(key.clone())
            {
                taken.push((rest.to_owned(), argument.clone()));
            }
        }
        taken
    }

    /// Translates the keys to today's spelling, and warns of keys without a meaning.
    pub(super) fn translate(mut self, reading: &mut ArgumentReader<'_>) -> TranslatedArguments {
        let mut translated = TranslatedArguments::default();
        let policy = self.take("policy");
        let name = policy
            .as_ref()
            .and_then(|policy| policy.decode_string(reading.report))
            .unwrap_or_default();
        let enabled = self
            .take("enable")
            .and_then(|enable| enable.decode_bool(reading.report));
        let predicate = self
            .take(PREDICATE_ENABLE)
            .and_then(|enable| enable.decode_bool(reading.report));
        // Upstream compared without regard to case.
        let retention = name.eq_ignore_ascii_case("retention");
        let proportional = name.eq_ignore_ascii_case("proportional");
        if retention || (name.is_empty() && enabled == Some(true)) {
            translated.sra = Some(self.translate_retention(retention, reading));
        }
        if proportional || (name.is_empty() && predicate == Some(true)) {
            translated.proportional = Some(self.translate_proportional(reading));
        }
        if let (Some(policy), false) = (&policy, retention || proportional || name.is_empty()) {
            let hint = reading
                .report
                .suggestion(Severity::Warning, name, &["retention", "proportional"]);
            reading.warn(
                policy,
                format!("there is no sra policy `{name}`; it has no effect{hint}"),
            );
        }
        if translated.sra.is_some() || translated.proportional.is_some() {
            let message = "keys of an earlier Volcano; its present code ignores them without a word, here they count";
            reading.report.warning(ErrorCode::ArgumentLegacy, &self.at, message);
        }
        let unused = self.keys.iter().filter(|(key, _)| !self.used.contains(key));
        for (key, argument) in unused {
            let hint = reading.report.suggestion(Severity::Warning, key, &KEYS);
            reading.warn(argument, format!("`{key}` has no effect with this policy{hint}"));
        }
        translated
    }

    fn take_resources(&mut self, key: &str, reading: &mut ArgumentReader<'_>) -> &'a str {
        let list = self.take(key);
        list.and_then(|list| list.decode_string(reading.report))
            .unwrap_or_default()
    }

    fn translate_retention(&mut self, by_policy: bool, reading: &mut ArgumentReader<'_>) -> SraConfig {
        let resources = self.take_resources("resources", reading);
        let (weight, prefix) = if by_policy {
            ("retention.weight", "retention.")
        } else {
            ("weight", "resourceWeight.")
        };
        let weight = self.take(weight).map(|weight| reading.int(&weight));
        let given: BTreeMap<String, i64> = self
            .take_prefixed(prefix)
            .into_iter()
            .map(|(name, weight)| (name, reading.int(&weight)))
            .collect();
        let at = self.at.clone();
        SraConfig::new(weight.unwrap_or(i64::from(by_policy)), resources, &given, &at, reading)
    }

    fn translate_proportional(&mut self, reading: &mut ArgumentReader<'_>) -> ProportionalReserve {
        let mut resources = self.take_resources("resources", reading);
        if resources.is_empty() {
            resources = self.take_resources(PREDICATE_RESOURCES, reading);
        }
        let mut given = BTreeMap::new();
        for prefix in [PREDICATE_PREFIX, "proportional."] {
            for (name, ratio) in self.take_prefixed(prefix) {
                given.insert(name, reading.float(&ratio));
            }
        }
        let at = self.at.clone();
        ProportionalReserve::new(resources, &given, &at, reading)
    }
}
