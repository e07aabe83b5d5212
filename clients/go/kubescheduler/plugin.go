package kubescheduler

import (
	"context"
	"errors"
	"fmt"
	"time"

	pumice "github.com/pumice-scheduler/pumice/clients/go"
	pb "github.com/pumice-scheduler/pumice/clients/go/pumicev1"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
)

// Name is the plugin's in a KubeSchedulerConfiguration.
const Name = "Pumice"

// Plugin calls Pumice in one scheduling profile.
type Plugin struct {
	handle fwk.Handle
	args   Args
	// fallback is the choice per call.
	fallback map[pumice.Call]pumice.Fallback
	hub      *hub
	policy   lastPolicy
}

var (
	_ fwk.PreFilterPlugin   = &Plugin{}
	_ fwk.FilterPlugin      = &Plugin{}
	_ fwk.PreScorePlugin    = &Plugin{}
	_ fwk.ScorePlugin       = &Plugin{}
	_ fwk.EnqueueExtensions = &Plugin{}
)

// New makes the plugin: a factory for the framework's registry. It does not wait for the service.
func New(ctx context.Context, object runtime.Object, handle fwk.Handle) (fwk.Plugin, error) {
	args, err := ParseArgs(object)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", Name, err)
	}
	fallback, err := args.Fallback.table()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", Name, err)
	}
	registerMetrics()
	hub, err := hubOf(ctx, handle, &args)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", Name, err)
	}
	made := &Plugin{handle: handle, args: args, fallback: fallback, hub: hub}
	made.policy.changed = func(version uint64) { go made.reportRelease(version) }
	profiles.add(handle, made)
	return made, nil
}

// Name is the plugin's name.
func (plugin *Plugin) Name() string {
	return Name
}

// EventsToRegister names what may help a pod that was refused. Pumice's own changes are looked for by the plugin itself.
func (plugin *Plugin) EventsToRegister(context.Context) ([]fwk.ClusterEventWithHint, error) {
	return []fwk.ClusterEventWithHint{
		{Event: fwk.ClusterEvent{Resource: fwk.Pod, ActionType: fwk.Delete | fwk.UpdatePodScaleDown}},
		{Event: fwk.ClusterEvent{Resource: fwk.Node, ActionType: fwk.Add | fwk.UpdateNodeAllocatable | fwk.UpdateNodeLabel | fwk.UpdateNodeTaint | fwk.UpdateNodeCondition}},
	}, nil
}

const (
	cycleKey  fwk.StateKey = Name + "/cycle"
	scoresKey fwk.StateKey = Name + "/scores"
)

// cycle is what one scheduling cycle knows of its pod. Only `without` changes once PreFilter is over.
type cycle struct {
	// copied is true in a copy of the cycle's state. kube-scheduler makes one to score the node of the last equal pod again, while it
	// has scores of the other nodes.
	copied bool
	until  time.Time
	task   *pb.Task
	// signature is that of the task.
	signature string
	// mayServe: the answer may serve equal pods.
	mayServe bool
	// foresight is the answer that serves equal pods, with those placed since; nil: the answer is about this pod alone.
	foresight *foresight
	// gang has the pod's node, if the pods of its group are placed together; then there is no verdict.
	gang *gang
	// item is the verdict, about the nodes of the table.
	item  *pb.FilterItem
	table *pumice.NodeTable
	// scores are those of the nodes that pass, if the same request asked for them, and metadata that of the response.
	scores   *pb.ScoreItem
	metadata *pb.ResponseMetadata
	// without are the calls that a fallback stood in for.
	without *missedCalls
}

// Clone gives the same, marked as a copy.
func (cycle *cycle) Clone() fwk.StateData {
	copied := *cycle
	copied.copied = true
	return &copied
}

// begin starts the time of a cycle.
func (plugin *Plugin) begin(state fwk.CycleState, pod *corev1.Pod) (*cycle, error) {
	if known, err := state.Read(cycleKey); err == nil {
		return known.(*cycle), nil
	}
	plugin.hub.lead()
	task, signature, err := plugin.hub.mirror.signed(pod)
	if err != nil {
		return nil, err
	}
	begun := &cycle{until: time.Now().Add(plugin.args.Budget.Duration), task: task, signature: signature, without: &missedCalls{}}
	state.Write(cycleKey, begun)
	return begun, nil
}

