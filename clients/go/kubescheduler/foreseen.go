package kubescheduler

import (
	"sync"
	"time"

	pumice "github.com/pumice-scheduler/pumice/clients/go"
	pb "github.com/pumice-scheduler/pumice/clients/go/pumicev1"

	corev1 "k8s.io/api/core/v1"
)

// foreseenAge is the time for which an answer may serve equal pods: what others change in the service, such as its policy, counts
// after it at the latest.
var foreseenAge = 100 * time.Millisecond

// foreseenPods is the number of equal pods on one node that an answer foresees.
const foreseenPods = 8

// FullReason is the message for a node that an answer has foreseen to refuse the pod, once equal pods are on it.
const FullReason = "pumice: the node cannot take another such pod"

// foreseen is an answer about all nodes for one kind of pod, which also says what holds once more equal pods are on a node. It
// serves the equal pods that follow, as long as nothing but their placements changes what the scheduler knows, and it is young.
// It does not change.
type foreseen struct {
	// plugin is the profile whose policy was asked.
	plugin    *Plugin
	signature string
	at        time.Time
	// decisive is mirror.decisive before the question.
	decisive uint64
	// item is the verdict on the nodes as they were, and metadata that of the response.
	item     *pb.FilterItem
	metadata *pb.ResponseMetadata
	table    *pumice.NodeTable
	// steps are the nodes that pass, with their scores, after 0, 1, 2 … more equal pods.
	steps []*scoring
	// whole: after the last step no node is left.
	whole bool
}

// foresight is an answer with the equal pods placed since. It does not change.
type foresight struct {
	*foreseen
	// taken is the number of them by slot.
	taken []uint8
	// left is the number of nodes that pass.
	left int
}

// foresightBook has the last answer. A scheduler places pods one at a time; pods that are taken off their nodes are other changes.
type foresightBook struct {
	mutex sync.Mutex
	last  *foresight
}

// foresee keeps an answer for the equal pods that follow; nil: it says nothing about them.
func (plugin *Plugin) foresee(cycle *cycle, asked foreseen, scores *pb.ScoreItem) *foresight {
	if !cycle.mayServe || len(scores.GetAhead()) == 0 {
		return nil
	}
	asked.plugin, asked.signature = plugin, cycle.signature
	for at := range len(scores.GetAhead()) + 1 {
		step := scores
		if at > 0 {
			ahead := scores.GetAhead()[at-1]
			step = &pb.ScoreItem{Nodes: ahead.GetNodes(), Totals: ahead.GetTotals(), Parts: ahead.GetParts()}
			asked.whole = len(ahead.GetTotals()) == 0
		}
		made, err := plugin.columns(step, asked.table)
		if err == nil && len(step.GetTotals()) > 0 {
			err = plugin.addOwnScores(made)
		}
		if err != nil {
			// kube-scheduler does not take some score: each pod is asked about, and the error told.
			return nil
		}
		asked.steps = append(asked.steps, made)
	}
	view := &foresight{foreseen: &asked, taken: make([]uint8, asked.table.Len()), left: int(asked.item.GetFitCount())}
	plugin.hub.foresight.set(view)
	return view
}

func (book *foresightBook) set(view *foresight) {
	book.mutex.Lock()
	defer book.mutex.Unlock()
	book.last = view
}

// of is the answer that serves a pod, or nil.
func (book *foresightBook) of(plugin *Plugin, signature string) *foresight {
	book.mutex.Lock()
	defer book.mutex.Unlock()
	last := book.last
	if last == nil || last.plugin != plugin || last.signature != signature || last.left == 0 ||
		!plugin.policy.agrees(last.metadata) || last.decisive != plugin.hub.mirror.decisive.Load() || time.Since(last.at) > foreseenAge {
		return nil
	}
	return last
}

// take counts a pod on a node. It reports whether the answer has foreseen that.
func (book *foresightBook) take(view *foresight, node string) bool {
	book.mutex.Lock()
	defer book.mutex.Unlock()
	if view == nil || book.last == nil || book.last.foreseen != view.foreseen {
		return false
	}
	slot, found := view.table.Slot(node)
	if !found || !book.last.passes(slot) {
		// A node that kube-scheduler's own plugins judge, such as a cordoned one: nothing is foreseen of it.
		book.last = nil
		return false
	}
	next := *book.last
	next.taken = append([]uint8{}, next.taken...)
	next.taken[slot]++
	if int(next.taken[slot]) >= len(next.steps) && !next.whole {
		book.last = nil
		return true
	}
	if !next.passes(slot) {
		next.left--
	}
	book.last = &next
	return true
}

// step is the step that holds for a node; nil: no node passes any more.
func (view *foresight) step(slot uint32) *scoring {
	if int(slot) >= len(view.taken) || int(view.taken[slot]) >= len(view.steps) {
		return nil
	}
	return view.steps[view.taken[slot]]
}

// passes reports whether a node passes.
func (view *foresight) passes(slot uint32) bool {
	_, found := view.step(slot).place(slot)
	return found
}

// useForeseen lets an answer about an equal pod serve this one.
func (plugin *Plugin) useForeseen(pod *corev1.Pod, cycle *cycle, nodes int) bool {
	if groupOf(pod) != "" || !plugin.scoresAtOnce(nodes) {
		// No answer serves it.
		return false
	}
	cycle.mayServe = true
	view := plugin.hub.foresight.of(plugin, cycle.signature)
	if view == nil {
		return false
	}
	cycle.foresight, cycle.item, cycle.table, cycle.metadata = view, view.item, view.table, view.metadata
	foreseenPodsTotal.Inc()
	if view.left < nodes {
		plugin.hub.waiting.enter(pod, plugin.handle, plugin.args.Policy, view.metadata)
	}
	return true
}
