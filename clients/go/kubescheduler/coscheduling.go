package kubescheduler

import (
	"math"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"
)

// coscheduling are the pod groups of the plugin Coscheduling, a kind that a cluster may have or not.
var coscheduling = schema.GroupVersionResource{Group: "scheduling.x-k8s.io", Version: "v1alpha1", Resource: "podgroups"}

// kindLook is the time between two looks for the kind.
const kindLook = 30 * time.Second

// watchCoscheduling takes in these pod groups, from the time at which the API server serves them.
func (hub *hub) watchCoscheduling() {
	if hub.config == nil {
		return
	}
	kinds, err := discovery.NewDiscoveryClientForConfig(hub.config)
	if err != nil {
		hub.log.Error(err, "Pod groups of Coscheduling are not watched")
		return
	}
	for {
		_, err := kinds.ServerResourcesForGroupVersion(coscheduling.GroupVersion().String())
		if err == nil {
			break
		}
		if !apierrors.IsNotFound(err) {
			hub.log.V(2).Info("The API server does not say whether it has pod groups of Coscheduling", "cause", err.Error())
		}
		select {
		case <-hub.ctx.Done():
			return
		case <-time.After(kindLook):
		}
	}
	client, err := dynamic.NewForConfig(hub.config)
	if err != nil {
		hub.log.Error(err, "Pod groups of Coscheduling are not watched")
		return
	}
	factory := dynamicinformer.NewDynamicSharedInformerFactory(client, 0)
	if _, err := factory.ForResource(coscheduling).Informer().AddEventHandler(hub.mirror.coschedulingHandler()); err != nil {
		hub.log.Error(err, "Pod groups of Coscheduling are not watched")
		return
	}
	factory.Start(hub.ctx.Done())
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
