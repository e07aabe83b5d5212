package pumice

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	pb "pumice/clients/go/pumicev1"

	"google.golang.org/protobuf/proto"
)

// ErrReplayDiffers is what Replay fails with if the new session answers a question otherwise than the lost one did.
var ErrReplayDiffers = errors.New("the new session answers otherwise than the lost one did")

// Session is one scheduling cycle. Changes are noted, numbered, and ride on the next question; those whose answer was
// lost ride again, and are applied once. It is safe to use from several goroutines; questions go one after the other.
//
// Once the service says that the session has ended, every question fails with that: the caller opens another one, or
// calls Replay.
type Session struct {
	client  *Client
	against *pb.EvaluationRef

	mutex   sync.Mutex
	opened  *pb.OpenSessionResponse
	applied uint64
	pending []*pb.SessionChange
	// log is everything that was applied, in order: changes, and questions that changed the session.
	log        []entry
	unanswered *entry
	effects    *pb.SessionEffects
	validity   Validity
}

// entry is a change, or a question that changed the session with the answer that it had.
type entry struct {
	change *pb.SessionChange
	ask    func(context.Context, *pb.SessionRef) (proto.Message, *pb.ResponseMetadata, error)
	step   *pb.SessionRef
	answer proto.Message
}

// OpenSession begins a scheduling cycle: state and policy stay as they are now. against is a LatestRef, an InlineSnapshot or nil. It
// is never asked twice: a session would stay that nobody closes.
func (client *Client) OpenSession(ctx context.Context, against *pb.EvaluationRef) (*Session, error) {
	return client.openSession(ctx, against, nil)
}

func (client *Client) openSession(ctx context.Context, against *pb.EvaluationRef, batch *pb.Batch) (*Session, error) {
	request := &pb.OpenSessionRequest{Against: against, Batch: batch}
	opened, err := call(ctx, client, "OpenSession", once, client.decisions.OpenSession, request)
	if err != nil {
		return nil, err
	}
	return &Session{client: client, against: against, opened: opened}, nil
}

// Opened is the service's reply: its stamp, the lease, what became of the batch.
func (session *Session) Opened() *pb.OpenSessionResponse {
	session.mutex.Lock()
	defer session.mutex.Unlock()
	return session.opened
}

// Effects are what the changes of the last question did.
func (session *Session) Effects() *pb.SessionEffects {
	session.mutex.Lock()
	defer session.mutex.Unlock()
	return session.effects
}

// Validity says which earlier answers of this session no longer hold.
func (session *Session) Validity() *Validity {
	return &session.validity
}

// Note notes changes; they ride on the next question. AllocateOn and its like make them.
func (session *Session) Note(changes ...*pb.SessionChange) {
	session.mutex.Lock()
	defer session.mutex.Unlock()
	session.pending = append(session.pending, changes...)
}

// AllocateOn: a task was given idle room.
func AllocateOn(task, node string) *pb.SessionChange {
	return &pb.SessionChange{Change: &pb.SessionChange_Allocate{Allocate: &pb.TaskPlacement{Task: task, Node: node}}}
}

// PipelineOn: a task was promised room that is being released.
func PipelineOn(task, node string) *pb.SessionChange {
	return &pb.SessionChange{Change: &pb.SessionChange_Pipeline{Pipeline: &pb.TaskPlacement{Task: task, Node: node}}}
}

// Evict: a task was told to go.
func Evict(task string) *pb.SessionChange {
	return &pb.SessionChange{Change: &pb.SessionChange_Evict{Evict: task}}
}

// Unallocate undoes AllocateOn.
func Unallocate(task string) *pb.SessionChange {
	return &pb.SessionChange{Change: &pb.SessionChange_Unallocate{Unallocate: task}}
}

// Unpipeline undoes PipelineOn.
func Unpipeline(task string) *pb.SessionChange {
	return &pb.SessionChange{Change: &pb.SessionChange_Unpipeline{Unpipeline: task}}
}

// Unevict undoes Evict.
func Unevict(task string) *pb.SessionChange {
	return &pb.SessionChange{Change: &pb.SessionChange_Unevict{Unevict: task}}
}

// BindFailed: the bind of an allocated task failed.
func BindFailed(task string) *pb.SessionChange {
	return &pb.SessionChange{Change: &pb.SessionChange_BindFailed{BindFailed: task}}
}

// JobEnqueued: a job that was admitted tentatively is enqueued for good.
func JobEnqueued(job string) *pb.SessionChange {
	return &pb.SessionChange{Change: &pb.SessionChange_JobEnqueued{JobEnqueued: job}}
}

// Savepoint is a mark to return to.
func Savepoint(name string) *pb.SessionChange {
	return &pb.SessionChange{Change: &pb.SessionChange_Savepoint{Savepoint: name}}
}

// RollbackTo undoes everything after a mark.
func RollbackTo(name string) *pb.SessionChange {
	return &pb.SessionChange{Change: &pb.SessionChange_RollbackTo{RollbackTo: name}}
}

