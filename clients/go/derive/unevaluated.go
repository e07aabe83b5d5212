package derive

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// UnevaluatedPodFields names the fields of a pod that limit placement and that no field of a record carries, sorted.
func UnevaluatedPodFields(pod *corev1.Pod) []string {
	var names []string
	if len(pod.Spec.ResourceClaims) > 0 {
		names = append(names, "resourceClaims")
	}
	if slices.ContainsFunc(pod.Spec.Volumes, func(volume corev1.Volume) bool {
		return volume.PersistentVolumeClaim != nil || volume.Ephemeral != nil
	}) {
		names = append(names, "volumes")
	}
	return names
}
