package cycle

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestFieldsThatAreNotSentAreNamed(t *testing.T) {
	terms := []corev1.WeightedPodAffinityTerm{{Weight: 1}}
	all := &corev1.Pod{Spec: corev1.PodSpec{
		NodeSelector: map[string]string{"zone": "a"},
		Affinity: &corev1.Affinity{
			NodeAffinity:    &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{}},
			PodAffinity:     &corev1.PodAffinity{PreferredDuringSchedulingIgnoredDuringExecution: terms},
			PodAntiAffinity: &corev1.PodAntiAffinity{PreferredDuringSchedulingIgnoredDuringExecution: terms},
		},
		TopologySpreadConstraints: []corev1.TopologySpreadConstraint{{MaxSkew: 1}},
		Containers:                []corev1.Container{{Ports: []corev1.ContainerPort{{ContainerPort: 80, HostPort: 80}}}},
		Volumes: []corev1.Volume{{VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "d"}}}},
		ResourceClaims: []corev1.PodResourceClaim{{Name: "gpu"}},
	}}
	want := []string{"hostPorts", "nodeAffinity", "nodeSelector", "podAffinity", "podAntiAffinity", "resourceClaims",
		"topologySpreadConstraints", "volumes"}
	if got := unsentPodFields(all); !slices.Equal(got, want) {
		t.Errorf("got %v", got)
	}
	none := &corev1.Pod{Spec: corev1.PodSpec{
		NodeSelector: map[string]string{},
		Affinity:     &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{}, PodAffinity: &corev1.PodAffinity{}},
		Tolerations:  []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
		Containers:   []corev1.Container{{Ports: []corev1.ContainerPort{{ContainerPort: 80}}}},
		Volumes:      []corev1.Volume{{VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}},
	}}
	if got := unsentPodFields(none); got != nil {
		t.Errorf("got %v", got)
	}
	none.Spec.HostNetwork = true
	if got := unsentPodFields(none); !slices.Equal(got, []string{"hostPorts"}) {
		t.Errorf("got %v", got)
	}
}

func TestTaintsThatAreNotSentAreNamed(t *testing.T) {
	for _, one := range []struct {
		key      string
		effect   corev1.TaintEffect
		cordoned bool
		ready    corev1.ConditionStatus
		named    bool
	}{
		{"gpu", corev1.TaintEffectNoSchedule, false, corev1.ConditionTrue, true},
		{"gpu", corev1.TaintEffectNoExecute, true, corev1.ConditionFalse, true},
		{"gpu", corev1.TaintEffectPreferNoSchedule, false, corev1.ConditionTrue, false},
		{corev1.TaintNodeUnschedulable, corev1.TaintEffectNoSchedule, true, corev1.ConditionTrue, false},
		{corev1.TaintNodeUnschedulable, corev1.TaintEffectNoSchedule, false, corev1.ConditionTrue, true},
		{corev1.TaintNodeNotReady, corev1.TaintEffectNoExecute, false, corev1.ConditionFalse, false},
		{corev1.TaintNodeUnreachable, corev1.TaintEffectNoExecute, false, corev1.ConditionUnknown, false},
		{corev1.TaintNodeNotReady, corev1.TaintEffectNoExecute, false, corev1.ConditionTrue, true},
	} {
		node := &corev1.Node{
			Spec:   corev1.NodeSpec{Unschedulable: one.cordoned, Taints: []corev1.Taint{{Key: one.key, Effect: one.effect}}},
			Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: one.ready}}},
		}
		if got := unsentNodeFields(node); (got != nil) != one.named {
			t.Errorf("%+v: got %v", one, got)
		}
	}
}
