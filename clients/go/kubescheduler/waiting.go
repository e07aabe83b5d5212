package kubescheduler

import (
	"context"
	"errors"
	"sync"
	"time"

	pumice "github.com/pumice-scheduler/pumice/clients/go"
	pb "github.com/pumice-scheduler/pumice/clients/go/pumicev1"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
)

const (
	// look is how often the service is asked for a reason to try waiting pods again; only while there are some.
	look = time.Second
	// longestRest is the most that a pod rests between two attempts that changes of the state alone have caused.
	longestRest = time.Minute
)

// waitingRoom has the pods that did not get every node because of the service. What would help them, another policy, a
// queue with room, the service's return, is no event of the cluster, so kube-scheduler would not try them again for
// minutes.
type waitingRoom struct {
	mutex sync.Mutex
	pods  map[types.UID]*waitingPod
	now   func() time.Time
}

type waitingPod struct {
	pod    *corev1.Pod
	handle fwk.Handle
	policy string
	// away is true after a failed call; otherwise the result belongs to this policy and state.
	away     bool
	version  uint64
	revision *pb.Revision
	// rest doubles with every attempt that changes of the state have caused.
	rest time.Duration
	next time.Time
	// queued: it has been put back, and was not seen since.
	queued bool
	// ready says that the scheduler knows what the pod waits for; nil: the pod waits for the service.
	ready func() bool
}

func newWaitingRoom() *waitingRoom {
	return &waitingRoom{pods: map[types.UID]*waitingPod{}, now: time.Now}
}

// enter adds a rejected pod; without metadata the call failed.
func (room *waitingRoom) enter(pod *corev1.Pod, handle fwk.Handle, policy string, metadata *pb.ResponseMetadata) {
	room.mutex.Lock()
	defer room.mutex.Unlock()
	entry := &waitingPod{
		pod: pod, handle: handle, policy: policy, away: metadata == nil,
		version: metadata.GetPolicyVersion(), revision: metadata.GetRevision(), rest: look,
	}
	if before, found := room.pods[pod.UID]; found && !entry.away {
		entry.rest = min(2*before.rest, longestRest)
	}
	entry.next = room.now().Add(entry.rest)
	room.pods[pod.UID] = entry
	waiting.Set(float64(len(room.pods)))
}

// enterUntil adds a pod that waits for something else than the service.
func (room *waitingRoom) enterUntil(pod *corev1.Pod, handle fwk.Handle, policy string, ready func() bool) {
	room.mutex.Lock()
	defer room.mutex.Unlock()
	room.pods[pod.UID] = &waitingPod{pod: pod, handle: handle, policy: policy, rest: look, ready: ready}
	waiting.Set(float64(len(room.pods)))
}

// leave forgets a pod that has its node, or is gone.
func (room *waitingRoom) leave(pod types.UID) {
	room.mutex.Lock()
	defer room.mutex.Unlock()
	delete(room.pods, pod)
	waiting.Set(float64(len(room.pods)))
}

// policies returns the policies of waiting pods.
func (room *waitingRoom) policies() map[string]bool {
	room.mutex.Lock()
	defer room.mutex.Unlock()
	names := map[string]bool{}
	for _, entry := range room.pods {
		names[entry.policy] = true
	}
	return names
}

// due takes the pods for which there is a reason to try again, and says which. Versions are those of the policies in
// force.
func (room *waitingRoom) due(revision *pb.Revision, versions map[string]uint64) map[string][]*waitingPod {
	room.mutex.Lock()
	defer room.mutex.Unlock()
	now, list := room.now(), map[string][]*waitingPod{}
	for _, entry := range room.pods {
		reason := ""
		switch {
		case entry.queued, entry.ready != nil:
		case entry.away:
			reason = "back"
		case entry.revision.GetEpoch() != revision.GetEpoch():
			reason = "back"
		case entry.version != versions[entry.policy]:
			reason = "policy"
		case entry.revision.GetNumber() != revision.GetNumber() && !now.Before(entry.next):
			reason = "state"
		}
		if reason != "" {
			entry.queued = true
			list[reason] = append(list[reason], entry)
		}
	}
	return list
}

// readied takes the pods that waited for something else than the service, and need not any more.
func (room *waitingRoom) readied() []*waitingPod {
	room.mutex.Lock()
	defer room.mutex.Unlock()
	list := []*waitingPod{}
	for _, entry := range room.pods {
		if !entry.queued && entry.ready != nil && entry.ready() {
			entry.queued = true
			list = append(list, entry)
		}
	}
	return list
}

// retry puts waiting pods back into the scheduler's queue when there is a reason.
func (hub *hub) retry() {
	ticker := time.NewTicker(look)
	defer ticker.Stop()
	for {
		select {
		case <-hub.ctx.Done():
			return
		case <-ticker.C:
			hub.retryOnce()
		}
	}
}

func (hub *hub) retryOnce() {
	hub.waiting.forget(hub.mirror.waits)
	hub.putBack("groups", hub.waiting.readied())
	policies := hub.waiting.policies()
	if len(policies) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(hub.ctx, look)
	defer cancel()
	// First the state: a restarted service has no results without it.
	if _, err := hub.flush(ctx); err != nil {
		return
	}
	info, err := hub.client.GetServerInfo(ctx)
	if err != nil {
		return
	}
	versions, err := hub.versions(ctx, policies)
	if err != nil {
		return
	}
	for reason, entries := range hub.waiting.due(info.GetRevision(), versions) {
		hub.putBack(reason, entries)
	}
}

// putBack puts pods back into the scheduler's queue.
func (hub *hub) putBack(reason string, entries []*waitingPod) {
	for _, entry := range entries {
		retried.WithLabelValues(reason).Inc()
		entry.handle.Activate(klog.FromContext(hub.ctx), map[string]*corev1.Pod{taskName(entry.pod): entry.pod})
	}
}

// versions are those in force; 0 for a policy that there is not.
func (hub *hub) versions(ctx context.Context, policies map[string]bool) (map[string]uint64, error) {
	versions := map[string]uint64{}
	for name := range policies {
		list, err := hub.client.ListPolicies(ctx, &pb.ListPoliciesRequest{Name: name, PageSize: 1})
		var failure *pumice.Error
		if errors.As(err, &failure) && failure.Decided() {
			continue
		}
		if err != nil {
			return nil, err
		}
		for _, policy := range list.GetPolicies() {
			versions[name] = policy.GetVersion()
		}
	}
	return versions, nil
}

// forget drops the pods that wait no longer.
func (room *waitingRoom) forget(waits func(types.UID) bool) {
	room.mutex.Lock()
	defer room.mutex.Unlock()
	for pod, entry := range room.pods {
		// Before the scheduler has read the groups the mirror may not know the pod.
		if !waits(pod) && (entry.ready == nil || entry.ready()) {
			delete(room.pods, pod)
		}
	}
	waiting.Set(float64(len(room.pods)))
}
