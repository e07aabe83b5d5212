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
	if slices.ContainsFunc(pod.Spec.Volumes, limitsNodes) {
		names = append(names, "volumes")
	}
	return names
}

// limitsNodes reports whether a volume may be bound to some nodes only, or attached to a few.
func limitsNodes(volume corev1.Volume) bool {
	source := volume.VolumeSource
	return source.PersistentVolumeClaim != nil || source.Ephemeral != nil || source.CSI != nil || source.AWSElasticBlockStore != nil ||
		source.GCEPersistentDisk != nil || source.AzureDisk != nil || source.Cinder != nil || source.ISCSI != nil || source.RBD != nil ||
		source.VsphereVolume != nil || source.PortworxVolume != nil || source.FC != nil
}
