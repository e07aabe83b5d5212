package derive

import (
	"reflect"

	corev1 "k8s.io/api/core/v1"
)

// Pods have amounts in their status since version 0.35 of Kubernetes' types. Schedulers built with older types never see
// them, so the fields are found by name.
var (
	allocatedField = fieldOf[corev1.ResourceList]("AllocatedResources")
	resourcesField = fieldOf[*corev1.ResourceRequirements]("Resources")
)

// fieldOf is the index of a field of the status; nil: these types have none of the name.
func fieldOf[T any](name string) []int {
	field, found := reflect.TypeFor[corev1.PodStatus]().FieldByName(name)
	if !found || field.Type != reflect.TypeFor[T]() {
		return nil
	}
	return field.Index
}

// HasPodLevelStatus reports whether the types of this program have the amounts in the status of a pod.
func HasPodLevelStatus() bool {
	return allocatedField != nil && resourcesField != nil
}

func statusField[T any](pod *corev1.Pod, index []int) (value T) {
	if index == nil {
		return value
	}
	return *reflect.ValueOf(&pod.Status).Elem().FieldByIndex(index).Addr().Interface().(*T)
}

// podAllocated are the amounts that the kubelet has allocated to a pod.
func podAllocated(pod *corev1.Pod) corev1.ResourceList {
	return statusField[corev1.ResourceList](pod, allocatedField)
}

// podResources are the amounts that are in force for a pod.
func podResources(pod *corev1.Pod) *corev1.ResourceRequirements {
	return statusField[*corev1.ResourceRequirements](pod, resourcesField)
}
