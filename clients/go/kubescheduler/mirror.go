package kubescheduler

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	pumice "github.com/pumice-scheduler/pumice/clients/go"
	pb "github.com/pumice-scheduler/pumice/clients/go/pumicev1"

	"google.golang.org/protobuf/proto"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
)

// mirror keeps the service's nodes and tasks as the scheduler knows them: what its informers say, and above that what it
// has decided and the informers do not know yet.
type mirror struct {
	feed          *pumice.Feed
	source        string
	registrations []cache.ResourceEventHandlerRegistration
	// coscheduling is what is known of that kind of pod groups.
	coscheduling groupKind
	// owners finds the owners of pods in the scheduler's caches.
	owners pumice.Owners
	// listed are the pods of the scheduler's cache; nil in tests.
	listed corelisters.PodLister
	// leaves hears of pods that no longer come to their groups, and why: they are deleted, being deleted without a node, or name another
	// group.
	leaves func(*corev1.Pod, string)
	// wake tells the background that there is something to send, and changes counts that.
	wake    chan struct{}
	changes atomic.Uint64
	// decisive counts the changes that may change what holds for a pod on some node, besides placements that an answer has foreseen.
	decisive atomic.Uint64

	mutex sync.Mutex
	// pods are the newest objects, names their incarnations by task name.
	pods  map[types.UID]*corev1.Pod
	names map[string]types.UID
	// nodes are the newest records by name; nil: the newest object could not be read.
	nodes map[string]*pb.Node
	// groups are the pod groups that this scheduler watches, and members the pods by the group that they name.
	groups  map[string]podGroup
	members map[string]map[types.UID]struct{}
	// derived are the records of waiting pods, as they were made of their newest objects, owners and groups.
	derived map[types.UID]*derivedTask
	// assumed are the nodes that pods were given and their newest objects do not name.
	assumed map[types.UID]string
	// placed are the records of pods with a node.
	placed map[types.UID]*pb.Task
}

func newMirror(feed *pumice.Feed, source string) *mirror {
	return &mirror{
		feed: feed, source: source, wake: make(chan struct{}, 1),
		pods: map[types.UID]*corev1.Pod{}, names: map[string]types.UID{}, nodes: map[string]*pb.Node{}, assumed: map[types.UID]string{}, derived: map[types.UID]*derivedTask{}, placed: map[types.UID]*pb.Task{},
		groups: map[string]podGroup{}, members: map[string]map[types.UID]struct{}{},
	}
}

// watch takes in what the scheduler's own informers say.
func (mirror *mirror) watch(factory informers.SharedInformerFactory) error {
	pods, err := factory.Core().V1().Pods().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(object any) { of(object, mirror.podReported) },
		UpdateFunc: func(before, object any) {
			// A new list may have another pod under the same name.
			if incarnation(before) != incarnation(object) {
				of(before, mirror.podEnded)
			}
			of(object, mirror.podReported)
		},
		DeleteFunc: func(object any) { of(object, mirror.podEnded) },
	})
	if err != nil {
		return fmt.Errorf("watching pods: %w", err)
	}
	nodes, err := factory.Core().V1().Nodes().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { of(object, mirror.nodeSeen) },
		UpdateFunc: func(_, object any) { of(object, mirror.nodeSeen) },
		DeleteFunc: func(object any) { of(object, mirror.nodeGone) },
	})
	if err != nil {
		return fmt.Errorf("watching nodes: %w", err)
	}
	namespaces, err := factory.Core().V1().Namespaces().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { of(object, mirror.namespaceSeen) },
		UpdateFunc: func(_, object any) { of(object, mirror.namespaceSeen) },
		DeleteFunc: func(object any) { of(object, mirror.namespaceGone) },
	})
	if err != nil {
		return fmt.Errorf("watching namespaces: %w", err)
	}
	mirror.listed = factory.Core().V1().Pods().Lister()
	mirror.registrations = []cache.ResourceEventHandlerRegistration{pods, nodes, namespaces}
	return mirror.watchOwners(factory)
}