// Filter asks where tasks may run. The ground of the request is the session's to set.
func (session *Session) Filter(ctx context.Context, request *pb.FilterRequest) (Reply[*pb.FilterResponse], error) {
	return inSession(ctx, session, request, &request.Against, false, session.client.Filter)
}

// Score asks where tasks should run.
func (session *Session) Score(ctx context.Context, request *pb.ScoreRequest) (Reply[*pb.ScoreResponse], error) {
	return inSession(ctx, session, request, &request.Against, false, session.client.Score)
}

// Place places a whole job.
func (session *Session) Place(ctx context.Context, request *pb.PlaceRequest) (Reply[*pb.PlaceResponse], error) {
	changes := request.GetEffect() == pb.PlaceEffect_PLACE_EFFECT_SESSION
	return inSession(ctx, session, request, &request.Against, changes, session.client.Place)
}

// Admit asks whether jobs may start and tasks be allocated.
func (session *Session) Admit(ctx context.Context, request *pb.AdmitRequest) (Reply[*pb.AdmitResponse], error) {
	mode := request.GetMode()
	changes := mode == pb.AdmitMode_ADMIT_MODE_TENTATIVE || mode == pb.AdmitMode_ADMIT_MODE_CONFIRM
	return inSession(ctx, session, request, &request.Against, changes, session.client.Admit)
}

// Order asks who is next.
func (session *Session) Order(ctx context.Context, request *pb.OrderRequest) (Reply[*pb.OrderResponse], error) {
	return inSession(ctx, session, request, &request.Against, false, session.client.Order)
}

// SelectVictims asks who gives way.
func (session *Session) SelectVictims(ctx context.Context, request *pb.SelectVictimsRequest) (Reply[*pb.SelectVictimsResponse], error) {
	return inSession(ctx, session, request, &request.Against, false, session.client.SelectVictims)
}

// Flush sends the changes that wait for a question.
func (session *Session) Flush(ctx context.Context) error {
	reply, err := session.Order(ctx, &pb.OrderRequest{})
	if err == nil && reply.Cause != nil {
		return reply.Cause
	}
	return err
}

// Commit ends the session; placements that still hold are kept.
func (session *Session) Commit(ctx context.Context, jobs ...string) (*pb.CommitSessionResponse, error) {
	session.mutex.Lock()
	defer session.mutex.Unlock()
	if err := session.settle(ctx); err != nil {
		return nil, err
	}
	request := &pb.CommitSessionRequest{Session: session.step(), Jobs: jobs}
	return call(ctx, session.client, "CommitSession", repeatable, session.client.decisions.CommitSession, request)
}

// Close ends the session; the scheduler binds by itself. A second time it does no harm.
func (session *Session) Close(ctx context.Context) error {
	session.mutex.Lock()
	defer session.mutex.Unlock()
	request := &pb.CloseSessionRequest{Session: session.opened.GetSession()}
	_, err := call(ctx, session.client, "CloseSession", repeatable, session.client.decisions.CloseSession, request)
	return err
}

// question is a response with a stamp.
type question interface {
	proto.Message
	GetMetadata() *pb.ResponseMetadata
}

// inSession asks a question after the changes that wait.
func inSession[Q proto.Message, R question](
	ctx context.Context, session *Session, request Q, against **pb.EvaluationRef, changes bool,
	ask func(context.Context, Q) (Reply[R], error),
) (Reply[R], error) {
	session.mutex.Lock()
	defer session.mutex.Unlock()
	table := (*against).GetNodeTable()
	if (*against).GetTarget() != nil {
		return Reply[R]{}, errors.New("the session is the against of its questions")
	}
	if err := session.settle(ctx); err != nil {
		var failure *Error
		if !errors.As(err, &failure) || failure.Decided() {
			return Reply[R]{}, err
		}
		// What was asked before has no answer yet, and until it has, this question cannot be numbered: the service is
		// away for it, too.
		*against = &pb.EvaluationRef{Target: &pb.EvaluationRef_Session{Session: session.step()}, NodeTable: table}
		defer func() { *against = &pb.EvaluationRef{NodeTable: table} }()
		late, cancel := context.WithDeadline(ctx, time.Unix(0, 0))
		defer cancel()
		return ask(late, request)
	}
	var reply Reply[R]
	step := session.step()
	// The request stays the caller's: it may be asked again.
	defer func() { *against = &pb.EvaluationRef{NodeTable: table} }()
	send := func(ctx context.Context, step *pb.SessionRef) (proto.Message, *pb.ResponseMetadata, error) {
		*against = &pb.EvaluationRef{Target: &pb.EvaluationRef_Session{Session: step}, NodeTable: table}
		var err error
		reply, err = ask(ctx, request)
		if err == nil && reply.Cause != nil {
			return nil, nil, reply.Cause
		}
		return reply.Response, reply.Response.GetMetadata(), err
	}
	if !changes {
		err := session.send(ctx, &entry{ask: send, step: step})
		return reply, errorOf(reply, err)
	}
	// Asked again after a loss, it is the same question: the caller may have changed its own meanwhile.
	kept := &entry{step: step, ask: repeatedly(session.client, proto.Clone(request), table)}
	session.unanswered = kept
	first := &entry{ask: send, step: step}
	err := session.send(ctx, first)
	kept.answer = first.answer
	session.conclude(kept, err)
	return reply, errorOf(reply, err)
}

