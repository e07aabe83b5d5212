package pumice

import (
	"context"
	"errors"
	"fmt"
	"sync"

	pb "github.com/pumice-scheduler/pumice/clients/go/pumicev1"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
)

// ErrReplayDiffers is the error of Replay if the new session gives another result than the lost one did.
var ErrReplayDiffers = errors.New("the new session gives another result than the lost one did")

// Session is one scheduling cycle. The session numbers its changes and sends them with the next call. Changes whose
// response was lost are sent again, and the service applies them once. A session is safe to use from several goroutines;
// its calls run one after the other.
//
// After the service has ended the session, every call returns that error: the caller opens another session, or calls
// Replay.
type Session struct {
	client *Client
	// server is the one that opened the session: no other knows it.
	server  *server
	against *pb.EvaluationRef

	mutex   sync.Mutex
	opened  *pb.OpenSessionResponse
	applied uint64
	pending []*pb.SessionChange
	// log has everything that was applied, in order: changes, and calls that changed the session.
	log        []logEntry
	unanswered *logEntry
	effects    *pb.SessionEffects
	validity   Validity
}

// logEntry is a change, or a call that changed the session, with its result.
type logEntry struct {
	change *pb.SessionChange
	send   func(context.Context, *pb.SessionRef) (proto.Message, *pb.ResponseMetadata, error)
	ref    *pb.SessionRef
	result proto.Message
}

// OpenSession opens a session, which pins cluster state and policy: against is a LatestRef, an InlineSnapshot or nil. The
// call is repeated at another address only, because nobody would close the first session.
func (client *Client) OpenSession(ctx context.Context, against *pb.EvaluationRef) (*Session, error) {
	return client.openSession(ctx, nil, against, nil)
}

// openSession opens a session at a server; nil: at the one in use, or others after it.
func (client *Client) openSession(ctx context.Context, at *server, against *pb.EvaluationRef, batch *pb.Batch) (*Session, error) {
	request := &pb.OpenSessionRequest{Against: against, Batch: batch}
	opened := &Session{client: client, against: against, server: at}
	send := func(ctx context.Context, server *server, request *pb.OpenSessionRequest, options ...grpc.CallOption) (*pb.OpenSessionResponse, error) {
		opened.server = server
		return server.decisions.OpenSession(ctx, request, options...)
	}
	var err error
	if opened.opened, err = callAt(ctx, client, at, "OpenSession", elsewhere, send, request); err != nil {
		return nil, err
	}
	return opened, nil
}

// Address returns the address of the server that opened the session. All calls of the session go there.
func (session *Session) Address() string {
	session.mutex.Lock()
	defer session.mutex.Unlock()
	return session.server.target
}

// Opened returns the response that opened the session: its metadata, lease, and the outcome of the batch.
func (session *Session) Opened() *pb.OpenSessionResponse {
	session.mutex.Lock()
	defer session.mutex.Unlock()
	return session.opened
}

// Effects returns the effects of the changes that were sent with the last call.
func (session *Session) Effects() *pb.SessionEffects {
	session.mutex.Lock()
	defer session.mutex.Unlock()
	return session.effects
}

// Validity knows which earlier results of this session are stale.
func (session *Session) Validity() *Validity {
	return &session.validity
}

// AddChanges adds changes, which are sent with the next call. AllocateOn and the functions after it make changes.
func (session *Session) AddChanges(changes ...*pb.SessionChange) {
	session.mutex.Lock()
	defer session.mutex.Unlock()
	session.pending = append(session.pending, changes...)
}

// AllocateOn gives a task idle resources of a node.
func AllocateOn(task, node string) *pb.SessionChange {
	return &pb.SessionChange{Change: &pb.SessionChange_Allocate{Allocate: &pb.TaskPlacement{Task: task, Node: node}}}
}

// PipelineOn lets a task wait for resources that are being released on a node.
func PipelineOn(task, node string) *pb.SessionChange {
	return &pb.SessionChange{Change: &pb.SessionChange_Pipeline{Pipeline: &pb.TaskPlacement{Task: task, Node: node}}}
}

// Evict evicts a running or bound task: its resources become releasing.
func Evict(task string) *pb.SessionChange {
	return &pb.SessionChange{Change: &pb.SessionChange_Evict{Evict: task}}
}

