//! Loads of nodes, and what plugins of loads read of pods: start times, limits and classes.

use pumice::server::pb;
use pumice_engine::model::quantity::Quantity;
use serde_json::Value;

use super::cluster::{self, members};
use super::pod_cluster;

/// Adds what the plugins usage and rescheduling read: loads of nodes, and start times, limits and classes of tasks.
pub(super) fn add_loads(case: &Value, cluster: &mut pb::Cluster) {
    let noon = pod_cluster::time(case);
    let before = |age: f64| prost_types::Timestamp {
        seconds: noon.seconds - format!("{:.0}", age.ceil()).parse::<i64>().unwrap(),
        nanos: 0,
    };
    for recorded in members(&case["cluster"]["nodes"]) {
        let node = cluster
            .nodes
            .iter_mut()
            .find(|node| node.name == recorded["name"])
            .unwrap();
        let usage = &recorded["usage"];
        // The reference keeps loads of all periods. Of these a plugin reads one: that of its argument, or of its default. For
        // usage a missing one is 0; rescheduling compares the period of the record.
        let wanted = read_period(&case["policy"]);
        let has = |period: &&str| usage["cpu"][*period].is_number() || case["policy"]["plugin"] == "usage";
        let period = [&*wanted, "10m", "5m"].into_iter().find(has).unwrap_or("10m");
        node.load = usage.is_object().then(|| {
            Box::new(pb::NodeLoad {
                time: Some(before(usage["age"].as_f64().unwrap())),
                cpu_percent: usage["cpu"][period].as_f64().unwrap_or_default(),
                memory_percent: usage["memory"][period].as_f64().unwrap_or_default(),
                capacity: cluster::resources(&recorded["capacity"]),
                period: period.to_owned(),
            })
        });
    }
    for job in members(&case["cluster"]["jobs"]) {
        for recorded in members(&job["tasks"]) {
            let name = cluster::key(&job["namespace"], &recorded["name"]);
            let task = cluster.tasks.iter_mut().find(|task| task.name == name).unwrap();
            // Kubernetes writes whole seconds.
            let start = recorded["startAge"].as_f64().map(|age| before(age.floor()));
            task.start_time = start.map(Box::new);
            task.limits = Some(limits(&recorded["spec"]));
            task.without_priority = recorded["priority"].is_null() && recorded["spec"]["priority"].is_null();
            task.set_qos_class(qos_class(&recorded["spec"]));
        }
    }
}

/// Period of the loads that the plugin of a policy reads.
fn read_period(policy: &Value) -> String {
    let tiers = members(&policy["tiers"]).iter();
    let mut plugins = tiers.flat_map(|tier| members(&tier["plugins"]));
    let Some(plugin) = plugins.find(|plugin| plugin["name"] == "rescheduling") else {
        return "10m".to_owned();
    };
    let written = plugin["arguments"]["metricsPeriod"]
        .as_str()
        .filter(|period| !period.is_empty());
    written.unwrap_or("5m").to_owned()
}

/// Class that Kubernetes gives a pod by its containers.
fn qos_class(spec: &Value) -> pb::QosClass {
    let containers = || {
        ["containers", "initContainers"]
            .into_iter()
            .flat_map(|list| members(&spec[list]))
    };
    let amount = |container: &Value, list: &str, name: &str| -> Option<i64> {
        let text = container["resources"][list][name].as_str()?;
        Some(Quantity::parse(text).unwrap().milli().unwrap())
    };
    let names = ["cpu", "memory"];
    let has = |container: &Value| {
        let all = names
            .iter()
            .flat_map(|name| ["requests", "limits"].map(|list| amount(container, list, name)));
        all.flatten().any(|amount| amount > 0)
    };
    let is_bound = |container: &Value| {
        names.iter().all(|name| {
            let limit = amount(container, "limits", name);
            let request = amount(container, "requests", name).or(limit);
            limit.is_some_and(|limit| limit > 0) && limit == request
        })
    };
    if !containers().any(has) {
        pb::QosClass::BestEffort
    } else if containers().all(is_bound) {
        pb::QosClass::Guaranteed
    } else {
        pb::QosClass::Burstable
    }
}

/// Limits of a pod: sums over its containers, or those of its largest init container.
fn limits(spec: &Value) -> pb::ResourceList {
    let of = |container: &Value, name: &str| -> i128 {
        let text = container["resources"]["limits"][name].as_str().unwrap_or("0");
        Quantity::parse(text).unwrap().milli().unwrap().into()
    };
    let total = |name: &str| {
        let regular = members(&spec["containers"])
            .iter()
            .map(|own| of(own, name))
            .sum::<i128>();
        let initial = members(&spec["initContainers"]).iter().map(|own| of(own, name));
        initial.fold(regular, i128::max)
    };
    let items = ["cpu", "memory"].map(|name| (name.to_owned(), format!("{}m", total(name))));
    pb::ResourceList {
        items: items.into_iter().filter(|(_, amount)| amount != "0m").collect(),
    }
}
