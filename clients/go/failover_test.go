package pumice

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pumice-scheduler/pumice/clients/go/internal/testserver"
	pb "github.com/pumice-scheduler/pumice/clients/go/pumicev1"

	"google.golang.org/grpc/codes"
)

// switches notes which addresses were in use, one after the other, and whether the circuit opened.
type switches struct {
	NoMetrics
	mutex  sync.Mutex
	used   []string
	opened int
	full   int
}

// InUse notes an address.
func (switches *switches) InUse(address, _, _ string) {
	switches.mutex.Lock()
	defer switches.mutex.Unlock()
	switches.used = append(switches.used, address)
}

// Circuit counts openings.
func (switches *switches) Circuit(open bool) {
	switches.mutex.Lock()
	defer switches.mutex.Unlock()
	if open {
		switches.opened++
	}
}

// Resync counts full syncs after a loss.
func (switches *switches) Resync(string, string) {
	switches.mutex.Lock()
	defer switches.mutex.Unlock()
	switches.full++
}

func (switches *switches) seen() []string {
	switches.mutex.Lock()
	defer switches.mutex.Unlock()
	return append([]string{}, switches.used...)
}

// pair is two servers with states of their own, and a client of both that feeds them.
type pair struct {
	first, second *testserver.Server
	client        *Client
	feed          *Feed
	switches      *switches
	log           *lockedBuffer
}

// lockedBuffer takes a log from several goroutines.
type lockedBuffer struct {
	mutex  sync.Mutex
	buffer bytes.Buffer
}

// Write appends.
func (locked *lockedBuffer) Write(text []byte) (int, error) {
	locked.mutex.Lock()
	defer locked.mutex.Unlock()
	return locked.buffer.Write(text)
}

func (locked *lockedBuffer) String() string {
	locked.mutex.Lock()
	defer locked.mutex.Unlock()
	return locked.buffer.String()
}

// patient waits a second for a server that hangs, and long for one that has other work.
var patient = Options{Timeout: 30 * time.Second, AttemptTimeout: time.Second, Attempts: 20, BreakAfter: -1}

func paired(t *testing.T, options Options, flags ...string) *pair {
	t.Helper()
	made := &pair{first: testserver.Start(t, flags...), second: testserver.Start(t), switches: &switches{}, log: &lockedBuffer{}}
	options.Metrics, options.Logger = made.switches, slog.New(slog.NewTextHandler(made.log, nil))
	if options.ReturnAfter == 0 {
		options.ReturnAfter = time.Hour
	}
	made.client = dial(t, made.first.Address+", "+made.second.Address, options)
	made.feed = made.client.Feed("tests", 0)
	made.feed.Put(cluster())
	if _, err := made.feed.Flush(within(t)); err != nil {
		t.Fatal(err)
	}
	made.warm(t)
	return made
}

// warm waits until the second server has what the first has.
func (pair *pair) warm(t *testing.T) {
	t.Helper()
	wanted := pair.feed.Position().GetSequence()
	direct := dial(t, pair.second.Address, Options{})
	eventually(t, "the second server has the state", func() bool {
		return sourceNow(t, direct, "tests").GetPosition().GetSequence() >= wanted
	})
}

// room is the names of the nodes with room for a task of six cores.
func room(t *testing.T, client *Client) string {
	t.Helper()
	reply, err := client.Filter(within(t), big())
	return strings.Join(fits(t, reply, err), " ")
}

func (pair *pair) uses(t *testing.T, server *testserver.Server) {
	t.Helper()
	if pair.client.Address() != server.Address {
		t.Fatal("in use:", pair.client.Address(), "and not", server.Address)
	}
}

