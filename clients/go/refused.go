package pumice

import (
	"strconv"
	"strings"

	pb "github.com/pumice-scheduler/pumice/clients/go/pumicev1"
)

// RefusedRecord is a record of a batch that the service refused.
type RefusedRecord struct {
	// Kind and Name of the record. Not set: the problem concerns no single record.
	Kind pb.RecordKind
	Name string
	// Problem is the reason.
	Problem *pb.Problem
}

// OnRefused sets the function that is called with the records that the service refused, after each batch with any. Records
// that the feed itself marked unreadable are not among them. The function must not call the feed.
func (feed *Feed) OnRefused(call func([]RefusedRecord)) {
	feed.mutex.Lock()
	defer feed.mutex.Unlock()
	feed.onRefused = call
}

// reportRefused warns about refused records: the service has an older record of that name, or none. Records that the feed
// itself marked unreadable are already in the log. Only the server in use is heard: the others refuse the same.
func (feed *Feed) reportRefused(link *feedLink, batch *pb.Batch, outcome *pb.BatchOutcome) {
	if link.server != feed.client.servers.inUse() {
		return
	}
	options := &feed.client.options
	var refused []RefusedRecord
	for _, problem := range outcome.GetRefused() {
		if problem.GetReason() == reasonUnreadable {
			continue
		}
		kind, name := recordAt(batch.GetPut(), problem.GetField())
		refused = append(refused, RefusedRecord{Kind: kind, Name: name, Problem: problem})
		if len(refused) <= loggedRecords {
			options.Logger.Warn("Pumice refused a record of a feed", "source", feed.source, "kind", kindWord(kind), "name", name,
				"field", problem.GetField(), "reason", problem.GetReason(), "message", problem.GetMessage())
		}
	}
	if len(refused) > loggedRecords {
		options.Logger.Warn("Pumice refused more records of a feed", "source", feed.source, "records", len(refused)-loggedRecords)
	}
	if len(refused) > 0 {
		options.Metrics.Refused(feed.source, len(refused))
		feed.mutex.Lock()
		call := feed.onRefused
		feed.mutex.Unlock()
		if call != nil {
			call(refused)
		}
	}
}

// recordAt is the record that a field such as "batch.put.tasks[3].requests" is part of.
func recordAt(put *pb.Cluster, field string) (pb.RecordKind, string) {
	_, path, found := strings.Cut(field, "put.")
	list, rest, indexed := strings.Cut(path, "[")
	index, _, closed := strings.Cut(rest, "]")
	at, err := strconv.ParseUint(index, 10, 31)
	if !found || !indexed || !closed || err != nil {
		return pb.RecordKind_RECORD_KIND_UNSPECIFIED, ""
	}
	switch list {
	case "nodes":
		return pb.RecordKind_RECORD_KIND_NODE, nameAt(put.GetNodes(), at)
	case "queues":
		return pb.RecordKind_RECORD_KIND_QUEUE, nameAt(put.GetQueues(), at)
	case "jobs":
		return pb.RecordKind_RECORD_KIND_JOB, nameAt(put.GetJobs(), at)
	case "tasks":
		return pb.RecordKind_RECORD_KIND_TASK, nameAt(put.GetTasks(), at)
	default:
		return pb.RecordKind_RECORD_KIND_UNSPECIFIED, ""
	}
}

func nameAt[R record](list []R, at uint64) string {
	if at >= uint64(len(list)) {
		return ""
	}
	return list[at].GetName()
}
