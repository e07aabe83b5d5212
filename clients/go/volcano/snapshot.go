package volcano

import (
	"hash/maphash"
	"strconv"
	"strings"
	"unsafe"

	pumice "github.com/pumice-scheduler/pumice/clients/go"
	"github.com/pumice-scheduler/pumice/clients/go/cycle"
	"github.com/pumice-scheduler/pumice/clients/go/derive"
	pb "github.com/pumice-scheduler/pumice/clients/go/pumicev1"

	"google.golang.org/protobuf/types/known/timestamppb"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"volcano.sh/apis/pkg/apis/scheduling"
	"volcano.sh/volcano/pkg/scheduler/api"
	"volcano.sh/volcano/pkg/scheduler/framework"
)

// snapshot is a session's state in groups.
type snapshot struct {
	session *framework.Session
	memory  *memory
	keys    []cycle.GroupKey
	nodes   []*api.NodeInfo
	queues  []*api.QueueInfo
	jobs    []*api.JobInfo
	// touched nodes are named by tasks of jobs that have changed.
	touched map[string]bool
	// found by node.
	found []ownership
}

// ownership tells whose tasks are on a node; zero: unknown.
type ownership byte

const (
	// onlyOwned: all of them belong to jobs of the session.
	onlyOwned ownership = iota + 1
	// others are there as well.
	others
)

// memory is what one session leaves for the next, so that it need not look at everything again.
type memory struct {
	// jobs of the last session, and a sum over the addresses of their names.
	jobs []api.JobID
	sum  uint64
	// nodes on which every task belonged to one of those jobs, and how many there were.
	nodes map[string]int
}

func newMemory() *memory {
	return &memory{nodes: map[string]int{}}
}

func snapshotOf(session *framework.Session, memory *memory) *snapshot {
	made := &snapshot{
		session: session, memory: memory,
		keys:  make([]cycle.GroupKey, 0, len(session.Nodes)+len(session.Queues)+len(session.Jobs)),
		nodes: make([]*api.NodeInfo, 0, len(session.Nodes)), found: make([]ownership, len(session.Nodes)),
		queues: make([]*api.QueueInfo, 0, len(session.Queues)), jobs: make([]*api.JobInfo, 0, len(session.Jobs)),
	}
	for name, node := range session.Nodes {
		made.keys, made.nodes = append(made.keys, cycle.GroupKey{Kind: cycle.NodeGroup, Name: name}), append(made.nodes, node)
	}
	for _, queue := range session.Queues {
		made.keys, made.queues = append(made.keys, cycle.GroupKey{Kind: cycle.QueueGroup, Name: queue.Name}), append(made.queues, queue)
	}
	sum := uint64(0)
	for name, job := range session.Jobs {
		made.keys, made.jobs = append(made.keys, cycle.GroupKey{Kind: cycle.JobGroup, Name: string(name)}), append(made.jobs, job)
		sum += address(string(name))
	}
	memory.update(session, sum)
	return made
}

// update records a session's jobs. When one of the last session's has gone, its tasks may be nobody's: then all nodes
// are looked at again.
func (memory *memory) update(session *framework.Session, sum uint64) {
	if sum == memory.sum && len(session.Jobs) == len(memory.jobs) {
		return
	}
	for _, name := range memory.jobs {
		if session.Jobs[name] == nil {
			clear(memory.nodes)
			break
		}
	}
	// The names are kept, so that no others come to their addresses.
	memory.sum, memory.jobs = sum, make([]api.JobID, 0, len(session.Jobs))
	for name := range session.Jobs {
		memory.jobs = append(memory.jobs, name)
	}
}

// leave keeps what was found out for the next session. After a failure nothing is known of what was compared.
func (snapshot *snapshot) leave(failure error) {
	nodes := snapshot.memory.nodes
	if failure != nil {
		clear(nodes)
		return
	}
	for at, found := range snapshot.found {
		switch name := snapshot.keys[at].Name; found {
		case onlyOwned:
			nodes[name] = len(snapshot.nodes[at].Tasks)
		case others:
			delete(nodes, name)
		}
	}
	if len(nodes) > len(snapshot.nodes) {
		for name := range nodes {
			if snapshot.session.Nodes[name] == nil {
				delete(nodes, name)
			}
		}
	}
}

