package pumice

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/pumice-scheduler/pumice/clients/go/internal/testserver"
	pb "github.com/pumice-scheduler/pumice/clients/go/pumicev1"

	"google.golang.org/grpc"
)

// staleAfter is the silence after which the servers of these tests call a source stale.
const staleAfter = 2 * time.Second

// brief starts a server that soon calls a source stale.
func brief(t *testing.T, flags ...string) *testserver.Server {
	t.Helper()
	return testserver.Start(t, append(flags, "--source-stale-ms", "2000")...)
}

// sourceNow is the status of a source; nil: the server does not know it.
func sourceNow(t *testing.T, client *Client, source string) *pb.SourceStatus {
	t.Helper()
	info, err := client.GetServerInfo(within(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, status := range info.GetSources() {
		if status.GetPosition().GetSource() == source {
			return status
		}
	}
	return nil
}

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !holds(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it did not come: " + what)
		}
	}
}

// resyncs counts full syncs after a loss.
type resyncs struct {
	NoMetrics
	mutex sync.Mutex
	count int
}

// Resync counts one.
func (resyncs *resyncs) Resync(string, string) {
	resyncs.mutex.Lock()
	defer resyncs.mutex.Unlock()
	resyncs.count++
}

func (resyncs *resyncs) seen() int {
	resyncs.mutex.Lock()
	defer resyncs.mutex.Unlock()
	return resyncs.count
}