func TestTheNextAddressRespondsWithTheWholeState(t *testing.T) {
	pair := paired(t, Options{})
	if got := room(t, pair.client); got != "n2 n3" {
		t.Fatal(got)
	}
	// What the last Flush sent counts, even if the second server has it not yet.
	pair.feed.Put(&pb.Cluster{Nodes: []*pb.Node{{Name: "n4", Allocatable: amounts("cpu", "8", "pods", "9")}}})
	if _, err := pair.feed.Flush(within(t)); err != nil {
		t.Fatal(err)
	}
	position := pair.feed.Position()
	pair.first.Kill()
	var wait sync.WaitGroup
	for range 8 {
		wait.Add(1)
		go func() {
			defer wait.Done()
			reply, err := pair.client.Filter(within(t), big())
			if err != nil || len(reply.Response.GetResult().GetItems()[0].GetFit().GetNames()) != 3 {
				t.Error(reply, err)
			}
		}()
	}
	wait.Wait()
	pair.uses(t, pair.second)
	// A position of the first server is one of the second.
	request := big()
	request.Against = &pb.EvaluationRef{Target: &pb.EvaluationRef_Latest{Latest: &pb.LatestRef{Positions: []*pb.SourcePosition{position}}}}
	reply, err := pair.client.Filter(within(t), request)
	if names := fits(t, reply, err); len(names) != 3 {
		t.Fatal(names)
	}
	if used := pair.switches.seen(); len(used) != 2 || used[1] != pair.second.Address || pair.switches.opened != 0 || pair.switches.full != 0 {
		t.Fatal(used, pair.switches.opened, pair.switches.full)
	}
	if log := pair.log.String(); strings.Count(log, "Pumice is asked at another address") != 1 || !strings.Contains(log, "before="+pair.first.Address) {
		t.Fatal(log)
	}
}

func TestAnAddressThatNeverWasIsPassedOver(t *testing.T) {
	server := testserver.Start(t)
	for _, target := range []string{"127.0.0.1:1," + server.Address, server.Address + ",127.0.0.1:1", "unix:/nowhere, " + server.Socket} {
		client := dial(t, target, Options{})
		feed := client.Feed("tests", 0)
		feed.Put(cluster())
		if _, err := feed.Flush(within(t)); err != nil {
			t.Fatal(target, err)
		}
		if got := room(t, client); got != "n2 n3" {
			t.Fatal(target, got)
		}
		feed.Close()
	}
	for _, target := range []string{"a,", "a,,b", "a,a", "a:7461,a"} {
		if _, err := Dial(target, Options{}); err == nil {
			t.Error(target)
		}
	}
}

func TestAServerThatHangsCostsOneTimeoutAndIsUsedAgain(t *testing.T) {
	pair := paired(t, Options{Timeout: 6 * time.Second, ReturnAfter: 300 * time.Millisecond, MaxBackoff: 100 * time.Millisecond})
	pair.first.Pause()
	defer pair.first.Resume()
	if got := room(t, pair.client); got != "n2 n3" {
		t.Fatal(got)
	}
	pair.uses(t, pair.second)
	pair.feed.Remove(&pb.Removals{Nodes: []string{"n2"}, Tasks: []string{"default/old"}})
	if _, err := pair.feed.Flush(within(t)); err != nil {
		t.Fatal(err)
	}
	if got := room(t, pair.client); got != "n1 n3" {
		t.Fatal(got)
	}
	pair.uses(t, pair.second)
	pair.first.Resume()
	eventually(t, "the first address is in use again", func() bool { return pair.client.Address() == pair.first.Address })
	if got := room(t, pair.client); got != "n1 n3" {
		t.Fatal("the server that hung does not know what has changed meanwhile:", got)
	}
	pair.uses(t, pair.first)
}

func TestAServerThatStopsLosesNoCall(t *testing.T) {
	pair := paired(t, Options{ReturnAfter: 100 * time.Millisecond}, "--drain-delay-ms", "500")
	stop, calls := make(chan struct{}), 0
	go func() {
		pair.first.Drain()
		time.Sleep(time.Second)
		close(stop)
	}()
	for going := true; going; calls++ {
		select {
		case <-stop:
			going = false
		default:
		}
		if got := room(t, pair.client); got != "n2 n3" {
			t.Fatal(got)
		}
	}
	pair.uses(t, pair.second)
	if calls < 10 {
		t.Fatal(calls)
	}
}

