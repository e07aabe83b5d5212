// Ownscheduler is a whole scheduler: it sends its state, decides, commits, binds and reports. It runs two cycles for the cluster
// in the file that its argument names. PUMICE_SERVER names the server; the default is the one on this machine.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	pumice "github.com/pumice-scheduler/pumice/clients/go"
	pb "github.com/pumice-scheduler/pumice/clients/go/pumicev1"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

const source = "own-scheduler"

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: ownscheduler CLUSTER")
		os.Exit(2)
	}
	if err := start(context.Background(), os.Args[1], cmp.Or(os.Getenv("PUMICE_SERVER"), pumice.DefaultTarget)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func start(ctx context.Context, file, server string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	records := &pb.Cluster{}
	if err := protojson.Unmarshal(text, records); err != nil {
		return err
	}
	client, err := pumice.Dial(server, pumice.Options{})
	if err != nil {
		return err
	}
	defer client.Close()
	feed := client.Feed(source, 0)
	defer feed.Close()
	own := &scheduler{client: client, feed: feed, cluster: &cluster{records: records, failing: "ml/gang-1"}}
	own.report(records)
	return own.run(ctx, 2, time.Second)
}

// cluster stands for your API server: records by name, and binds. The first bind of a task may fail once.
type cluster struct {
	records *pb.Cluster
	failing string
}

// bind binds a task. Binding it again to the same node changes nothing.
func (cluster *cluster) bind(task *pb.Task, node string) error {
	if task.GetName() == cluster.failing {
		cluster.failing = ""
		return errors.New("the API server rejected the bind")
	}
	task.Node, task.Status = node, pb.TaskStatus_TASK_STATUS_BOUND
	return nil
}

// scheduler is the only writer of its source.
type scheduler struct {
	client  *pumice.Client
	feed    *pumice.Feed
	cluster *cluster
}

// run runs cycles. An error ends its cycle: nothing is bound without a decision.
func (own *scheduler) run(ctx context.Context, cycles int, wait time.Duration) error {
	for range cycles {
		err := own.cycle(ctx)
		if errors.Is(err, pumice.ErrFenced) {
			return err // Another process with this source has started: only one may run.
		}
		if err != nil {
			fmt.Printf("no decision, the next cycle tries again: %v\n", err)
			time.Sleep(wait)
		}
	}
	return nil
}

// report puts records into the feed, which keeps them: a record that changes later must be another one.
func (own *scheduler) report(records *pb.Cluster) {
	own.feed.Put(proto.CloneOf(records))
}

// cycle decides in a session, commits it and binds.
func (own *scheduler) cycle(ctx context.Context) error {
	if err := own.bindCommitted(ctx); err != nil { // Left by a cycle that ended in between.
		return err
	}
	session, err := own.feed.OpenSession(ctx, nil)
	if err != nil {
		return err
	}
	defer session.Close(ctx)
	waiting := map[string]*pb.Job{}
	names := &pb.NameSet{}
	for _, job := range own.cluster.records.GetJobs() {
		if len(own.pending(job.GetName())) > 0 {
			waiting[job.GetName()] = job
			names.Names = append(names.Names, job.GetName())
		}
	}
	if len(waiting) == 0 {
		return nil
	}
	order, err := session.Order(ctx, &pb.OrderRequest{Jobs: names})
	if err != nil {
		return err
	}
	for _, rank := range order.Response.GetResult().GetJobs() {
		if err := own.place(ctx, session, waiting[rank.GetName()]); err != nil {
			return err
		}
	}
	if err := own.confirm(ctx, session, waiting); err != nil {
		return err
	}
	committed, err := session.Commit(ctx)
	if err != nil {
		return err
	}
	for _, commit := range committed.GetJobs() {
		for _, rejection := range commit.GetRejections() {
			fmt.Printf("%s waits: %s\n", cmp.Or(rejection.GetPlacement().GetTask(), commit.GetJob()), rejection.GetReason().GetMessage())
		}
	}
	return own.bindCommitted(ctx)
}

// pending returns the tasks of a job without a node.
func (own *scheduler) pending(job string) []*pb.Task {
	var tasks []*pb.Task
	for _, task := range own.cluster.records.GetTasks() {
		if task.GetJob() == job && task.GetNode() == "" {
			tasks = append(tasks, task)
		}
	}
	return tasks
}

// place admits a job, and places its tasks in the session.
func (own *scheduler) place(ctx context.Context, session *pumice.Session, job *pb.Job) error {
	named := &pb.Job{Name: job.GetName()}
	if job.GetPhase() <= pb.JobPhase_JOB_PHASE_PENDING {
		subject := &pb.AdmitSubject{Subject: &pb.AdmitSubject_Job{Job: named}}
		reply, err := session.Admit(ctx, &pb.AdmitRequest{Mode: pb.AdmitMode_ADMIT_MODE_TENTATIVE, Items: []*pb.AdmitSubject{subject}})
		if err != nil {
			return err
		}
		if admitted := reply.Response.GetResult().GetItems()[0]; !admitted.GetPermitted() {
			fmt.Printf("%s waits: %s\n", job.GetName(), admitted.GetReasons()[0].GetMessage())
			return nil
		}
		session.AddChanges(pumice.JobEnqueued(job.GetName()))
	}
	request := &pb.PlaceRequest{Job: named, Effect: pb.PlaceEffect_PLACE_EFFECT_SESSION}
	for _, task := range own.pending(job.GetName()) {
		request.Groups = append(request.Groups, &pb.TaskGroup{Names: []string{task.GetName()}})
	}
	reply, err := session.Place(ctx, request)
	if err != nil {
		return err
	}
	if result := reply.Response.GetResult(); !result.GetPlaced() {
		fmt.Printf("%s waits: %s\n", job.GetName(), result.GetBlockers()[0].GetReason().GetMessage())
	}
	return nil
}

// confirm reserves the quota of the jobs that the session enqueued. Their phase is reported after the commit.
func (own *scheduler) confirm(ctx context.Context, session *pumice.Session, jobs map[string]*pb.Job) error {
	reply, err := session.Admit(ctx, &pb.AdmitRequest{Mode: pb.AdmitMode_ADMIT_MODE_CONFIRM})
	if err != nil {
		return err
	}
	for _, item := range reply.Response.GetResult().GetItems() {
		if !item.GetPermitted() {
			fmt.Printf("%s waits: %s\n", item.GetJob(), item.GetReasons()[0].GetMessage())
			continue
		}
		jobs[item.GetJob()].Phase = pb.JobPhase_JOB_PHASE_INQUEUE
		own.report(&pb.Cluster{Jobs: []*pb.Job{jobs[item.GetJob()]}})
	}
	return nil
}

// bindCommitted binds committed placements, releases those that cannot be bound, and reports what changed.
func (own *scheduler) bindCommitted(ctx context.Context) error {
	nodes, err := own.committed(ctx)
	if err != nil {
		return err
	}
	for _, task := range own.cluster.records.GetTasks() {
		node := nodes[task.GetName()]
		if node == "" {
			continue
		}
		if failure := own.cluster.bind(task, node); failure != nil {
			fmt.Printf("%s waits: %v\n", task.GetName(), failure)
			if _, err := own.client.ReleaseAssumptions(ctx, &pb.ReleaseAssumptionsRequest{Tasks: []string{task.GetName()}}); err != nil {
				return err
			}
			continue
		}
		own.report(&pb.Cluster{Tasks: []*pb.Task{task}})
		fmt.Printf("%s -> %s\n", task.GetName(), node)
	}
	_, err = own.feed.Flush(ctx)
	return err
}

// committed returns the nodes of the own tasks whose placement is committed and not reported.
func (own *scheduler) committed(ctx context.Context) (map[string]string, error) {
	nodes := map[string]string{}
	request := &pb.ListTasksRequest{Page: &pb.Page{}}
	for {
		page, err := own.client.ListTasks(ctx, request)
		if err != nil {
			return nil, err
		}
		for _, stored := range page.GetTasks() {
			if stored.GetAssumed() && stored.GetSource() == source {
				nodes[stored.GetTask().GetName()] = stored.GetTask().GetNode()
			}
		}
		if request.Page.Token = page.GetNextPageToken(); request.Page.Token == "" {
			return nodes, nil
		}
	}
}
