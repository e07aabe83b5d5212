package kubescheduler

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	pumice "github.com/pumice-scheduler/pumice/clients/go"
	"github.com/pumice-scheduler/pumice/clients/go/derive"
	pb "github.com/pumice-scheduler/pumice/clients/go/pumicev1"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
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
}

var (
	_ fwk.PreFilterPlugin   = &Plugin{}
	_ fwk.FilterPlugin      = &Plugin{}
	_ fwk.PreScorePlugin    = &Plugin{}
	_ fwk.ScorePlugin       = &Plugin{}
	_ fwk.ReservePlugin     = &Plugin{}
	_ fwk.PostBindPlugin    = &Plugin{}
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

// cycle is what one scheduling cycle knows of its pod. It does not change once PreFilter is over.
type cycle struct {
	until time.Time
	task  *pb.Task
	// item is the verdict, about the nodes of the table.
	item  *pb.FilterItem
	table *pumice.NodeTable
}

// Clone gives the same: nothing in it changes.
func (cycle *cycle) Clone() fwk.StateData {
	return cycle
}

// begin starts the time of a cycle.
func (plugin *Plugin) begin(state fwk.CycleState, pod *corev1.Pod) (*cycle, error) {
	if known, err := state.Read(cycleKey); err == nil {
		return known.(*cycle), nil
	}
	plugin.hub.lead()
	task, err := pumice.TaskRecord(pod, derive.AsKubernetes)
	if err != nil {
		return nil, err
	}
	begun := &cycle{until: time.Now().Add(plugin.args.Budget.Duration), task: task}
	state.Write(cycleKey, begun)
	return begun, nil
}

// PreFilter sends one Filter request about all nodes, and an Admit request.
func (plugin *Plugin) PreFilter(ctx context.Context, state fwk.CycleState, pod *corev1.Pod, nodes []fwk.NodeInfo) (*fwk.PreFilterResult, *fwk.Status) {
	state.Delete(cycleKey)
	cycle, err := plugin.begin(state, pod)
	if err != nil {
		return nil, fwk.NewStatus(fwk.UnschedulableAndUnresolvable, err.Error())
	}
	ctx, cancel := context.WithDeadline(ctx, cycle.until)
	defer cancel()
	admission := make(chan *fwk.Status, 1)
	go func() { admission <- plugin.admit(ctx, pod, cycle.task) }()
	status := plugin.filter(ctx, pod, cycle, nodes)
	if refused := <-admission; !refused.IsSuccess() {
		return nil, refused
	}
	return nil, status
}

// filter sends the Filter request. Skip: the fallback permits every node.
func (plugin *Plugin) filter(ctx context.Context, pod *corev1.Pod, cycle *cycle, nodes []fwk.NodeInfo) *fwk.Status {
	response, err := asking(ctx, plugin.hub, &plugin.args, func(against *pb.EvaluationRef) (pumice.Reply[*pb.FilterResponse], error) {
		return pumice.AllowProblems(plugin.hub.client.Filter(ctx, &pb.FilterRequest{
			Against: against, Tasks: []*pb.Task{cycle.task}, ResourceFit: fits[plugin.args.ResourceFit],
			NodeEncoding: pb.NodeEncoding_NODE_ENCODING_SLOTS, Samples: new(uint32(0)), Detail: pb.FilterDetail_FILTER_DETAIL_NODES,
		}))
	})
	if err == nil {
		cycle.table, err = plugin.hub.client.NodeTable(ctx, response.GetMetadata().GetNodeTable())
	}
	if err != nil {
		return plugin.fallbackStatus(pumice.CallFilter, pod, err)
	}
	replies.WithLabelValues(string(pumice.CallFilter), pumice.OriginService.String()).Inc()
	if len(response.GetResult().GetItems()) != 1 {
		return fwk.AsStatus(errors.New("the response does not have exactly one item"))
	}
	cycle.item = response.GetResult().GetItems()[0]
	if problem := cycle.item.GetProblem(); problem != nil {
		plugin.hub.waiting.enter(pod, plugin.handle, plugin.args.Policy, response.GetMetadata())
		return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, problem.GetMessage())
	}
	if named := ones(cycle.item.GetFit().GetBitmap()); named != int(cycle.item.GetFitCount()) {
		return fwk.AsStatus(fmt.Errorf("%d nodes fit and the response names %d of them by slot", cycle.item.GetFitCount(), named))
	}
	if int(cycle.item.GetFitCount()) < len(nodes) {
		plugin.hub.waiting.enter(pod, plugin.handle, plugin.args.Policy, response.GetMetadata())
	}
	return nil
}

