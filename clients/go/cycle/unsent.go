package cycle

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// unsentPodFields names the fields of a pod that limit placement and that the records of a cycle do not carry, sorted: the
// scheduler evaluates them itself.
func unsentPodFields(pod *corev1.Pod) []string {
	spec := &pod.Spec
	affinity := spec.Affinity
	if affinity == nil {
		affinity = &corev1.Affinity{}
	}
	node, with, against := affinity.NodeAffinity, affinity.PodAffinity, affinity.PodAntiAffinity
	var names []string
	for _, field := range []struct {
		name    string
		present bool
	}{
		{"hostPorts", hasHostPorts(spec)},
		{"nodeAffinity", node != nil && (node.RequiredDuringSchedulingIgnoredDuringExecution != nil ||
			len(node.PreferredDuringSchedulingIgnoredDuringExecution) > 0)},
		{"nodeSelector", len(spec.NodeSelector) > 0},
		{"podAffinity", with != nil && len(with.RequiredDuringSchedulingIgnoredDuringExecution)+
			len(with.PreferredDuringSchedulingIgnoredDuringExecution) > 0},
		{"podAntiAffinity", against != nil && len(against.RequiredDuringSchedulingIgnoredDuringExecution)+
			len(against.PreferredDuringSchedulingIgnoredDuringExecution) > 0},
		{"resourceClaims", len(spec.ResourceClaims) > 0},
		{"topologySpreadConstraints", len(spec.TopologySpreadConstraints) > 0},
		{"volumes", slices.ContainsFunc(spec.Volumes, func(volume corev1.Volume) bool {
			return volume.PersistentVolumeClaim != nil || volume.Ephemeral != nil
		})},
	} {
		if field.present {
			names = append(names, field.name)
		}
	}
	return names
}

// unsentNodeFields does the same for a node.
func unsentNodeFields(node *corev1.Node) []string {
	notReady := false
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady {
			notReady = condition.Status != corev1.ConditionTrue
			break
		}
	}
	for _, taint := range node.Spec.Taints {
		switch {
		case taint.Effect == corev1.TaintEffectPreferNoSchedule:
		case taint.Key == corev1.TaintNodeUnschedulable && node.Spec.Unschedulable:
		case (taint.Key == corev1.TaintNodeNotReady || taint.Key == corev1.TaintNodeUnreachable) && notReady:
		default:
			return []string{"taints"}
		}
	}
	return nil
}

func hasHostPorts(spec *corev1.PodSpec) bool {
	uses := func(container corev1.Container) bool {
		return slices.ContainsFunc(container.Ports, func(port corev1.ContainerPort) bool {
			return spec.HostNetwork || port.HostPort > 0
		})
	}
	return slices.ContainsFunc(spec.Containers, uses) || slices.ContainsFunc(spec.InitContainers, uses)
}
