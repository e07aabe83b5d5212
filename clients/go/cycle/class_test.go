package cycle

import (
	"testing"

	pb "github.com/pumice-scheduler/pumice/clients/go/pumicev1"
)

// Which card a job uses decides about all its tasks that may use several, and about no other job's.
func TestTasksThatMayUseSeveralCardsAreOneClassPerJob(t *testing.T) {
	classOf := func(job, card string) string {
		task := &pb.Task{Name: "ns/" + job + "-0", Job: "ns/" + job, Annotations: map[string]string{annotationCard: card}}
		reported := known{record: task, queue: "q"}
		return reported.classOf(true)
	}
	if classOf("a", "H100|A100") == classOf("b", "H100|A100") {
		t.Error("two jobs share an answer that hangs on the card of one of them")
	}
	if classOf("a", "H100|A100") != classOf("a", "H100|A100") {
		t.Error("tasks of one job are asked about one by one")
	}
	if classOf("a", "H100") != classOf("b", "H100") {
		t.Error("with one card there is nothing that a job decides")
	}
}
