//! Variables of the environment that OpenTelemetry defines for every program. They come after the settings of this program:
//! whoever sets one of those means this server.

use super::setting_origin::{SettingLayer, SettingOrigin, SettingProblem};

/// Variables of the collector's address; the first one that is set counts.
const ENDPOINTS: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"];
/// Variables of the protocol to the collector; the first one that is set counts.
const PROTOCOLS: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"];

/// Standard variables of the process that concern settings.
#[derive(Clone, Debug, Default)]
pub(super) struct StandardVariables {
    /// Settings that the variables make.
    pub(super) layer: SettingLayer,
    protocol: Option<(&'static str, String)>,
}

impl StandardVariables {
    /// Variables of this process.
    #[expect(
        clippy::disallowed_methods,
        reason = "a part of the command line's arguments, which are read once"
    )]
    pub(super) fn of_process() -> Self {
        Self::read(|name| std::env::var(name).ok())
    }

    /// Reads the variables. An empty one counts as absent.
    pub(super) fn read(variable: impl Fn(&str) -> Option<String>) -> Self {
        let variable = |name: &str| variable(name).filter(|value| !value.is_empty());
        let first = |names: [&'static str; 2]| names.into_iter().find_map(|name| Some((name, variable(name)?)));
        let is = |name: &str, value: &str| variable(name).is_some_and(|found| found.eq_ignore_ascii_case(value));
        let mut layer = SettingLayer::new();
        let disabled = is("OTEL_SDK_DISABLED", "true") || is("OTEL_TRACES_EXPORTER", "none");
        if let Some((name, value)) = first(ENDPOINTS).filter(|_| !disabled) {
            layer.insert(
                "otlp_endpoint",
                (SettingOrigin::Environment(name.to_owned()), vec![value]),
            );
        }
        if let Some((name, value)) = service_name(variable) {
            layer.insert(
                "otlp_service_name",
                (SettingOrigin::Environment(name.to_owned()), vec![value]),
            );
        }
        Self {
            layer,
            protocol: first(PROTOCOLS),
        }
    }

    /// Problem of the protocol, if `endpoint` is the origin of the address in force and one of these variables.
    pub(super) fn protocol_problem(&self, endpoint: &SettingOrigin) -> Option<SettingProblem> {
        let (name, value) = self.protocol.as_ref().filter(|(_, value)| value != "grpc")?;
        let concerns = ENDPOINTS
            .iter()
            .any(|own| *endpoint == SettingOrigin::Environment((*own).to_owned()));
        concerns.then(|| SettingProblem {
            origin: SettingOrigin::Environment((*name).to_owned()),
            setting: "otlp_endpoint".to_owned(),
            message: format!(
                "`{value}` is not `grpc`, the only protocol to a collector; name the collector's gRPC address with \
                 `--otlp-endpoint`"
            ),
        })
    }
}

/// Name of the service in traces, and the variable that gives it.
fn service_name(variable: impl Fn(&str) -> Option<String>) -> Option<(&'static str, String)> {
    let (own, attributes) = ("OTEL_SERVICE_NAME", "OTEL_RESOURCE_ATTRIBUTES");
    if let Some(name) = variable(own) {
        return Some((own, name));
    }
    let pairs = variable(attributes)?;
    let mut pairs = pairs.split(',').filter_map(|pair| pair.split_once('='));
    let (_, name) = pairs.find(|(key, _)| key.trim() == "service.name")?;
    Some((attributes, name.trim().to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> StandardVariables {
        StandardVariables::read(|name| {
            let found = variables.iter().find(|(own, _)| *own == name);
            found.map(|(_, value)| (*value).to_owned())
        })
    }

    fn endpoint(variables: &[(&str, &str)]) -> Option<(SettingOrigin, Vec<String>)> {
        read(variables).layer.get("otlp_endpoint").cloned()
    }

    #[test]
    fn the_address_for_traces_goes_before_the_one_for_all_signals() {
        let [traces, all] = ENDPOINTS;
        let from =
            |name: &str, value: &str| Some((SettingOrigin::Environment(name.to_owned()), vec![value.to_owned()]));
        assert_eq!(endpoint(&[(all, "http://a:1")]), from(all, "http://a:1"));
        assert_eq!(
            endpoint(&[(all, "http://a:1"), (traces, "http://b:1")]),
            from(traces, "http://b:1")
        );
        assert_eq!(endpoint(&[(all, "http://a:1"), (traces, "")]), from(all, "http://a:1"));
        assert_eq!(endpoint(&[(all, "http://a:1"), ("OTEL_SDK_DISABLED", "TRUE")]), None);
        assert_eq!(endpoint(&[(all, "http://a:1"), ("OTEL_TRACES_EXPORTER", "none")]), None);
    }

    #[test]
    fn the_service_is_named_by_its_variable_or_by_an_attribute() {
        let named = |variables: &[(&str, &str)]| {
            let layer = read(variables).layer;
            layer.get("otlp_service_name").map(|(_, values)| values.concat())
        };
        let attributes = ("OTEL_RESOURCE_ATTRIBUTES", "a=b, service.name = lab ,c=d");
        assert_eq!(named(&[]), None);
        assert_eq!(named(&[attributes]).as_deref(), Some("lab"));
        assert_eq!(named(&[attributes, ("OTEL_SERVICE_NAME", "")]).as_deref(), Some("lab"));
        assert_eq!(
            named(&[attributes, ("OTEL_SERVICE_NAME", "mine")]).as_deref(),
            Some("mine")
        );
    }

    #[test]
    fn another_protocol_is_a_problem_of_these_addresses_only() {
        let [_, all] = ENDPOINTS;
        let variables = read(&[(all, "http://a:4318"), (PROTOCOLS[1], "http/protobuf")]);
        let problem = variables
            .protocol_problem(&SettingOrigin::Environment(all.to_owned()))
            .unwrap();
        assert!(
            problem
                .to_string()
                .starts_with("OTEL_EXPORTER_OTLP_PROTOCOL: `http/protobuf` is not `grpc`"),
            "{problem}"
        );
        assert_eq!(
            variables.protocol_problem(&SettingOrigin::Flag("--otlp-endpoint".to_owned())),
            None
        );
    }
}
