//go:build !kubernetes_1_36

package kubescheduler

import (
	"fmt"

	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/features"
)

// watchGroups takes in the PodGroups of scheduling.k8s.io/v1beta1, if this kube-scheduler reads them.
func (mirror *mirror) watchGroups(factory informers.SharedInformerFactory) error {
	if !utilfeature.DefaultFeatureGate.Enabled(features.GenericWorkload) {
		return nil
	}
	seen := func(group *schedulingv1beta1.PodGroup) {
		minimum, priority := int32(1), int32(0)
		if gang := group.Spec.SchedulingPolicy.Gang; gang != nil {
			minimum = gang.MinCount
		}
		if group.Spec.Priority != nil {
			priority = *group.Spec.Priority
		}
		mirror.groupSeen(group, minimum, priority)
	}
	groups, err := factory.Scheduling().V1beta1().PodGroups().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { of(object, seen) },
		UpdateFunc: func(_, object any) { of(object, seen) },
		DeleteFunc: func(object any) {
			of(object, func(group *schedulingv1beta1.PodGroup) { mirror.groupGone(group) })
		},
	})
	if err != nil {
		return fmt.Errorf("watching pod groups: %w", err)
	}
	mirror.registrations = append(mirror.registrations, groups)
	return nil
}

// attemptOf is what the pods of a group share while kube-scheduler tries them on one placement; nil: they share nothing.
func attemptOf(state fwk.CycleState) fwk.PlacementCycleState {
	return state.GetPlacementCycleState()
}