// PreFilter sends one Filter request about all nodes, and an Admit request; for a pod of a gang instead one Place request about all
// its pods.
func (plugin *Plugin) PreFilter(ctx context.Context, state fwk.CycleState, pod *corev1.Pod, nodes []fwk.NodeInfo) (*fwk.PreFilterResult, *fwk.Status) {
	state.Delete(cycleKey)
	if group := plainGroup(pod); group != "" && attemptOf(state) != nil {
		// By its group's record the pod has a job.
		plugin.hub.mirror.has(ctx, group, []*corev1.Pod{pod})
	}
	if refused := plugin.awaitGroup(pod); refused != nil {
		return nil, refused
	}
	cycle, err := plugin.begin(state, pod)
	if err != nil {
		return nil, fwk.NewStatus(fwk.UnschedulableAndUnresolvable, err.Error())
	}
	ctx, cancel := context.WithDeadline(ctx, cycle.until)
	defer cancel()
	joined, refused := plugin.join(ctx, state, pod, cycle)
	if refused != nil {
		return nil, refused
	}
	if joined != nil {
		cycle.gang = joined
		return &fwk.PreFilterResult{NodeNames: sets.New(joined.nodes[pod.UID])}, nil
	}
	if !plugin.mayAdmit(cycle) {
		return nil, plugin.filter(ctx, pod, cycle, nodes)
	}
	admission := make(chan *fwk.Status, 1)
	go func() { admission <- plugin.admit(ctx, pod, cycle) }()
	status := plugin.filter(ctx, pod, cycle, nodes)
	if refused := <-admission; !refused.IsSuccess() {
		return nil, refused
	}
	return nil, status
}

// filter asks which nodes pass. Skip: the fallback permits every node.
func (plugin *Plugin) filter(ctx context.Context, pod *corev1.Pod, cycle *cycle, nodes []fwk.NodeInfo) *fwk.Status {
	if plugin.useForeseen(pod, cycle, len(nodes)) {
		return nil
	}
	asked, err := plugin.askNodes(ctx, cycle, len(nodes))
	if errors.Is(err, pumice.ErrNodeTableChanged) {
		// Another server answers now.
		asked, err = plugin.askNodes(ctx, cycle, len(nodes))
	}
	if err != nil {
		return plugin.fallbackStatus(pumice.CallFilter, pod, cycle, err)
	}
	item, metadata := asked.item, asked.metadata
	replies.WithLabelValues(string(pumice.CallFilter), pumice.OriginService.String()).Inc()
	outdated := plugin.policy.outdates(metadata)
	plugin.policy.see(metadata, nil)
	if outdated {
		// The signature of this pod was made before the new policy was seen, so that kube-scheduler may take the node of an old ranking.
		plugin.policy.ranking.Store(nil)
		plugin.handle.Activate(klog.FromContext(ctx), map[string]*corev1.Pod{taskName(pod): pod})
		return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, ChangedReason)
	}
	if item == nil {
		return fwk.AsStatus(errors.New("the response does not have exactly one item"))
	}
	cycle.item = item
	if problem := cycle.item.GetProblem(); problem != nil {
		plugin.hub.waiting.enter(pod, plugin.handle, plugin.args.Policy, metadata)
		return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, problem.GetMessage())
	}
	if named := ones(cycle.item.GetFit().GetBitmap()); named != int(cycle.item.GetFitCount()) {
		return fwk.AsStatus(fmt.Errorf("%d nodes fit and the response names %d of them by slot", cycle.item.GetFitCount(), named))
	}
	if int(cycle.item.GetFitCount()) < len(nodes) {
		plugin.hub.waiting.enter(pod, plugin.handle, plugin.args.Policy, metadata)
	}
	cycle.foresight = plugin.foresee(cycle, asked, cycle.scores)
	return nil
}

// askNodes is askFilter, with the names of the slots in its response.
func (plugin *Plugin) askNodes(ctx context.Context, cycle *cycle, nodes int) (foreseen, error) {
	asked := foreseen{at: time.Now(), decisive: plugin.hub.mirror.decisive.Load()}
	var err error
	asked.item, asked.metadata, err = plugin.askFilter(ctx, cycle, nodes)
	if err == nil {
		asked.table, err = plugin.hub.client.NodeTable(ctx, asked.metadata.GetNodeTable())
	}
	if err != nil {
		// Without a table nobody knows whose scores they are.
		cycle.scores = nil
		return foreseen{}, err
	}
	cycle.table = asked.table
	return asked, nil
}

