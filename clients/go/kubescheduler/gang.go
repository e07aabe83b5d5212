package kubescheduler

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
)

// gang is one placement of the waiting pods of a pod group. It goes through two barriers: all pods have arrived at Permit, and
// the API server would take the binding of each. Only then is the first pod bound. Whatever fails before releases all pods.
type gang struct {
	group  string
	handle fwk.Handle
	hub    *hub
	// nodes are the nodes chosen, by pod.
	nodes map[types.UID]string
	// rejected is the status of all pods where the service placed none.
	rejected *fwk.Status

	mutex sync.Mutex
	// expected are the pods that have to come: all that are placed or, in a pod group's own cycle, those that its simulation reserved.
	expected map[types.UID]bool
	// held are the pods that kube-scheduler counts on their nodes: it forgets those of a released gang one by one.
	held map[types.UID]bool
	// tried have been in a cycle, arrived have come to Permit, and checked could be bound.
	tried, arrived, checked map[types.UID]bool
	// ready is closed when every pod could be bound, ended when the gang is released.
	ready, ended chan struct{}
	// patience is the time for which kube-scheduler lets a pod wait that has arrived.
	patience time.Duration
	// bound says that ready is closed, failure why ended is.
	bound   bool
	failure string
}

func newGang(hub *hub, handle fwk.Handle, group string, nodes map[types.UID]string) *gang {
	return &gang{
		group: group, handle: handle, hub: hub, nodes: nodes, expected: map[types.UID]bool{}, held: map[types.UID]bool{},
		tried: map[types.UID]bool{}, arrived: map[types.UID]bool{}, checked: map[types.UID]bool{},
		ready: make(chan struct{}), ended: make(chan struct{}),
	}
}

// Clone gives the same: a gang has its own lock.
func (gang *gang) Clone() fwk.StateData {
	return gang
}

// expect adds a pod that has to come.
func (gang *gang) expect(pod types.UID) {
	gang.mutex.Lock()
	defer gang.mutex.Unlock()
	gang.expected[pod] = true
}

// hold notes that kube-scheduler counts a pod on its node.
func (gang *gang) hold(pod types.UID) {
	gang.mutex.Lock()
	defer gang.mutex.Unlock()
	gang.held[pod] = true
}

// letGo notes that kube-scheduler no longer does.
func (gang *gang) letGo(pod types.UID) {
	gang.mutex.Lock()
	defer gang.mutex.Unlock()
	delete(gang.held, pod)
}

// isHeld reports whether kube-scheduler still counts pods of the gang on their nodes.
func (gang *gang) isHeld() bool {
	gang.mutex.Lock()
	defer gang.mutex.Unlock()
	return len(gang.held) > 0
}

// try notes that a pod begins a cycle, and returns false if an earlier cycle of it came to nothing.
func (gang *gang) try(pod types.UID) bool {
	gang.mutex.Lock()
	defer gang.mutex.Unlock()
	first := !gang.tried[pod]
	gang.tried[pod] = true
	return first
}

// open reports whether the gang still waits for its pods.
func (gang *gang) open() bool {
	gang.mutex.Lock()
	defer gang.mutex.Unlock()
	return gang.failure == "" && !gang.bound
}

// released returns why the gang was released; empty: it was not.
func (gang *gang) released() string {
	gang.mutex.Lock()
	defer gang.mutex.Unlock()
	return gang.failure
}

// arrive brings a pod to Permit. The last one lets all go on.
func (gang *gang) arrive(pod *corev1.Pod, most time.Duration) (*fwk.Status, time.Duration) {
	gang.mutex.Lock()
	if gang.failure != "" {
		defer gang.mutex.Unlock()
		return fwk.NewStatus(fwk.Unschedulable, gang.failure), 0
	}
	gang.arrived[pod.UID], gang.patience = true, most
	missing := len(gang.expected) - len(gang.arrived)
	others := make([]types.UID, 0, len(gang.arrived))
	for uid := range gang.arrived {
		others = append(others, uid)
	}
	gang.mutex.Unlock()
	if missing > 0 {
		return fwk.NewStatus(fwk.Wait, fmt.Sprintf("%d more pods of pod group %s have to come", missing, gang.group)), most
	}
	for _, uid := range others {
		if waiting := gang.handle.GetWaitingPod(uid); waiting != nil {
			waiting.Allow(Name)
		}
	}
	return nil, 0
}

