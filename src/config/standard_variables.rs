//! Variables of the environment that OpenTelemetry defines for every program. The settings of this program precede them,
//! because a setting is meant for this server.

use std::path::PathBuf;

use super::setting_origin::{SettingLayer, SettingOrigin, SettingProblem};

/// Variables of a property of the collector. Of the two, the first that is set applies.
fn exporter_variables(property: &str) -> [String; 2] {
    ["TRACES_", ""].map(|signal| format!("OTEL_EXPORTER_OTLP_{signal}{property}"))
}

/// Standard variables without a setting of this program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OtelVariables {
    /// Name of this service in traces.
    pub service_name: String,
    /// Certificate that the collector is shown.
    pub certificate: Option<PathBuf>,
    /// Private key of that certificate.
    pub key: Option<PathBuf>,
}

impl Default for OtelVariables {
    fn default() -> Self {
        Self {
            service_name: "pumice".to_owned(),
            certificate: None,
            key: None,
        }
    }
}

/// Standard variables of the process.
#[derive(Clone, Debug, Default)]
pub(super) struct StandardVariables {
    /// Settings that the variables make.
    pub(super) layer: SettingLayer,
    /// Variables that no setting replaces.
    pub(super) otel: OtelVariables,
    protocol: Option<(String, String)>,
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
        let first = |property: &str| {
            let mut names = exporter_variables(property).into_iter();
            names.find_map(|name| variable(&name).map(|value| (name, value)))
        };
        let is = |name: &str, value: &str| variable(name).is_some_and(|found| found.eq_ignore_ascii_case(value));
        let mut layer = SettingLayer::new();
        let disabled = is("OTEL_SDK_DISABLED", "true") || is("OTEL_TRACES_EXPORTER", "none");
        for (setting, property) in [("otlp_endpoint", "ENDPOINT"), ("otlp_ca", "CERTIFICATE")] {
            if let Some((name, value)) = first(property).filter(|_| !disabled) {
                layer.insert(setting, (SettingOrigin::Environment(name), vec![value]));
            }
        }
        let path = |property| first(property).map(|(_, value)| PathBuf::from(value));
        Self {
            layer,
            otel: OtelVariables {
                certificate: path("CLIENT_CERTIFICATE"),
                key: path("CLIENT_KEY"),
                service_name: service_name(variable).unwrap_or_else(|| OtelVariables::default().service_name),
            },
            protocol: first("PROTOCOL"),
        }
    }

    /// Problem of the protocol, if `endpoint` is the origin of the address in force and one of these variables.
    pub(super) fn protocol_problem(&self, endpoint: &SettingOrigin) -> Option<SettingProblem> {
        let (name, value) = self.protocol.as_ref().filter(|(_, value)| value != "grpc")?;
        let endpoints = exporter_variables("ENDPOINT").map(SettingOrigin::Environment);
        endpoints.contains(endpoint).then(|| SettingProblem {
            origin: SettingOrigin::Environment(name.clone()),
            setting: "otlp_endpoint".to_owned(),
            message: format!(
                "`{value}` is not `grpc`, the only protocol to a collector; name the collector's gRPC address with \
                 `--otlp-endpoint`"
            ),
        })
    }
}

/// Name of the service in traces.
fn service_name(variable: impl Fn(&str) -> Option<String>) -> Option<String> {
    variable("OTEL_SERVICE_NAME").or_else(|| {
        let pairs = variable("OTEL_RESOURCE_ATTRIBUTES")?;
        let mut pairs = pairs.split(',').filter_map(|pair| pair.split_once('='));
        let (_, name) = pairs.find(|(key, _)| key.trim() == "service.name")?;
        Some(name.trim().to_owned())
    })
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
        let (traces, all) = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT");
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
        let named = |variables: &[(&str, &str)]| read(variables).otel.service_name;
        let attributes = ("OTEL_RESOURCE_ATTRIBUTES", "a=b, service.name = lab ,c=d");
        assert_eq!(named(&[]), "pumice");
        assert_eq!(named(&[attributes]), "lab");
        assert_eq!(named(&[attributes, ("OTEL_SERVICE_NAME", "")]), "lab");
        assert_eq!(named(&[attributes, ("OTEL_SERVICE_NAME", "mine")]), "mine");
    }

    #[test]
    fn another_protocol_is_a_problem_of_these_addresses_only() {
        let all = "OTEL_EXPORTER_OTLP_ENDPOINT";
        let variables = read(&[(all, "http://a:4318"), ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf")]);
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
