package derive

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// What kube-scheduler assumes of a container without a request.
const (
	// DefaultCPUMilli is in thousandths of a core.
	DefaultCPUMilli int64 = 100
	// DefaultMemory is in bytes.
	DefaultMemory int64 = 200 << 20
)

// KubernetesAmounts are a pod's amounts in Kubernetes.
type KubernetesAmounts struct {
	// Limits are exact, under all names.
	Limits Quantities
	// Counted is what a node's usage grows by: cpu in thousandths, the rest in whole units; only names that Kubernetes
	// counts, without pods. A requested 0 is present.
	Counted map[string]int64
	// NonzeroCPUMilli and NonzeroMemory have the defaults for containers that do not request them.
	NonzeroCPUMilli, NonzeroMemory int64
	// ContainerNonzeroCPUMilli and ContainerNonzeroMemory are those of the containers and the overhead alone, without the
	// amounts that the pod has as a whole.
	ContainerNonzeroCPUMilli, ContainerNonzeroMemory int64
}

// Kubernetes are the pod's amounts as kube-scheduler counts them: exact sums, rounded once per pod (1.36.1).
func Kubernetes(pod *corev1.Pod) (KubernetesAmounts, error) {
	if err := readable(pod); err != nil {
		return KubernetesAmounts{}, err
	}
	requests := requestsOf(pod, nil)
	counted := make(map[string]int64, len(requests))
	for name, amount := range requests {
		kind := KindOf(name)
		if !kind.CountedByKubernetes() || kind == KindPods {
			continue
		}
		number, err := Amount(kind.KubernetesUnit(), name, amount.quantity)
		if err != nil {
			return KubernetesAmounts{}, err
		}
		counted[name] = number
	}
	cpu, memory, err := nonzero(pod, requests)
	if err != nil {
		return KubernetesAmounts{}, err
	}
	containerCPU, containerMemory, err := containerNonzero(pod, cpu, memory)
	if err != nil {
		return KubernetesAmounts{}, err
	}
	return KubernetesAmounts{quantities(limitsOf(pod)), counted, cpu, memory, containerCPU, containerMemory}, nil
}

// readable says whether no amount of the pod is negative.
func readable(pod *corev1.Pod) error {
	for _, list := range resourceLists(pod) {
		for name, quantity := range list {
			if quantity.Sign() < 0 {
				return fmt.Errorf("`%s` of `%s`: %w: it is negative", show(&quantity), name, ErrAmount)
			}
		}
	}
	return nil
}

// bounded is a copy of a pod whose amounts are replaced if their sums may leave 64 bits of thousandths. A pod without a node gets the
// largest ones, so that it fits on none. One with a node gets 0: no node has such amounts, and the kubelet that admitted it misread them,
// mostly as 0.
func bounded(pod *corev1.Pod) *corev1.Pod {
	pod = pod.DeepCopy()
	// Each container counts at most once with its request, and everything with the overhead.
	parts := int64(len(pod.Spec.Containers) + len(pod.Spec.InitContainers) + 2)
	most := *resource.NewQuantity(maxInt64/1000/parts, resource.DecimalSI)
	counted := most
	if pod.Spec.NodeName != "" {
		counted = resource.Quantity{Format: resource.DecimalSI}
	}
	for _, list := range resourceLists(pod) {
		for name, quantity := range list {
			if isLong(&quantity) || quantity.Cmp(most) > 0 {
				list[name] = counted
			}
		}
	}
	return pod
}

// resourceLists are all lists of amounts of a pod.
func resourceLists(pod *corev1.Pod) []corev1.ResourceList {
	lists := []corev1.ResourceList{pod.Spec.Overhead, podAllocated(pod)}
	both := func(resources *corev1.ResourceRequirements) {
		if resources != nil {
			lists = append(lists, resources.Requests, resources.Limits)
		}
	}
	both(pod.Spec.Resources)
	both(podResources(pod))
	for at := range pod.Spec.Containers {
		both(&pod.Spec.Containers[at].Resources)
	}
	for at := range pod.Spec.InitContainers {
		both(&pod.Spec.InitContainers[at].Resources)
	}
	for _, statuses := range [][]corev1.ContainerStatus{pod.Status.ContainerStatuses, pod.Status.InitContainerStatuses} {
		for at := range statuses {
			both(statuses[at].Resources)
			lists = append(lists, statuses[at].AllocatedResources)
		}
	}
	return lists
}