func TestAServerThatComesBackGetsEverythingFirstAndIsUsedOnce(t *testing.T) {
	pair := paired(t, Options{ReturnAfter: 200 * time.Millisecond, MaxBackoff: 100 * time.Millisecond})
	pair.first.Kill()
	if got := room(t, pair.client); got != "n2 n3" {
		t.Fatal(got)
	}
	testserver.Start(t, "--grpc-address", pair.first.Address)
	for began := time.Now(); pair.client.Address() != pair.first.Address; {
		if got := room(t, pair.client); got != "n2 n3" {
			t.Fatal(got)
		}
		if time.Since(began) > 30*time.Second {
			t.Fatal("the first address is not used again")
		}
	}
	for until := time.Now().Add(time.Second); time.Now().Before(until); {
		if got := room(t, pair.client); got != "n2 n3" {
			t.Fatal(got)
		}
	}
	if used := pair.switches.seen(); len(used) != 3 {
		t.Fatal(used)
	}
}

func TestAServerThatWasRestartedUnseenGetsEverythingBeforeItsResponseCounts(t *testing.T) {
	server := testserver.Start(t)
	client := dial(t, server.Address, Options{Heartbeat: time.Hour, BreakAfter: -1, Timeout: 30 * time.Second, Attempts: 100})
	feed := client.Feed("tests", 0)
	feed.Put(cluster())
	if _, err := feed.Flush(within(t)); err != nil {
		t.Fatal(err)
	}
	server.Kill()
	testserver.Start(t, "--grpc-address", server.Address)
	if got := room(t, client); got != "n2 n3" {
		t.Fatal("an answer about another state counted:", got)
	}
}

func TestASessionIsLostWithItsServer(t *testing.T) {
	pair := paired(t, Options{})
	session, err := pair.feed.OpenSession(within(t), nil)
	if err != nil || session.Address() != pair.first.Address {
		t.Fatal(session, err)
	}
	session.AddChanges(AllocateOn("default/gang-0", "n2"))
	if reply, err := session.Filter(within(t), big()); strings.Join(fits(t, reply, err), " ") != "n3" {
		t.Fatal(reply)
	}
	pair.first.Kill()
	reply, err := session.Filter(within(t), big())
	var failure *Error
	if !errors.As(err, &failure) || reply.Origin != OriginNone || !failure.SessionEnded() || failure.Decided() || failure.Unavailable() {
		t.Fatal("a session goes on without its server", reply, err)
	}
	if failure.Reason != ReasonSessionUnreachable || failure.Metadata["server"] != pair.first.Address {
		t.Fatal(failure)
	}
	if _, err := session.Commit(within(t)); !errors.As(err, &failure) || failure.Decided() || !failure.SessionEnded() {
		t.Fatal("whether the commit was made is not known", err)
	}
	fresh, err := pair.feed.OpenSession(within(t), nil)
	if err != nil || fresh.Address() != pair.second.Address {
		t.Fatal(err)
	}
	if err := session.ReplayIn(within(t), fresh); err != nil {
		t.Fatal(err)
	}
	if reply, err := fresh.Filter(within(t), big()); strings.Join(fits(t, reply, err), " ") != "n3" {
		t.Fatal(reply)
	}
	// And the client's own way to another session.
	if err := session.Replay(within(t)); err != nil || session.Address() != pair.second.Address {
		t.Fatal(err)
	}
}

func TestASessionOpensAtTheNextAddress(t *testing.T) {
	pair := paired(t, patient)
	pair.first.Pause()
	defer pair.first.Resume()
	pair.feed.Put(&pb.Cluster{Nodes: []*pb.Node{{Name: "n4", Allocatable: amounts("cpu", "8", "pods", "9")}}})
	session, err := pair.feed.OpenSession(within(t), nil)
	if err != nil || session.Address() != pair.second.Address {
		t.Fatal(err)
	}
	if reply, err := session.Filter(within(t), big()); len(fits(t, reply, err)) != 3 {
		t.Fatal(reply)
	}
}

