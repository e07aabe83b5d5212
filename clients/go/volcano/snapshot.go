package volcano

import (
	"slices"
	"strconv"

	pumice "github.com/pumice-scheduler/pumice/clients/go"
	"github.com/pumice-scheduler/pumice/clients/go/cycle"
	"github.com/pumice-scheduler/pumice/clients/go/derive"
	pb "github.com/pumice-scheduler/pumice/clients/go/pumicev1"

	"google.golang.org/protobuf/types/known/timestamppb"
	v1 "k8s.io/api/core/v1"
	"volcano.sh/apis/pkg/apis/scheduling"
	"volcano.sh/volcano/pkg/scheduler/api"
	"volcano.sh/volcano/pkg/scheduler/framework"
)

// snapshot is a session's state in groups.
type snapshot struct {
	session *framework.Session
	keys    []cycle.GroupKey
	nodes   []*api.NodeInfo
	queues  []*api.QueueInfo
	jobs    []*api.JobInfo
}

func snapshotOf(session *framework.Session) *snapshot {
	made := &snapshot{
		session: session,
		keys:    make([]cycle.GroupKey, 0, len(session.Nodes)+len(session.Queues)+len(session.Jobs)),
		nodes:   make([]*api.NodeInfo, 0, len(session.Nodes)), queues: make([]*api.QueueInfo, 0, len(session.Queues)),
		jobs: make([]*api.JobInfo, 0, len(session.Jobs)),
	}
	for name, node := range session.Nodes {
		made.keys, made.nodes = append(made.keys, cycle.GroupKey{Kind: cycle.NodeGroup, Name: name}), append(made.nodes, node)
	}
	for _, queue := range session.Queues {
		made.keys, made.queues = append(made.keys, cycle.GroupKey{Kind: cycle.QueueGroup, Name: queue.Name}), append(made.queues, queue)
	}
	for name, job := range session.Jobs {
		made.keys, made.jobs = append(made.keys, cycle.GroupKey{Kind: cycle.JobGroup, Name: string(name)}), append(made.jobs, job)
	}
	return made
}

// Groups is their number.
func (snapshot *snapshot) Groups() int {
	return len(snapshot.keys)
}

// Key of a group.
func (snapshot *snapshot) Key(at int) cycle.GroupKey {
	return snapshot.keys[at]
}

// Fingerprint of a group: of everything that its records are made of.
func (snapshot *snapshot) Fingerprint(at int) uint64 {
	var made cycle.Fingerprint
	switch {
	case at < len(snapshot.nodes):
		info := snapshot.nodes[at]
		made.Node(info.Node)
		for _, task := range info.Tasks {
			if snapshot.session.Jobs[task.Job] == nil {
				made.Element(taskPrint(task))
			}
		}
	case at < len(snapshot.nodes)+len(snapshot.queues):
		queuePrint(&made, snapshot.queues[at-len(snapshot.nodes)].Queue)
	default:
		job := snapshot.jobs[at-len(snapshot.nodes)-len(snapshot.queues)]
		jobPrint(&made, job)
		for _, task := range job.Tasks {
			made.Element(taskPrint(task))
		}
	}
	return uint64(made)
}

// Records of a group. What cannot be read is marked, and keeps nothing else back.
func (snapshot *snapshot) Records(at int) (cycle.GroupRecords, error) {
	made := cycle.GroupRecords{Cluster: &pb.Cluster{}}
	add := func(task *api.TaskInfo, job string) {
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
			cycle.FillFromNode(node, info.Node)
			// Volcano takes no notice of the condition.
			ready := true
			node.Ready = &ready
			made.Cluster.Nodes = append(made.Cluster.Nodes, node)
		} else {
			made.Unreadable = append(made.Unreadable, cycle.Unreadable(pb.RecordKind_RECORD_KIND_NODE, snapshot.keys[at].Name, err))
		}
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
	return made, nil
}

// taskRecord is the record of a task, or the mark that it cannot be read. taskPrint reads the same.
func taskRecord(task *api.TaskInfo, job string) (*pb.Task, *pb.UnreadableRecord) {
	made := &pb.Task{
		Name: task.Namespace + "/" + task.Name, Uid: string(task.UID), Job: job, Priority: task.Priority,
		Status: statuses[task.Status], Node: task.NodeName, Gated: task.SchGated,
	}
	if err := cycle.FillFromPod(made, task.Pod); err != nil {
		mark := pumice.UnreadableTask(task.Pod, err)
		mark.Node = task.NodeName
		return nil, mark
	}
	items, misread := requests(task.Resreq, task.NodeName != "")
	made.Requests = &pb.ResourceList{Items: items}
	if misread && !slices.Contains(made.UnevaluatedFields, derive.UnreadAmounts) {
		made.UnevaluatedFields = append(made.UnevaluatedFields, derive.UnreadAmounts)
	}
	return made, nil
}

func taskPrint(task *api.TaskInfo) (made cycle.Fingerprint) {
	made.Text(task.NodeName)
	made.Number(uint64(task.Priority))
	made.Number(uint64(task.Status))
	made.Flag(&task.SchGated)
	made.Float(task.Resreq.MilliCPU)
	made.Float(task.Resreq.Memory)
	if count, found := task.Resreq.ScalarResources[v1.ResourcePods]; found && len(task.Resreq.ScalarResources) == 1 {
		// Most tasks request nothing else.
		made.Float(count)
	} else {
		made.Number(uint64(scalarPrint(task.Resreq.ScalarResources)))
	}
	made.Pod(task.Pod)
	return made
}

