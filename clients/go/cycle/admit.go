package cycle

import (
	"context"
	"strings"

	pumice "github.com/pumice-scheduler/pumice/clients/go"
	pb "github.com/pumice-scheduler/pumice/clients/go/pumicev1"
)

// admissions are the admissions of jobs and tasks in one cycle.
type admissions struct {
	// asked is true after a vote on a job, which changes the session.
	asked bool
	// enqueued jobs wait for their confirmation. The confirmation of revoked jobs was rejected, with the reason.
	enqueued []string
	revoked  map[string]string
	// onRevoked is called with each revoked job, onRejected with each rejection.
	onRevoked  func(job, reason string)
	onRejected func(Rejection)
	// headrooms has the Admit results of tasks, by queue and class.
	headrooms map[string]*headroomCount
}

type headroomCount struct {
	queue     string
	class     *class
	permitted map[string]bool
	// rejected has the reason if a plugin rejects.
	rejected *pb.AdmitItem
	left     *uint64
	clock    uint64
}

func newAdmissions() admissions {
	return admissions{revoked: map[string]string{}, headrooms: map[string]*headroomCount{}}
}

// OnRevoked sets the function that is called with each enqueued job whose confirmation was rejected.
func (cycle *Cycle) OnRevoked(call func(job, reason string)) {
	cycle.mutex.Lock()
	defer cycle.mutex.Unlock()
	cycle.admitted.onRevoked = call
}

// Enqueueable returns the vote of each plugin on a job that may start: 1 permits, 0 abstains, -1 rejects. A permit is
// tentative: it counts until the next call, unless Enqueued is called.
func (cycle *Cycle) Enqueueable(job string) map[string]int {
	cycle.mutex.Lock()
	defer cycle.mutex.Unlock()
	votes := map[string]int{}
	if cycle.unavailable == nil && len(cycle.admitPlugins) == 0 {
		return votes
	}
	if cycle.unavailable == nil {
		cycle.admitted.asked = true
		response, err := sendAdmit(cycle, &pb.AdmitRequest{
			Mode: pb.AdmitMode_ADMIT_MODE_TENTATIVE, Plugins: cycle.admitPlugins,
			Items: []*pb.AdmitSubject{{Subject: &pb.AdmitSubject_Job{Job: &pb.Job{Name: job}}}},
		})
		if err == nil {
			return cycle.votes(job, response, votes)
		}
	}
	for _, plugin := range cycle.policy.Plugins {
		votes[plugin] = -1
		if cycle.scheduler.settings.Fallback == Abstain {
			votes[plugin] = 0
		}
	}
	if cycle.scheduler.settings.Fallback == FailClosed {
		cycle.rejectUnavailable(job, "")
	}
	return votes
}

// reasonOf is the reason of a rejection.
func reasonOf(item *pb.AdmitItem) string {
	for _, why := range item.GetReasons() {
		return why.GetMessage()
	}
	return item.GetProblem().GetMessage()
}

func (cycle *Cycle) votes(job string, response *pb.AdmitResponse, votes map[string]int) map[string]int {
	for _, item := range response.GetResult().GetItems() {
		if !item.GetPermitted() {
			cycle.reject(job, "", item)
		}
		for _, vote := range item.GetVotes() {
			votes[vote.GetPlugin()] = int(vote.GetVote())
		}
		if item.GetProblem() != nil {
			for _, plugin := range cycle.admitPlugins {
				votes[plugin] = -1
			}
		}
	}
	return votes
}

// sendAdmit sends Admit and leaves enqueued jobs unconfirmed: the votes of one action follow each other.
func sendAdmit(cycle *Cycle, request *pb.AdmitRequest) (response *pb.AdmitResponse, err error) {
	response, err = ask(cycle, func(ctx context.Context) (pumice.Reply[*pb.AdmitResponse], error) {
		return cycle.session.Admit(ctx, request)
	})
	if err != nil {
		return nil, cycle.giveUp(err)
	}
	return response, nil
}

// Enqueued keeps the permit of a job that all plugins permitted. Before the first call other than Enqueueable, the permits
// of all enqueued jobs are confirmed together.
func (cycle *Cycle) Enqueued(job string) {
	cycle.mutex.Lock()
	defer cycle.mutex.Unlock()
	cycle.changes.Add(1)
	if cycle.unavailable == nil && len(cycle.admitPlugins) > 0 {
		cycle.unsent++
		cycle.session.AddChanges(pumice.JobEnqueued(job))
		cycle.admitted.enqueued = append(cycle.admitted.enqueued, job)
	}
}