// HintNodes of nodes on which jobs have changed.
func (snapshot *snapshot) HintNodes(nodes map[string]bool) {
	snapshot.touched = nodes
}

// node goes by the address of the object, and by its tasks that belong to no job of the session. Where there were none,
// there are none now if they are as many and no job has changed there: one of them could only come in place of a job's.
func (snapshot *snapshot) node(at int, made *print) {
	node, name := snapshot.nodes[at], snapshot.keys[at].Name
	made.mix(uint64(uintptr(unsafe.Pointer(node.Node))))
	if before, known := snapshot.memory.nodes[name]; known && before == len(node.Tasks) && !snapshot.touched[name] {
		return
	}
	snapshot.found[at] = onlyOwned
	for _, task := range node.Tasks {
		if snapshot.session.Jobs[task.Job] == nil {
			made.task(task)
			snapshot.found[at] = others
		}
	}
}

// Groups is their number.
func (snapshot *snapshot) Groups() int {
	return len(snapshot.keys)
}

// Key of a group.
func (snapshot *snapshot) Key(at int) cycle.GroupKey {
	return snapshot.keys[at]
}

var seed = maphash.MakeSeed()

// print is a fingerprint; order counts for mix, not for tasks.
type print uint64

func (sum *print) mix(value uint64) {
	hash := (uint64(*sum) ^ value) * 0x9e3779b97f4a7c15
	*sum = print(hash ^ hash>>29)
}

func (sum *print) text(text string) {
	sum.mix(maphash.String(seed, text))
}

// address of a text's bytes, as a hash. Clones of an object share it. It stands for the text as long as somebody keeps that.
func address(text string) uint64 {
	sum := print(0)
	sum.mix(uint64(uintptr(unsafe.Pointer(unsafe.StringData(text)))) + uint64(len(text))<<56)
	return uint64(sum)
}

// task goes by the address of the pod, which the cache replaces and never changes in what is read here; the mirror keeps
// it, and the record the name of the node, from being used again.
func (sum *print) task(task *api.TaskInfo) {
	own := print(uintptr(unsafe.Pointer(task.Pod)))
	own.mix(uint64(task.Status))
	own.mix(address(task.NodeName))
	*sum += own
}

// batch is the number of tasks that are read together: the processor fetches independent ones at once.
const batch = 32

// tasks of a job. The map is gone through apart from the tasks, see batch.
func (sum *print) tasks(tasks map[api.TaskID]*api.TaskInfo) {
	var some [batch]*api.TaskInfo
	count := 0
	for _, task := range tasks {
		some[count] = task
		if count++; count == batch {
			sum.all(some[:])
			count = 0
		}
	}
	sum.all(some[:count])
}

func (sum *print) all(tasks []*api.TaskInfo) {
	for _, task := range tasks {
		sum.task(task)
	}
}

// Fingerprint of a group.
func (snapshot *snapshot) Fingerprint(at int) uint64 {
	var made print
	switch {
	case at < len(snapshot.nodes):
		snapshot.node(at, &made)
	case at < len(snapshot.nodes)+len(snapshot.queues):
		queue := snapshot.queues[at-len(snapshot.nodes)].Queue
		made.mix(1)
		made.object(&queue.ObjectMeta)
		made.text(string(queue.Status.State))
		made.amounts(queue.Spec.Capability)
		made.amounts(queue.Spec.Deserved)
		made.amounts(queue.Spec.Guarantee.Resource)
		made.mix(uint64(queue.Spec.Weight))
		made.mix(uint64(queue.Spec.Priority))
		made.text(queue.Spec.Parent)
		made.mix(flag(queue.Spec.Reclaimable))
	default:
		job := snapshot.jobs[at-len(snapshot.nodes)-len(snapshot.queues)]
		made.mix(2)
		made.object(&job.PodGroup.ObjectMeta)
		made.text(string(job.Queue))
		made.text(string(job.PodGroup.Status.Phase))
		made.mix(uint64(job.Priority))
		made.mix(uint64(job.MinAvailable))
		if job.PodGroup.Spec.MinResources != nil {
			made.mix(3)
			made.amounts(*job.PodGroup.Spec.MinResources)
		}
		made.tasks(job.Tasks)
	}
	return uint64(made)
}