// requests as the scheduler counts them; each pod counts as one in any case. The scheduler misreads amounts beyond 64 bits, as negative ones or
// sums that no record holds. A task on a node is sent without them, and misread is true: the service would refuse it, and close its node.
func requests(resource *api.Resource, isOnNode bool) (items map[string]string, misread bool) {
	items = map[string]string{}
	put := func(name, unit string, amount float64) {
		if isOnNode && (amount < 0 || amount >= 1<<63) {
			misread = true
			return
		}
		items[name] = exact(amount) + unit
	}
	if resource.MilliCPU != 0 {
		put("cpu", "m", resource.MilliCPU)
	}
	if resource.Memory != 0 {
		put("memory", "", resource.Memory)
	}
	for name, amount := range resource.ScalarResources {
		if name != v1.ResourcePods {
			put(string(name), "m", amount)
		}
	}
	return items, misread
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

func scalarPrint(scalars map[v1.ResourceName]float64) (set cycle.Fingerprint) {
	for name, value := range scalars {
		var own cycle.Fingerprint
		own.Text(string(name))
		own.Float(value)
		set.Element(own)
	}
	return set
}

// jobRecord is the record of a job. jobPrint reads the same.
func jobRecord(job *api.JobInfo) *pb.Job {
	made := &pb.Job{
		Name: string(job.UID), Uid: string(job.PgUID), Queue: string(job.Queue), Priority: job.Priority,
		Phase: phases[job.PodGroup.Status.Phase], MinMember: job.MinAvailable, Annotations: cycle.ReadAnnotations(job.PodGroup.Annotations),
	}
	if !job.CreationTimestamp.IsZero() {
		made.CreationTime = timestamppb.New(job.CreationTimestamp.Time)
	}
	if job.PodGroup.Spec.MinResources != nil {
		made.MinResources = pumice.ResourceTexts(*job.PodGroup.Spec.MinResources)
	}
	return made
}

func jobPrint(made *cycle.Fingerprint, job *api.JobInfo) {
	made.Text(string(job.PgUID))
	made.Text(string(job.Queue))
	made.Number(uint64(job.Priority))
	made.Text(string(job.PodGroup.Status.Phase))
	made.Number(uint64(job.MinAvailable))
	made.Number(uint64(job.CreationTimestamp.UnixNano()))
	made.Annotations(job.PodGroup.Annotations)
	if job.PodGroup.Spec.MinResources != nil {
		made.Amounts(*job.PodGroup.Spec.MinResources)
	}
}

var phases = map[scheduling.PodGroupPhase]pb.JobPhase{
	scheduling.PodGroupPending: pb.JobPhase_JOB_PHASE_PENDING, scheduling.PodGroupInqueue: pb.JobPhase_JOB_PHASE_INQUEUE,
	scheduling.PodGroupRunning: pb.JobPhase_JOB_PHASE_RUNNING, scheduling.PodGroupUnknown: pb.JobPhase_JOB_PHASE_UNKNOWN,
	scheduling.PodGroupCompleted: pb.JobPhase_JOB_PHASE_COMPLETED,
}

// queueRecord is the record of a queue. queuePrint reads the same.
func queueRecord(queue *scheduling.Queue) *pb.Queue {
	weight := queue.Spec.Weight
	made := &pb.Queue{
		Name: queue.Name, Uid: string(queue.UID), Annotations: cycle.ReadAnnotations(queue.Annotations), Weight: &weight,
		Priority: queue.Spec.Priority, State: states[queue.Status.State], Parent: queue.Spec.Parent,
		Reclaimable: queue.Spec.Reclaimable, Capability: pumice.ResourceTexts(queue.Spec.Capability),
		Deserved: pumice.ResourceTexts(queue.Spec.Deserved), Guarantee: pumice.ResourceTexts(queue.Spec.Guarantee.Resource),
	}
	if !queue.CreationTimestamp.IsZero() {
		made.CreationTime = timestamppb.New(queue.CreationTimestamp.Time)
	}
	return made
}

func queuePrint(made *cycle.Fingerprint, queue *scheduling.Queue) {
	made.Text(string(queue.UID))
	made.Text(queue.Spec.Parent)
	made.Text(string(queue.Status.State))
	made.Number(uint64(queue.Spec.Weight))
	made.Number(uint64(queue.Spec.Priority))
	made.Number(uint64(queue.CreationTimestamp.UnixNano()))
	made.Annotations(queue.Annotations)
	made.Flag(queue.Spec.Reclaimable)
	made.Amounts(queue.Spec.Capability)
	made.Amounts(queue.Spec.Deserved)
	made.Amounts(queue.Spec.Guarantee.Resource)
}

var states = map[scheduling.QueueState]pb.QueueState{
	scheduling.QueueStateOpen: pb.QueueState_QUEUE_STATE_OPEN, scheduling.QueueStateClosed: pb.QueueState_QUEUE_STATE_CLOSED,
	scheduling.QueueStateClosing: pb.QueueState_QUEUE_STATE_CLOSING, scheduling.QueueStateUnknown: pb.QueueState_QUEUE_STATE_UNKNOWN,
}