// confirm reserves resources for the enqueued jobs in the ledger, which all callers see. Rejected jobs are revoked.
func (admitted *admissions) confirm(cycle *Cycle) error {
	if len(admitted.enqueued) == 0 || cycle.session == nil {
		return nil
	}
	admitted.enqueued = nil
	response, err := ask(cycle, func(ctx context.Context) (pumice.Reply[*pb.AdmitResponse], error) {
		return cycle.session.Admit(ctx, &pb.AdmitRequest{Mode: pb.AdmitMode_ADMIT_MODE_CONFIRM})
	})
	if err != nil {
		return err
	}
	cycle.invalidate()
	for _, item := range response.GetResult().GetItems() {
		if item.GetPermitted() {
			continue
		}
		reason := reasonOf(item)
		admitted.revoked[item.GetJob()] = reason
		cycle.reject(item.GetJob(), "", item)
		if admitted.onRevoked != nil {
			admitted.onRevoked(item.GetJob(), reason)
		}
	}
	return nil
}

// Allocatable reports whether a plugin lets a queue take a task; a plugin without an opinion does. The result of a class is reused while it holds, and
// counted down as tasks of the class are allocated.
func (cycle *Cycle) Allocatable(plugin string, task Task) bool {
	cycle.mutex.Lock()
	defer cycle.mutex.Unlock()
	if cycle.unavailable != nil {
		return cycle.permitUnavailable(task)
	}
	if cycle.takesNoPart(cycle.admitPlugins, plugin) {
		return true
	}
	reported := cycle.scheduler.mirror.tasks[task.Name]
	class := cycle.classOf(task)
	if class == nil || reported == nil {
		return false
	}
	key := task.Queue + "\x00" + reported.classOf(cycle.quotas)
	entry := cycle.admitted.headrooms[key]
	if entry == nil || cycle.invalidated > entry.clock {
		response, err := send(cycle, func(ctx context.Context) (pumice.Reply[*pb.AdmitResponse], error) {
			return cycle.session.Admit(ctx, &pb.AdmitRequest{
				Plugins: cycle.admitPlugins,
				Items:   []*pb.AdmitSubject{{Subject: &pb.AdmitSubject_Task{Task: &pb.Task{Name: task.Name}}}},
			})
		})
		if err != nil {
			return cycle.permitUnavailable(task)
		}
		entry = &headroomCount{queue: task.Queue, class: class, permitted: map[string]bool{}, clock: cycle.clock}
		for _, item := range response.GetResult().GetItems() {
			for _, vote := range item.GetVotes() {
				entry.permitted[vote.GetPlugin()] = vote.GetVote() >= 0
			}
			if !item.GetPermitted() {
				entry.rejected = item
			}
			// Each of several cards has its own count.
			if !strings.Contains(reported.record.GetAnnotations()[annotationCard], "|") {
				entry.left = item.Headroom
			}
		}
		cycle.admitted.headrooms[key] = entry
	}
	permitted := entry.permitted[plugin]
	if !permitted && entry.rejected != nil {
		cycle.reject(task.Job, task.Name, entry.rejected)
	}
	return permitted
}

// permitUnavailable is the result of Allocatable without the service.
func (cycle *Cycle) permitUnavailable(task Task) bool {
	if cycle.scheduler.settings.Fallback == Abstain {
		return true
	}
	cycle.rejectUnavailable(task.Job, task.Name)
	return false
}

// recorded counts down the headroom of the task's own class and drops all others.
func (admitted *admissions) recorded(event PlacementEvent, task Task, cycle *Cycle) {
	if len(admitted.headrooms) == 0 {
		return
	}
	found, _ := cycle.byTask.Load(task.ID)
	for key, entry := range admitted.headrooms {
		own := entry.queue == task.Queue && found == any(entry.class)
		if own && event == Allocated && entry.left != nil && *entry.left > 1 {
			left := *entry.left - 1
			entry.left = &left
			continue
		}
		// The event may also change the headroom of other classes, and of parent and sibling queues.
		delete(admitted.headrooms, key)
	}
}
