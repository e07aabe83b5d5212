package cycle

import (
	"strings"

	pb "github.com/pumice-scheduler/pumice/clients/go/pumicev1"

	"google.golang.org/protobuf/proto"
)

// known is a task that was sent, with its class.
type known struct {
	record *pb.Task
	owner  GroupKey
	// job and queue are those of the record.
	job, queue string
	// class and its fingerprints are made when they are first read, each for policies with or without quotas.
	class                                 string
	kind, victim                          Fingerprint
	classQuotas, kindQuotas, victimQuotas bool
}

// classOf returns the class of a task. Tasks of one class have equal records but for names, uids, times and annotations that
// no served plugin reads; where a plugin has quotas, also the same queue.
func (known *known) classOf(quotas bool) string {
	if known.class == "" || known.classQuotas != quotas {
		known.class, known.classQuotas = known.text(quotas)+"\x00"+known.record.GetNode(), quotas
	}
	return known.class
}

// kindOf returns the fingerprint of a task's class, on whatever node the task is.
func (known *known) kindOf(quotas bool) Fingerprint {
	if known.kind == 0 || known.kindQuotas != quotas {
		known.kind, known.kindQuotas = 0, quotas
		known.kind.Text(known.text(quotas))
	}
	return known.kind
}

func (known *known) text(quotas bool) string {
	task := proto.CloneOf(known.record)
	task.Name, task.Uid, task.Job, task.CreationTime, task.Priority, task.NominatedNode, task.Node = "", "", "", nil, 0, "", ""
	read := map[string]string{}
	for _, key := range annotationsRead {
		if value, found := task.GetAnnotations()[key]; found {
			read[key] = value
		}
	}
	task.Annotations = read
	made := recordText(task, known.record.GetName()) + "\x00"
	if quotas {
		made += known.queue
	}
	// All tasks of a job use one card, which may differ from that of another job.
	if strings.Contains(read[annotationCard], "|") {
		made += "\x00" + known.record.GetJob()
	}
	return made
}

// recordText returns a text that equal records have in common; the name of a record that has none.
func recordText(record proto.Message, name string) string {
	text, err := proto.MarshalOptions{Deterministic: true}.Marshal(record)
	if err != nil {
		return name
	}
	return string(text)
}

// annotationCard has the cards that a task may use.
const annotationCard = "volcano.sh/card.name"

// annotationsRead are the annotations of tasks that served plugins read.
var annotationsRead = [...]string{"volcano.sh/resource-strategy-scoring-type", "volcano.sh/resource-strategy-weight", annotationCard}
