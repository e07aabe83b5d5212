//! Loader of a policy document with Volcano's rules, which also reports what Volcano ignores.

mod fields;

use std::collections::BTreeMap;

use fields::scalar_kind;

use super::action_arguments;
use super::args::{BOOL_NAMES, PluginArguments};
use super::check;
use super::compatibility::Compatibility;
use super::diagnostics::{DiagnosticReport, ErrorCode, Severity};
use super::release::ReleasedScheduler;
use super::spec::{ActionConfiguration, PluginSpec, PolicySpec, PumiceSection};
use super::switch::Switch;
use super::yaml::{
    DocumentLocation, DocumentPath, Mark, ResolvedScalar, YamlDecoder, YamlError, YamlLimits, YamlNode, YamlNodeId,
    YamlScalar, YamlShape, YamlTree, YamlValue, truncate_text,
};

/// Number of characters of a text that a message shows.
const MAX_SHOWN_CHARS: usize = 40;
const CONFIG_MAP_HINT: &str =
    "; this looks like a whole ConfigMap: give the content of its key `volcano-scheduler.conf`";
const HELM_VALUES_HINT: &str = "; these look like values of Volcano's Helm chart: give the text below `custom.scheduler_config_override`, or the file that \
     `basic.scheduler_config_file` names";
const KUBE_CONFIGURATION_HINT: &str = "; this looks like a KubeSchedulerConfiguration, which is not read yet";

/// Options of the loader.
#[derive(Debug, Clone, Copy)]
pub struct LoadOptions<'a> {
    /// Limits on the document.
    pub limits: YamlLimits,
    /// Compatibility of a document that does not set its own.
    pub compatibility: Compatibility,
    /// Names of the plugins served here.
    pub served: &'a [&'a str],
}

/// Loaded document with its diagnostics.
#[derive(Debug, Clone)]
pub struct LoadedSpec {
    /// Document. `None`: the text is not YAML. After other errors the document is present to find further errors, but
    /// must not be used.
    pub spec: Option<PolicySpec>,
    /// Diagnostics, in order.
    pub report: DiagnosticReport,
}

/// Loads the first document of a text. White space at its start is indentation; Volcano strips a file first, and then
/// rejects a document that starts indented.
pub fn load(text: &str, options: &LoadOptions<'_>) -> LoadedSpec {
    let asked = options.compatibility.of(ReleasedScheduler::Volcano).unwrap_or_default();
    let mut loaded = load_as(text, options, asked);
    let said = loaded.spec.as_ref().map_or(asked, |spec| spec.compatibility(asked));
    let said = said.of(ReleasedScheduler::Volcano).unwrap_or_default();
    if said != asked {
        loaded = load_as(text, options, said);
    }
    loaded
}

fn load_as(text: &str, options: &LoadOptions<'_>, compatibility: Compatibility) -> LoadedSpec {
    let mut report = DiagnosticReport::default();
    let spec = match read(text, options, compatibility, &mut report) {
        Ok(spec) => Some(spec),
        Err(error) => {
            report = DiagnosticReport::default();
            report.yaml_error(error);
            None
        }
    };
    report.finish(false);
    LoadedSpec { spec, report }
}

type SpecLoadResult<T = ()> = Result<T, YamlError>;

fn read(
    text: &str,
    options: &LoadOptions<'_>,
    compatibility: Compatibility,
    report: &mut DiagnosticReport,
) -> SpecLoadResult<PolicySpec> {
    let tree = YamlTree::read(text, &options.limits)?;
    let mut decoder = YamlDecoder::new(&tree, &options.limits);
    let mut loader = SpecLoader {
        report,
        compatibility,
        actions: String::new(),
        actions_at: DocumentPath::default().key("actions").at(Mark::START),
        hint: "",
    };
    let mut spec = PolicySpec::default();
    if let Some(root) = tree.root() {
        loader.document(&mut decoder, root, &mut spec)?;
    }
    for at in &decoder.duplicates {
        let message = "this key appears twice in its map; the later value counts";
        loader.report.warning(ErrorCode::KeyDuplicate, at, message);
    }
    let SpecLoader {
        actions,
        actions_at,
        hint,
        ..
    } = loader;
    let at = &actions_at;
    // Without readable actions an error was already reported.
    if !report
        .errors()
        .any(|problem| problem.code == ErrorCode::TypeInvalid && matches!(problem.path.as_str(), "" | "actions"))
    {
        spec.actions = check::parse_actions(&actions, at, hint, report);
    }
    check::check_action_order(&spec.actions, at, report);
    check::check_gang_actions(&spec.actions, at, compatibility, report);
    action_arguments::check(&spec, report);
    check::check_tiers(&spec, options.served, compatibility, report);
    Ok(spec)
}

struct SpecLoader<'r> {
    report: &'r mut DiagnosticReport,
    compatibility: Compatibility,
    actions: String,
    actions_at: DocumentLocation,
    /// Hint at the kind of document that this seems to be.
    hint: &'static str,
}

