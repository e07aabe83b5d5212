package cycle

import (
	"context"
	"strings"
	"testing"
	"time"

	pumice "github.com/pumice-scheduler/pumice/clients/go"
	"github.com/pumice-scheduler/pumice/clients/go/internal/testserver"
	pb "github.com/pumice-scheduler/pumice/clients/go/pumicev1"
)

// twoServers is a Scheduler of two servers, the second of which already has the state of a first cycle.
func twoServers(t *testing.T, mode PolicyMode) (*Scheduler, *listener, []*testserver.Server) {
	t.Helper()
	servers := []*testserver.Server{testserver.Start(t), testserver.Start(t)}
	var direct [2]*pumice.Client
	for at, server := range servers {
		client, err := pumice.Dial(server.Address, pumice.Options{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = client.Close() })
		direct[at] = client
		if mode != FollowPolicy {
			continue
		}
		if _, err := client.ReloadPolicy(context.Background(), &pb.ReloadPolicyRequest{Document: document}); err != nil {
			t.Fatal(err)
		}
	}
	heard := &listener{}
	client, err := pumice.Dial(servers[0].Address+","+servers[1].Address, pumice.Options{Timeout: 3 * time.Second, ReturnAfter: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	scheduler, err := New(Settings{Client: client, Observer: heard, Source: "tests", PolicyMode: mode})
	if err != nil {
		t.Fatal(err)
	}
	open(t, scheduler, small()).Close()
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		list, err := direct[1].ListTasks(context.Background(), &pb.ListTasksRequest{})
		if err == nil && len(list.GetTasks()) == 4 {
			return scheduler, heard, servers
		}
		if time.Now().After(deadline) {
			t.Fatal("the second server has no state", list, err)
		}
	}
}

func TestACycleGoesOnAtTheNextAddressInAnotherSession(t *testing.T) {
	for name, end := range map[string]func(*testserver.Server){"killed": (*testserver.Server).Kill, "hangs": (*testserver.Server).Pause} {
		t.Run(name, func(t *testing.T) {
			scheduler, heard, servers := twoServers(t, FollowPolicy)
			state := small()
			state.job("other", "q", amounts("cpu", "1"), "")
			cycle := open(t, scheduler, state)
			if err := cycle.Prepare(task("new", 0, "q")); err != nil {
				t.Fatal(err)
			}
			cycle.Record(Allocated, task("new", 0, "q"), "n2")
			before, _ := cycle.Score(rsf, task("new", 1, "q"), "n2")
			end(servers[0])
			defer servers[0].Resume()
			if err := cycle.Prepare(task("other", 0, "q")); err != nil || cycle.Err() != nil {
				t.Fatal(err, heard.trouble)
			}
			if cycle.session.Address() != servers[1].Address {
				t.Fatal(cycle.session.Address())
			}
			// What has happened in the cycle counts in the other session.
			if err := cycle.Prepare(task("new", 1, "q")); err != nil {
				t.Fatal(err)
			}
			if after, _ := cycle.Score(rsf, task("new", 1, "q"), "n2"); after != before {
				t.Fatal(before, after)
			}
			cycle.Close()
			if len(heard.trouble) != 0 {
				t.Fatal(heard.trouble)
			}
		})
	}
}

func TestASessionOfAServerThatIsNotInUseIsNotUsedAgain(t *testing.T) {
	scheduler, heard, servers := twoServers(t, PushPolicy)
	state := small()
	open(t, scheduler, state).Close()
	former := scheduler.last
	if former == nil {
		t.Fatal("no session is left")
	}
	servers[0].Kill()
	// Another goroutine finds that the server is gone.
	if _, err := scheduler.settings.Client.GetServerInfo(context.Background()); err != nil {
		t.Fatal(err)
	}
	cycle := open(t, scheduler, state)
	if cycle == former || cycle.session.Address() != servers[1].Address || cycle.Err() != nil {
		t.Fatal(cycle.session.Address(), heard.trouble)
	}
	if pushes := strings.Join(heard.pushes, "; "); strings.Count(pushes, "built-in") != 2 {
		t.Fatal("the policy is pushed to the server that lacks it", pushes)
	}
}