func flag(value *bool) uint64 {
	switch {
	case value == nil:
		return 0
	case *value:
		return 1
	default:
		return 2
	}
}

func (sum *print) object(object *metav1.ObjectMeta) {
	sum.text(string(object.UID))
	sum.mix(uint64(object.CreationTimestamp.Unix()))
	for key, value := range object.Annotations {
		if strings.HasPrefix(key, annotationPrefix) {
			own := print(maphash.String(seed, key))
			own.text(value)
			*sum += own
		}
	}
}

func (sum *print) amounts(list v1.ResourceList) {
	for name, quantity := range list {
		own := print(maphash.String(seed, string(name)))
		own.mix(uint64(quantity.Value()))
		own.mix(uint64(quantity.MilliValue()))
		*sum += own
	}
}

// annotationPrefix: what served plugins read begins so.
const annotationPrefix = "volcano.sh/"

func annotations(all map[string]string) map[string]string {
	var read map[string]string
	for key, value := range all {
		if strings.HasPrefix(key, annotationPrefix) {
			if read == nil {
				read = map[string]string{}
			}
			read[key] = value
		}
	}
	return read
}

// Records of a group. What cannot be read is marked, and keeps nothing else back.
func (snapshot *snapshot) Records(at int) (cycle.GroupRecords, error) {
	made := cycle.GroupRecords{Cluster: &pb.Cluster{}}
	hold := []any{}
	add := func(task *api.TaskInfo, job string) {
		hold = append(hold, task.Pod)
		if good, mark := taskRecord(task, job); mark != nil {
			made.Unreadable = append(made.Unreadable, mark)
		} else {
			made.Cluster.Tasks = append(made.Cluster.Tasks, good)
		}
	}
	switch {
	case at < len(snapshot.nodes):
		info := snapshot.nodes[at]
		if node, err := pumice.NodeRecord(info.Node); err == nil {
			// Volcano takes no notice of the condition.
			ready := true
			node.Ready = &ready
			made.Cluster.Nodes = append(made.Cluster.Nodes, node)
		} else {
			made.Unreadable = append(made.Unreadable, cycle.Unreadable(pb.RecordKind_RECORD_KIND_NODE, snapshot.keys[at].Name, err))
		}
		hold = append(hold, info.Node)
		for _, task := range info.Tasks {
			if snapshot.session.Jobs[task.Job] == nil {
				add(task, "")
			}
		}
	case at < len(snapshot.nodes)+len(snapshot.queues):
		made.Cluster.Queues = append(made.Cluster.Queues, queueRecord(snapshot.queues[at-len(snapshot.nodes)].Queue))
	default:
		job := snapshot.jobs[at-len(snapshot.nodes)-len(snapshot.queues)]
		made.Cluster.Jobs = append(made.Cluster.Jobs, jobRecord(job))
		for _, task := range job.Tasks {
			add(task, string(job.UID))
		}
	}
	made.Hold = hold
	return made, nil
}

// taskRecord is the record of a task, or the mark that it cannot be read.
func taskRecord(task *api.TaskInfo, job string) (*pb.Task, *pb.UnreadableRecord) {
	made := &pb.Task{
		Name: task.Namespace + "/" + task.Name, Uid: string(task.UID), Job: job, Priority: task.Priority,
		Status: statuses[task.Status], Node: task.NodeName, Gated: task.SchGated, NominatedNode: task.Pod.Status.NominatedNodeName,
		Annotations: annotations(task.Pod.Annotations), Requests: requests(task.Resreq),
		UnevaluatedFields: derive.UnevaluatedPodFields(task.Pod),
	}
	if !task.Pod.CreationTimestamp.IsZero() {
		made.CreationTime = timestamppb.New(task.Pod.CreationTimestamp.Time)
	}
	if _, cards := made.Annotations[annotationPrefix+"card.name"]; cards {
		// Cards are counted by limits: without them, the task would hold none.
		effective, err := derive.Effective(task.Pod, derive.AsVolcano)
		if err != nil {
			mark := pumice.UnreadableTask(task.Pod, err)
			mark.Node = task.NodeName
			return nil, mark
		}
		if len(effective.Limits) > 0 {
			made.Limits = &pb.ResourceList{Items: effective.Limits}
		}
	}
	return made, nil
}

