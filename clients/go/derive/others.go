package derive

import (
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
)

// FitPlus is what NodeResourcesFitPlus adds to a node for the pod (Koordinator a7a1b76b): cpu in thousandths, the rest
// in whole units, rounded per container.
//
// Names come from the effective request, amounts from containers, init containers in order (not as Kubernetes sums them)
// and overhead, which counts in whole units for cpu, too. Upstream ends its process on a pod with overhead.
func FitPlus(pod *corev1.Pod) (map[string]int64, error) {
	if err := readable(pod); err != nil {
		return nil, err
	}
	requests := containerRequests(pod, statusIgnored, nil)
	spec, _ := podLevel(pod)
	for name, amount := range supported(spec) {
		requests[name] = amount
	}
	add(requests, exactly(pod.Spec.Overhead))
	amounts := map[string]int64{}
	for name, request := range requests {
		kind := KindOf(name)
		if !kind.CountedByKubernetes() || kind == KindPods {
			continue
		}
		asked, err := Amount(kind.KubernetesUnit(), name, request.quantity)
		if err != nil {
			return nil, err
		}
		if asked == 0 {
			continue
		}
		if amounts[name], err = addedByFitPlus(pod, name, kind); err != nil {
			return nil, err
		}
	}
	return amounts, nil
}

func addedByFitPlus(pod *corev1.Pod, name string, kind Kind) (int64, error) {
	var sum wide
	for at := range pod.Spec.Containers {
		amount, err := fitPlusContainer(&pod.Spec.Containers[at], name, kind)
		if err != nil {
			return 0, err
		}
		sum = sum.plus(wideOf(amount))
	}
	for at := range pod.Spec.InitContainers {
		item := &pod.Spec.InitContainers[at]
		amount, err := fitPlusContainer(item, name, kind)
		if err != nil {
			return 0, err
		}
		if sidecar(item) {
			sum = sum.plus(wideOf(amount))
		} else {
			sum = sum.atLeast(wideOf(amount))
		}
	}
	if quantity, found := pod.Spec.Overhead[corev1.ResourceName(name)]; found {
		amount, err := Amount(UnitWhole, name, quantity)
		if err != nil {
			return 0, err
		}
		sum = sum.plus(wideOf(amount))
	}
	if sum.high != 0 || sum.low > maxInt64 {
		return 0, fmt.Errorf("the sum of `%s`: %w: it does not fit in 64 bits", name, ErrAmount)
	}
	return int64(sum.low), nil
}

// fitPlusContainer is a container's request, or the default for a cpu or memory request that it lacks.
func fitPlusContainer(item *corev1.Container, name string, kind Kind) (int64, error) {
	if quantity, found := item.Resources.Requests[corev1.ResourceName(name)]; found {
		return Amount(kind.KubernetesUnit(), name, quantity)
	}
	switch kind {
	case KindCPU:
		return DefaultCPUMilli, nil
	case KindMemory:
		return DefaultMemory, nil
	default:
		return 0, nil
	}
}

// ErrNoCard is what a pod fails with that names a card's resource in neither limits nor requests.
var ErrNoCard = errors.New("the pod names the card's resource in neither limits nor requests")

// CardAmounts are what capacity-card derives from a pod (Volcano 61a5f00e0).
type CardAmounts struct {
	// Requests are exact: with resize status and overhead, without pod level.
	Requests Quantities
	// Limits are exact: with overhead, without resize status and pod level.
	Limits Quantities
	// Resreq is the task's request of that commit, the pod itself included: overhead counts before the maximum with init
	// containers, pod level and resize status do not count.
	Resreq VolcanoAmounts
	// BestEffort: nothing but pods is requested.
	BestEffort bool
}

// Milli are thousandths of cards of a resource: its effective limit, else its effective request, rounded up to whole
// cards.
func (amounts CardAmounts) Milli(name string) (int64, error) {
	quantity, found := amounts.Limits[name]
	if !found {
		quantity, found = amounts.Requests[name]
	}
	if !found {
		return 0, fmt.Errorf("`%s`: %w", name, ErrNoCard)
	}
	cards, err := Amount(UnitWhole, name, quantity)
	if err != nil {
		return 0, err
	}
	if cards > maxInt64/1000 {
		return 0, fmt.Errorf("`%s`: %w: it does not fit in 64 bits", name, ErrAmount)
	}
	return cards * 1000, nil
}

// Cards is what capacity-card derives from the pod.
func Cards(pod *corev1.Pod) (CardAmounts, error) {
	if err := readable(pod); err != nil {
		return CardAmounts{}, err
	}
	requests := containerRequests(pod, statusBoth, nil)
	add(requests, exactly(pod.Spec.Overhead))
	limits := containerLimits(pod, statusIgnored)
	addOverheadToLimits(limits, pod)
	exactContainers, exactInits := each(pod, statusIgnored, containerRequest)
	if pod.Spec.Overhead != nil {
		// The overhead is one more container: it counts beside them, and before the maximum.
		exactContainers = append(exactContainers, exactly(pod.Spec.Overhead))
	}
	containers, inits, err := converted(exactContainers, exactInits)
	if err != nil {
		return CardAmounts{}, err
	}
	resreq := VolcanoAmounts(total(containers, inits)).withThePodItself()
	return CardAmounts{quantities(requests), quantities(limits), resreq, resreq.bestEffort()}, nil
}
