package derive

import (
	"strconv"

	corev1 "k8s.io/api/core/v1"
)

const (
	preemptableKey  = "volcano.sh/preemptable"
	revocableKey    = "volcano.sh/revocable-zone"
	taskPriorityKey = "volcano.sh/task-priority"
)

// VolcanoAmounts are amounts in Pumice's unit; only names that Volcano counts and the pod mentions.
type VolcanoAmounts map[string]wide

// Float is the amount as Volcano has it: in doubles, rounded at every step. 0 if it is not there.
func (amounts VolcanoAmounts) Float(name string) float64 {
	return amounts[name].rounded
}

// Exact is the exact amount, and whether it fits in 64 bits.
func (amounts VolcanoAmounts) Exact(name string) (int64, bool) {
	amount := amounts[name]
	return int64(amount.low), amount.high == 0 && amount.low <= maxInt64
}

func (amounts VolcanoAmounts) bestEffort() bool {
	for name, amount := range amounts {
		if name != "pods" && !amount.zero() {
			return false
		}
	}
	return true
}

func (amounts VolcanoAmounts) withThePodItself() VolcanoAmounts {
	more := VolcanoAmounts{"pods": wideOf(1)}
	add(more, amounts)
	return more
}

// VolcanoTask is what Volcano derives from a pod (ed72c7c81); amounts are without the pod itself.
type VolcanoTask struct {
	// Requests is the task's request.
	Requests VolcanoAmounts
	// WithoutInit is the request without init containers and sidecars.
	WithoutInit VolcanoAmounts
	// Limit are its limits.
	Limit VolcanoAmounts
	// BestEffort: nothing but pods is requested.
	BestEffort bool
	// HasSidecar: some init container keeps running.
	HasSidecar bool
	// SchedulingGated: it has a scheduling gate.
	SchedulingGated bool
	// Status is where the pod stands, in Volcano's words.
	Status string
	// Node is empty if it has none.
	Node string
	// Priority: larger first.
	Priority int32
	// Preemptable: it may be preempted.
	Preemptable bool
	// RevocableZone is "*" or empty.
	RevocableZone string
}

// Resreq is the request as Volcano has it: with the pod itself.
func (task VolcanoTask) Resreq() VolcanoAmounts {
	return task.Requests.withThePodItself()
}

// Volcano is what Volcano derives from the pod: rounded per container, then summed.
func Volcano(pod *corev1.Pod) (VolcanoTask, error) {
	if err := readable(pod); err != nil {
		return VolcanoTask{}, err
	}
	requests, limits := podLevel(pod)
	containers, inits, err := converted(each(pod, statusOwnList, containerRequest))
	if err != nil {
		return VolcanoTask{}, err
	}
	overhead, err := volcanoAmounts(exactly(pod.Spec.Overhead))
	if err != nil {
		return VolcanoTask{}, err
	}
	whole, err := volcanoAmounts(supported(requests))
	if err != nil {
		return VolcanoTask{}, err
	}
	amended := func(amounts VolcanoAmounts) VolcanoAmounts {
		for name, amount := range whole {
			amounts[name] = amount
		}
		add(amounts, overhead)
		return amounts
	}
	task := VolcanoTask{
		Requests:        amended(total(containers, inits)),
		WithoutInit:     amended(total(containers, nil)),
		SchedulingGated: len(pod.Spec.SchedulingGates) > 0,
		Status:          Status(pod),
		Node:            pod.Spec.NodeName,
		Priority:        priorityOf(pod),
		Preemptable:     preemptable(pod),
		RevocableZone:   revocableZone(pod),
	}
	for at := range pod.Spec.InitContainers {
		task.HasSidecar = task.HasSidecar || sidecar(&pod.Spec.InitContainers[at])
	}
	task.BestEffort = task.Requests.bestEffort()
	task.Limit, err = volcanoLimit(pod, supported(limits), overhead)
	return task, err
}