impl SpecLoader<'_> {
    fn document(&mut self, decoder: &mut YamlDecoder<'_>, root: YamlNodeId, spec: &mut PolicySpec) -> SpecLoadResult {
        const KNOWN: [&str; 5] = ["actions", "tiers", "configurations", "metrics", "pumice"];
        self.fields(decoder, root, &KNOWN, &mut |loader, decoder, key, _, value| {
            match key {
                "actions" => {
                    if let Some((text, mark)) = loader.text(decoder, value)? {
                        loader.actions = text;
                        loader.actions_at = decoder.path.at(mark);
                    }
                }
                "tiers" => spec.tiers = loader.items(decoder, value, Self::tier)?,
                "configurations" => spec.configurations = loader.items(decoder, value, Self::configuration)?,
                "metrics" => loader.metrics(decoder, value, &mut spec.metrics)?,
                "pumice" => {
                    let node = decoder.node(value)?;
                    spec.pumice = Some(read_pumice_section(
                        &node,
                        &decoder.path,
                        ReleasedScheduler::Volcano,
                        loader.report,
                    ));
                }
                "data" => return Ok(loader.looks_like(CONFIG_MAP_HINT)),
                "custom" | "basic" => return Ok(loader.looks_like(HELM_VALUES_HINT)),
                "profiles" => return Ok(loader.looks_like(KUBE_CONFIGURATION_HINT)),
                _ => return Ok(false),
            }
            Ok(true)
        })
    }

    /// Stores a hint at the kind of document; the key itself remains unknown.
    fn looks_like(&mut self, hint: &'static str) -> bool {
        self.hint = hint;
        false
    }

    fn tier(&mut self, decoder: &mut YamlDecoder<'_>, id: YamlNodeId) -> SpecLoadResult<Vec<PluginSpec>> {
        let mut plugins = Vec::new();
        self.fields(decoder, id, &["plugins"], &mut |loader, decoder, key, _, value| {
            if key == "plugins" {
                plugins = loader.items(decoder, value, Self::plugin)?;
            }
            Ok(key == "plugins")
        })?;
        if plugins.is_empty() {
            let at = decoder.path.at(decoder.mark(id));
            self.report.warning(ErrorCode::TierEmpty, &at, "a tier without plugins");
        }
        Ok(plugins)
    }

    fn plugin(&mut self, decoder: &mut YamlDecoder<'_>, id: YamlNodeId) -> SpecLoadResult<PluginSpec> {
        let mut plugin = PluginSpec {
            at: decoder.path.at(decoder.mark(id)),
            ..PluginSpec::default()
        };
        let known: Vec<&str> = ["name", "arguments"]
            .into_iter()
            .chain(Switch::ALL.map(Switch::key))
            .collect();
        self.fields(decoder, id, &known, &mut |loader, decoder, key, mark, value| {
            match (key, Switch::from_key(key)) {
                ("name", _) => {
                    if let Some((name, mark)) = loader.text(decoder, value)? {
                        plugin.name = name;
                        plugin.at = decoder.path.at(mark);
                    }
                }
                ("arguments", _) => loader.arguments(decoder, value, &mut plugin.arguments)?,
                (_, Some(switch)) => {
                    let value = loader.switch(decoder, value)?;
                    plugin.switches.set(switch, value);
                }
                _ => return Ok(loader.warn_switch_prefix(decoder, key, mark)),
            }
            Ok(true)
        })?;
        Ok(plugin)
    }

    /// Warns of a switch with the other prefix; true if the key is one.
    fn warn_switch_prefix(&mut self, decoder: &YamlDecoder<'_>, key: &str, mark: Mark) -> bool {
        let other = match key.strip_prefix("enabled") {
            Some(rest) => format!("enable{rest}"),
            None => key
                .strip_prefix("enable")
                .map(|rest| format!("enabled{rest}"))
                .unwrap_or_default(),
        };
        if Switch::from_key(&other).is_none() {
            return false;
        }
        let message = format!("`{key}` is no switch and has no effect; Volcano spells it `{other}`");
        self.report
            .warning(ErrorCode::SwitchPrefix, &decoder.path.at(mark), message);
        true
    }

    /// Switch: a bool, or null for the default.
    fn switch(&mut self, decoder: &mut YamlDecoder<'_>, id: YamlNodeId) -> SpecLoadResult<Option<bool>> {
        decoder.visit(id, |decoder, mark, shape| {
            let found = match shape {
                YamlShape::Scalar(scalar) => {
                    let resolved = scalar.resolve()?;
                    if let ResolvedScalar::Bool(value) = resolved {
                        return Ok(Some(value));
                    } else if resolved == ResolvedScalar::Null {
                        return Ok(if scalar.is_unset() {
                            None
                        } else {
                            self.resolve_capital_null(decoder, &scalar)
                        });
                    }
                    format!(
                        "{} `{}`{}",
                        scalar_kind(&resolved),
                        truncate_text(scalar.text, MAX_SHOWN_CHARS),
                        self.report.suggestion(Severity::Error, scalar.text, &BOOL_NAMES)
                    )
                }
                YamlShape::Sequence(_) => "a list".to_owned(),
                YamlShape::Mapping(_) => "a map".to_owned(),
            };
            self.wrong_type(decoder, mark, "a bool", &found);
            Ok(None)
        })
    }

    /// Resolves `Null` and `NULL`. Upstream reads them as false, and `null` as the default. A filter that is off by
    /// accident fails open, so `corrected` reads all of them as the default.
    fn resolve_capital_null(&mut self, decoder: &YamlDecoder<'_>, scalar: &YamlScalar<'_>) -> Option<bool> {
        let (meaning, value) = match self.compatibility {
            Compatibility::Upstream(_) => ("false, as Volcano does", Some(false)),
            Compatibility::Corrected => ("`null`, the default; Volcano reads false", None),
        };
        let message = format!("`{}` is read as {meaning}", scalar.text);
        self.report
            .warning(ErrorCode::SwitchNull, &decoder.path.at(scalar.mark), message);
        value
    }

    /// Block of arguments: it is added to an earlier one; null removes that.
    fn arguments(
        &mut self,
        decoder: &mut YamlDecoder<'_>,
        id: YamlNodeId,
        slot: &mut Option<PluginArguments>,
    ) -> SpecLoadResult {
        decoder.visit(id, |decoder, mark, shape| {
            let Some(pairs) = self.pairs(decoder, mark, shape, || *slot = None)? else {
                return Ok(());
            };
            let arguments = slot.get_or_insert_with(|| PluginArguments::new(mark, decoder.path.clone()));
            self.entries(decoder, pairs, true, &mut |_, decoder, key, mark, value| {
                arguments.set(key, mark, decoder.node(value)?);
                Ok(())
            })
        })
    }

    fn configuration(&mut self, decoder: &mut YamlDecoder<'_>, id: YamlNodeId) -> SpecLoadResult<ActionConfiguration> {
        let mut read = ActionConfiguration {
            at: decoder.path.at(decoder.mark(id)),
            ..ActionConfiguration::default()
        };
        self.fields(
            decoder,
            id,
            &["name", "arguments"],
            &mut |loader, decoder, key, _, value| {
                match key {
                    "name" => {
                        if let Some((name, mark)) = loader.text(decoder, value)? {
                            read.name = name;
                            read.at = decoder.path.at(mark);
                        }
                    }
                    "arguments" => loader.arguments(decoder, value, &mut read.arguments)?,
                    _ => return Ok(false),
                }
                Ok(true)
            },
        )?;
        Ok(read)
    }

    fn metrics(
        &mut self,
        decoder: &mut YamlDecoder<'_>,
        id: YamlNodeId,
        slot: &mut Option<BTreeMap<String, String>>,
    ) -> SpecLoadResult {
        decoder.visit(id, |decoder, mark, shape| {
            let Some(pairs) = self.pairs(decoder, mark, shape, || *slot = None)? else {
                return Ok(());
            };
            let metrics = slot.get_or_insert_default();
            self.entries(decoder, pairs, false, &mut |loader, decoder, key, mark, value| {
                if let Some((value, _)) = loader.text(decoder, value)? {
                    check::check_metrics_setting(&key, &value, &decoder.path.at(mark), loader.report);
                    metrics.insert(key, value);
                }
                Ok(())
            })
        })
    }
}

