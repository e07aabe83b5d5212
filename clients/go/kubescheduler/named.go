package kubescheduler

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"

	fwk "k8s.io/kube-scheduler/framework"
)

// Registry has every factory by name: [Name], and the plugins of Koordinator's that Pumice serves under their own names,
// so that a profile which enables those, with their weights, stays as it is. Their scores come from the answer to
// Pumice's one question, untouched; their arguments are the policy's and are not read here.
func Registry() frameworkruntime.Registry {
	factories := frameworkruntime.Registry{Name: New}
	for _, name := range koordinators {
		factories[name] = func(_ context.Context, _ runtime.Object, handle fwk.Handle) (fwk.Plugin, error) {
			profiles.addNamed(handle, name)
			return &named{name: name, handle: handle}, nil
		}
	}
	return factories
}

// named is one served plugin under its own name.
type named struct {
	name   string
	handle fwk.Handle
}

var (
	_ fwk.PreScorePlugin = &named{}
	_ fwk.ScorePlugin    = &named{}
	_ fwk.SignPlugin     = &named{}
)

// Name is the served plugin's.
func (plugin *named) Name() string {
	return plugin.name
}

// SignPod signs as the profile's Pumice does: both read the same response.
func (plugin *named) SignPod(ctx context.Context, pod *corev1.Pod) ([]fwk.SignFragment, *fwk.Status) {
	asks := profiles.plugin(plugin.handle)
	if asks == nil {
		return nil, fwk.AsStatus(fmt.Errorf("%s needs %s in the same profile", plugin.name, Name))
	}
	return asks.SignPod(ctx, pod)
}

// PreScore sends a Score request, unless the cycle has a result already.
func (plugin *named) PreScore(ctx context.Context, state fwk.CycleState, pod *corev1.Pod, nodes []fwk.NodeInfo) *fwk.Status {
	asks := profiles.plugin(plugin.handle)
	if asks == nil {
		return fwk.AsStatus(fmt.Errorf("%s needs %s in the same profile", plugin.name, Name))
	}
	_, status := asks.score(ctx, state, pod, nodes)
	return status
}

// Score looks the node up.
func (plugin *named) Score(ctx context.Context, state fwk.CycleState, _ *corev1.Pod, info fwk.NodeInfo) (int64, *fwk.Status) {
	return lookUp(ctx, state, plugin.name, info)
}

// ScoreExtensions: there are none, the scores are 0..100 already.
func (plugin *named) ScoreExtensions() fwk.ScoreExtensions {
	return nil
}