// statuses are the lists whose entries stand for a container's own resources, the first that names it.
type statuses int

const (
	statusIgnored statuses = iota
	// Volcano: those of the container's own list.
	statusOwnList
	// Kubernetes: either list, init containers first.
	statusBoth
)

func sidecar(item *corev1.Container) bool {
	return item.RestartPolicy != nil && *item.RestartPolicy == corev1.ContainerRestartPolicyAlways
}

// statusOf is the status entry of a container that has resources set, or nil.
func statusOf(pod *corev1.Pod, which statuses, name string, own []corev1.ContainerStatus) *corev1.ContainerStatus {
	var lists [][]corev1.ContainerStatus
	switch which {
	case statusIgnored:
	case statusOwnList:
		lists = [][]corev1.ContainerStatus{own}
	case statusBoth:
		lists = [][]corev1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses}
	}
	for _, list := range lists {
		for at := len(list) - 1; at >= 0; at-- {
			if list[at].Name == name {
				if list[at].Resources == nil {
					return nil
				}
				return &list[at]
			}
		}
	}
	return nil
}

// infeasible says whether the resize that is asked for cannot happen.
func infeasible(pod *corev1.Pod) bool {
	at := slices.IndexFunc(pod.Status.Conditions, func(condition corev1.PodCondition) bool {
		return condition.Type == corev1.PodResizePending
	})
	return at >= 0 && pod.Status.Conditions[at].Reason == corev1.PodReasonInfeasible
}

// effectiveRequests is a request raised by what runs while it is resized; that alone if the resize is infeasible.
func effectiveRequests(pod *corev1.Pod, spec, actual, allocated corev1.ResourceList) map[string]exact {
	effective := map[string]exact{}
	if !infeasible(pod) {
		raise(effective, exactly(spec))
	}
	raise(effective, exactly(actual))
	raise(effective, exactly(allocated))
	return effective
}

// effectiveLimits are limits while a resize is under way; an infeasible one leaves what runs, or nothing.
func effectiveLimits(pod *corev1.Pod, spec, actual corev1.ResourceList) map[string]exact {
	effective := map[string]exact{}
	if infeasible(pod) {
		if actual == nil {
			return nil
		}
	} else {
		raise(effective, exactly(spec))
	}
	raise(effective, exactly(actual))
	return effective
}

func containerRequest(pod *corev1.Pod, which statuses, item *corev1.Container, own []corev1.ContainerStatus) map[string]exact {
	status := statusOf(pod, which, item.Name, own)
	if status == nil {
		return exactly(item.Resources.Requests)
	}
	return effectiveRequests(pod, item.Resources.Requests, status.Resources.Requests, status.AllocatedResources)
}

func containerLimit(pod *corev1.Pod, which statuses, item *corev1.Container, own []corev1.ContainerStatus) map[string]exact {
	status := statusOf(pod, which, item.Name, own)
	if status == nil {
		return exactly(item.Resources.Limits)
	}
	if limits := effectiveLimits(pod, item.Resources.Limits, status.Resources.Limits); limits != nil {
		return limits
	}
	return map[string]exact{}
}

type ofContainer func(*corev1.Pod, statuses, *corev1.Container, []corev1.ContainerStatus) map[string]exact

// each gives the amounts of every container and init container; of the latter only sidecars have a status that counts.
func each(pod *corev1.Pod, which statuses, amounts ofContainer) ([]map[string]exact, []container[exact]) {
	containers := make([]map[string]exact, 0, len(pod.Spec.Containers))
	for at := range pod.Spec.Containers {
		containers = append(containers, amounts(pod, which, &pod.Spec.Containers[at], pod.Status.ContainerStatuses))
	}
	inits := make([]container[exact], 0, len(pod.Spec.InitContainers))
	for at := range pod.Spec.InitContainers {
		item, counting := &pod.Spec.InitContainers[at], which
		if !sidecar(item) {
			counting = statusIgnored
		}
		inits = append(inits, container[exact]{sidecar(item), amounts(pod, counting, item, pod.Status.InitContainerStatuses)})
	}
	return containers, inits
}

// containerRequests are requests over all containers; missing has the amounts of resources that a container does not name.
func containerRequests(pod *corev1.Pod, which statuses, missing map[string]exact) map[string]exact {
	containers, inits := each(pod, which, containerRequest)
	fill := func(amounts map[string]exact) {
		for name, amount := range missing {
			if _, found := amounts[name]; !found {
				amounts[name] = amount
			}
		}
	}
	for _, amounts := range containers {
		fill(amounts)
	}
	for _, init := range inits {
		fill(init.amounts)
	}
	return total(containers, inits)
}