// errorOf leaves an answer that stands in for the service's without an error.
func errorOf[R any](reply Reply[R], err error) error {
	if reply.Cause != nil {
		return nil
	}
	return err
}

// repeatedly asks one of the two questions that change a session.
func repeatedly(client *Client, request proto.Message, table *pb.NodeTableVersion) func(context.Context, *pb.SessionRef) (proto.Message, *pb.ResponseMetadata, error) {
	return func(ctx context.Context, step *pb.SessionRef) (proto.Message, *pb.ResponseMetadata, error) {
		against := &pb.EvaluationRef{Target: &pb.EvaluationRef_Session{Session: step}, NodeTable: table}
		switch request := request.(type) {
		case *pb.AdmitRequest:
			request.Against = against
			response, err := call(ctx, client, "Admit", repeatable, client.decisions.Admit, request)
			return response.GetResult(), response.GetMetadata(), err
		case *pb.PlaceRequest:
			request.Against = against
			response, err := call(ctx, client, "Place", repeatable, client.decisions.Place, request)
			return response.GetResult(), response.GetMetadata(), err
		default:
			return nil, nil, fmt.Errorf("%T does not change a session", request)
		}
	}
}

// settle asks again what went without an answer: until then nobody knows which number comes next.
func (session *Session) settle(ctx context.Context) error {
	if session.unanswered == nil {
		return nil
	}
	kept := session.unanswered
	err := session.send(ctx, kept)
	session.conclude(kept, err)
	var failure *Error
	if errors.As(err, &failure) && failure.Decided() && !failure.SessionEnded() {
		return nil
	}
	return err
}

// conclude notes that a question which changes the session has its answer, or never will.
func (session *Session) conclude(kept *entry, err error) {
	var failure *Error
	switch {
	case err == nil:
		session.log = append(session.log, *kept)
		session.unanswered = nil
	case errors.As(err, &failure) && failure.Decided():
		session.unanswered = nil
	}
}

// step is where the session stands, with the changes that wait.
func (session *Session) step() *pb.SessionRef {
	return &pb.SessionRef{Id: session.opened.GetSession(), After: session.applied, Changes: append([]*pb.SessionChange{}, session.pending...)}
}

func (session *Session) send(ctx context.Context, asked *entry) error {
	answer, stamp, err := asked.ask(ctx, asked.step)
	var failure *Error
	if errors.As(err, &failure) {
		stamp = failure.Stamp
	}
	if effects := stamp.GetEffects(); effects != nil {
		session.take(effects, len(asked.step.GetChanges()))
	}
	switch answer := answer.(type) {
	case interface{ GetResult() *pb.AdmitResult }:
		asked.answer = answer.GetResult()
	case interface{ GetResult() *pb.PlaceResult }:
		asked.answer = answer.GetResult()
	default:
		asked.answer = answer
	}
	return err
}

// take forgets what the service has applied, of the first so many changes that wait.
func (session *Session) take(effects *pb.SessionEffects, sent int) {
	session.effects = effects
	session.validity.Apply(effects.GetInvalidation())
	if effects.GetAppliedThrough() < session.applied {
		return
	}
	done := int(min(effects.GetAppliedThrough()-session.applied, uint64(min(sent, len(session.pending)))))
	for _, change := range session.pending[:done] {
		session.log = append(session.log, entry{change: change})
	}
	session.pending = session.pending[done:]
	session.applied = effects.GetAppliedThrough()
}

// Replay opens the session anew after the service has lost it, on the newest state, and does there what was done: the
// changes, and the questions that changed it. If one of those is answered otherwise now, the new session is closed, and
// the caller starts its cycle again: ErrReplayDiffers.
func (session *Session) Replay(ctx context.Context) error {
	session.mutex.Lock()
	defer session.mutex.Unlock()
	fresh, err := session.client.openSession(ctx, session.against, nil)
	if err != nil {
		return err
	}
	for _, done := range session.log {
		if done.change != nil {
			fresh.pending = append(fresh.pending, done.change)
			continue
		}
		again := &entry{ask: done.ask, step: fresh.step()}
		if err := fresh.send(ctx, again); err != nil {
			return errors.Join(err, fresh.Close(ctx))
		}
		fresh.log = append(fresh.log, entry{ask: done.ask, answer: again.answer})
		if !proto.Equal(again.answer, done.answer) {
			return errors.Join(ErrReplayDiffers, fresh.Close(ctx))
		}
	}
	fresh.pending = append(fresh.pending, session.pending...)
	session.opened, session.applied, session.pending, session.log = fresh.opened, fresh.applied, fresh.pending, fresh.log
	session.unanswered = nil
	session.validity.Apply(&pb.Invalidation{Scope: pb.InvalidationScope_INVALIDATION_SCOPE_ALL})
	return nil
}