// Unallocate reverts AllocateOn.
func Unallocate(task string) *pb.SessionChange {
	return &pb.SessionChange{Change: &pb.SessionChange_Unallocate{Unallocate: task}}
}

// Unpipeline reverts PipelineOn.
func Unpipeline(task string) *pb.SessionChange {
	return &pb.SessionChange{Change: &pb.SessionChange_Unpipeline{Unpipeline: task}}
}

// Unevict reverts Evict.
func Unevict(task string) *pb.SessionChange {
	return &pb.SessionChange{Change: &pb.SessionChange_Unevict{Unevict: task}}
}

// BindFailed makes an allocated task pending again, because its bind failed.
func BindFailed(task string) *pb.SessionChange {
	return &pb.SessionChange{Change: &pb.SessionChange_BindFailed{BindFailed: task}}
}

// JobEnqueued keeps the tentative permit of a job.
func JobEnqueued(job string) *pb.SessionChange {
	return &pb.SessionChange{Change: &pb.SessionChange_JobEnqueued{JobEnqueued: job}}
}

// Savepoint sets a savepoint.
func Savepoint(name string) *pb.SessionChange {
	return &pb.SessionChange{Change: &pb.SessionChange_Savepoint{Savepoint: name}}
}

// RollbackTo reverts all changes after a savepoint.
func RollbackTo(name string) *pb.SessionChange {
	return &pb.SessionChange{Change: &pb.SessionChange_RollbackTo{RollbackTo: name}}
}

// Filter is Client.Filter in the session, which sets request.Against.
func (session *Session) Filter(ctx context.Context, request *pb.FilterRequest) (Reply[*pb.FilterResponse], error) {
	return decideIn(ctx, session, &filtering, request)
}

// Score is Client.Score in the session, which sets request.Against.
func (session *Session) Score(ctx context.Context, request *pb.ScoreRequest) (Reply[*pb.ScoreResponse], error) {
	return decideIn(ctx, session, &scoring, request)
}

// Place is Client.Place in the session, which sets request.Against.
func (session *Session) Place(ctx context.Context, request *pb.PlaceRequest) (Reply[*pb.PlaceResponse], error) {
	return decideIn(ctx, session, &placing, request)
}

// Admit is Client.Admit in the session, which sets request.Against.
func (session *Session) Admit(ctx context.Context, request *pb.AdmitRequest) (Reply[*pb.AdmitResponse], error) {
	return decideIn(ctx, session, &admitting, request)
}

// Order is Client.Order in the session, which sets request.Against.
func (session *Session) Order(ctx context.Context, request *pb.OrderRequest) (Reply[*pb.OrderResponse], error) {
	return decideIn(ctx, session, &ordering, request)
}

// SelectVictims is Client.SelectVictims in the session, which sets request.Against.
func (session *Session) SelectVictims(ctx context.Context, request *pb.SelectVictimsRequest) (Reply[*pb.SelectVictimsResponse], error) {
	return decideIn(ctx, session, &selecting, request)
}

// Flush sends the pending changes.
func (session *Session) Flush(ctx context.Context) error {
	reply, err := session.Order(ctx, &pb.OrderRequest{})
	if err == nil && reply.Cause != nil {
		return reply.Cause
	}
	return err
}

// Commit commits the placements that still hold, and ends the session. Without jobs it commits those of all jobs. Only the server
// that opened the session can repeat a commit: after SESSION_UNREACHABLE or another error without a decision (Error.Decided) it may
// have been made, and ListTasks shows its tasks as assumed then.
func (session *Session) Commit(ctx context.Context, jobs ...string) (*pb.CommitSessionResponse, error) {
	session.mutex.Lock()
	defer session.mutex.Unlock()
	if err := session.retryUnanswered(ctx); err != nil {
		return nil, err
	}
	request := &pb.CommitSessionRequest{Session: session.ref(), Jobs: jobs}
	response, err := callAt(ctx, session.client, session.server, "CommitSession", repeatable, decisions(pb.DecisionServiceClient.CommitSession), request)
	return response, session.unreachable(err)
}

