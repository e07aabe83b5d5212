package derive

import (
	"strconv"

	corev1 "k8s.io/api/core/v1"
)

// taskPriorityKey is the annotation with a priority that comes before the pod's own.
const taskPriorityKey = "volcano.sh/task-priority"

// VolcanoAmounts are amounts in Pumice's unit; only names that Volcano counts and the pod mentions.
type VolcanoAmounts map[string]wide

// Exact is the amount, and whether it fits in 64 bits.
func (amounts VolcanoAmounts) Exact(name string) (int64, bool) {
	amount := amounts[name]
	return int64(amount.low), amount.high == 0 && amount.low <= maxInt64
}

// VolcanoTask is what Volcano derives from a pod (ed72c7c81); amounts are without the pod itself.
type VolcanoTask struct {
	// Requests and Limit are the task's.
	Requests, Limit VolcanoAmounts
	// Priority: larger first.
	Priority int32
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
	task := VolcanoTask{Requests: total(containers, inits), Priority: priorityOf(pod)}
	for name, amount := range whole {
		task.Requests[name] = amount
	}
	add(task.Requests, overhead)
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