func volcanoLimit(pod *corev1.Pod, whole map[string]exact, overhead VolcanoAmounts) (VolcanoAmounts, error) {
	containers, inits, err := converted(each(pod, statusOwnList, largerLimit))
	if err != nil {
		return nil, err
	}
	limit := VolcanoAmounts(total(containers, inits))
	replaced, err := volcanoAmounts(whole)
	if err != nil {
		return nil, err
	}
	for name, amount := range replaced {
		limit[name] = amount
	}
	for name, more := range overhead {
		if own, found := limit[name]; found && !own.zero() {
			limit[name] = own.plus(more)
		}
	}
	return limit, nil
}

// largerLimit is the larger of specification and status, whether the resize is feasible or not.
func largerLimit(pod *corev1.Pod, which statuses, item *corev1.Container, own []corev1.ContainerStatus) map[string]exact {
	limits := exactly(item.Resources.Limits)
	if status := statusOf(pod, which, item.Name, own); status != nil {
		raise(limits, exactly(status.Resources.Limits))
	}
	return limits
}

func volcanoAmounts(list map[string]exact) (VolcanoAmounts, error) {
	amounts := make(VolcanoAmounts, len(list))
	for name, amount := range list {
		kind := KindOf(name)
		if !kind.CountedByVolcano() {
			continue
		}
		number, err := Amount(kind.Unit(), name, amount.quantity)
		if err != nil {
			return nil, err
		}
		amounts[name] = wideOf(number)
	}
	return amounts, nil
}

func converted(containers []map[string]exact, inits []container[exact]) ([]map[string]wide, []container[wide], error) {
	plain := make([]map[string]wide, 0, len(containers))
	for _, list := range containers {
		amounts, err := volcanoAmounts(list)
		if err != nil {
			return nil, nil, err
		}
		plain = append(plain, amounts)
	}
	starting := make([]container[wide], 0, len(inits))
	for _, init := range inits {
		amounts, err := volcanoAmounts(init.amounts)
		if err != nil {
			return nil, nil, err
		}
		starting = append(starting, container[wide]{init.sidecar, amounts})
	}
	return plain, starting, nil
}

// Status is the status of a pod in Volcano's terms: Pending, Bound, Running, Releasing, Succeeded, Failed, Unknown.
func Status(pod *corev1.Pod) string {
	switch phase := pod.Status.Phase; phase {
	case corev1.PodRunning, corev1.PodPending:
		switch {
		case pod.DeletionTimestamp != nil:
			return "Releasing"
		case phase == corev1.PodRunning:
			return "Running"
		case pod.Spec.NodeName != "":
			return "Bound"
		default:
			return "Pending"
		}
	case corev1.PodSucceeded, corev1.PodFailed:
		return string(phase)
	default:
		return "Unknown"
	}
}

// priorityOf is the annotation if it is a number, else the specification's, else 1.
func priorityOf(pod *corev1.Pod) int32 {
	if number, err := strconv.ParseInt(pod.Annotations[taskPriorityKey], 10, 32); err == nil {
		return int32(number)
	}
	if pod.Spec.Priority != nil {
		return *pod.Spec.Priority
	}
	return 1
}

// preemptable: annotation before label before yes; what is no truth value is no.
func preemptable(pod *corev1.Pod) bool {
	text, found := pod.Annotations[preemptableKey]
	if !found {
		text, found = pod.Labels[preemptableKey]
	}
	if !found {
		return true
	}
	truth, err := strconv.ParseBool(text)
	return err == nil && truth
}

func revocableZone(pod *corev1.Pod) string {
	zone, found := pod.Annotations[revocableKey]
	if !found {
		if truth, err := strconv.ParseBool(pod.Annotations[preemptableKey]); err == nil && truth {
			zone = "*"
		}
	}
	if zone == "*" {
		return "*"
	}
	return ""
}