// watchOwners takes in Services and workloads, and puts the pods that they may own again when they change.
func (mirror *mirror) watchOwners(factory informers.SharedInformerFactory) error {
	core, apps := factory.Core().V1(), factory.Apps().V1()
	services, controllers := core.Services().Lister(), core.ReplicationControllers().Lister()
	replicas, stateful := apps.ReplicaSets().Lister(), apps.StatefulSets().Lister()
	mirror.owners = pumice.Owners{
		Services: func(namespace string) ([]*corev1.Service, error) {
			return services.Services(namespace).List(labels.Everything())
		},
		ReplicationController: func(namespace, name string) (*corev1.ReplicationController, error) {
			return controllers.ReplicationControllers(namespace).Get(name)
		},
		ReplicaSet: func(namespace, name string) (*appsv1.ReplicaSet, error) {
			return replicas.ReplicaSets(namespace).Get(name)
		},
		StatefulSet: func(namespace, name string) (*appsv1.StatefulSet, error) {
			return stateful.StatefulSets(namespace).Get(name)
		},
	}
	for _, informer := range []cache.SharedIndexInformer{
		core.Services().Informer(), core.ReplicationControllers().Informer(), apps.ReplicaSets().Informer(), apps.StatefulSets().Informer(),
	} {
		changed := func(object any) { of(object, mirror.ownerSeen) }
		registration, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc: changed, DeleteFunc: changed,
			UpdateFunc: func(before, after any) {
				if selectorOf(before) != selectorOf(after) {
					changed(after)
				}
			},
		})
		if err != nil {
			return fmt.Errorf("watching owners of pods: %w", err)
		}
		mirror.registrations = append(mirror.registrations, registration)
	}
	return nil
}

// selectorOf is the selector of an owner as a text.
func selectorOf(object any) string {
	switch owner := object.(type) {
	case *corev1.Service:
		return fmt.Sprint(owner.Spec.Selector)
	case *corev1.ReplicationController:
		return fmt.Sprint(owner.Spec.Selector)
	case *appsv1.ReplicaSet:
		return metav1.FormatLabelSelector(owner.Spec.Selector)
	case *appsv1.StatefulSet:
		return metav1.FormatLabelSelector(owner.Spec.Selector)
	}
	return ""
}

// ownerSeen puts the pods again whose selector an owner may change: those that it controls, and those that a Service of
// their namespace selects or selected.
func (mirror *mirror) ownerSeen(owner metav1.Object) {
	mirror.mutex.Lock()
	defer mirror.mutex.Unlock()
	_, isService := owner.(*corev1.Service)
	for _, pod := range mirror.pods {
		if pod.Namespace != owner.GetNamespace() {
			continue
		}
		// Owners are found by name.
		if controller := metav1.GetControllerOfNoCopy(pod); isService || controller != nil && controller.Name == owner.GetName() {
			mirror.remake(pod)
		}
	}
}

func (mirror *mirror) namespaceSeen(namespace *corev1.Namespace) {
	mirror.feed.PutNamespace(namespace)
	mirror.decided()
}

func (mirror *mirror) namespaceGone(namespace *corev1.Namespace) {
	mirror.feed.Remove(&pb.Removals{Namespaces: []string{namespace.Name}})
	mirror.decided()
}

// of hands an object on, also one whose deletion was only found out later.
func of[T any](object any, take func(T)) {
	if late, is := object.(cache.DeletedFinalStateUnknown); is {
		object = late.Obj
	}
	if item, is := object.(T); is {
		take(item)
	}
}

// synced says that everything that was there at the start has been taken in: before that a snapshot would be a part.
func (mirror *mirror) synced() bool {
	for _, registration := range mirror.registrations {
		if !registration.HasSynced() {
			return false
		}
	}
	return !mirror.coscheduling.detains()
}

// changed is called after each change of what there is to send.
func (mirror *mirror) changed() {
	mirror.changes.Add(1)
	mirror.stir()
}

// decided is called instead of changed after each change that may change what holds for a pod on some node.
func (mirror *mirror) decided() {
	mirror.changed()
	// After that: a question that is asked in between either sends the change, or its answer serves no other pod.
	mirror.decisive.Add(1)
}

// stir makes the background send what there is to send, after a while.
func (mirror *mirror) stir() {
	select {
	case mirror.wake <- struct{}{}:
	default:
	}
}

func (mirror *mirror) nodeSeen(node *corev1.Node) {
	mirror.mutex.Lock()
	defer mirror.mutex.Unlock()
	before, known := mirror.nodes[node.Name]
	record, err := pumice.NodeRecord(node)
	switch {
	case err != nil:
		unreadable.WithLabelValues("node").Inc()
		// PutNode marks the node.
		_ = mirror.feed.PutNode(node)
		if known {
			// The service has a good record: the node stays known.
			mirror.nodes[node.Name] = nil
		}
	case before != nil && proto.Equal(before, record):
		// The kubelet reports its state all the time.
		return
	default:
		mirror.feed.Put(&pb.Cluster{Nodes: []*pb.Node{record}})
		mirror.nodes[node.Name] = record
	}
	mirror.decided()
}