/// Section of this service; nothing in it is ignored.
pub(super) fn read_pumice_section(
    node: &YamlNode,
    path: &DocumentPath,
    scheduler: ReleasedScheduler,
    report: &mut DiagnosticReport,
) -> PumiceSection {
    let mut section = PumiceSection::default();
    let YamlValue::Map(pairs) = &node.value else {
        if !matches!(node.value, YamlValue::Null) {
            let message = format!("expected a map, found {}", node.value.kind());
            report.error(ErrorCode::PumiceSection, &path.at(node.mark), message);
        }
        return section;
    };
    for (key, value) in pairs {
        let mut path = path.clone();
        path.push_value(&key.value);
        let text = |value: &YamlValue| {
            if let YamlValue::String(text) = value {
                truncate_text(text, MAX_SHOWN_CHARS)
            } else {
                value.kind().to_owned()
            }
        };
        if text(&key.value) != "compatibility" {
            let hint = report.suggestion(Severity::Error, &text(&key.value), &["compatibility"]);
            let message = format!("unknown key `{}`; known is `compatibility`{hint}", text(&key.value));
            report.error(ErrorCode::PumiceSection, &path.at(key.mark), message);
            continue;
        }
        let named = Compatibility::from_name(&text(&value.value));
        section.compatibility = named.filter(|named| named.of(scheduler).is_some());
        if section.compatibility.is_none() {
            let found = text(&value.value);
            let known = Compatibility::names_of(scheduler);
            let why = if named.is_some() {
                format!(", which is no release of {}", scheduler.name())
            } else {
                report.suggestion(Severity::Error, &found, &known)
            };
            let message = format!("expected one of {}, found {found}{why}", known.join(", "));
            report.error(ErrorCode::PumiceSection, &path.at(value.mark), message);
        }
    }
    section
}
