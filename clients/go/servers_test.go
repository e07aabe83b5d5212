package pumice

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pumice-scheduler/pumice/clients/go/internal/testserver"
	pb "github.com/pumice-scheduler/pumice/clients/go/pumicev1"
)

func TestAServerThatCannotWriteIsLeftForOneThatCan(t *testing.T) {
	folder := t.TempDir()
	pair := paired(t, Options{}, "--data-dir", folder)
	files, err := os.ReadDir(folder)
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	away := t.TempDir()
	for _, file := range files {
		if err := os.Rename(filepath.Join(folder, file.Name()), filepath.Join(away, file.Name())); err != nil {
			t.Fatal(err)
		}
	}
	reply, err := pair.client.Admit(within(t), &pb.AdmitRequest{Mode: pb.AdmitMode_ADMIT_MODE_CONFIRM, Items: []*pb.AdmitSubject{
		{Subject: &pb.AdmitSubject_Job{Job: &pb.Job{Name: "default/gang"}}, Attempt: 1},
	}})
	if err != nil || !reply.Response.GetResult().GetItems()[0].GetPermitted() {
		t.Fatal(reply, err)
	}
	pair.uses(t, pair.second)
	if log := pair.log.String(); !strings.Contains(log, "nothing was written") {
		t.Fatal("the log does not say why", log)
	}
	// Where no server can write, nobody is left, and decisions go on.
	alone := dial(t, pair.first.Address+",127.0.0.1:1", Options{Attempts: 1, BreakAfter: 1})
	_, err = alone.Admit(within(t), &pb.AdmitRequest{Mode: pb.AdmitMode_ADMIT_MODE_CONFIRM, Items: []*pb.AdmitSubject{
		{Subject: &pb.AdmitSubject_Job{Job: &pb.Job{Name: "default/gang"}}, Attempt: 1},
	}})
	if err == nil {
		t.Fatal("nobody has written it")
	}
}

func TestAnOutageIsThatOfAllAddresses(t *testing.T) {
	pair := paired(t, Options{BreakAfter: 2, Attempts: 1, BreakFor: time.Hour, Heartbeat: time.Hour})
	pair.first.Kill()
	for range 5 {
		if got := room(t, pair.client); got != "n2 n3" {
			t.Fatal(got)
		}
	}
	if pair.switches.opened != 0 {
		t.Fatal("the circuit opened while an address worked")
	}
	pair.second.Kill()
	var failure *Error
	for range 3 {
		_, err := pair.client.Filter(within(t), big())
		if !errors.As(err, &failure) || !failure.Unavailable() {
			t.Fatal(err)
		}
	}
	if failure.Reason != ReasonCircuitOpen || !strings.Contains(failure.Message, "none of 2 addresses works") {
		t.Fatal(failure)
	}
	if used := pair.switches.seen(); len(used) > 3 {
		t.Fatal("addresses change while none works", used)
	}
}

