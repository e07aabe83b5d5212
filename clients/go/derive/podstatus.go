package derive

import (
	"reflect"

	corev1 "k8s.io/api/core/v1"
)

// Pods have amounts in their status since version 0.35 of Kubernetes' types, and a scheduling group since version 0.36. Schedulers
// built with older types never see them, so the fields are found by name.
var (
	allocatedField        = fieldOf[corev1.ResourceList]("AllocatedResources")
	resourcesField        = fieldOf[*corev1.ResourceRequirements]("Resources")
	groupField, nameField = groupFields()
)

// fieldOf is the index of a field of the status; nil: these types have none of the name.
func fieldOf[T any](name string) []int {
	field, found := reflect.TypeFor[corev1.PodStatus]().FieldByName(name)
	if !found || field.Type != reflect.TypeFor[T]() {
		return nil
	}
	return field.Index
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

// groupFields are the indices of a pod's scheduling group, and of the name in it; nil: these types have none.
func groupFields() (group, name []int) {
	field, found := reflect.TypeFor[corev1.PodSpec]().FieldByName("SchedulingGroup")
	if !found || field.Type.Kind() != reflect.Pointer || field.Type.Elem().Kind() != reflect.Struct {
		return nil, nil
	}
	named, found := field.Type.Elem().FieldByName("PodGroupName")
	if !found || named.Type != reflect.TypeFor[*string]() {
		return nil, nil
	}
	return field.Index, named.Index
}

// SchedulingGroup is the name of the PodGroup of scheduling.k8s.io that a pod belongs to; empty: none.
func SchedulingGroup(pod *corev1.Pod) string {
	if groupField == nil {
		return ""
	}
	group := reflect.ValueOf(&pod.Spec).Elem().FieldByIndex(groupField)
	if group.IsNil() {
		return ""
	}
	if name := *group.Elem().FieldByIndex(nameField).Addr().Interface().(**string); name != nil {
		return *name
	}
	return ""
}
