package kubescheduler

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	fwk "k8s.io/kube-scheduler/framework"
)

// coscheduling are the pod groups of the plugin Coscheduling, a kind that a cluster may have or not.
var coscheduling = schema.GroupVersionResource{Group: "scheduling.x-k8s.io", Version: "v1alpha1", Resource: "podgroups"}

const (
	// kindLook is the time between two looks for a kind that the API server does not serve.
	kindLook = 30 * time.Second
	// kindRetry is the time before the second look while the API server has neither denied the kind nor listed its objects. The time
	// doubles with each look, to longestKindRetry.
	kindRetry        = 250 * time.Millisecond
	longestKindRetry = 4 * time.Second
	// kindPatience is the time for which the first full sync waits for the pod groups: without them it would withdraw their jobs.
	kindPatience = 10 * time.Second
)

// groupKind is what the scheduler knows of a kind of pod groups that a cluster may have or not.
type groupKind struct {
	// begun is the time at which the watch began.
	begun time.Time
	// absent says that the API server serves no such kind, synced that all groups that were there at the start have been taken in.
	absent, synced atomic.Bool
}

// isRead reports whether the scheduler knows every group of the kind that exists.
func (kind *groupKind) isRead() bool {
	return kind.absent.Load() || kind.synced.Load()
}

// detains reports whether a full sync has to wait for the kind. It waits for a while only: most pods need none of the groups.
func (kind *groupKind) detains() bool {
	return !kind.isRead() && time.Since(kind.begun) < kindPatience
}

// watchCoscheduling takes in these pod groups, from the time at which the API server serves them. A scheduler on standby also takes them
// in: a new leader that did not know them would bind their pods one by one.
func (hub *hub) watchCoscheduling(config *rest.Config) error {
	kind := &hub.mirror.coscheduling
	kind.begun = time.Now()
	if config == nil {
		kind.absent.Store(true)
		return nil
	}
	kinds, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return fmt.Errorf("watching pod groups of Coscheduling: %w", err)
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("watching pod groups of Coscheduling: %w", err)
	}
	go hub.followCoscheduling(kinds, dynamicinformer.NewDynamicSharedInformerFactory(client, 0))
	return nil
}

// followCoscheduling looks for the kind and starts to watch it. It ends once all groups that were there are taken in.
func (hub *hub) followCoscheduling(kinds discovery.ServerResourcesInterface, factory dynamicinformer.DynamicSharedInformerFactory) {
	kind := &hub.mirror.coscheduling
	var registration cache.ResourceEventHandlerRegistration
	for retry := kindRetry; hub.ctx.Err() == nil; {
		served, err := servesCoscheduling(kinds)
		if err == nil {
			kind.absent.Store(!served)
		}
		if served && registration == nil {
			if registration, err = factory.ForResource(coscheduling).Informer().AddEventHandler(hub.mirror.coschedulingHandler()); err == nil {
				factory.Start(hub.ctx.Done())
			}
		}
		rest := retry
		retry = min(2*retry, longestKindRetry)
		switch {
		case err != nil:
			hub.log.Info("Pod groups of Coscheduling are not known yet, and their pods wait", "cause", err.Error())
		case !served:
			rest, retry = kindLook, kindRetry
		}
		if kind.awaited(hub.ctx, registration, rest) {
			return
		}
	}
}

// awaited waits until all groups that were there are taken in, but no longer than this; false: they are not.
func (kind *groupKind) awaited(ctx context.Context, registration cache.ResourceEventHandlerRegistration, most time.Duration) bool {
	limited, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	if registration == nil {
		<-limited.Done()
		return false
	}
	if cache.WaitForCacheSync(limited.Done(), registration.HasSynced) {
		kind.synced.Store(true)
	}
	return kind.synced.Load()
}

// servesCoscheduling asks the API server whether it serves the kind. Other kinds may be of the same group and version.
func servesCoscheduling(kinds discovery.ServerResourcesInterface) (bool, error) {
	list, err := kinds.ServerResourcesForGroupVersion(coscheduling.GroupVersion().String())
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return slices.ContainsFunc(list.APIResources, func(kind metav1.APIResource) bool { return kind.Name == coscheduling.Resource }), nil
}

// mayHaveGroup reports whether a pod names a pod group that the scheduler may not have heard of yet.
func (mirror *mirror) mayHaveGroup(pod *corev1.Pod) bool {
	group := plainGroup(pod)
	if group == "" || annotatedGroup(pod) != "" {
		return false
	}
	// The group is looked up after that: it may come in between.
	isRead := mirror.coscheduling.isRead()
	if isOfScheduling(pod) {
		isRead = mirror.synced()
	}
	_, known := mirror.minimumOf(group)
	return !isRead && !known
}

// UnreadGroupReason is the message of the event of a pod whose pod group may exist and has not been read yet.
const UnreadGroupReason = "pumice: the pod groups of the cluster have not been read yet"

// awaitGroup refuses a pod whose pod group is not known yet: by itself it would be bound without the others, and without its queue's
// consent.
func (plugin *Plugin) awaitGroup(pod *corev1.Pod) *fwk.Status {
	if !*plugin.args.Gangs && !*plugin.args.Admit || !plugin.hub.mirror.mayHaveGroup(pod) {
		return nil
	}
	plugin.hub.lead()
	plugin.hub.waiting.enterUntil(pod, plugin.handle, plugin.args.Policy, func() bool { return !plugin.hub.mirror.mayHaveGroup(pod) })
	return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, UnreadGroupReason)
}

// coschedulingHandler takes in pod groups of Coscheduling.
func (mirror *mirror) coschedulingHandler() cache.ResourceEventHandler {
	seen := func(group *unstructured.Unstructured) {
		minimum, _, err := unstructured.NestedInt64(group.Object, "spec", "minMember")
		if err != nil || minimum < 0 || minimum > math.MaxInt32 {
			unreadable.WithLabelValues("podgroup").Inc()
			return
		}
		mirror.groupSeen(group, int32(minimum), 0)
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { of(object, seen) },
		UpdateFunc: func(_, object any) { of(object, seen) },
		DeleteFunc: func(object any) {
			of(object, func(group *unstructured.Unstructured) { mirror.groupGone(group) })
		},
	}
}
