package kubescheduler

import (
	"slices"
	"sync"

	fwk "k8s.io/kube-scheduler/framework"
)

// profiles has the plugins of each framework, and the served plugins under names of their own.
var profiles = registry{known: map[fwk.Handle]*profile{}}

type registry struct {
	mutex sync.Mutex
	known map[fwk.Handle]*profile
}

type profile struct {
	plugin    *Plugin
	elsewhere []string
}

func (registry *registry) of(handle fwk.Handle) *profile {
	if registry.known[handle] == nil {
		registry.known[handle] = &profile{}
	}
	return registry.known[handle]
}

func (registry *registry) add(handle fwk.Handle, plugin *Plugin) {
	registry.mutex.Lock()
	defer registry.mutex.Unlock()
	registry.of(handle).plugin = plugin
}

func (registry *registry) addNamed(handle fwk.Handle, name string) {
	registry.mutex.Lock()
	defer registry.mutex.Unlock()
	found := registry.of(handle)
	found.elsewhere = append(found.elsewhere, name)
	// The framework makes plugins in no fixed order.
	slices.Sort(found.elsewhere)
}

func (registry *registry) plugin(handle fwk.Handle) *Plugin {
	registry.mutex.Lock()
	defer registry.mutex.Unlock()
	return registry.of(handle).plugin
}

func (registry *registry) elsewhere(handle fwk.Handle) []string {
	registry.mutex.Lock()
	defer registry.mutex.Unlock()
	return registry.of(handle).elsewhere
}