// check asks the API server, without effect, whether it takes the binding of a pod, and waits for the same of all others.
func (gang *gang) check(ctx context.Context, pod *corev1.Pod, node string, asks bool) *fwk.Status {
	if asks {
		binding := &corev1.Binding{
			ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID},
			Target:     corev1.ObjectReference{Kind: "Node", Name: node},
		}
		err := gang.handle.ClientSet().CoreV1().Pods(pod.Namespace).Bind(ctx, binding, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err != nil {
			gang.release(fmt.Sprintf("pod group %s is released: the API server does not take the binding of pod %s: %v", gang.group, pod.Name, err))
		}
	}
	gang.mutex.Lock()
	gang.checked[pod.UID] = true
	if gang.failure == "" && !gang.bound && len(gang.checked) == len(gang.expected) {
		gang.bound = true
		close(gang.ready)
		gangs.WithLabelValues("bound").Inc()
	}
	gang.mutex.Unlock()
	select {
	case <-gang.ready:
		gang.hub.gangs.succeed(gang)
		return nil
	case <-gang.ended:
		return fwk.NewStatus(fwk.Unschedulable, gang.failure)
	case <-ctx.Done():
		gang.release(fmt.Sprintf("pod group %s is released: the binding of pod %s was stopped: %v", gang.group, pod.Name, context.Cause(ctx)))
		return fwk.NewStatus(fwk.Unschedulable, gang.failure)
	}
}

// release gives up the nodes of all pods of a gang that is not bound yet. It does nothing a second time.
func (gang *gang) release(why string) {
	gang.mutex.Lock()
	if gang.failure != "" || gang.bound {
		gang.mutex.Unlock()
		return
	}
	gang.failure = why
	close(gang.ended)
	until := time.Now().Add(gang.patience)
	gang.mutex.Unlock()
	gangs.WithLabelValues("released").Inc()
	gang.hub.log.Info("Gang released", "podGroup", gang.group, "why", why)
	gang.hub.gangs.fail(gang, why)
	for uid := range gang.nodes {
		gang.hub.mirror.unreserve(uid)
		if waiting := gang.handle.GetWaitingPod(uid); waiting != nil {
			waiting.Reject(Name, why)
		}
	}
	gang.rejectLate(until)
}

// lateLook is the time between two looks for pods of a released gang that wait.
const lateLook = 100 * time.Millisecond

// rejectLate rejects the pods of a released gang that wait, and looks again until there are none. kube-scheduler makes a pod wait some time
// after Permit: a release in between does not find it.
func (gang *gang) rejectLate(until time.Time) {
	gang.mutex.Lock()
	defer gang.mutex.Unlock()
	left := false
	for uid := range gang.held {
		if !gang.arrived[uid] {
			// Permit refuses it.
			continue
		}
		left = true
		// Under the lock the pod is not let go, so that it waits for this gang and no later one.
		if waiting := gang.handle.GetWaitingPod(uid); waiting != nil {
			waiting.Reject(Name, gang.failure)
		}
	}
	if left && time.Now().Before(until) && gang.hub.ctx.Err() == nil {
		time.AfterFunc(lateLook, func() { gang.rejectLate(until) })
	}
}

// callBack puts the other pods of a gang into the queue.
func (gang *gang) callBack(pods []*corev1.Pod) {
	named := map[string]*corev1.Pod{}
	for _, pod := range pods {
		named[taskName(pod)] = pod
	}
	gang.handle.Activate(klog.FromContext(gang.hub.ctx), named)
}