// admit sends the Admit request of a pod with a pod group.
func (plugin *Plugin) admit(ctx context.Context, pod *corev1.Pod, task *pb.Task) *fwk.Status {
	if !*plugin.args.Admit || task.GetJob() == "" {
		return nil
	}
	response, err := asking(ctx, plugin.hub, &plugin.args, func(against *pb.EvaluationRef) (pumice.Reply[*pb.AdmitResponse], error) {
		return pumice.AllowProblems(plugin.hub.client.Admit(ctx, &pb.AdmitRequest{
			Against: against, Mode: pb.AdmitMode_ADMIT_MODE_CHECK,
			Items: []*pb.AdmitSubject{{Subject: &pb.AdmitSubject_Task{Task: task}}},
		}))
	})
	if err != nil {
		status := plugin.fallbackStatus(pumice.CallAdmit, pod, err)
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
func (plugin *Plugin) fallbackStatus(call pumice.Call, pod *corev1.Pod, err error) *fwk.Status {
	origin, chosen := originOf(plugin.fallback[call], err)
	if !chosen {
		replies.WithLabelValues(string(call), "error").Inc()
		return fwk.AsStatus(err)
	}
	replies.WithLabelValues(string(call), origin.String()).Inc()
	if origin == pumice.OriginFailClosed {
		plugin.hub.waiting.enter(pod, plugin.handle, plugin.args.Policy, nil)
		// The same text for every cause: events are grouped by it.
		return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, UnavailableReason)
	}
	plugin.hub.log.V(2).Info("Fallback used", "call", call, "origin", origin.String(), "cause", err.Error())
	return fwk.NewStatus(fwk.Skip)
}

// UnavailableReason is the message of a pod's event while the service is unavailable and Filter or Admit fail closed.
const UnavailableReason = "pumice: the decision service is unavailable"

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
func (plugin *Plugin) Filter(_ context.Context, state fwk.CycleState, _ *corev1.Pod, info fwk.NodeInfo) *fwk.Status {
	known, err := state.Read(cycleKey)
	if err != nil {
		return fwk.AsStatus(fmt.Errorf("%s is not enabled at preFilter: %w", Name, err))
	}
	cycle := known.(*cycle)
	if slot, found := cycle.table.Slot(info.Node().Name); found {
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

// PreScore sends one Score request about the nodes that are left.
func (plugin *Plugin) PreScore(ctx context.Context, state fwk.CycleState, pod *corev1.Pod, nodes []fwk.NodeInfo) *fwk.Status {
	scoring, status := plugin.score(ctx, state, pod, nodes)
	if !status.IsSuccess() {
		return status
	}
	column, err := ownScores(scoring.item, plugin.args.Scores, profiles.elsewhere(plugin.handle))
	if err != nil {
		return fwk.AsStatus(err)
	}
	if column == nil {
		return fwk.NewStatus(fwk.Skip)
	}
	scoring.columns[Name] = column
	return nil
}

// scoring is the answer of a cycle, and the columns made of it.
type scoring struct {
	item  *pb.ScoreItem
	table *pumice.NodeTable
	// at is the position of a slot in the columns, + 1.
	at      []int32
	columns map[string][]int64
}

// Clone gives the same.
func (scoring *scoring) Clone() fwk.StateData {
	return scoring
}

// score sends one request per cycle. Skip: the scheduler's other plugins decide.
func (plugin *Plugin) score(ctx context.Context, state fwk.CycleState, pod *corev1.Pod, nodes []fwk.NodeInfo) (*scoring, *fwk.Status) {
	if known, err := state.Read(scoresKey); err == nil {
		made := known.(*scoring)
		if made.item == nil {
			return nil, fwk.NewStatus(fwk.Skip)
		}
		return made, nil
	}
	cycle, err := plugin.begin(state, pod)
	if err != nil {
		return nil, fwk.AsStatus(err)
	}
	ctx, cancel := context.WithDeadline(ctx, cycle.until)
	defer cancel()
	made, err := plugin.ask(ctx, cycle, nodes)
	if err != nil {
		if status := plugin.fallbackStatus(pumice.CallScore, pod, err); !status.IsSkip() {
			return nil, status
		}
		state.Write(scoresKey, &scoring{})
		return nil, fwk.NewStatus(fwk.Skip)
	}
	replies.WithLabelValues(string(pumice.CallScore), pumice.OriginService.String()).Inc()
	if problem := made.item.GetProblem(); problem != nil {
		return nil, fwk.AsStatus(errors.New(problem.GetMessage()))
	}
	state.Write(scoresKey, made)
	return made, nil
}

// ask sends the nodes by slot if all slots are known, otherwise by name.
func (plugin *Plugin) ask(ctx context.Context, cycle *cycle, nodes []fwk.NodeInfo) (*scoring, error) {
	slots := bySlot(cycle.table, nodes)
	response, err := asking(ctx, plugin.hub, &plugin.args, func(against *pb.EvaluationRef) (pumice.Reply[*pb.ScoreResponse], error) {
		candidates := slots
		if slots == nil {
			candidates = plugin.byName(nodes)
		} else {
			against.NodeTable = cycle.table.Version()
		}
		// A second time the slots may be others.
		slots = nil
		return pumice.AllowProblems(plugin.hub.client.Score(ctx, &pb.ScoreRequest{
			Against: against, Tasks: []*pb.Task{cycle.task}, Candidates: candidates,
			NodeEncoding: pb.NodeEncoding_NODE_ENCODING_SLOTS, WithParts: true,
		}))
	})
	if err != nil {
		return nil, err
	}
	table, err := plugin.hub.client.NodeTable(ctx, response.GetMetadata().GetNodeTable())
	if err != nil {
		return nil, err
	}
	if len(response.GetResult().GetItems()) != 1 {
		return nil, errors.New("the response does not have exactly one item")
	}
	made := &scoring{item: response.GetResult().GetItems()[0], table: table, at: make([]int32, table.Len()), columns: map[string][]int64{}}
	scored, err := pumice.Slots(made.item.GetNodes())
	if err != nil {
		return nil, err
	}
	count := 0
	for at, slot := range scored {
		if int(slot) >= len(made.at) {
			return nil, fmt.Errorf("slot %d is beyond the node table", slot)
		}
		made.at[slot] = int32(at) + 1
		count++
	}
	if err := columnsOf(made.item, count); err != nil {
		return nil, err
	}
	if made.item.GetProblem() != nil {
		return made, nil
	}
	// Here, for a plugin may be enabled at score alone.
	for _, name := range profiles.elsewhere(plugin.handle) {
		if made.columns[name], err = partScores(made.item, name); err != nil {
			return nil, err
		}
	}
	return made, nil
}

// bySlot is nil if not all of them have a slot.
func bySlot(table *pumice.NodeTable, nodes []fwk.NodeInfo) *pb.NodeSet {
	if table == nil {
		return nil
	}
	bitmap := make([]byte, (table.Len()+7)/8)
	for _, info := range nodes {
		slot, found := table.Slot(info.Node().Name)
		if !found {
			return nil
		}
		bitmap[slot/8] |= 1 << (slot % 8)
	}
	return &pb.NodeSet{Bitmap: bitmap}
}

// byName leaves out nodes that were never sent to the service.
func (plugin *Plugin) byName(nodes []fwk.NodeInfo) *pb.NodeSet {
	set := &pb.NodeSet{}
	for _, info := range nodes {
		if plugin.hub.mirror.knows(info.Node().Name) {
			set.Names = append(set.Names, info.Node().Name)
		}
	}
	return set
}

// Score looks the node up.
func (plugin *Plugin) Score(_ context.Context, state fwk.CycleState, _ *corev1.Pod, info fwk.NodeInfo) (int64, *fwk.Status) {
	return lookUp(state, Name, info)
}

// lookUp is the score of a node in a plugin's column; 0 for a node that was not asked about.
func lookUp(state fwk.CycleState, plugin string, info fwk.NodeInfo) (int64, *fwk.Status) {
	known, err := state.Read(scoresKey)
	if err != nil {
		return 0, fwk.AsStatus(fmt.Errorf("%s is not enabled at preScore: %w", plugin, err))
	}
	made := known.(*scoring)
	if made.item == nil {
		// Nobody answered, and the other plugins decide.
		return 0, nil
	}
	column, found := made.columns[plugin]
	if !found {
		return 0, fwk.AsStatus(fmt.Errorf("%s is not enabled at preScore", plugin))
	}
	slot, found := made.table.Slot(info.Node().Name)
	if !found || int(slot) >= len(made.at) || made.at[slot] == 0 {
		return 0, nil
	}
	return column[made.at[slot]-1], nil
}

// ScoreExtensions: there are none, scores are 0..100 when they come.
func (plugin *Plugin) ScoreExtensions() fwk.ScoreExtensions {
	return nil
}

// Reserve counts the pod on its node from the next question on.
func (plugin *Plugin) Reserve(_ context.Context, _ fwk.CycleState, pod *corev1.Pod, node string) *fwk.Status {
	plugin.hub.waiting.leave(pod.UID)
	plugin.hub.mirror.reserve(pod, node, false)
	return nil
}

// Unreserve takes it off again.
func (plugin *Plugin) Unreserve(_ context.Context, _ fwk.CycleState, pod *corev1.Pod, _ string) {
	plugin.hub.mirror.unreserve(pod)
}

// PostBind notes that the bind has succeeded.
func (plugin *Plugin) PostBind(_ context.Context, _ fwk.CycleState, pod *corev1.Pod, node string) {
	plugin.hub.mirror.reserve(pod, node, true)
}

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