func TestAStreamEndsWithItsServer(t *testing.T) {
	pair := paired(t, Options{Timeout: time.Minute, AttemptTimeout: 300 * time.Millisecond})
	stream, err := pair.feed.Stream(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	add := func(name string) {
		pair.feed.Put(&pb.Cluster{Nodes: []*pb.Node{{Name: name, Allocatable: amounts("cpu", "8", "pods", "9")}}})
	}
	add("n4")
	if _, err := stream.Flush(within(t)); err != nil {
		t.Fatal(err)
	}
	pair.first.Pause()
	defer pair.first.Resume()
	add("n5")
	// Whoever asks meanwhile is answered by the other server, and the batch waits no longer for the one that hangs.
	done := make(chan error, 1)
	go func() {
		_, err := stream.Flush(within(t))
		done <- err
	}()
	eventually(t, "the second address answers with all nodes", func() bool {
		reply, err := pair.client.Filter(within(t), big())
		return err == nil && len(reply.Response.GetResult().GetItems()[0].GetFit().GetNames()) == 4
	})
	select {
	case err := <-done:
		if err == nil {
			t.Fatal("a stream to a server that hangs has an outcome")
		}
	case <-time.After(30 * time.Second):
		t.Fatal("the batch waits for a server that is not in use any more")
	}
	if _, err := stream.Flush(within(t)); err == nil {
		t.Fatal("a stream goes on at another server")
	}
	again, err := pair.feed.Stream(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	add("n6")
	if outcome, err := again.Flush(within(t)); err != nil || outcome.GetResync() != nil {
		t.Fatal(outcome, err)
	}
	if got := room(t, pair.client); got != "n2 n3 n4 n5 n6" {
		t.Fatal(got)
	}
	// A stream that works ends, too, when another address comes into use.
	used := pair.client.servers.inUse()
	pair.client.servers.all[0].until = time.Time{}
	pair.client.servers.failed(used, "it cannot write")
	add("n7")
	if _, err := again.Flush(within(t)); err == nil {
		t.Fatal("a stream goes on at a server that is not in use")
	}
}

func TestAFlushGoesOnAtTheNextAddress(t *testing.T) {
	pair := paired(t, Options{Timeout: time.Minute})
	pair.first.Pause()
	defer pair.first.Resume()
	pair.feed.Put(&pb.Cluster{Nodes: []*pb.Node{{Name: "n4", Allocatable: amounts("cpu", "8", "pods", "9")}}})
	done := make(chan error, 1)
	go func() {
		_, err := pair.feed.Flush(within(t))
		done <- err
	}()
	// A caller with less time finds that the server hangs.
	eventually(t, "the second address is in use", func() bool {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_, _ = pair.client.Filter(ctx, big())
		return pair.client.Address() == pair.second.Address
	})
	select {
	case err := <-done:
		if err != nil {
			t.Fatal(err)
		}
	case <-time.After(30 * time.Second):
		t.Fatal("the batch waits for a server that is not in use any more")
	}
	if got := room(t, pair.client); got != "n2 n3 n4" {
		t.Fatal(got)
	}
}

func TestAServerThatWasCutOffGetsWhatItMissedBeforeItIsAsked(t *testing.T) {
	first, second, log := testserver.Start(t), testserver.Start(t), &lockedBuffer{}
	between := newProxy(t, second.Address)
	options := Options{MaxBackoff: time.Hour, ReturnAfter: time.Millisecond, Logger: slog.New(slog.NewTextHandler(log, nil))}
	client := dial(t, first.Address+","+between.address(), options)
	feed := client.Feed("tests", 0)
	feed.Put(cluster())
	if _, err := feed.Flush(within(t)); err != nil {
		t.Fatal(err)
	}
	(&pair{second: second, feed: feed}).warm(t)
	between.set(refuse)
	feed.Remove(&pb.Removals{Nodes: []string{"n2"}})
	if _, err := feed.Flush(within(t)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the second server has not got it", func() bool { return strings.Contains(log.String(), "got no heartbeat") })
	between.set(pass)
	first.Kill()
	// Its connection is tried again after a while.
	eventually(t, "the second server answers", func() bool {
		reply, err := client.Filter(within(t), big())
		if err != nil {
			return false
		}
		if names := fits(t, reply, err); strings.Join(names, " ") != "n3" {
			t.Fatal("a server was asked before it had everything:", names)
		}
		return true
	})
}

func TestAServerThatIsStoppingIsNotUsedAgain(t *testing.T) {
	pair := paired(t, Options{ReturnAfter: 100 * time.Millisecond}, "--drain-delay-ms", "600000")
	// It still answers, and says that it does not serve.
	pair.first.Drain()
	used := pair.client.servers.inUse()
	eventually(t, "the first server is stopping", func() bool { return isServing(within(t), used) != nil })
	if got := room(t, pair.client); got != "n2 n3" {
		t.Fatal(got)
	}
	pair.uses(t, pair.first)
	pair.client.servers.failed(used, "it is stopping")
	for until := time.Now().Add(time.Second); time.Now().Before(until); time.Sleep(10 * time.Millisecond) {
		pair.uses(t, pair.second)
	}
}

// scheduledList is a list of servers with a clock of its own.
func scheduledList(names ...string) (list *serverList, pass func(time.Duration)) {
	now := time.Unix(0, 0)
	life := context.Background()
	// Nobody looks for a preferred server here.
	list = &serverList{pause: time.Second, now: func() time.Time { return now }, life: life, returning: true, changed: func(*server, *server, string) {}}
	for _, name := range names {
		list.all = append(list.all, &server{target: name, used: life, failure: func() {}})
	}
	list.current = list.all[0]
	return list, func(time time.Duration) { now = now.Add(time) }
}

func TestAnAddressThatFailsAgainRestsLonger(t *testing.T) {
	list, pass := scheduledList("a", "b", "c")
	a, b := list.all[0], list.all[1]
	for _, wanted := range []time.Duration{1, 2, 4, 8, 16, 32, 32} {
		list.failed(a, "away")
		list.failed(a, "away")
		if list.inUse() != b || a.until.Sub(list.now()) != wanted*time.Second {
			t.Fatal(list.inUse().target, a.until.Sub(list.now()), wanted)
		}
		pass(wanted * time.Second)
		a.back = list.now()
		list.use(a, true, "")
		pass(wanted * time.Second / 2)
	}
	pass(time.Hour)
	list.failed(a, "away")
	if a.until.Sub(list.now()) != time.Second {
		t.Fatal("an address that has worked for long rests as at first", a.until.Sub(list.now()))
	}
}

func TestCallsTryEachAddressOnceTheRestingLast(t *testing.T) {
	list, _ := scheduledList("a", "b", "c")
	list.failed(list.all[1], "away")
	var order []string
	var tried []*server
	for next := list.next(nil); next != nil; next = list.next(tried) {
		tried = append(tried, next)
		order = append(order, next.target)
	}
	if !slices.Equal(order, []string{"a", "c", "b"}) {
		t.Fatal(order)
	}
	// While none works, the one in use stays, and one that answers takes its place.
	for _, server := range list.all {
		list.failed(server, "away")
	}
	if list.inUse().target != "c" {
		t.Fatal(list.inUse().target)
	}
	list.answered(list.all[1], true)
	if list.inUse().target != "b" {
		t.Fatal(list.inUse().target)
	}
}