// Close ends the session without a commit; the scheduler binds on its own. Closing twice is allowed.
func (session *Session) Close(ctx context.Context) error {
	session.mutex.Lock()
	defer session.mutex.Unlock()
	request := &pb.CloseSessionRequest{Session: session.opened.GetSession()}
	_, err := callAt(ctx, session.client, session.server, "CloseSession", repeatable, decisions(pb.DecisionServiceClient.CloseSession), request)
	return session.unreachable(err)
}

// unreachable is the error of a call whose server does not answer, where another one is in use: the session is lost.
func (session *Session) unreachable(err error) error {
	var failure *Error
	if !errors.As(err, &failure) || !failure.Unavailable() || failure.Reason == ReasonCircuitOpen {
		return err
	}
	used := session.client.servers.inUse()
	if used == session.server {
		// No other address is known to work.
		return err
	}
	return &Error{
		Code: codes.Unavailable, Reason: ReasonSessionUnreachable, cause: failure, ResponseMetadata: failure.ResponseMetadata,
		Message: fmt.Sprintf("the session is lost with the server at %s, and calls go to %s now: open another session; the last failure: %s",
			session.server.target, used.target, failure.Message),
		Metadata: map[string]string{"session": session.opened.GetSession(), "server": session.server.target},
	}
}

// decideIn sends a request with the pending changes.
func decideIn[Q decisionRequest, R decisionResponse](
	ctx context.Context, session *Session, decision *decision[Q, R], request Q,
) (Reply[R], error) {
	reply, err := askIn(ctx, session, decision, request)
	return decision.judge(request, reply, err)
}

func askIn[Q decisionRequest, R decisionResponse](
	ctx context.Context, session *Session, decision *decision[Q, R], request Q,
) (Reply[R], error) {
	session.mutex.Lock()
	defer session.mutex.Unlock()
	table := request.GetAgainst().GetNodeTable()
	if request.GetAgainst().GetTarget() != nil {
		return Reply[R]{}, errors.New("request.Against: is set; a session sets it itself")
	}
	against := decision.against(request)
	// The request stays the caller's, who may send it again.
	defer func() { *against = &pb.EvaluationRef{NodeTable: table} }()
	if err := session.retryUnanswered(ctx); err != nil {
		var failure *Error
		if !errors.As(err, &failure) || failure.Decided() {
			return Reply[R]{}, err
		}
		// An earlier call has no response yet, and until it has, this one cannot be numbered: the service is unavailable
		// for it as well.
		return decision.fallback(session.client, request, err)
	}
	var reply Reply[R]
	ref := session.ref()
	send := func(ctx context.Context, ref *pb.SessionRef) (proto.Message, *pb.ResponseMetadata, error) {
		*against = &pb.EvaluationRef{Target: &pb.EvaluationRef_Session{Session: ref}, NodeTable: table}
		var err error
		reply, err = decision.ask(ctx, session.client, session, request)
		if err == nil && reply.Cause != nil {
			return nil, nil, reply.Cause
		}
		return reply.Response, reply.Response.GetMetadata(), err
	}
	if decision.changes == nil || !decision.changes(request) {
		err := session.send(ctx, &logEntry{send: send, ref: ref})
		return reply, errorOf(reply, err)
	}
	// After a loss the same request is sent again, even if the caller has changed its own by then.
	entry := &logEntry{ref: ref, send: resend(session, decision, proto.CloneOf(request), table)}
	session.unanswered = entry
	first := &logEntry{send: send, ref: ref}
	err := session.send(ctx, first)
	entry.result = first.result
	session.conclude(entry, err)
	return reply, errorOf(reply, err)
}

// errorOf drops the error of a call for which a fallback gave the reply.
func errorOf[R any](reply Reply[R], err error) error {
	if reply.Cause != nil {
		return nil
	}
	return err
}

// resend sends a call that changes a session again.
func resend[Q decisionRequest, R decisionResponse](
	session *Session, decision *decision[Q, R], request Q, table *pb.NodeTableVersion,
) func(context.Context, *pb.SessionRef) (proto.Message, *pb.ResponseMetadata, error) {
	return func(ctx context.Context, ref *pb.SessionRef) (proto.Message, *pb.ResponseMetadata, error) {
		*decision.against(request) = &pb.EvaluationRef{Target: &pb.EvaluationRef_Session{Session: ref}, NodeTable: table}
		response, err := decision.sendTo(ctx, session.client, session, request)
		return response, response.GetMetadata(), err
	}
}