// scoredAtOnce is the most nodes of which scores come with the verdict of the filter: a request costs more than they do.
var scoredAtOnce = 4096

// scoresAtOnce reports whether scores come with the verdict of the filter.
func (plugin *Plugin) scoresAtOnce(nodes int) bool {
	return plugin.policy.mayScoreAlone() && nodes <= scoredAtOnce
}

// askFilter sends one Filter request about all nodes or, where scores of a node do not depend on the other nodes, one Score request with a
// filter: kube-scheduler then wants the scores of some of them. The item is nil if the response does not have exactly one.
func (plugin *Plugin) askFilter(ctx context.Context, cycle *cycle, nodes int) (*pb.FilterItem, *pb.ResponseMetadata, error) {
	if plugin.scoresAtOnce(nodes) {
		response, err := asking(ctx, plugin.hub, &plugin.args, func(against *pb.EvaluationRef) (pumice.Reply[*pb.ScoreResponse], error) {
			return pumice.AllowProblems(plugin.hub.client.Score(ctx, &pb.ScoreRequest{
				Against: against, Tasks: []*pb.Task{cycle.task}, ResourceFit: fits[plugin.args.ResourceFit], WithFilter: true,
				NodeEncoding: pb.NodeEncoding_NODE_ENCODING_SLOTS, Samples: new(uint32(0)), FilterDetail: pb.FilterDetail_FILTER_DETAIL_NODES, WithParts: true, Ahead: foreseenPods,
			}))
		})
		if err != nil {
			return nil, nil, err
		}
		items := response.GetResult().GetItems()
		// What is wrong with scores alone is no verdict of the filter.
		if len(items) == 1 && items[0].GetProblem() == nil && items[0].GetFilter() != nil {
			if items[0].GetIndependent() {
				cycle.scores, cycle.metadata = items[0], response.GetMetadata()
			}
			return items[0].GetFilter(), response.GetMetadata(), nil
		}
	}
	response, err := asking(ctx, plugin.hub, &plugin.args, func(against *pb.EvaluationRef) (pumice.Reply[*pb.FilterResponse], error) {
		return pumice.AllowProblems(plugin.hub.client.Filter(ctx, &pb.FilterRequest{
			Against: against, Tasks: []*pb.Task{cycle.task}, ResourceFit: fits[plugin.args.ResourceFit],
			NodeEncoding: pb.NodeEncoding_NODE_ENCODING_SLOTS, Samples: new(uint32(0)), Detail: pb.FilterDetail_FILTER_DETAIL_NODES,
		}))
	})
	if err != nil {
		return nil, nil, err
	}
	if items := response.GetResult().GetItems(); len(items) == 1 {
		return items[0], response.GetMetadata(), nil
	}
	return nil, response.GetMetadata(), nil
}

// mayAdmit reports whether the pod has a pod group whose queue is asked.
func (plugin *Plugin) mayAdmit(cycle *cycle) bool {
	return *plugin.args.Admit && cycle.task.GetJob() != ""
}

// admit sends the Admit request of a pod with a pod group.
func (plugin *Plugin) admit(ctx context.Context, pod *corev1.Pod, cycle *cycle) *fwk.Status {
	task := cycle.task
	response, err := asking(ctx, plugin.hub, &plugin.args, func(against *pb.EvaluationRef) (pumice.Reply[*pb.AdmitResponse], error) {
		return pumice.AllowProblems(plugin.hub.client.Admit(ctx, &pb.AdmitRequest{
			Against: against, Mode: pb.AdmitMode_ADMIT_MODE_CHECK,
			Items: []*pb.AdmitSubject{{Subject: &pb.AdmitSubject_Task{Task: task}}},
		}))
	})
	if err != nil {
		status := plugin.fallbackStatus(pumice.CallAdmit, pod, cycle, err)
		if status.IsSkip() {
			return nil
		}
		return status
	}
	replies.WithLabelValues(string(pumice.CallAdmit), pumice.OriginService.String()).Inc()
	if len(response.GetResult().GetItems()) != 1 {
		return fwk.AsStatus(errors.New("the response does not have exactly one item"))
	}
	item := response.GetResult().GetItems()[0]
	if item.GetPermitted() && item.GetProblem() == nil {
		return nil
	}
	plugin.hub.waiting.enter(pod, plugin.handle, plugin.args.Policy, response.GetMetadata())
	if problem := item.GetProblem(); problem != nil {
		return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, problem.GetMessage())
	}
	reasons := []string{}
	for _, reason := range item.GetReasons() {
		reasons = append(reasons, said(reason))
	}
	// Not to be resolved here: kube-scheduler's preemption knows no queues.
	return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, reasons...)
}

