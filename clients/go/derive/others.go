package derive

import (
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
		return 0, fmt.Errorf("the sum of `%s`: %w", name, errBeyond)
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
