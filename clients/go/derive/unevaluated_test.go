package derive

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestUnevaluatedPodFields(t *testing.T) {
	all := &corev1.Pod{Spec: corev1.PodSpec{
		NodeSelector: map[string]string{"zone": "a"},
		Volumes: []corev1.Volume{{VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "d"}}}},
		ResourceClaims: []corev1.PodResourceClaim{{Name: "gpu"}},
	}}
	if got := UnevaluatedPodFields(all); !slices.Equal(got, []string{"resourceClaims", "volumes"}) {
		t.Errorf("got %v", got)
	}
	none := &corev1.Pod{Spec: corev1.PodSpec{
		NodeSelector: map[string]string{"zone": "a"},
		Volumes:      []corev1.Volume{{VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}},
	}}
	if got := UnevaluatedPodFields(none); got != nil {
		t.Errorf("got %v", got)
	}
}
