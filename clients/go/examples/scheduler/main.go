// Scheduler runs one cycle: it places pending jobs, each as a whole or not at all. It does not bind. PUMICE_SERVER names the
// server; the default is the one on this machine.
package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"

	pumice "github.com/pumice-scheduler/pumice/clients/go"
	pb "github.com/pumice-scheduler/pumice/clients/go/pumicev1"
)

func main() {
	if err := cycle(context.Background(), cmp.Or(os.Getenv("PUMICE_SERVER"), pumice.DefaultTarget)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func cycle(ctx context.Context, server string) error {
	client, err := pumice.Dial(server, pumice.Options{})
	if err != nil {
		return err
	}
	defer client.Close()
	jobs, err := pending(ctx, client)
	if err != nil {
		return err
	}
	session, err := client.OpenSession(ctx, nil)
	if err != nil {
		return err
	}
	defer session.Close(ctx)
	for _, tasks := range jobs {
		if err := place(ctx, session, tasks); err != nil {
			return err
		}
	}
	return nil
}

// pending returns the pending tasks by job.
func pending(ctx context.Context, client *pumice.Client) ([][]string, error) {
	var jobs [][]string
	at := map[string]int{}
	request := &pb.ListTasksRequest{Page: &pb.Page{}}
	for {
		page, err := client.ListTasks(ctx, request)
		if err != nil {
			return nil, err
		}
		for _, stored := range page.GetTasks() {
			task := stored.GetTask()
			if task.GetStatus() != pb.TaskStatus_TASK_STATUS_PENDING || task.GetGated() {
				continue
			}
			job := cmp.Or(task.GetJob(), task.GetName())
			if _, found := at[job]; !found {
				at[job] = len(jobs)
				jobs = append(jobs, nil)
			}
			jobs[at[job]] = append(jobs[at[job]], task.GetName())
		}
		if request.Page.Token = page.GetNextPageToken(); request.Page.Token == "" {
			return jobs, nil
		}
	}
}

func place(ctx context.Context, session *pumice.Session, tasks []string) error {
	slices.Sort(tasks)
	request := &pb.PlaceRequest{Effect: pb.PlaceEffect_PLACE_EFFECT_SESSION}
	for _, task := range tasks {
		request.Groups = append(request.Groups, &pb.TaskGroup{Names: []string{task}})
	}
	reply, err := session.Place(ctx, request)
	if err != nil {
		return err
	}
	result := reply.Response.GetResult()
	if !result.GetPlaced() {
		for _, blocker := range result.GetBlockers() {
			fmt.Printf("%s waits: %s\n", tasks[0], blocker.GetReason().GetMessage())
		}
		return nil
	}
	for at, group := range result.GetGroups() {
		for _, node := range group.GetAllocated().GetNames() {
			fmt.Printf("%s -> %s\n", tasks[at], node)
		}
	}
	return nil
}