// requests as the scheduler counts them; each pod counts as one in any case.
func requests(resource *api.Resource) *pb.ResourceList {
	items := map[string]string{}
	if resource.MilliCPU != 0 {
		items["cpu"] = exact(resource.MilliCPU) + "m"
	}
	if resource.Memory != 0 {
		items["memory"] = exact(resource.Memory)
	}
	for name, value := range resource.ScalarResources {
		if name != v1.ResourcePods {
			items[string(name)] = exact(value) + "m"
		}
	}
	return &pb.ResourceList{Items: items}
}

func exact(value float64) string {
	return strconv.FormatFloat(value, 'f', -1, 64)
}

var statuses = map[api.TaskStatus]pb.TaskStatus{
	api.Pending: pb.TaskStatus_TASK_STATUS_PENDING, api.Allocated: pb.TaskStatus_TASK_STATUS_ALLOCATED,
	api.Pipelined: pb.TaskStatus_TASK_STATUS_PIPELINED, api.Binding: pb.TaskStatus_TASK_STATUS_BINDING,
	api.Bound: pb.TaskStatus_TASK_STATUS_BOUND, api.Running: pb.TaskStatus_TASK_STATUS_RUNNING,
	api.Releasing: pb.TaskStatus_TASK_STATUS_RELEASING, api.Succeeded: pb.TaskStatus_TASK_STATUS_SUCCEEDED,
	api.Failed: pb.TaskStatus_TASK_STATUS_FAILED, api.Unknown: pb.TaskStatus_TASK_STATUS_UNKNOWN,
}

func jobRecord(job *api.JobInfo) *pb.Job {
	made := &pb.Job{
		Name: string(job.UID), Uid: string(job.PgUID), Queue: string(job.Queue), Priority: job.Priority,
		Phase: phases[job.PodGroup.Status.Phase], MinMember: job.MinAvailable, Annotations: annotations(job.PodGroup.Annotations),
	}
	if !job.CreationTimestamp.IsZero() {
		made.CreationTime = timestamppb.New(job.CreationTimestamp.Time)
	}
	if job.PodGroup.Spec.MinResources != nil {
		made.MinResources = pumice.ResourceTexts(*job.PodGroup.Spec.MinResources)
	}
	return made
}

var phases = map[scheduling.PodGroupPhase]pb.JobPhase{
	scheduling.PodGroupPending: pb.JobPhase_JOB_PHASE_PENDING, scheduling.PodGroupInqueue: pb.JobPhase_JOB_PHASE_INQUEUE,
	scheduling.PodGroupRunning: pb.JobPhase_JOB_PHASE_RUNNING, scheduling.PodGroupUnknown: pb.JobPhase_JOB_PHASE_UNKNOWN,
	scheduling.PodGroupCompleted: pb.JobPhase_JOB_PHASE_COMPLETED,
}

func queueRecord(queue *scheduling.Queue) *pb.Queue {
	weight := queue.Spec.Weight
	made := &pb.Queue{
		Name: queue.Name, Uid: string(queue.UID), Annotations: annotations(queue.Annotations), Weight: &weight,
		Priority: queue.Spec.Priority, State: states[queue.Status.State], Parent: queue.Spec.Parent,
		Reclaimable: queue.Spec.Reclaimable, Capability: pumice.ResourceTexts(queue.Spec.Capability),
		Deserved: pumice.ResourceTexts(queue.Spec.Deserved), Guarantee: pumice.ResourceTexts(queue.Spec.Guarantee.Resource),
	}
	if !queue.CreationTimestamp.IsZero() {
		made.CreationTime = timestamppb.New(queue.CreationTimestamp.Time)
	}
	return made
}

var states = map[scheduling.QueueState]pb.QueueState{
	scheduling.QueueStateOpen: pb.QueueState_QUEUE_STATE_OPEN, scheduling.QueueStateClosed: pb.QueueState_QUEUE_STATE_CLOSED,
	scheduling.QueueStateClosing: pb.QueueState_QUEUE_STATE_CLOSING, scheduling.QueueStateUnknown: pb.QueueState_QUEUE_STATE_UNKNOWN,
}
