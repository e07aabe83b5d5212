package derive

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Derivation is whose way of counting makes a task's requests.
type Derivation int

// The derivations.
const (
	// Auto is that of the scheduler which the pod names: the default one and those of Koordinator count as Kubernetes
	// does, any other as Volcano does.
	Auto Derivation = iota
	// AsKubernetes is kube-scheduler's, which Koordinator shares.
	AsKubernetes
	// AsVolcano is Volcano's.
	AsVolcano
)

// EffectiveTask is a pod as a task on the wire; amounts are quantity texts, exact in the unit that the scheduler counts
// in.
type EffectiveTask struct {
	// Requests and Limits are without the pod itself.
	Requests, Limits map[string]string
	// NonzeroRequests are Kubernetes' for cpu and memory.
	NonzeroRequests map[string]string
	// CountedRequests is what NodeResourcesFitPlus adds to a node for the pod.
	CountedRequests map[string]string
	// ContainerNonzeroRequests are the non-zero requests of the containers alone; nil: they equal NonzeroRequests.
	ContainerNonzeroRequests map[string]string
	// KubernetesRequests are the requests as kube-scheduler counts them; nil: they equal Requests.
	KubernetesRequests map[string]string
	// Priority: larger first. PriorityFromClass is true if the pod has none of its own, so that its class may say it.
	Priority          int32
	PriorityFromClass bool
	// Bounded is true if the pod has amounts that are larger than a record holds. They are not evaluated ([UnreadAmounts]).
	Bounded bool
}

// UnreadAmounts is what a pod lists as not evaluated if some of its amounts are.
const UnreadAmounts = "resources"

// Effective is the pod as a task. No text of its user hides what a pod takes from its node: amounts beyond 64 bits do not count for a pod
// with a node, and are the largest ones for one without. An amount that is negative is an error.
func Effective(pod *corev1.Pod, derivation Derivation) (EffectiveTask, error) {
	pod = withDefaultRequests(pod)
	task, err := effective(pod, derivation)
	if errors.Is(err, errBeyond) {
		task, err = effective(bounded(pod), derivation)
		task.Bounded = true
	}
	return task, err
}

func effective(pod *corev1.Pod, derivation Derivation) (EffectiveTask, error) {
	if derivation == Auto {
		derivation = AsVolcano
		if name := pod.Spec.SchedulerName; name == "" || name == corev1.DefaultSchedulerName || strings.HasPrefix(name, "koord") {
			derivation = AsKubernetes
		}
	}
	amounts, err := Kubernetes(pod)
	if err != nil {
		return EffectiveTask{}, err
	}
	fitPlus, err := FitPlus(pod)
	if err != nil {
		return EffectiveTask{}, err
	}
	task := EffectiveTask{
		NonzeroRequests: countedTexts(map[string]int64{"cpu": amounts.NonzeroCPUMilli, "memory": amounts.NonzeroMemory}),
		CountedRequests: countedTexts(fitPlus),
	}
	if amounts.ContainerNonzeroCPUMilli != amounts.NonzeroCPUMilli || amounts.ContainerNonzeroMemory != amounts.NonzeroMemory {
		task.ContainerNonzeroRequests = countedTexts(map[string]int64{
			"cpu": amounts.ContainerNonzeroCPUMilli, "memory": amounts.ContainerNonzeroMemory,
		})
	}
	if derivation == AsKubernetes {
		err := task.asKubernetes(pod, amounts)
		task.PriorityFromClass = !hasOwnPriority(pod, task.Priority)
		return task, err
	}
	if err := task.asVolcano(pod); err != nil {
		return EffectiveTask{}, err
	}
	task.PriorityFromClass = !hasOwnPriority(pod, task.Priority)
	if counted := countedTexts(amounts.Counted); !sameAmounts(counted, task.Requests) {
		task.KubernetesRequests = counted
	}
	return task, nil
}

// hasOwnPriority reports whether a pod says its priority itself: by a number, or by the annotation where that counts.
func hasOwnPriority(pod *corev1.Pod, priority int32) bool {
	if pod.Spec.Priority != nil {
		return true
	}
	annotated, err := strconv.ParseInt(pod.Annotations[taskPriorityKey], 10, 32)
	return err == nil && int32(annotated) == priority
}

// withDefaultRequests is the pod as the API server would store it: a container without a request for a limited resource requests
// its limit. A pod that comes from there is returned as it is.
func withDefaultRequests(pod *corev1.Pod) *corev1.Pod {
	containers, changed := limitsRequested(pod.Spec.Containers)
	inits, also := limitsRequested(pod.Spec.InitContainers)
	if !changed && !also {
		return pod
	}
	copied := *pod
	copied.Spec.Containers, copied.Spec.InitContainers = containers, inits
	return &copied
}

func limitsRequested(containers []corev1.Container) (list []corev1.Container, changed bool) {
	list = containers
	for at := range containers {
		own := &containers[at].Resources
		lacks := func(name corev1.ResourceName) bool { _, found := own.Requests[name]; return !found }
		requests := own.Requests
		for name, limit := range own.Limits {
			if !lacks(name) {
				continue
			}
			if len(requests) == len(own.Requests) {
				if requests = maps.Clone(own.Requests); requests == nil {
					requests = corev1.ResourceList{}
				}
			}
			requests[name] = limit
		}
		if len(requests) == len(own.Requests) {
			continue
		}
		if !changed {
			list, changed = slices.Clone(containers), true
		}
		list[at].Resources.Requests = requests
	}
	return list, changed
}

// sameAmounts reports whether both lists request the same amounts; texts of one kind are equal if their amounts are.
func sameAmounts(one, other map[string]string) bool {
	within := func(own, all map[string]string) bool {
		for name, text := range own {
			if name != "pods" && text != "0" && all[name] != text {
				return false
			}
		}
		return true
	}
	return within(one, other) && within(other, one)
}

func (task *EffectiveTask) asKubernetes(pod *corev1.Pod, amounts KubernetesAmounts) error {
	task.Requests = countedTexts(amounts.Counted)
	limits := map[string]int64{}
	for name, quantity := range amounts.Limits {
		kind := KindOf(name)
		if !kind.CountedByKubernetes() || kind == KindPods {
			continue
		}
		amount, err := Amount(kind.KubernetesUnit(), name, quantity)
		if err != nil {
			return err
		}
		limits[name] = amount
	}
	task.Limits = countedTexts(limits)
	if pod.Spec.Priority != nil {
		task.Priority = *pod.Spec.Priority
	}
	return nil
}

func (task *EffectiveTask) asVolcano(pod *corev1.Pod) error {
	derived, err := Volcano(pod)
	if err != nil {
		return err
	}
	task.Priority = derived.Priority
	if task.Requests, err = derived.Requests.texts(); err != nil {
		return err
	}
	task.Limits, err = derived.Limit.texts()
	return err
}

func countedTexts(amounts map[string]int64) map[string]string {
	texts := make(map[string]string, len(amounts))
	for name, amount := range amounts {
		texts[name] = Format(KindOf(name).KubernetesUnit(), name, amount)
	}
	return texts
}

func (amounts VolcanoAmounts) texts() (map[string]string, error) {
	texts := make(map[string]string, len(amounts))
	for name := range amounts {
		amount, fits := amounts.Exact(name)
		if !fits {
			return nil, fmt.Errorf("the sum of `%s`: %w", name, errBeyond)
		}
		texts[name] = Format(KindOf(name).Unit(), name, amount)
	}
	return texts, nil
}