// retryUnanswered sends the call again that has no response: until it has, the next number is unknown.
func (session *Session) retryUnanswered(ctx context.Context) error {
	if session.unanswered == nil {
		return nil
	}
	entry := session.unanswered
	err := session.send(ctx, entry)
	session.conclude(entry, err)
	var failure *Error
	if errors.As(err, &failure) && failure.Decided() && !failure.SessionEnded() {
		return nil
	}
	return err
}

// conclude records that a call which changes the session has its response, or will never have one.
func (session *Session) conclude(entry *logEntry, err error) {
	var failure *Error
	switch {
	case err == nil:
		session.log = append(session.log, *entry)
		session.unanswered = nil
	case errors.As(err, &failure) && failure.Decided():
		session.unanswered = nil
	}
}

// ref is the point that the session has reached, with the pending changes.
func (session *Session) ref() *pb.SessionRef {
	return &pb.SessionRef{Id: session.opened.GetSession(), After: session.applied, Changes: append([]*pb.SessionChange{}, session.pending...)}
}

func (session *Session) send(ctx context.Context, entry *logEntry) error {
	result, metadata, err := entry.send(ctx, entry.ref)
	var failure *Error
	if errors.As(err, &failure) {
		metadata = failure.ResponseMetadata
	}
	if effects := metadata.GetEffects(); effects != nil {
		session.confirm(effects, len(entry.ref.GetChanges()))
	}
	switch result := result.(type) {
	case interface{ GetResult() *pb.AdmitResult }:
		entry.result = result.GetResult()
	case interface{ GetResult() *pb.PlaceResult }:
		entry.result = result.GetResult()
	default:
		entry.result = result
	}
	return err
}

// confirm moves the changes that the service has applied, of the first `sent` pending ones, to the log.
func (session *Session) confirm(effects *pb.SessionEffects, sent int) {
	session.effects = effects
	session.validity.Apply(effects.GetInvalidation())
	if effects.GetAppliedThrough() < session.applied {
		return
	}
	done := int(min(effects.GetAppliedThrough()-session.applied, uint64(min(sent, len(session.pending)))))
	for _, change := range session.pending[:done] {
		session.log = append(session.log, logEntry{change: change})
	}
	session.pending = session.pending[done:]
	session.applied = effects.GetAppliedThrough()
}

// Replay opens another session in place of a lost one, on the latest state, and repeats its changes and the calls that
// changed it. If one of these calls has another result now, Replay closes the new session and returns ErrReplayDiffers;
// the caller begins its cycle again.
func (session *Session) Replay(ctx context.Context) error {
	fresh, err := session.client.openSession(ctx, nil, session.against, nil)
	if err != nil {
		return err
	}
	if err := session.ReplayIn(ctx, fresh); err != nil {
		return errors.Join(err, fresh.Close(ctx))
	}
	session.mutex.Lock()
	defer session.mutex.Unlock()
	session.server = fresh.server
	session.opened, session.applied, session.pending, session.log = fresh.opened, fresh.applied, fresh.pending, fresh.log
	session.unanswered = nil
	session.validity.Apply(&pb.Invalidation{Scope: pb.InvalidationScope_INVALIDATION_SCOPE_ALL})
	return nil
}

// ReplayIn repeats the changes of a lost session, and the calls that changed it, in another one that the caller has opened
// and goes on with, for instance with Feed.OpenSession. If a call has another result there, it returns ErrReplayDiffers:
// the other session is then of no use.
func (session *Session) ReplayIn(ctx context.Context, fresh *Session) error {
	session.mutex.Lock()
	defer session.mutex.Unlock()
	fresh.mutex.Lock()
	defer fresh.mutex.Unlock()
	for _, done := range session.log {
		if done.change != nil {
			fresh.pending = append(fresh.pending, done.change)
			continue
		}
		again := &logEntry{send: done.send, ref: fresh.ref()}
		if err := fresh.send(ctx, again); err != nil {
			return err
		}
		fresh.log = append(fresh.log, logEntry{send: done.send, result: again.result})
		if !proto.Equal(again.result, done.result) {
			return ErrReplayDiffers
		}
	}
	fresh.pending = append(fresh.pending, session.pending...)
	return nil
}
