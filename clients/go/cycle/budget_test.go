package cycle

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	pumice "github.com/pumice-scheduler/pumice/clients/go"
	"github.com/pumice-scheduler/pumice/clients/go/internal/testserver"
	pb "github.com/pumice-scheduler/pumice/clients/go/pumicev1"

	"google.golang.org/grpc"
)

func TestTheNumberOfCallsCanBeBounded(t *testing.T) {
	scheduler, heard, _ := start(t, Settings{Budget: Budget{Calls: 7}})
	cycle := open(t, scheduler, small())
	for number := 0; cycle.Err() == nil; number++ {
		_ = cycle.Prepare(task("new", 0, "q"))
		cycle.Record(Allocated, task("new", number, "q"), "n2")
	}
	if cycle.Usage().Calls != 7 || len(heard.trouble) != 1 || heard.trouble[0] != ErrBudget {
		t.Fatal(cycle.Usage(), heard.trouble)
	}
	if err := cycle.Prepare(task("new", 0, "q")); err == nil {
		t.Fatal("prepared beyond the budget")
	}
	cycle.Close()
	open(t, scheduler, small()).Close()
}

// slow makes a scheduler whose calls of one kind take a time longer.
func slow(t *testing.T, settings Settings, kind string, delay *atomic.Int64) *Scheduler {
	t.Helper()
	wait := grpc.WithUnaryInterceptor(func(
		ctx context.Context, method string, request, reply any, connection *grpc.ClientConn, invoke grpc.UnaryInvoker, options ...grpc.CallOption,
	) error {
		if strings.HasSuffix(method, kind) {
			select {
			case <-time.After(time.Duration(delay.Load())):
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		return invoke(ctx, method, request, reply, connection, options...)
	})
	client, err := pumice.Dial(testserver.Start(t).Address, pumice.Options{
		Timeout: 20 * time.Second, BreakAfter: -1, Attempts: 1, DialOptions: []grpc.DialOption{wait},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	settings.Client, settings.PolicyMode = client, PushPolicy
	scheduler, err := New(settings)
	if err != nil {
		t.Fatal(err)
	}
	return scheduler
}

// gang is a job of equal tasks, with as many nodes of which no two are alike.
func gang(tasks int) *cluster {
	made := &cluster{}
	for number := range tasks {
		made.node(fmt.Sprintf("n%04d", number), "cpu", "2", "memory", fmt.Sprintf("%dMi", 32768+number), "pods", "110")
	}
	made.add(QueueGroup, "q", &pb.Cluster{Queues: []*pb.Queue{{Name: "q"}}})
	made.job("new", "q", amounts("cpu", "2"), make([]string, tasks)...)
	return made
}

// TestNoGangIsTooLargeWhileResponsesComeInTime waits far longer for the service than the budget is.
func TestNoGangIsTooLargeWhileResponsesComeInTime(t *testing.T) {
	var delay atomic.Int64
	delay.Store(int64(5 * time.Millisecond))
	budget := Budget{InTime: time.Second, Time: 100 * time.Millisecond}
	scheduler := slow(t, Settings{Budget: budget}, "/Score", &delay)
	const tasks = 200
	cycle := open(t, scheduler, gang(tasks))
	defer cycle.Close()
	for number := range tasks {
		if err := cycle.Prepare(task("new", number, "q")); err != nil {
			t.Fatal(number, cycle.Usage(), err)
		}
		cycle.Record(Allocated, task("new", number, "q"), fmt.Sprintf("n%04d", number))
	}
	if usage := cycle.Usage(); usage.Waited < 2*budget.Time || usage.Calls < tasks {
		t.Fatal("the test does not wait for longer than the budget:", usage)
	}
}

func TestLateResponsesEndACycle(t *testing.T) {
	var delay atomic.Int64
	delay.Store(int64(40 * time.Millisecond))
	scheduler := slow(t, Settings{Budget: Budget{InTime: time.Millisecond, Time: 100 * time.Millisecond}}, "/Score", &delay)
	cycle := open(t, scheduler, gang(20))
	placed := 0
	for ; placed < 20 && cycle.Prepare(task("new", placed, "q")) == nil; placed++ {
		cycle.Record(Allocated, task("new", placed, "q"), fmt.Sprintf("n%04d", placed))
	}
	if placed == 0 || placed > 4 || cycle.Err() == nil {
		t.Fatal(placed, cycle.Err())
	}
	cycle.Close()
	// One answer that never comes does not hold a cycle for longer than the budget.
	delay.Store(int64(time.Hour))
	state := gang(20)
	state.node("more", "cpu", "1")
	cycle = open(t, scheduler, state)
	defer cycle.Close()
	if err := cycle.Prepare(task("new", 0, "q")); err == nil || cycle.Usage().Waited > 10*time.Second {
		t.Fatal(err, cycle.Usage())
	}
}

func TestTheBeginningOfACycleHasABudgetOfItsOwn(t *testing.T) {
	var delay atomic.Int64
	delay.Store(int64(200 * time.Millisecond))
	scheduler := slow(t, Settings{Budget: Budget{InTime: time.Millisecond, Time: 50 * time.Millisecond}}, "/Apply", &delay)
	cycle := open(t, scheduler, small())
	if err := cycle.Prepare(task("new", 0, "q")); err != nil {
		t.Fatal("a long full sync is charged to the cycle:", err)
	}
	cycle.Close()
	if _, err := New(Settings{Client: scheduler.settings.Client, Budget: Budget{InTime: -1}}); err == nil || errors.Is(err, ErrBudget) {
		t.Fatal(err)
	}
}

// TestTheBeginningOfACycleIsCutByItsBudget hangs each of the calls that begin a cycle.
func TestTheBeginningOfACycleIsCutByItsBudget(t *testing.T) {
	for _, call := range []string{"/GetServerInfo", "/ReloadPolicy", "/Apply", "/OpenSession", "/ListPolicies"} {
		var delay atomic.Int64
		scheduler := slow(t, Settings{Budget: Budget{Open: 300 * time.Millisecond}}, call, &delay)
		if call == "/ListPolicies" {
			// It is asked at the beginning of a cycle that would reuse the last session.
			scheduler.settings.PolicyMode = CheckPolicy
			if _, err := scheduler.settings.Client.ReloadPolicy(context.Background(), &pb.ReloadPolicyRequest{Document: document}); err != nil {
				t.Fatal(err)
			}
			open(t, scheduler, small()).Close()
		}
		delay.Store(int64(time.Hour))
		began := time.Now()
		cycle := scheduler.Open(context.Background(), small(), policy)
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("%s: the cycle began after %s", call, took)
		}
		if call != "/ListPolicies" && cycle.Err() == nil {
			t.Errorf("%s: the service counts as available", call)
		}
		cycle.Close()
	}
}
