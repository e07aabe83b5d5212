package cycle

import (
	"context"
	"strings"

	pumice "pumice/clients/go"
	pb "pumice/clients/go/pumicev1"
)

// admissions are votes on jobs and tasks.
type admissions struct {
	// asked: a job was asked about, so the session is not as it was.
	asked bool
	// enqueued jobs wait for their confirmation, revoked ones did not get it.
	enqueued []string
	revoked  map[string]string
	// refused jobs got no permit, and why.
	refused map[string]string
	// onRevoked is told of the revoked.
	onRevoked func(job, reason string)
	// rooms is whether a queue takes a task of a class.
	rooms map[string]*headroom
}

type headroom struct {
	queue     string
	class     *class
	permitted map[string]bool
	left      *uint64
	clock     uint64
}

func newAdmissions() admissions {
	return admissions{revoked: map[string]string{}, refused: map[string]string{}, rooms: map[string]*headroom{}}
}

// OnRevoked is called with each enqueued job whose admission was not confirmed.
func (cycle *Cycle) OnRevoked(call func(job, reason string)) {
	cycle.mutex.Lock()
	defer cycle.mutex.Unlock()
	cycle.admitted.onRevoked = call
}

// Enqueueable is each plugin's vote on a job that wants to start: 1 permit, 0 abstain, -1 reject. A permit is tentative:
// it counts until the next question, unless Enqueued follows.
func (cycle *Cycle) Enqueueable(job string) map[string]int {
	cycle.mutex.Lock()
	defer cycle.mutex.Unlock()
	votes := map[string]int{}
	if cycle.away == nil {
		cycle.admitted.asked = true
		response, err := ask2(cycle, &pb.AdmitRequest{
			Mode: pb.AdmitMode_ADMIT_MODE_TENTATIVE, Plugins: cycle.admitPlugins,
			Items: []*pb.AdmitSubject{{Subject: &pb.AdmitSubject_Job{Job: &pb.Job{Name: job}}}},
		})
		if err == nil {
			return cycle.votes(job, response, votes)
		}
	}
	for _, plugin := range cycle.policy.Plugins {
		votes[plugin] = -1
		if cycle.scheduler.settings.Away == Abstain {
			votes[plugin] = 0
		}
	}
	return votes
}

// WhyNot is why a job got no permit when Enqueueable was last asked; empty if it got one, or nobody knows.
func (cycle *Cycle) WhyNot(job string) string {
	cycle.mutex.RLock()
	defer cycle.mutex.RUnlock()
	return cycle.admitted.refused[job]
}

// reasonOf is why something was not admitted.
func reasonOf(item *pb.AdmitItem) string {
	for _, why := range item.GetReasons() {
		return why.GetMessage()
	}
	return item.GetProblem().GetMessage()
}

func (cycle *Cycle) votes(job string, response *pb.AdmitResponse, votes map[string]int) map[string]int {
	delete(cycle.admitted.refused, job)
	for _, item := range response.GetResult().GetItems() {
		if !item.GetPermitted() {
			cycle.admitted.refused[job] = reasonOf(item)
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

// ask2 asks Admit without settling what waits for confirmation: the votes of one action follow each other.
func ask2(cycle *Cycle, request *pb.AdmitRequest) (response *pb.AdmitResponse, err error) {
	err = cycle.timed(func() error {
		ctx, cancel := cycle.context()
		defer cancel()
		reply, err := cycle.session.Admit(ctx, request)
		if err == nil && reply.Cause != nil {
			err = reply.Cause
		}
		response = reply.Response
		return err
	})
	if err != nil {
		return nil, cycle.giveUp(err)
	}
	return response, nil
}

// Enqueued tells that a job was admitted by all. Its permit stays, and is confirmed with those of the others before the
// first question that is not Enqueueable.
func (cycle *Cycle) Enqueued(job string) {
	cycle.mutex.Lock()
	defer cycle.mutex.Unlock()
	cycle.changes.Add(1)
	if cycle.away == nil && len(cycle.admitPlugins) > 0 {
		cycle.session.Note(pumice.JobEnqueued(job))
		cycle.admitted.enqueued = append(cycle.admitted.enqueued, job)
	}
}

// confirm reserves what was enqueued, for everybody. Jobs that are refused are revoked.
func (admitted *admissions) confirm(cycle *Cycle) error {
	if len(admitted.enqueued) == 0 || cycle.session == nil {
		return nil
	}
	admitted.enqueued = nil
	var response *pb.AdmitResponse
	err := cycle.timed(func() error {
		ctx, cancel := cycle.context()
		defer cancel()
		reply, err := cycle.session.Admit(ctx, &pb.AdmitRequest{Mode: pb.AdmitMode_ADMIT_MODE_CONFIRM})
		if err == nil && reply.Cause != nil {
			err = reply.Cause
		}
		response = reply.Response
		return err
	})
	if err != nil {
		return err
	}
	cycle.spoil()
	for _, item := range response.GetResult().GetItems() {
		if item.GetPermitted() {
			continue
		}
		reason := reasonOf(item)
		admitted.revoked[item.GetJob()] = reason
		if admitted.onRevoked != nil {
			admitted.onRevoked(item.GetJob(), reason)
		}
	}
	return nil
}

// Allocatable says whether a queue takes a task. The answer is looked up for tasks of one class as long as it holds, and
// counted down as they are allocated.
func (cycle *Cycle) Allocatable(plugin string, task Task) bool {
	cycle.mutex.Lock()
	defer cycle.mutex.Unlock()
	away := cycle.scheduler.settings.Away == Abstain
	if cycle.away != nil {
		return away
	}
	told := cycle.scheduler.mirror.tasks[task.Name]
	class := cycle.classOf(task)
	if class == nil || told == nil {
		return false
	}
	key := task.Queue + "\x00" + told.classOf(cycle.quotas)
	room := cycle.admitted.rooms[key]
	if room == nil || cycle.spoiled > room.clock {
		response, err := ask(cycle, func(ctx context.Context) (pumice.Reply[*pb.AdmitResponse], error) {
			return cycle.session.Admit(ctx, &pb.AdmitRequest{
				Plugins: cycle.admitPlugins,
				Items:   []*pb.AdmitSubject{{Subject: &pb.AdmitSubject_Task{Task: &pb.Task{Name: task.Name}}}},
			})
		})
		if err != nil {
			return away
		}
		room = &headroom{queue: task.Queue, class: class, permitted: map[string]bool{}, clock: cycle.clock}
		for _, item := range response.GetResult().GetItems() {
			for _, vote := range item.GetVotes() {
				room.permitted[vote.GetPlugin()] = vote.GetVote() >= 0
			}
			// Of several cards each has its own count.
			if !strings.Contains(told.record.GetAnnotations()[annotationCard], "|") {
				room.left = item.Headroom
			}
		}
		cycle.admitted.rooms[key] = room
	}
	return room.permitted[plugin]
}

// happened counts down where that is safe, and forgets the rest.
func (admitted *admissions) happened(verb Verb, task Task, cycle *Cycle) {
	if len(admitted.rooms) == 0 {
		return
	}
	found, _ := cycle.byTask.Load(task.ID)
	for key, room := range admitted.rooms {
		own := room.queue == task.Queue && found == any(room.class)
		if own && verb == Allocated && room.left != nil && *room.left > 1 {
			left := *room.left - 1
			room.left = &left
			continue
		}
		// Queues above and beside may be touched, too.
		delete(admitted.rooms, key)
	}
}
