"""Constraints of pods on nodes and on other pods, and the taints and images of nodes that they ask about."""

from __future__ import annotations

from pumice import v1
from pumice.derive.pod import At

__all__ = ["images", "label_selector", "pod_constraints", "queue_affinity", "taints"]

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def pod_constraints(root: At) -> v1.PodConstraints | None:
    """Constraints of a v1 Pod; None: it has none."""
    spec = root.at("spec")
    containers = [spec.at("containers"), spec.at("initContainers")]
    volumes = spec.at("volumes").each(lambda volume: volume.at("image").at("reference").string())
    own_images = [image for part in containers for image in part.each(lambda item: item.at("image").string())]
    image_volumes = [image for image in volumes if image]
    if not any(own_images) and not image_volumes:
        # The number of containers matters only where there are images.
        own_images = []
    constraints = v1.PodConstraints(
        node_selector=spec.at("nodeSelector").strings(),
        affinity=_affinity(spec.at("affinity")),
        tolerations=spec.at("tolerations").each(_toleration),
        host_ports=_host_ports(root),
        topology_spread_constraints=spec.at("topologySpreadConstraints").each(_spread_constraint),
        images=own_images,
        image_volumes=image_volumes,
    )
    return constraints if constraints.ByteSize() > 0 else None


def queue_affinity(root: At) -> v1.QueueAffinity | None:
    """spec.affinity of a Volcano Queue; None: it has none, which is not an empty one."""
    affinity = root.at("spec").at("affinity")
    if affinity.mapping() is None:
        return None

    def lists(at: At) -> v1.NodeGroupLists | None:
        if at.mapping() is None:
            return None
        return v1.NodeGroupLists(required=at.at(_REQUIRED).each_string(), preferred=at.at(_PREFERRED).each_string())

    return v1.QueueAffinity(
        node_group_affinity=lists(affinity.at("nodeGroupAffinity")),
        node_group_anti_affinity=lists(affinity.at("nodeGroupAntiAffinity")),
    )


def taints(root: At) -> list[v1.Taint]:
    """spec.taints of a v1 Node."""
    return (
        root.at("spec")
        .at("taints")
        .each(
            lambda taint: v1.Taint(
                key=taint.at("key").string(), value=taint.at("value").string(), effect=taint.at("effect").string()
            )
        )
    )


def images(root: At) -> list[v1.NodeImage]:
    """status.images of a v1 Node."""
    return (
        root.at("status")
        .at("images")
        .each(
            lambda image: v1.NodeImage(
                names=image.at("names").each_string(), size_bytes=image.at("sizeBytes").int64() or 0
            )
        )
    )


def _host_ports(root: At) -> list[v1.HostPort]:
    """Ports that a pod takes on its node: the API server sets hostPort to containerPort for pods on the host's network.

    A pod without a phase is a manifest that it has not seen. Of init containers only those that keep running count.
    """
    spec = root.at("spec")
    on_host = spec.at("hostNetwork").boolean() is True and not root.at("status").at("phase").string()

    def port(at: At) -> v1.HostPort:
        number = at.at("hostPort").int32() or 0
        if on_host and number == 0:
            number = at.at("containerPort").int32() or 0
        return v1.HostPort(protocol=at.at("protocol").string(), host_ip=at.at("hostIP").string(), port=number)

    def restarted(at: At) -> list[v1.HostPort]:
        return at.at("ports").each(port) if at.at("restartPolicy").string() == "Always" else []

    found = spec.at("containers").each(lambda at: at.at("ports").each(port))
    found += spec.at("initContainers").each(restarted)
    return [one for ports in found for one in ports if one.port > 0]


def _toleration(at: At) -> v1.Toleration:
    return v1.Toleration(
        key=at.at("key").string(),
        operator=at.at("operator").string(),
        value=at.at("value").string(),
        effect=at.at("effect").string(),
    )


def _affinity(at: At) -> v1.Affinity | None:
    affinity = v1.Affinity(
        node_affinity=_node_affinity(at.at("nodeAffinity")),
        pod_affinity=_pod_affinity(at.at("podAffinity")),
        pod_anti_affinity=_pod_affinity(at.at("podAntiAffinity")),
    )
    return affinity if affinity.ByteSize() > 0 else None


def _node_affinity(at: At) -> v1.NodeAffinity | None:
    required = at.at(_REQUIRED)
    affinity = v1.NodeAffinity(
        # An empty selector is none that is absent: no node matches it.
        required=v1.NodeSelector(terms=required.at("nodeSelectorTerms").each(_node_term))
        if required.mapping() is not None
        else None,
        preferred=at.at(_PREFERRED).each(
            lambda own: v1.PreferredNodeTerm(
                weight=own.at("weight").int32() or 0,
                preference=_node_term(own.at("preference")) if own.at("preference").mapping() is not None else None,
            )
        ),
    )
    return affinity if affinity.ByteSize() > 0 else None


def _node_term(at: At) -> v1.NodeSelectorTerm:
    return v1.NodeSelectorTerm(
        match_expressions=at.at("matchExpressions").each(_requirement),
        match_fields=at.at("matchFields").each(_requirement),
    )


def _requirement(at: At) -> v1.SelectorRequirement:
    return v1.SelectorRequirement(
        key=at.at("key").string(),
        operator=at.at("operator").string(),
        values=at.at("values").each_string(),
    )


def _pod_affinity(at: At) -> v1.PodAffinity | None:
    affinity = v1.PodAffinity(
        required=at.at(_REQUIRED).each(_pod_term),
        preferred=at.at(_PREFERRED).each(
            lambda own: v1.WeightedPodAffinityTerm(
                weight=own.at("weight").int32() or 0,
                term=_pod_term(own.at("podAffinityTerm")) if own.at("podAffinityTerm").mapping() is not None else None,
            )
        ),
    )
    return affinity if affinity.ByteSize() > 0 else None


def _pod_term(at: At) -> v1.PodAffinityTerm:
    return v1.PodAffinityTerm(
        label_selector=label_selector(at.at("labelSelector")),
        namespaces=at.at("namespaces").each_string(),
        namespace_selector=label_selector(at.at("namespaceSelector")),
        topology_key=at.at("topologyKey").string(),
    )


def label_selector(at: At) -> v1.LabelSelector | None:
    """A LabelSelector; None: there is none, which is not an empty one."""
    if at.mapping() is None:
        return None
    return v1.LabelSelector(
        match_labels=at.at("matchLabels").strings(), match_expressions=at.at("matchExpressions").each(_requirement)
    )


def _spread_constraint(at: At) -> v1.TopologySpreadConstraint:
    return v1.TopologySpreadConstraint(
        max_skew=at.at("maxSkew").int32() or 0,
        topology_key=at.at("topologyKey").string(),
        when_unsatisfiable=at.at("whenUnsatisfiable").string(),
        label_selector=label_selector(at.at("labelSelector")),
        min_domains=at.at("minDomains").int32(),
        node_affinity_policy=at.at("nodeAffinityPolicy").string(),
        node_taints_policy=at.at("nodeTaintsPolicy").string(),
        match_label_keys=at.at("matchLabelKeys").each_string(),
    )
