package pumice

import (
	"maps"
	"slices"

	pb "github.com/pumice-scheduler/pumice/clients/go/pumicev1"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// ownerSelector is the field that a task lists if it is not known to which pods it belongs.
const ownerSelector = "ownerSelector"

// Owners finds the owners of pods, for example in the caches of informers. A function that is nil finds none.
type Owners struct {
	// Services returns all Services of a namespace.
	Services func(namespace string) ([]*corev1.Service, error)
	// ReplicationController returns one by name; so do the others.
	ReplicationController func(namespace, name string) (*corev1.ReplicationController, error)
	ReplicaSet            func(namespace, name string) (*appsv1.ReplicaSet, error)
	StatefulSet           func(namespace, name string) (*appsv1.StatefulSet, error)
}

// Complete adds to the record of a pod the selector of the pods that belong together with it, by the rules of
// kube-scheduler: its Services, and the workload that controls it. Default topology spread constraints count these pods.
// If an owner cannot be found, the record names the selector as not evaluated.
func (owners Owners) Complete(record *pb.Task, pod *corev1.Pod) {
	if len(pod.Spec.TopologySpreadConstraints) > 0 {
		return
	}
	wanted, known := owners.selector(pod)
	if !known && !slices.Contains(record.UnevaluatedFields, ownerSelector) {
		record.UnevaluatedFields = append(slices.Clone(record.UnevaluatedFields), ownerSelector)
	}
	if len(wanted.GetMatchLabels())+len(wanted.GetMatchExpressions()) == 0 {
		return
	}
	if record.Constraints == nil {
		record.Constraints = &pb.PodConstraints{}
	}
	record.Constraints.OwnerSelector = wanted
}

// selector reports false if some owner is not known.
func (owners Owners) selector(pod *corev1.Pod) (*pb.LabelSelector, bool) {
	matching, known := map[string]string{}, true
	if owners.Services != nil {
		services, err := owners.Services(pod.Namespace)
		known = err == nil
		for _, service := range services {
			// A Service without a selector selects no pod.
			if selector := service.Spec.Selector; selector != nil && labels.SelectorFromSet(selector).Matches(labels.Set(pod.Labels)) {
				maps.Copy(matching, selector)
			}
		}
	}
	wanted := &pb.LabelSelector{MatchLabels: matching}
	owner := metav1.GetControllerOfNoCopy(pod)
	if owner == nil {
		return wanted, known
	}
	var own *metav1.LabelSelector
	var err error
	switch {
	case owner.Kind == "ReplicationController" && owner.APIVersion == "v1" && owners.ReplicationController != nil:
		controller, failed := owners.ReplicationController(pod.Namespace, owner.Name)
		if err = failed; err == nil {
			maps.Copy(matching, controller.Spec.Selector)
		}
	case owner.Kind == "ReplicaSet" && owner.APIVersion == "apps/v1" && owners.ReplicaSet != nil:
		set, failed := owners.ReplicaSet(pod.Namespace, owner.Name)
		if err = failed; err == nil {
			own = set.Spec.Selector
		}
	case owner.Kind == "StatefulSet" && owner.APIVersion == "apps/v1" && owners.StatefulSet != nil:
		set, failed := owners.StatefulSet(pod.Namespace, owner.Name)
		if err = failed; err == nil {
			own = set.Spec.Selector
		}
	}
	addSelector(wanted, own)
	return wanted, known && err == nil
}

// addSelector adds the requirements of a workload.
func addSelector(wanted *pb.LabelSelector, own *metav1.LabelSelector) {
	added := labelSelector(own)
	wanted.MatchExpressions = append(wanted.MatchExpressions, added.GetMatchExpressions()...)
	for _, key := range slices.Sorted(maps.Keys(added.GetMatchLabels())) {
		value := added.GetMatchLabels()[key]
		if known, found := wanted.MatchLabels[key]; found && known != value {
			// Both have to hold, so that the selector matches nothing.
			wanted.MatchExpressions = append(wanted.MatchExpressions, &pb.SelectorRequirement{Key: key, Operator: "In", Values: []string{value}})
			continue
		}
		wanted.MatchLabels[key] = value
	}
}
