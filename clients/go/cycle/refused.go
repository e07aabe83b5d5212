package cycle

import (
	"cmp"
	"errors"
	"slices"
	"strings"

	pumice "github.com/pumice-scheduler/pumice/clients/go"
	pb "github.com/pumice-scheduler/pumice/clients/go/pumicev1"
)

// RefusedRecord is a record that is not in force as the scheduler has it: it could not be made, or the service refused it.
// The last good record of the same name stays in force, if there was one.
type RefusedRecord struct {
	// Kind is "node", "queue", "job" or "task".
	Kind string
	// Name of the record. Empty: unknown; then Field says where the record was in its batch.
	Name string
	// Field that is wrong. Empty: unknown.
	Field string
	// Message is a sentence for people.
	Message string
	// Unreadable is true if the scheduler's object could not be read; false: the service refused the record.
	Unreadable bool
}

// String is the record in messages.
func (record RefusedRecord) String() string {
	parts := []string{}
	if record.Name != "" {
		parts = append(parts, record.Kind+" "+record.Name)
	}
	if record.Field != "" {
		parts = append(parts, record.Field)
	}
	return strings.Join(append(parts, record.Message), ": ")
}

// Unreadable marks an object of which no record can be made.
func Unreadable(kind pb.RecordKind, name string, err error) *pb.UnreadableRecord {
	mark := &pb.UnreadableRecord{Kind: kind, Name: name, Message: err.Error()}
	var failure *pumice.RecordError
	if errors.As(err, &failure) {
		mark.Field, mark.Message = failure.Field, failure.Cause.Error()
	}
	return mark
}

// recordKey identifies a record.
type recordKey struct {
	kind, name string
}

// kindWord is a kind in messages.
func kindWord(kind pb.RecordKind) string {
	return strings.ToLower(strings.TrimPrefix(kind.String(), "RECORD_KIND_"))
}

func sortRefused(list []RefusedRecord) {
	slices.SortFunc(list, func(left, right RefusedRecord) int {
		return cmp.Or(strings.Compare(left.Kind, right.Kind), strings.Compare(left.Name, right.Name), strings.Compare(left.Field, right.Field))
	})
}

// refuse keeps records that the service refused, until they are sent again or removed.
func (scheduler *Scheduler) refuse(list []pumice.RefusedRecord) {
	scheduler.refusedMutex.Lock()
	defer scheduler.refusedMutex.Unlock()
	for _, item := range list {
		record := RefusedRecord{Name: item.Name, Field: item.Problem.GetField(), Message: item.Problem.GetMessage()}
		if item.Name != "" {
			record.Kind = kindWord(item.Kind)
			// "batch.put.nodes[3].allocatable" names the record by its place in the batch.
			_, record.Field, _ = strings.Cut(record.Field, "].")
		}
		scheduler.refused[recordKey{record.Kind, item.Name}] = record
	}
}

// takeRefused ends the refusals of records that are sent again or removed, before the next batch.
func (scheduler *Scheduler) takeRefused(changes *changes) {
	scheduler.refusedMutex.Lock()
	defer scheduler.refusedMutex.Unlock()
	end := func(kind, name string) { delete(scheduler.refused, recordKey{kind, name}) }
	for _, node := range changes.put.GetNodes() {
		end("node", node.GetName())
	}
	for _, queue := range changes.put.GetQueues() {
		end("queue", queue.GetName())
	}
	for _, job := range changes.put.GetJobs() {
		end("job", job.GetName())
	}
	for _, task := range changes.put.GetTasks() {
		end("task", task.GetName())
	}
	for kind, names := range map[string][]string{
		"node": changes.gone.GetNodes(), "queue": changes.gone.GetQueues(), "job": changes.gone.GetJobs(), "task": changes.gone.GetTasks(),
	} {
		for _, name := range names {
			end(kind, name)
		}
	}
}

// reportRefused keeps the refused records for the cycle, and reports those that are new.
func (scheduler *Scheduler) reportRefused(cycle *Cycle) {
	now := map[RefusedRecord]bool{}
	for _, record := range scheduler.mirror.unreadable {
		now[record] = true
	}
	scheduler.refusedMutex.Lock()
	for _, record := range scheduler.refused {
		now[record] = true
	}
	scheduler.refusedMutex.Unlock()
	var fresh []RefusedRecord
	for record := range now {
		cycle.refusedRecords = append(cycle.refusedRecords, record)
		if !scheduler.reported[record] {
			fresh = append(fresh, record)
		}
	}
	sortRefused(cycle.refusedRecords)
	sortRefused(fresh)
	if len(fresh) > 0 || len(now) != len(scheduler.reported) {
		scheduler.settings.Observer.Refused(fresh, len(now))
	}
	scheduler.reported = now
}