func containerLimits(pod *corev1.Pod, which statuses) map[string]exact {
	return total(each(pod, which, containerLimit))
}

// supported are the entries whose names count at pod level: cpu, memory and huge pages.
func supported(list corev1.ResourceList) map[string]exact {
	amounts := map[string]exact{}
	for name, quantity := range list {
		if name == corev1.ResourceCPU || name == corev1.ResourceMemory || strings.HasPrefix(string(name), "hugepages-") {
			amounts[string(name)] = exact{quantity}
		}
	}
	return amounts
}

func podLevel(pod *corev1.Pod) (requests, limits corev1.ResourceList) {
	if pod.Spec.Resources == nil {
		return nil, nil
	}
	return pod.Spec.Resources.Requests, pod.Spec.Resources.Limits
}

// putPodLevel replaces amounts by those that the pod has as a whole; while a resize is under way by the effective ones,
// which are 0 for a name that the status lacks.
func putPodLevel(into, spec, effective map[string]exact, resized bool) {
	for name, amount := range spec {
		if resized {
			current, found := effective[name]
			if !found {
				current = exact{resource.Quantity{Format: resource.DecimalExponent}}
			}
			amount = current
		}
		into[name] = amount
	}
}

func requestsOf(pod *corev1.Pod, missing map[string]exact) map[string]exact {
	amounts := containerRequests(pod, statusBoth, missing)
	spec, _ := podLevel(pod)
	resized := podResources(pod) != nil
	var effective map[string]exact
	if resized {
		effective = effectiveRequests(pod, spec, podResources(pod).Requests, podAllocated(pod))
	}
	putPodLevel(amounts, supported(spec), effective, resized)
	add(amounts, exactly(pod.Spec.Overhead))
	return amounts
}

func limitsOf(pod *corev1.Pod) map[string]exact {
	amounts := containerLimits(pod, statusBoth)
	_, spec := podLevel(pod)
	resized := podResources(pod) != nil
	var effective map[string]exact
	if resized {
		effective = effectiveLimits(pod, spec, podResources(pod).Limits)
		// Infeasible and without limits in the status: the specified ones stay.
		resized = effective != nil
	}
	putPodLevel(amounts, supported(spec), effective, resized)
	addOverheadToLimits(amounts, pod)
	return amounts
}

// addOverheadToLimits counts overhead towards limits that are present and not 0.
func addOverheadToLimits(limits map[string]exact, pod *corev1.Pod) {
	for name, more := range exactly(pod.Spec.Overhead) {
		if limit, found := limits[name]; found && !limit.quantity.IsZero() {
			limits[name] = limit.plus(more)
		}
	}
}

func nonzero(pod *corev1.Pod, requests map[string]exact) (cpu, memory int64, err error) {
	missing := nonzeroDefaults()
	if spec, _ := podLevel(pod); len(supported(spec)) > 0 {
		for name := range missing {
			if _, found := requests[name]; found {
				delete(missing, name)
			}
		}
	}
	return cpuAndMemory(requestsOf(pod, missing))
}

// containerNonzero returns the non-zero requests of the containers and the overhead alone, given those of the pod.
func containerNonzero(pod *corev1.Pod, cpu, memory int64) (int64, int64, error) {
	if spec, _ := podLevel(pod); len(supported(spec)) == 0 {
		return cpu, memory, nil
	}
	amounts := containerRequests(pod, statusBoth, nonzeroDefaults())
	add(amounts, exactly(pod.Spec.Overhead))
	return cpuAndMemory(amounts)
}

// nonzeroDefaults are the amounts of a container that requests no cpu or memory.
func nonzeroDefaults() map[string]exact {
	return map[string]exact{
		"cpu":    {*resource.NewMilliQuantity(DefaultCPUMilli, resource.DecimalSI)},
		"memory": {*resource.NewQuantity(DefaultMemory, resource.BinarySI)},
	}
}

func cpuAndMemory(amounts map[string]exact) (cpu, memory int64, err error) {
	if cpu, err = Amount(UnitMilli, "cpu", amounts["cpu"].quantity); err != nil {
		return 0, 0, err
	}
	memory, err = Amount(UnitWhole, "memory", amounts["memory"].quantity)
	return cpu, memory, err
}
