package kubescheduler

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	pumice "github.com/pumice-scheduler/pumice/clients/go"

	corev1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
)

var (
	_ fwk.PostFilterPlugin = &Plugin{}
	_ fwk.ReservePlugin    = &Plugin{}
	_ fwk.PermitPlugin     = &Plugin{}
	_ fwk.PreBindPlugin    = &Plugin{}
	_ fwk.PostBindPlugin   = &Plugin{}
)

// gangOf is the gang of a cycle's pod, or nil.
func gangOf(state fwk.CycleState) *gang {
	known, err := state.Read(cycleKey)
	if err != nil {
		return nil
	}
	return known.(*cycle).gang
}

// foresightOf is the answer that serves a cycle's pod and equal ones, or nil.
func foresightOf(state fwk.CycleState) *foresight {
	known, err := state.Read(cycleKey)
	if err != nil {
		return nil
	}
	return known.(*cycle).foresight
}

// PostFilter releases a gang of which another plugin refuses a node. Evictions for one pod of it would not help.
func (plugin *Plugin) PostFilter(_ context.Context, state fwk.CycleState, pod *corev1.Pod, statuses fwk.NodeToStatusReader) (*fwk.PostFilterResult, *fwk.Status) {
	gang := gangOf(state)
	if gang == nil || state.IsPodGroupSchedulingCycle() {
		return nil, fwk.NewStatus(fwk.Unschedulable)
	}
	node := gang.nodes[pod.UID]
	why := fmt.Sprintf("pod group %s is released: node %s is not possible for pod %s: %s", gang.group, node, pod.Name, statuses.Get(node).Message())
	plugin.hub.gangs.exclude(gang.group, node)
	gang.release(why)
	plugin.wait(pod)
	return nil, fwk.NewStatus(fwk.UnschedulableAndUnresolvable, why)
}

// Reserve counts the pod on its node from the next request on.
func (plugin *Plugin) Reserve(_ context.Context, state fwk.CycleState, pod *corev1.Pod, node string) *fwk.Status {
	if gang := gangOf(state); gang != nil {
		if state.IsPodGroupSchedulingCycle() {
			// A simulation: the Place request has judged the pods together.
			gang.expect(pod.UID)
			return nil
		}
		gang.hold(pod.UID)
	}
	plugin.hub.waiting.leave(pod.UID)
	if view := foresightOf(state); plugin.hub.foresight.take(view, node) {
		// Equal pods need no question for a while.
		plugin.hub.mirror.reserve(pod, node, view.signature)
		return nil
	}
	plugin.hub.mirror.reserve(pod, node, "")
	// The next pod's question will need it.
	plugin.hub.hurry()
	return nil
}

// Unreserve takes the pod off the node again, and with it the pods of its gang that are not bound yet.
func (plugin *Plugin) Unreserve(_ context.Context, state fwk.CycleState, pod *corev1.Pod, _ string) {
	gang := gangOf(state)
	if gang != nil && state.IsPodGroupSchedulingCycle() {
		return
	}
	plugin.hub.mirror.unreserve(pod.UID)
	if gang != nil {
		gang.release("pod group " + gang.group + " is released: pod " + pod.Name + " did not get its node")
		gang.letGo(pod.UID)
		plugin.wait(pod)
	}
}

// Permit lets the pods of a gang wait for each other.
func (plugin *Plugin) Permit(_ context.Context, state fwk.CycleState, pod *corev1.Pod, _ string) (*fwk.Status, time.Duration) {
	if gang := gangOf(state); gang != nil {
		return gang.arrive(pod, plugin.args.GangTimeout.Duration)
	}
	return nil, 0
}

// PreBindPreFlight says that only the pods of gangs have something to wait for.
func (plugin *Plugin) PreBindPreFlight(_ context.Context, state fwk.CycleState, _ *corev1.Pod, _ string) (*fwk.PreBindPreFlightResult, *fwk.Status) {
	if gangOf(state) == nil {
		return nil, fwk.NewStatus(fwk.Skip)
	}
	return nil, nil
}

// PreBind lets no pod of a gang be bound before the API server would bind each of them.
func (plugin *Plugin) PreBind(ctx context.Context, state fwk.CycleState, pod *corev1.Pod, node string) *fwk.Status {
	if gang := gangOf(state); gang != nil {
		return gang.check(ctx, pod, node, *plugin.args.CheckBindings)
	}
	return nil
}

// PostBind counts the pod on its node again if something has taken it off meanwhile, such as the end of a gang that it was of, and says so
// if the service had no part in the decision. That a pod is bound the mirror hears from the API server.
func (plugin *Plugin) PostBind(_ context.Context, state fwk.CycleState, pod *corev1.Pod, node string) {
	plugin.hub.mirror.reserve(pod, node, "")
	known, err := state.Read(cycleKey)
	if err != nil {
		return
	}
	if missed := known.(*cycle).without.list(); len(missed) > 0 {
		withoutService.WithLabelValues("bound").Inc()
		if recorder := plugin.handle.EventRecorder(); recorder != nil {
			recorder.Eventf(pod, nil, corev1.EventTypeWarning, WithoutServiceReason, "Binding",
				"bound to node %s while the decision service was unavailable: %s", node, strings.Join(missed, ", "))
		}
	}
}

// WithoutServiceReason is the reason of the event of a pod that was bound while the service was unavailable.
const WithoutServiceReason = "DecidedWithoutPumice"

// missedCalls are the calls of a cycle that a fallback stood in for.
type missedCalls struct {
	mutex   sync.Mutex
	origins map[pumice.Call]pumice.Origin
}

func (missed *missedCalls) add(call pumice.Call, origin pumice.Origin) {
	missed.mutex.Lock()
	defer missed.mutex.Unlock()
	if missed.origins == nil {
		missed.origins = map[pumice.Call]pumice.Origin{}
	}
	missed.origins[call] = origin
}

// list returns the calls with their fallbacks, sorted.
func (missed *missedCalls) list() []string {
	missed.mutex.Lock()
	defer missed.mutex.Unlock()
	list := []string{}
	for call, origin := range missed.origins {
		list = append(list, fmt.Sprintf("%s (%s)", call, origin))
	}
	slices.Sort(list)
	return list
}
