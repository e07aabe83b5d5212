package kubescheduler

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	pb "github.com/pumice-scheduler/pumice/clients/go/pumicev1"

	corev1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
)

var _ fwk.SignPlugin = &Plugin{}

// Keys of the two parts of a signature.
const (
	recordFragment = Name + ".Task"
	policyFragment = Name + ".Policy"
)

// Reasons why a pod has no signature.
const (
	unsignableGroup  = "pods of a pod group are judged together, and each changes what its queue may still take"
	unsignableOthers = "scores of a pod with pod affinity or topology spread constraints depend on the nodes of other pods"
	unsignableOwner  = "the policy may spread the pods of one owner, so that each pod changes the scores of the next"
)

// spreadingPlugins score the pods of one owner by each other's nodes.
var spreadingPlugins = []string{"nodeorder", "PodTopologySpread"}

// policyInForce is what the last response of the service said of the policy; it does not change.
type policyInForce struct {
	// Epoch and Version are the server's epoch and the policy's version. Away is true if the service did not respond.
	Epoch, Version uint64
	Away           bool
	// spreads is true if the policy may spread the pods of one owner; scored says that a Score response has shown it.
	spreads, scored bool
	// alone is true if the scores of one node depend on that node alone.
	alone bool
}

// lastPolicy is the policy in force, as the cycles of a profile see it.
type lastPolicy struct {
	seen atomic.Pointer[policyInForce]
	// metadata is that of the last response; nil: the service did not respond.
	metadata atomic.Pointer[pb.ResponseMetadata]
	// ranking is the last response with scores.
	ranking atomic.Pointer[ranking]
	// own is true if the last response had scores for the plugin itself.
	own atomic.Bool
	// signed is true once a pod was signed: without signatures kube-scheduler ranks nodes for each pod.
	signed atomic.Bool
	// changed hears of each version of the policy once it decides.
	changed func(version uint64)
}

// ranking is what kube-scheduler may still rank nodes by: scores of a policy, and when they came.
type ranking struct {
	epoch, version uint64
	at             time.Time
}

// rankingAge is the time for which kube-scheduler may use scores for other pods, with a margin.
const rankingAge = time.Second

// outdates reports whether kube-scheduler may rank nodes by scores of another policy than that of a response.
func (last *lastPolicy) outdates(metadata *pb.ResponseMetadata) bool {
	ranked := last.ranking.Load()
	return ranked != nil && last.signed.Load() && time.Since(ranked.at) < rankingAge &&
		(ranked.epoch != metadata.GetRevision().GetEpoch() || ranked.version != metadata.GetPolicyVersion())
}

// agrees reports whether a response is of the policy that the profile saw last. kube-scheduler ranks nodes by the same.
func (last *lastPolicy) agrees(metadata *pb.ResponseMetadata) bool {
	seen := last.seen.Load()
	return seen != nil && !seen.Away && seen.Epoch == metadata.GetRevision().GetEpoch() && seen.Version == metadata.GetPolicyVersion()
}

// see notes the policy of a response; nil: the service did not respond.
func (last *lastPolicy) see(metadata *pb.ResponseMetadata, item *pb.ScoreItem) {
	last.metadata.Store(metadata)
	before := last.seen.Load()
	now := policyInForce{Epoch: metadata.GetRevision().GetEpoch(), Version: metadata.GetPolicyVersion(), Away: metadata == nil}
	if before != nil && before.Epoch == now.Epoch && before.Version == now.Version {
		now.spreads, now.scored, now.alone = before.spreads, before.scored, before.alone
	}
	if item != nil && item.GetProblem() == nil {
		last.ranking.Store(&ranking{now.Epoch, now.Version, time.Now()})
		now.scored, now.alone = true, item.GetIndependent()
		now.spreads = slices.ContainsFunc(item.GetParts(), func(part *pb.ScorePart) bool { return slices.Contains(spreadingPlugins, part.GetPlugin()) })
	}
	if before == nil || *before != now {
		last.seen.Store(&now)
	}
	if !now.Away && (before == nil || before.Epoch != now.Epoch || before.Version != now.Version) {
		last.changed(now.Version)
	}
}

// mayScoreAlone reports whether one node is worth asking about by itself.
func (last *lastPolicy) mayScoreAlone() bool {
	seen := last.seen.Load()
	return seen != nil && seen.alone
}

// SignPod signs everything that the service learns of a pod, save what tells equal pods apart, and the policy in force. Of pods
// with the same signature that come one after the other kube-scheduler scores nodes for the first only; each is filtered by itself.
func (plugin *Plugin) SignPod(_ context.Context, pod *corev1.Pod) ([]fwk.SignFragment, *fwk.Status) {
	if groupOf(pod) != "" {
		return nil, fwk.NewStatus(fwk.Unschedulable, unsignableGroup)
	}
	record, signed, err := plugin.hub.mirror.signed(pod)
	if err != nil {
		return nil, fwk.NewStatus(fwk.Unschedulable, err.Error())
	}
	policy := plugin.policy.seen.Load()
	if policy == nil {
		policy = &policyInForce{}
	}
	constraints := record.GetConstraints()
	switch affinity := constraints.GetAffinity(); {
	case affinity.GetPodAffinity() != nil, affinity.GetPodAntiAffinity() != nil, len(constraints.GetTopologySpreadConstraints()) > 0:
		return nil, fwk.NewStatus(fwk.Unschedulable, unsignableOthers)
	case constraints.GetOwnerSelector() != nil && (policy.spreads || !policy.scored):
		return nil, fwk.NewStatus(fwk.Unschedulable, unsignableOwner)
	}
	plugin.policy.signed.Store(true)
	return []fwk.SignFragment{{Key: recordFragment, Value: []byte(signed)}, {Key: policyFragment, Value: policy}}, nil
}
