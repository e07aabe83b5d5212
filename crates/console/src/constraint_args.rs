//! Constraints of a task on the command line, in the notation of kubectl, such as `zone in (a, b)` or
//! `gpu=yes:NoSchedule`.

use clap::Args;

use crate::args::pair;
use pumice_protocol::v1 as pb;

/// Constraints of a hypothetical pod.
#[derive(Debug, Clone, Default, Args)]
pub struct ConstraintArgs {
    /// Label that a node must have (spec.nodeSelector), such as disktype=ssd; repeatable
    #[arg(long, value_name = "KEY=VALUE", value_parser = pair)]
    selector: Vec<(String, String)>,
    /// Required node affinity, such as "zone in (a, b), !spot, cores > 16"; if repeated, one of the expressions must
    /// match
    #[arg(long, value_name = "EXPRESSIONS", value_parser = term)]
    affinity: Vec<pb::NodeSelectorTerm>,
    /// Tolerated taint: KEY, KEY=VALUE, KEY:EFFECT or KEY=VALUE:EFFECT, such as nvidia.com/gpu:NoSchedule; `*`
    /// tolerates every taint; repeatable
    #[arg(long, value_name = "TAINT", value_parser = toleration)]
    toleration: Vec<pb::Toleration>,
    /// Host port of the pod, such as 8080 or 53/UDP; repeatable
    #[arg(long, value_name = "PORT", value_parser = host_port)]
    host_port: Vec<pb::HostPort>,
}

impl ConstraintArgs {
    /// The constraints as a record has them; `None`: there are none.
    pub fn constraints(&self) -> Option<Box<pb::PodConstraints>> {
        let terms = self.affinity.clone();
        let required = (!terms.is_empty()).then_some(pb::NodeSelector { terms });
        let constraints = pb::PodConstraints {
            node_selector: self.selector.iter().cloned().collect(),
            affinity: required.map(|required| pb::Affinity {
                node_affinity: Some(pb::NodeAffinity {
                    required: Some(required),
                    ..pb::NodeAffinity::default()
                }),
                ..pb::Affinity::default()
            }),
            tolerations: self.toleration.clone(),
            host_ports: self.host_port.clone(),
            ..pb::PodConstraints::default()
        };
        (constraints != pb::PodConstraints::default()).then(|| Box::new(constraints))
    }
}

/// Reads comma-separated expressions. A node must meet all of them. A comma within parentheses separates values.
fn term(text: &str) -> Result<pb::NodeSelectorTerm, String> {
    let mut expressions = vec![String::new()];
    let mut is_inside = false;
    for letter in text.chars() {
        match letter {
            '(' if is_inside => return Err("a parenthesis within parentheses".to_owned()),
            ')' if !is_inside => return Err("`)` without `(`".to_owned()),
            '(' | ')' => is_inside = letter == '(',
            ',' if !is_inside => {
                expressions.push(String::new());
                continue;
            }
            _ => {}
        }
        if let Some(last) = expressions.last_mut() {
            last.push(letter);
        }
    }
    if is_inside {
        return Err("`(` without `)`".to_owned());
    }
    let requirements: Result<Vec<_>, _> = expressions.iter().map(|own| requirement(own.trim())).collect();
    Ok(pb::NodeSelectorTerm {
        match_expressions: requirements?,
        ..pb::NodeSelectorTerm::default()
    })
}

/// Reads one expression: `key`, `!key`, `key=value`, `key!=value`, `key in (…)`, `key notin (…)`, `key > n`, `key < n`.
fn requirement(text: &str) -> Result<pb::SelectorRequirement, String> {
    let (key, operator, values) = if let Some(key) = text.strip_prefix('!') {
        (key, "DoesNotExist", Vec::new())
    } else if let Some((head, values)) = text.split_once('(') {
        set_requirement(text, head, values)?
    } else if let Some((key, value)) = text.split_once("!=") {
        (key, "NotIn", vec![value])
    } else if let Some((key, value)) = text.split_once("==").or_else(|| text.split_once('=')) {
        (key, "In", vec![value])
    } else if let Some((key, bound)) = text.split_once('>') {
        (key, "Gt", vec![whole_number(bound)?])
    } else if let Some((key, bound)) = text.split_once('<') {
        (key, "Lt", vec![whole_number(bound)?])
    } else {
        (text, "Exists", Vec::new())
    };
    Ok(pb::SelectorRequirement {
        key: label_key(key, text)?,
        operator: operator.to_owned(),
        values: values.into_iter().map(|value| value.trim().to_owned()).collect(),
    })
}

fn set_requirement<'t>(
    text: &str,
    head: &'t str,
    values: &'t str,
) -> Result<(&'t str, &'static str, Vec<&'t str>), String> {
    let mut words = head.split_whitespace();
    let operator = match (words.next(), words.next(), words.next()) {
        (Some(_), Some("in"), None) => "In",
        (Some(_), Some("notin"), None) => "NotIn",
        _ => return Err(format!("`{text}`: write it as `KEY in (A, B)` or `KEY notin (A, B)`")),
    };
    let key = head.split_whitespace().next().unwrap_or_default();
    let Some(inner) = values.strip_suffix(')') else {
        return Err(format!("`{text}`: the list of values ends with `)`"));
    };
    Ok((key, operator, inner.split(',').collect()))
}

fn whole_number(text: &str) -> Result<&str, String> {
    let is_number = text.trim().parse::<i64>().is_ok();
    is_number
        .then_some(text)
        .ok_or_else(|| format!("`{}` is no whole number", text.trim()))
}

