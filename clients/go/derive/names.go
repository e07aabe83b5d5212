package derive

import (
	"fmt"
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
)

// Kind is what schedulers make of a resource name.
type Kind int

// The kinds of resource names.
const (
	// KindUncounted is a name that nobody counts.
	KindUncounted Kind = iota
	// KindCPU is cpu.
	KindCPU
	// KindMemory is memory.
	KindMemory
	// KindPods is pods.
	KindPods
	// KindEphemeralStorage is ephemeral-storage.
	KindEphemeralStorage
	// KindScalar is huge pages, attachable volumes, the kubernetes.io family and extended resources.
	KindScalar
	// KindCountQuota begins count/: Kubernetes counts it, Volcano drops it.
	KindCountQuota
)

// Unit is what an integer amount counts.
type Unit int

// The units.
const (
	// UnitMilli is a thousandth.
	UnitMilli Unit = iota
	// UnitWhole is a whole one.
	UnitWhole
)

const (
	quotaPrefix = "requests."
	// A DNS subdomain has at most 253 characters, of which the prefix takes its own.
	domainMax = 253 - len(quotaPrefix)
	label     = `[a-z0-9](?:[a-z0-9-]*[a-z0-9])?`
)

var extended = regexp.MustCompile(`^(` + label + `(?:\.` + label + `)*)/[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?$`)

// KindOf is the kind of a resource name, by the rules of Kubernetes 1.36 and Volcano ed72c7c81.
func KindOf(name string) Kind {
	switch name {
	case "cpu":
		return KindCPU
	case "memory":
		return KindMemory
	case "pods":
		return KindPods
	case "ephemeral-storage":
		return KindEphemeralStorage
	}
	scalar := strings.HasPrefix(name, "hugepages-") || strings.HasPrefix(name, "attachable-volumes-") ||
		strings.Contains(name, "kubernetes.io/") || isExtended(name)
	switch {
	case !scalar:
		return KindUncounted
	case strings.HasPrefix(name, "count/"):
		return KindCountQuota
	default:
		return KindScalar
	}
}

func isExtended(name string) bool {
	if strings.HasPrefix(name, quotaPrefix) {
		return false
	}
	found := extended.FindStringSubmatch(name)
	return found != nil && len(found[1]) <= domainMax
}

// Unit is the unit of Pumice and Volcano: a byte of memory, a pod, a thousandth of everything else.
func (kind Kind) Unit() Unit {
	if kind == KindMemory || kind == KindPods {
		return UnitWhole
	}
	return UnitMilli
}

// KubernetesUnit is the unit of kube-scheduler and Koordinator: a thousandth of a core, a whole one of the rest.
func (kind Kind) KubernetesUnit() Unit {
	if kind == KindCPU {
		return UnitMilli
	}
	return UnitWhole
}

// CountedByVolcano says whether Volcano counts resources of this kind.
func (kind Kind) CountedByVolcano() bool {
	return kind != KindCountQuota && kind != KindUncounted
}

// CountedByKubernetes says whether Kubernetes and Koordinator count resources of this kind.
func (kind Kind) CountedByKubernetes() bool {
	return kind != KindUncounted
}

// Amount is the amount of the resource in the given unit, rounded up.
func Amount(unit Unit, name string, quantity resource.Quantity) (int64, error) {
	if quantity.Sign() < 0 {
		return 0, fmt.Errorf("`%s` of `%s`: %w: it is negative", show(&quantity), name, ErrAmount)
	}
	convert := Value
	if unit == UnitMilli {
		convert = Milli
	}
	amount, err := convert(quantity)
	if err != nil {
		return 0, fmt.Errorf("`%s`: %w", name, err)
	}
	return amount, nil
}