func (mirror *mirror) nodeGone(node *corev1.Node) {
	mirror.mutex.Lock()
	defer mirror.mutex.Unlock()
	delete(mirror.nodes, node.Name)
	mirror.feed.Remove(&pb.Removals{Nodes: []string{node.Name}})
	mirror.decided()
}

func (mirror *mirror) knows(node string) bool {
	mirror.mutex.Lock()
	defer mirror.mutex.Unlock()
	_, known := mirror.nodes[node]
	return known
}

// podSeen takes in an object of a pod, and returns the one before; nil: there was none.
func (mirror *mirror) podSeen(pod *corev1.Pod) *corev1.Pod {
	mirror.mutex.Lock()
	defer mirror.mutex.Unlock()
	mirror.underive(pod)
	if pod.Spec.NodeName != "" {
		delete(mirror.assumed, pod.UID)
	}
	before := mirror.pods[pod.UID]
	if before != nil {
		mirror.unindex(before)
	}
	mirror.index(pod)
	mirror.pods[pod.UID], mirror.names[taskName(pod)] = pod, pod.UID
	mirror.put(pod)
	return before
}

func (mirror *mirror) podGone(pod *corev1.Pod) {
	mirror.mutex.Lock()
	defer mirror.mutex.Unlock()
	if before, found := mirror.pods[pod.UID]; found {
		mirror.unindex(before)
	}
	// One that cannot be read may keep its node closed, without a record.
	_, isPlaced := mirror.placed[pod.UID]
	_, isAssumed := mirror.assumed[pod.UID]
	isOnNode := isPlaced || isAssumed || pod.Spec.NodeName != ""
	delete(mirror.pods, pod.UID)
	delete(mirror.assumed, pod.UID)
	mirror.underive(pod)
	delete(mirror.placed, pod.UID)
	// Under the same name another one may have come meanwhile.
	if name := taskName(pod); mirror.names[name] == pod.UID {
		delete(mirror.names, name)
		mirror.feed.Remove(&pb.Removals{Tasks: []string{name}})
		mirror.changed()
	}
	if isOnNode {
		mirror.decisive.Add(1)
	}
}

// podReported is podSeen, of which the gangs hear if kube-scheduler no longer gives the pod a node, or not as one of its group.
func (mirror *mirror) podReported(pod *corev1.Pod) {
	before := mirror.podSeen(pod)
	switch {
	case pod.Spec.NodeName != "":
	case pod.DeletionTimestamp != nil:
		mirror.leaves(pod, isDeleted)
	case before != nil && groupOf(before) != groupOf(pod):
		mirror.leaves(before, hasLeft)
	}
}

// podEnded is podGone, of which the gangs hear, too.
func (mirror *mirror) podEnded(pod *corev1.Pod) {
	mirror.podGone(pod)
	mirror.leaves(pod, isDeleted)
}

// incarnation is the UID of an object.
func incarnation(object any) (uid types.UID) {
	of(object, func(item metav1.Object) { uid = item.GetUID() })
	return uid
}

// reserve counts a pod on a node from now on. foreseen is the signature of the pods that the answer counts already which serves the pods
// after this one; empty: none does.
func (mirror *mirror) reserve(pod *corev1.Pod, node, foreseen string) {
	mirror.mutex.Lock()
	defer mirror.mutex.Unlock()
	newest, found := mirror.pods[pod.UID]
	if !found {
		newest, found = mirror.takeIn(pod)
	}
	// One that is not found was deleted while it was bound.
	if !found || newest.Spec.NodeName != "" || mirror.assumed[pod.UID] == node {
		if foreseen != "" {
			// The answer counts a pod that nobody else does.
			mirror.decisive.Add(1)
		}
		return
	}
	mirror.assumed[pod.UID] = node
	mirror.putReserved(newest, foreseen)
}

// takeIn takes in a pod that the scheduler knows and the mirror has not heard of: each listener hears of it in its own time. The lock
// is held.
func (mirror *mirror) takeIn(pod *corev1.Pod) (*corev1.Pod, bool) {
	if mirror.listed == nil {
		return nil, false
	}
	listed, err := mirror.listed.Pods(pod.Namespace).Get(pod.Name)
	if err != nil || listed.UID != pod.UID {
		return nil, false
	}
	mirror.index(listed)
	mirror.pods[pod.UID], mirror.names[taskName(pod)] = listed, pod.UID
	return listed, true
}