func TestAnIdleFeedStaysHeard(t *testing.T) {
	server, counted := brief(t), &resyncs{}
	client, ctx := dial(t, server.Address, Options{Metrics: counted}), within(t)
	idle := client.Feed("idle", 0)
	idle.Put(cluster())
	if _, err := idle.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	streamed := client.Feed("streamed", 0)
	stream, err := streamed.Stream(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	silent := dial(t, server.Address, Options{Heartbeat: -1}).Feed("silent", 0)
	if _, err := silent.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the source without a heartbeat is stale", func() bool { return sourceNow(t, client, "silent").GetStale() })
	for until := time.Now().Add(staleAfter * 3 / 2); time.Now().Before(until); time.Sleep(50 * time.Millisecond) {
		for _, source := range []string{"idle", "streamed"} {
			if status := sourceNow(t, client, source); status.GetStale() || !status.GetSynced() {
				t.Fatal(status)
			}
		}
	}
	// Heartbeats have numbers of their own, and the next change follows them.
	idle.Remove(&pb.Removals{Tasks: []string{"default/old"}})
	outcome, err := idle.Flush(ctx)
	if err != nil || outcome.GetPosition().GetSequence() < 3 || outcome.GetResync() != nil {
		t.Fatal(outcome, err)
	}
	streamed.Put(&pb.Cluster{Queues: []*pb.Queue{{Name: "q"}}})
	if outcome, err := stream.Flush(ctx); err != nil || outcome.GetPosition().GetSequence() < 3 {
		t.Fatal(outcome, err)
	}
	if counted.seen() != 0 {
		t.Fatal("a heartbeat caused a full sync")
	}
	idle.Close()
	idle.Close()
	if _, err := idle.Flush(ctx); !errors.Is(err, ErrFeedClosed) {
		t.Fatal(err)
	}
	if _, err := idle.OpenSession(ctx, nil); !errors.Is(err, ErrFeedClosed) {
		t.Fatal(err)
	}
	eventually(t, "the closed source is stale", func() bool { return sourceNow(t, client, "idle").GetStale() })
	if sourceNow(t, client, "streamed").GetStale() {
		t.Fatal("the other feed ended with it")
	}
}

func TestAHeartbeatDoesNotSendChangesAndStandbySendsNothing(t *testing.T) {
	client, ctx := dial(t, brief(t).Address, Options{}), within(t)
	feed, standby := client.Feed("tests", 0), client.Feed("tests", 0)
	standby.Put(cluster())
	feed.Put(cluster())
	if _, err := feed.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	feed.Remove(&pb.Removals{Tasks: []string{"default/old"}})
	eventually(t, "some heartbeats", func() bool { return sourceNow(t, client, "tests").GetPosition().GetSequence() > 3 })
	if list, err := client.ListTasks(ctx, &pb.ListTasksRequest{}); err != nil || len(list.GetTasks()) != 3 {
		t.Fatal("a change was sent before its flush", list, err)
	}
	if _, err := standby.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	select {
	case <-feed.life.Done():
	case <-time.After(30 * time.Second):
		t.Fatal("the heartbeats of a fenced feed go on")
	}
	if _, err := feed.Flush(ctx); !errors.Is(err, ErrFenced) {
		t.Fatal(err)
	}
}

func TestAHeartbeatRestoresARestartedService(t *testing.T) {
	server, counted := brief(t), &resyncs{}
	options := Options{Metrics: counted, BreakAfter: -1, MaxBackoff: 100 * time.Millisecond}
	client, ctx := dial(t, server.Address, options), within(t)
	feed := client.Feed("tests", 0)
	feed.Put(cluster())
	if _, err := feed.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	server.Kill()
	brief(t, "--grpc-address", server.Address)
	eventually(t, "the records are back", func() bool {
		list, err := client.ListTasks(ctx, &pb.ListTasksRequest{})
		return err == nil && len(list.GetTasks()) == 3
	})
	eventually(t, "the source is heard", func() bool { return sourceNow(t, client, "tests").GetPosition().GetSequence() > 4 })
	if counted.seen() != 1 {
		t.Fatal(counted.seen())
	}
}

func TestHeartbeatsDoNotPileUpWhileTheServiceHangs(t *testing.T) {
	server, counted := brief(t), &resyncs{}
	between := newProxy(t, server.Address)
	var log bytes.Buffer
	client := dial(t, between.address(), Options{
		Metrics: counted, Timeout: 300 * time.Millisecond, Attempts: 1, BreakAfter: -1, MaxBackoff: 50 * time.Millisecond,
		Logger: slog.New(slog.NewTextHandler(&log, nil)),
	})
	direct := dial(t, server.Address, Options{})
	feed := client.Feed("tests", 0)
	feed.Put(cluster())
	if _, err := feed.Flush(within(t)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a heartbeat", func() bool { return feed.Position().GetSequence() > 1 })
	at := func() uint64 { return sourceNow(t, direct, "tests").GetPosition().GetSequence() }
	// The service hears each attempt, and its answers are lost: all are one heartbeat.
	between.set(hang)
	before := at()
	time.Sleep(staleAfter)
	if now := at(); now > before+1 || feed.Position().GetSequence() > before+1 {
		t.Fatal("a heartbeat without an answer has not kept its number", before, now, feed.Position())
	}
	between.set(refuse)
	eventually(t, "the source is stale", func() bool { return sourceNow(t, direct, "tests").GetStale() })
	before = at()
	between.set(pass)
	eventually(t, "the source is heard", func() bool {
		status := sourceNow(t, direct, "tests")
		return status.GetSynced() && status.GetPosition().GetSequence() > before
	})
	if counted.seen() != 0 {
		t.Fatal("an outage without a restart caused a full sync")
	}
	_ = client.Close()
	if got := bytes.Count(log.Bytes(), []byte("Pumice got no heartbeat")); got != 1 {
		t.Fatal("one warning per outage", log.String())
	}
}

// otherService tells other limits.
type otherService struct {
	pb.UnimplementedStateServiceServer
	limits []*pb.ServerLimit
}

// GetServerInfo lists them.
func (service *otherService) GetServerInfo(context.Context, *pb.GetServerInfoRequest) (*pb.GetServerInfoResponse, error) {
	return &pb.GetServerInfoResponse{Limits: service.limits}, nil
}

func TestTheIntervalIsAThirdOfTheLimitInForce(t *testing.T) {
	of := func(service pb.StateServiceServer, options Options) (time.Duration, bool) {
		t.Helper()
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		server := grpc.NewServer()
		pb.RegisterStateServiceServer(server, service)
		t.Cleanup(server.Stop)
		go func() { _ = server.Serve(listener) }()
		feed := dial(t, listener.Addr().String(), options).Feed("tests", 0)
		interval, _, known := feed.interval(within(t), feed.links[0])
		return interval, known
	}
	limit := func(value uint64) *otherService {
		return &otherService{limits: []*pb.ServerLimit{{Name: "sources", Value: 7}, {Name: staleLimit, Value: value}}}
	}
	for name, test := range map[string]struct {
		service pb.StateServiceServer
		options Options
		wanted  time.Duration
	}{
		"listed":         {limit(45_000), Options{}, 15 * time.Second},
		"very short":     {limit(1), Options{}, shortestHeartbeat},
		"very long":      {limit(1 << 63), Options{}, 365 * 24 * time.Hour / 3},
		"not listed":     {&otherService{}, Options{}, defaultHeartbeat},
		"no such call":   {&pb.UnimplementedStateServiceServer{}, Options{}, defaultHeartbeat},
		"chosen by hand": {limit(45_000), Options{Heartbeat: time.Second}, time.Second},
	} {
		if got, known := of(test.service, test.options); got != test.wanted || !known {
			t.Errorf("%s: %s %v", name, got, known)
		}
	}
	away := dial(t, "127.0.0.1:1", Options{Attempts: 1}).Feed("tests", 0)
	if got, _, known := away.interval(within(t), away.links[0]); got != defaultHeartbeat || known {
		t.Error(got, known)
	}
}