// fallbackStatus is the status of a failed call. Skip: the fallback permits everything or abstains.
func (plugin *Plugin) fallbackStatus(call pumice.Call, pod *corev1.Pod, cycle *cycle, err error) *fwk.Status {
	origin, chosen := originOf(plugin.fallback[call], err)
	if !chosen {
		replies.WithLabelValues(string(call), "error").Inc()
		return fwk.AsStatus(err)
	}
	replies.WithLabelValues(string(call), origin.String()).Inc()
	plugin.policy.see(nil, nil)
	if origin == pumice.OriginFailClosed {
		withoutService.WithLabelValues("waits").Inc()
		plugin.hub.waiting.enter(pod, plugin.handle, plugin.args.Policy, nil)
		// The same text for every cause: events are grouped by it.
		return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, UnavailableReason)
	}
	cycle.without.add(call, origin)
	plugin.hub.log.V(2).Info("Fallback used", "call", call, "origin", origin.String(), "cause", err.Error())
	return fwk.NewStatus(fwk.Skip)
}

// UnavailableReason is the message of a pod's event while the service is unavailable and Filter or Admit fail closed.
const UnavailableReason = "pumice: the decision service is unavailable"

// ChangedReason is the message of the event of the pod whose cycle is the first to see a new policy.
const ChangedReason = "pumice: the policy has changed while nodes are ranked by the former one; the pod is tried again"

// said is a reason as events show it.
func said(reason *pb.Reason) string {
	return reason.GetPlugin() + ": " + reason.GetMessage()
}

// PreFilterExtensions: there are none. A preemption is judged by the answer for the nodes as they are.
func (plugin *Plugin) PreFilterExtensions() fwk.PreFilterExtensions {
	return nil
}

// Filter looks the node up. A refusal cannot be resolved by kube-scheduler's preemption: Pumice is not asked again for
// the node without its victims.
func (plugin *Plugin) Filter(_ context.Context, state fwk.CycleState, pod *corev1.Pod, info fwk.NodeInfo) *fwk.Status {
	known, err := state.Read(cycleKey)
	if err != nil {
		return fwk.AsStatus(fmt.Errorf("%s is not enabled at preFilter: %w", Name, err))
	}
	cycle := known.(*cycle)
	if cycle.gang != nil {
		if cycle.gang.nodes[pod.UID] == info.Node().Name {
			return nil
		}
		return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, "pumice: the pod group "+cycle.gang.group+" was given other nodes")
	}
	if slot, found := cycle.table.Slot(info.Node().Name); found {
		if view := cycle.foresight; view != nil && int(slot) < len(view.taken) && view.taken[slot] > 0 {
			if view.passes(slot) {
				return nil
			}
			return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, FullReason)
		}
		if pumice.HasSlot(cycle.item.GetFit().GetBitmap(), slot) {
			return nil
		}
		for _, rejection := range cycle.item.GetRejections() {
			if pumice.HasSlot(rejection.GetNodes().GetBitmap(), slot) {
				if kubernetesOwn(rejection.GetReason()) {
					return nil
				}
				return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, said(rejection.GetReason()))
			}
		}
	}
	return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, "pumice: the node is not known")
}

// kubernetesOwn: whether a cordoned or not ready node will do depends on the pod's tolerations, which Pumice does not
// know; kube-scheduler's own plugins judge it.
func kubernetesOwn(reason *pb.Reason) bool {
	return reason.GetPlugin() == "node-state" && (reason.GetCode() == "NodeNotReady" || reason.GetCode() == "NodeUnschedulable")
}