// unreserve takes a pod off the node that it was given; a second time it does nothing.
func (mirror *mirror) unreserve(pod types.UID) {
	mirror.mutex.Lock()
	defer mirror.mutex.Unlock()
	if _, found := mirror.assumed[pod]; !found {
		return
	}
	delete(mirror.assumed, pod)
	if newest, found := mirror.pods[pod]; found {
		mirror.put(newest)
	}
}

// remake makes and writes the record of a pod again, whose owners or group have changed. The lock is held.
func (mirror *mirror) remake(pod *corev1.Pod) {
	mirror.underive(pod)
	mirror.put(pod)
}

// put writes the record of a pod, or marks it unreadable. The lock is held.
func (mirror *mirror) put(pod *corev1.Pod) {
	mirror.putReserved(pod, "")
}

// putReserved is put; foreseen is the signature of pods of which what they change on a node was foreseen. The lock is held.
func (mirror *mirror) putReserved(pod *corev1.Pod, foreseen string) {
	given, found := mirror.assumed[pod.UID]
	record, err := mirror.record(pod)
	if err != nil {
		unreadable.WithLabelValues("pod").Inc()
		mark := pumice.UnreadableTask(pod, err)
		if found {
			mark.Node = given
		}
		mirror.feed.PutUnreadable(mark)
		mirror.decided()
		return
	}
	// The pod may have changed since it was judged.
	isForeseen := false
	if foreseen != "" {
		signed, err := mirror.signatureOf(pod, record)
		isForeseen = err == nil && signed == foreseen
	}
	if found {
		record.Node, record.Status = given, pb.TaskStatus_TASK_STATUS_BINDING
	}
	mirror.feed.Put(&pb.Cluster{Tasks: []*pb.Task{record}})
	before := mirror.placed[pod.UID]
	switch {
	case isForeseen, before == nil && record.Node == "":
		mirror.changed()
	case before == nil || !occupyAlike(before, record):
		mirror.decided()
	case isBind(before, record):
		// No question need wait for it.
		mirror.stir()
	default:
		mirror.changed()
	}
	if record.Node != "" {
		mirror.placed[pod.UID] = record
	} else {
		delete(mirror.placed, pod.UID)
	}
}

// binds are the statuses of a task that is being bound, of which no decision depends.
var binds = []pb.TaskStatus{pb.TaskStatus_TASK_STATUS_BINDING, pb.TaskStatus_TASK_STATUS_BOUND}

// holds are the statuses of a task that occupies its node alike.
var holds = append([]pb.TaskStatus{pb.TaskStatus_TASK_STATUS_RUNNING}, binds...)

// occupyAlike reports whether two records of a task on its node are the same to tasks that an answer serves. Beside the statuses they may
// differ in labels, which the API server and others add when it binds a pod, in annotations and in the nominated node: the service
// foresees nothing where a term about other pods or an account is read, and all else that a task takes of a node is in other fields.
func occupyAlike(one, other *pb.Task) bool {
	if !slices.Contains(holds, one.Status) || !slices.Contains(holds, other.Status) || one.Node != other.Node {
		return false
	}
	same := copyOf(one)
	same.Status, same.Labels, same.Annotations, same.NominatedNode = other.Status, other.Labels, other.Annotations, other.NominatedNode
	return proto.Equal(same, other)
}

// isBind reports whether two records of a task that occupy its node alike differ at most in how far its bind has come.
func isBind(one, other *pb.Task) bool {
	return slices.Contains(binds, one.Status) && slices.Contains(binds, other.Status) && one.NominatedNode == other.NominatedNode &&
		maps.Equal(one.Labels, other.Labels) && maps.Equal(one.Annotations, other.Annotations)
}

// flush sends what has changed; every question that names the position sees it.
func (mirror *mirror) flush(ctx context.Context) error {
	_, err := mirror.feed.Flush(ctx)
	return err
}

func taskName(pod *corev1.Pod) string {
	return pod.Namespace + "/" + pod.Name
}

// waits says whether a pod is there and has no node.
func (mirror *mirror) waits(pod types.UID) bool {
	mirror.mutex.Lock()
	defer mirror.mutex.Unlock()
	newest, found := mirror.pods[pod]
	_, given := mirror.assumed[pod]
	return found && newest.Spec.NodeName == "" && !given
}
