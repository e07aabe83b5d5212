package derive

import (
	"maps"
	"math/bits"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Quantities are exact amounts by resource name.
type Quantities map[string]resource.Quantity

// number is what can be summed over containers.
type number[A any] interface {
	plus(A) A
	atLeast(A) A
}

// exact is a quantity in a sum.
type exact struct{ quantity resource.Quantity }

func (amount exact) plus(other exact) exact {
	switch {
	case isLong(&amount.quantity):
		return amount
	case isLong(&other.quantity):
		return other
	}
	sum := amount.quantity.DeepCopy()
	sum.Add(other.quantity)
	return exact{sum}
}

func (amount exact) atLeast(other exact) exact {
	if !isLong(&amount.quantity) && (isLong(&other.quantity) || other.quantity.Cmp(amount.quantity) > 0) {
		return other
	}
	return amount
}

// wide is an amount in Pumice's unit, as a sum in 128 bits.
type wide struct{ high, low uint64 }

func wideOf(amount int64) wide {
	return wide{low: uint64(amount)}
}

func (amount wide) plus(other wide) wide {
	low, carry := bits.Add64(amount.low, other.low, 0)
	high, _ := bits.Add64(amount.high, other.high, carry)
	return wide{high, low}
}

func (amount wide) atLeast(other wide) wide {
	if other.high > amount.high || (other.high == amount.high && other.low > amount.low) {
		return other
	}
	return amount
}

func (amount wide) zero() bool {
	return amount.high == 0 && amount.low == 0
}

// container holds the amounts of one container; sidecar: an init container that keeps running.
type container[A any] struct {
	sidecar bool
	amounts map[string]A
}

func add[A number[A]](into, more map[string]A) {
	for name, amount := range more {
		if sum, found := into[name]; found {
			amount = sum.plus(amount)
		}
		into[name] = amount
	}
}

func raise[A number[A]](into, other map[string]A) {
	for name, amount := range other {
		if own, found := into[name]; found {
			amount = own.atLeast(amount)
		}
		into[name] = amount
	}
}

// total is the sum of containers and sidecars, or the largest need while the pod starts, name by name (Kubernetes
// enhancement 753).
func total[A number[A]](containers []map[string]A, inits []container[A]) map[string]A {
	running, sidecars, starting := map[string]A{}, map[string]A{}, map[string]A{}
	for _, amounts := range containers {
		add(running, amounts)
	}
	for _, init := range inits {
		if init.sidecar {
			add(running, init.amounts)
			add(sidecars, init.amounts)
			raise(starting, sidecars)
		} else {
			needed := maps.Clone(init.amounts)
			if needed == nil {
				needed = map[string]A{}
			}
			add(needed, sidecars)
			raise(starting, needed)
		}
	}
	raise(running, starting)
	return running
}

// exactly takes a list as it is.
func exactly(list corev1.ResourceList) map[string]exact {
	amounts := make(map[string]exact, len(list))
	for name, quantity := range list {
		amounts[string(name)] = exact{quantity}
	}
	return amounts
}

func quantities(amounts map[string]exact) Quantities {
	list := make(Quantities, len(amounts))
	for name, amount := range amounts {
		list[name] = amount.quantity
	}
	return list
}