func TestAFencedFeedIsFencedAtEveryAddress(t *testing.T) {
	pair := paired(t, Options{})
	newer := dial(t, pair.first.Address+","+pair.second.Address, Options{}).Feed("tests", 0)
	newer.Put(&pb.Cluster{Nodes: []*pb.Node{{Name: "new", Allocatable: amounts("cpu", "8", "pods", "9")}}})
	if _, err := newer.Flush(within(t)); err != nil {
		t.Fatal(err)
	}
	second := dial(t, pair.second.Address, Options{})
	epoch := newer.Position().GetSourceEpoch()
	eventually(t, "the newer process writes to the second", func() bool {
		return sourceNow(t, second, "tests").GetPosition().GetSourceEpoch() == epoch
	})
	// The older process was paused; when it wakes, the server that it knew is gone.
	pair.first.Kill()
	pair.feed.mutex.Lock()
	for _, link := range pair.feed.links {
		link.lose()
	}
	pair.feed.mutex.Unlock()
	pair.feed.Put(&pb.Cluster{Nodes: []*pb.Node{{Name: "old", Allocatable: amounts("cpu", "8", "pods", "9")}}})
	if _, err := pair.feed.Flush(within(t)); !errors.Is(err, ErrFenced) {
		t.Fatal("the older process took the source back:", err)
	}
	if _, err := pair.feed.OpenSession(within(t), nil); !errors.Is(err, ErrFenced) {
		t.Fatal(err)
	}
	if got := room(t, second); got != "new" {
		t.Fatal(got)
	}
}

func TestACallWhoseOutcomeIsUnknownIsRepeatedOnlyWhereThatIsHarmless(t *testing.T) {
	pair := paired(t, patient)
	document := &pb.ReloadPolicyRequest{Document: spread}
	versions := func(server *testserver.Server) string {
		list, err := dial(t, server.Address, Options{}).ListPolicies(within(t), &pb.ListPoliciesRequest{Name: "default"})
		return fmt.Sprint(must(t, list, err).GetPolicies()[0].GetVersion())
	}
	before := versions(pair.second)
	pair.first.Pause()
	_, err := pair.client.ReloadPolicy(within(t), document)
	var failure *Error
	if !errors.As(err, &failure) || failure.Code != codes.DeadlineExceeded || failure.Decided() {
		t.Fatal(err)
	}
	if now := versions(pair.second); now != before {
		t.Fatal("a reload whose outcome is unknown was repeated elsewhere")
	}
	pair.first.Resume()
	// One that was never sent goes to the next address.
	other := dial(t, "127.0.0.1:1,"+pair.second.Address, Options{})
	if _, err := other.ReloadPolicy(within(t), document); err != nil || versions(pair.second) == before {
		t.Fatal(err)
	}
}

func TestWhatIsIdempotentIsRepeatedAtTheNextAddress(t *testing.T) {
	for name, ask := range map[string]func(context.Context, *Client) error{
		"Place COMMIT": func(ctx context.Context, client *Client) error {
			reply, err := client.Place(ctx, &pb.PlaceRequest{
				Groups: []*pb.TaskGroup{{Names: []string{"default/gang-0", "default/gang-1"}}},
				Effect: pb.PlaceEffect_PLACE_EFFECT_COMMIT, CommitKey: "tests/1",
			})
			if err == nil && reply.Response.GetCommit() == nil {
				err = fmt.Errorf("nothing was committed: %v", reply.Response)
			}
			return err
		},
		"Admit CONFIRM": func(ctx context.Context, client *Client) error {
			reply, err := client.Admit(ctx, &pb.AdmitRequest{Mode: pb.AdmitMode_ADMIT_MODE_CONFIRM, Items: []*pb.AdmitSubject{
				{Subject: &pb.AdmitSubject_Job{Job: &pb.Job{Name: "default/gang"}}, Attempt: 1},
			}})
			if err == nil && !reply.Response.GetResult().GetItems()[0].GetPermitted() {
				err = fmt.Errorf("not permitted: %v", reply.Response)
			}
			return err
		},
		"ReleaseReservation": func(ctx context.Context, client *Client) error {
			_, err := client.ReleaseReservation(ctx, &pb.ReleaseReservationRequest{Job: "default/gang"})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			pair := paired(t, patient)
			pair.first.Pause()
			defer pair.first.Resume()
			if err := ask(within(t), pair.client); err != nil {
				t.Fatal(err)
			}
			pair.uses(t, pair.second)
		})
	}
}
