package pumice

import (
	"math"
	"testing"

	pb "github.com/pumice-scheduler/pumice/clients/go/pumicev1"
)

func ranked(name string, created int64, values ...float64) RankedRecord {
	return RankedRecord{Rank: &pb.Rank{Name: name, Keys: []*pb.OrderKey{{Plugin: "drf", Values: values}}}, Created: &created}
}

func TestRecordsCompareByKeysAgeAndName(t *testing.T) {
	for name, test := range map[string]struct {
		left, right         RankedRecord
		corrected, upstream int
	}{
		"keys":           {ranked("b", 1, 0, 1), ranked("a", 1, 0, 2), -1, -1},
		"a key ends":     {ranked("b", 1, 0), ranked("a", 1, 0, 2), -1, 1},
		"not a number":   {ranked("b", 1, math.NaN(), 1), ranked("a", 1, 0, 2), 1, 1},
		"age":            {ranked("b", 1), ranked("a", 2), -1, -1},
		"no age is old":  {RankedRecord{Rank: &pb.Rank{Name: "b"}}, ranked("a", 0), -1, -1},
		"name":           {ranked("b", 1, 1), ranked("a", 1, 1), 1, 1},
		"the same":       {ranked("a", 1, 1), ranked("a", 1, 1), 0, 0},
		"a problem":      {RankedRecord{Rank: &pb.Rank{Name: "a", Problem: &pb.Problem{}}}, ranked("b", 1, 9), 1, 1},
		"no problem":     {ranked("b", 1, 9), RankedRecord{Rank: &pb.Rank{Name: "a", Problem: &pb.Problem{}}}, -1, -1},
		"the other wins": {ranked("a", 1, 2), ranked("b", 1, 1), 1, 1},
	} {
		if got := Compare(test.left, test.right, Corrected); got != test.corrected {
			t.Errorf("%s: %d under corrected", name, got)
		}
		if got := Compare(test.left, test.right, Upstream); got != test.upstream {
			t.Errorf("%s: %d under upstream", name, got)
		}
	}
	if first := First([]RankedRecord{ranked("c", 1, 3), ranked("b", 1, 1), ranked("a", 1, 2)}, Upstream); first != 1 {
		t.Error(first)
	}
}

func TestTheOrderOfTheServiceIsFoundLocally(t *testing.T) {
	client, ctx := loaded(t, Options{}), within(t)
	document := "actions: allocate\ntiers: [{plugins: [{name: drf}]}]"
	if _, err := client.ReloadPolicy(ctx, &pb.ReloadPolicyRequest{Document: document}); err != nil {
		t.Fatal(err)
	}
	feed := client.Feed("jobs", 0)
	more := &pb.Cluster{}
	for at, name := range []string{"default/a", "default/b", "default/c"} {
		more.Jobs = append(more.Jobs, &pb.Job{Name: name, Queue: "research"})
		cpu := []string{"2", "0", "1"}[at]
		more.Tasks = append(more.Tasks, &pb.Task{
			Name: name + "-0", Job: name, Node: "n3", Status: pb.TaskStatus_TASK_STATUS_RUNNING, Requests: amounts("cpu", cpu),
		})
	}
	feed.Put(more)
	if _, err := feed.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	reply, err := client.Order(ctx, &pb.OrderRequest{Jobs: &pb.NameSet{}})
	if err != nil || len(reply.Response.GetResult().GetJobs()) != 4 {
		t.Fatal(reply, err)
	}
	jobs := reply.Response.GetResult().GetJobs()
	for at := range jobs[1:] {
		if Compare(RankedRecord{Rank: jobs[at]}, RankedRecord{Rank: jobs[at+1]}, Corrected) >= 0 {
			t.Errorf("%v before %v", jobs[at], jobs[at+1])
		}
	}
}

func TestStaleResultsAreKnown(t *testing.T) {
	var validity Validity
	before := validity.Now()
	validity.Apply(nil)
	validity.Apply(&pb.Invalidation{
		Scope: pb.InvalidationScope_INVALIDATION_SCOPE_NODES, Nodes: &pb.NodeSet{Names: []string{"n1"}}, Queues: []string{"q"},
	})
	between := validity.Now()
	names, all := validity.StaleNodes(before)
	if validity.Node(before, "n1") || !validity.Node(before, "n2") || !validity.Node(between, "n1") || all || len(names) != 1 {
		t.Fatal("nodes", names, all)
	}
	if validity.Queue(before, "q") || !validity.Queue(before, "r") || !validity.Queue(between, "q") {
		t.Fatal("queues")
	}
	validity.Apply(&pb.Invalidation{Scope: pb.InvalidationScope_INVALIDATION_SCOPE_NONE, Queues: []string{"r"}})
	if !validity.Node(between, "n2") || validity.Queue(between, "r") {
		t.Fatal("none")
	}
	validity.Apply(&pb.Invalidation{Scope: pb.InvalidationScope_INVALIDATION_SCOPE_NODES, Nodes: &pb.NodeSet{Slots: []uint32{1}}})
	if _, all := validity.StaleNodes(between); !all || validity.Queue(between, "q") || validity.Node(between, "n2") {
		t.Fatal("slots that nobody can read make everything stale")
	}
}

func TestHeadroomIsCountedDown(t *testing.T) {
	session := &Session{}
	headroom := session.Headroom()
	two := uint64(2)
	headroom.Set("q", "small", &pb.AdmitItem{Permitted: true, Headroom: &two})
	headroom.Set("q", "large", &pb.AdmitItem{Permitted: true, Headroom: &two})
	headroom.Set("r", "small", &pb.AdmitItem{Permitted: true})
	check := func(queue, class string, taken, known bool) {
		t.Helper()
		if gotTaken, gotKnown := headroom.Take(queue, class); gotTaken != taken || gotKnown != known {
			t.Fatal(queue, class, gotTaken, gotKnown)
		}
	}
	check("q", "small", true, true)
	check("q", "large", false, false)
	check("q", "small", true, true)
	check("q", "small", false, true)
	check("r", "small", true, true)
	session.validity.Apply(&pb.Invalidation{Scope: pb.InvalidationScope_INVALIDATION_SCOPE_NONE, Queues: []string{"r"}})
	check("r", "small", false, false)
	check("s", "small", false, false)
	headroom.Set("s", "small", &pb.AdmitItem{})
	check("s", "small", false, true)
}