fn label_key(key: &str, text: &str) -> Result<String, String> {
    let key = key.trim();
    let is_key = !key.is_empty() && !key.contains(|letter: char| letter.is_whitespace() || "()!=<>,".contains(letter));
    is_key
        .then(|| key.to_owned())
        .ok_or_else(|| format!("`{text}`: `{key}` is no name of a label"))
}

/// Reads a tolerated taint. Without a value every value is tolerated, without an effect every effect.
fn toleration(text: &str) -> Result<pb::Toleration, String> {
    let (rest, effect) = match text.rsplit_once(':') {
        Some((rest, effect)) => (rest, taint_effect(effect)?),
        None => (text, ""),
    };
    let (key, value) = match rest.split_once('=') {
        Some((key, value)) => (key, Some(value)),
        None => (rest, None),
    };
    if key.is_empty() || (key == "*" && value.is_some()) {
        return Err("write it as KEY, KEY=VALUE, KEY:EFFECT, KEY=VALUE:EFFECT or *".to_owned());
    }
    Ok(pb::Toleration {
        key: if key == "*" { String::new() } else { key.to_owned() },
        operator: if value.is_some() { "Equal" } else { "Exists" }.to_owned(),
        value: value.unwrap_or_default().to_owned(),
        effect: effect.to_owned(),
    })
}

fn taint_effect(text: &str) -> Result<&str, String> {
    const EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];
    let is_known = EFFECTS.contains(&text);
    is_known
        .then_some(text)
        .ok_or_else(|| format!("`{text}` is no effect of a taint: {}", EFFECTS.join(", ")))
}

/// Reads `PORT` or `PORT/PROTOCOL`.
fn host_port(text: &str) -> Result<pb::HostPort, String> {
    let (port, protocol) = text.split_once('/').unwrap_or((text, "TCP"));
    let port: u16 = port
        .parse()
        .ok()
        .filter(|port| *port > 0)
        .ok_or("a port is a number from 1 to 65535")?;
    let protocol = protocol.to_ascii_uppercase();
    if !["TCP", "UDP", "SCTP"].contains(&protocol.as_str()) {
        return Err(format!("`{protocol}` is no protocol of a port: TCP, UDP, SCTP"));
    }
    Ok(pb::HostPort {
        protocol,
        host_ip: String::new(),
        port: i32::from(port),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Vec<(String, String, Vec<String>)> {
        let term = term(text).unwrap();
        let each = term.match_expressions.into_iter();
        each.map(|own| (own.key, own.operator, own.values)).collect()
    }

    fn expression(key: &str, operator: &str, values: &[&str]) -> (String, String, Vec<String>) {
        let values = values.iter().map(|value| (*value).to_owned()).collect();
        (key.to_owned(), operator.to_owned(), values)
    }

    #[test]
    fn expressions_are_read_as_kubectl_reads_them() {
        assert_eq!(
            read("zone in (a, b), !spot,gpu, disk!=hdd , cores > 16,age<-3,tier=web, x==y, rack notin (r1,)"),
            [
                expression("zone", "In", &["a", "b"]),
                expression("spot", "DoesNotExist", &[]),
                expression("gpu", "Exists", &[]),
                expression("disk", "NotIn", &["hdd"]),
                expression("cores", "Gt", &["16"]),
                expression("age", "Lt", &["-3"]),
                expression("tier", "In", &["web"]),
                expression("x", "In", &["y"]),
                expression("rack", "NotIn", &["r1", ""]),
            ]
        );
        for wrong in [
            "",
            "a,",
            "a in b",
            "a in (b",
            "a in (b))",
            "a in ((b)",
            "a is (b)",
            "!",
            "=b",
            "a > b",
            "a b",
            ")",
            "a in (b) c",
        ] {
            assert!(term(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn tolerations_are_read_as_taints_are_written() {
        let read = |text| toleration(text).map(|own| (own.key, own.operator, own.value, own.effect));
        let written = |key: &str, operator: &str, value: &str, effect: &str| {
            Ok((key.to_owned(), operator.to_owned(), value.to_owned(), effect.to_owned()))
        };
        assert_eq!(read("gpu"), written("gpu", "Exists", "", ""));
        assert_eq!(read("gpu=yes"), written("gpu", "Equal", "yes", ""));
        assert_eq!(read("gpu="), written("gpu", "Equal", "", ""));
        assert_eq!(read("gpu:NoExecute"), written("gpu", "Exists", "", "NoExecute"));
        assert_eq!(read("a.b/c=d:NoSchedule"), written("a.b/c", "Equal", "d", "NoSchedule"));
        assert_eq!(read("*"), written("", "Exists", "", ""));
        assert_eq!(read("*:NoSchedule"), written("", "Exists", "", "NoSchedule"));
        for wrong in ["", "=a", "*=a", "gpu:Never", "gpu:", ":NoSchedule"] {
            assert!(toleration(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn ports_are_numbers_with_a_protocol() {
        let read = |text| host_port(text).map(|own| (own.port, own.protocol));
        assert_eq!(read("8080"), Ok((8080, "TCP".to_owned())));
        assert_eq!(read("53/udp"), Ok((53, "UDP".to_owned())));
        for wrong in ["", "0", "65536", "-1", "80/HTTP", "80/"] {
            assert!(host_port(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn no_flag_is_no_constraint() {
        assert_eq!(ConstraintArgs::default().constraints(), None);
    }
}
