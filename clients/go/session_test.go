package pumice

import (
	"errors"
	"testing"

	pb "github.com/pumice-scheduler/pumice/clients/go/pumicev1"
)

func big() *pb.FilterRequest {
	return &pb.FilterRequest{Tasks: []*pb.Task{{Requests: amounts("cpu", "6")}}}
}

func fits(t *testing.T, reply Reply[*pb.FilterResponse], err error) []string {
	t.Helper()
	if err != nil || reply.Cause != nil {
		t.Fatal(err, reply.Cause)
	}
	return reply.Response.GetResult().GetItems()[0].GetFit().GetNames()
}

func TestChangesCountInTheSessionAndNowhereElse(t *testing.T) {
	client, ctx := loaded(t, Options{}), within(t)
	session, err := client.OpenSession(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	mark := session.Validity().Now()
	session.AddChanges(AllocateOn("default/gang-0", "n2"))
	reply, err := session.Filter(ctx, big())
	if names := fits(t, reply, err); len(names) != 1 || names[0] != "n3" {
		t.Fatal(names)
	}
	if session.Validity().Node(mark, "n2") || !session.Validity().Node(mark, "n3") {
		t.Fatal("n2 is stale, n3 is not")
	}
	session.AddChanges(Savepoint("here"), AllocateOn("default/gang-1", "n3"))
	if err := session.Flush(ctx); err != nil || session.Effects().GetAppliedThrough() != 3 {
		t.Fatal(err, session.Effects())
	}
	session.AddChanges(RollbackTo("here"))
	reply, err = session.Filter(ctx, big())
	if names := fits(t, reply, err); len(names) != 1 {
		t.Fatal(names)
	}
	reply, err = client.Filter(ctx, big())
	if names := fits(t, reply, err); len(names) != 2 {
		t.Fatal(names)
	}
	if err := errors.Join(session.Close(ctx), session.Close(ctx)); err != nil {
		t.Fatal(err)
	}
	_, err = session.Filter(ctx, big())
	var failure *Error
	if !errors.As(err, &failure) || !failure.SessionEnded() {
		t.Fatal(err)
	}
}

func TestCallsWhoseResponseWasLostAreSentAgain(t *testing.T) {
	feeder, ctx := loaded(t, Options{}), within(t)
	between := newProxy(t, feeder.Connection().Target())
	options := quick(map[Call]Fallback{CallFilter: FailClosed, CallAdmit: FailClosed})
	options.Attempts = 1
	client := dial(t, between.address(), options)
	session, err := client.OpenSession(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	unavailable := func(send func() (Origin, error)) {
		t.Helper()
		between.set(hang)
		if origin, err := send(); err != nil || origin != OriginFailClosed {
			t.Fatal(origin, err)
		}
		between.set(refuse)
		between.set(pass)
	}
	session.AddChanges(AllocateOn("default/gang-0", "n2"))
	unavailable(func() (Origin, error) {
		reply, err := session.Filter(ctx, big())
		return reply.Origin, err
	})
	unavailable(func() (Origin, error) {
		subject := &pb.AdmitSubject{Subject: &pb.AdmitSubject_Job{Job: &pb.Job{Name: "default/gang"}}}
		request := &pb.AdmitRequest{Mode: pb.AdmitMode_ADMIT_MODE_TENTATIVE, Items: []*pb.AdmitSubject{subject}}
		reply, err := session.Admit(ctx, request)
		return reply.Origin, err
	})
	session.AddChanges(AllocateOn("default/gang-1", "n3"))
	for session.Effects().GetAppliedThrough() != 3 {
		if err := session.Flush(ctx); err != nil && ctx.Err() != nil {
			t.Fatal(err, session.Effects())
		}
	}
	reply, err := session.Filter(ctx, big())
	if names := fits(t, reply, err); len(names) != 0 {
		t.Fatal(names)
	}
	if len(session.log) != 3 || session.log[1].change != nil {
		t.Fatalf("%+v", session.log)
	}
}

func TestALostSessionIsReplayed(t *testing.T) {
	client, ctx := loaded(t, Options{}), within(t)
	session, err := client.OpenSession(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	subject := &pb.AdmitSubject{Subject: &pb.AdmitSubject_Job{Job: &pb.Job{Name: "default/gang"}}}
	request := &pb.AdmitRequest{Mode: pb.AdmitMode_ADMIT_MODE_TENTATIVE, Items: []*pb.AdmitSubject{subject}}
	session.AddChanges(AllocateOn("default/gang-0", "n2"))
	if _, err := session.Admit(ctx, request); err != nil {
		t.Fatal(err)
	}
	session.AddChanges(AllocateOn("default/gang-1", "n3"))
	if err := errors.Join(session.Flush(ctx), session.Close(ctx)); err != nil {
		t.Fatal(err)
	}
	lost := session.Opened().GetSession()
	if err := session.Replay(ctx); err != nil {
		t.Fatal(err)
	}
	if session.Opened().GetSession() == lost {
		t.Fatal("it is the same session")
	}
	reply, err := session.Filter(ctx, big())
	if names := fits(t, reply, err); len(names) != 0 {
		t.Fatal(names)
	}
	if session.Effects().GetAppliedThrough() != 3 {
		t.Fatal(session.Effects())
	}
}

func TestCallsThatChangeTheSessionAreNumbered(t *testing.T) {
	client, ctx := loaded(t, Options{}), within(t)
	session, err := client.OpenSession(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	subject := &pb.AdmitSubject{Subject: &pb.AdmitSubject_Job{Job: &pb.Job{Name: "default/gang"}}}
	tentative := &pb.AdmitRequest{Mode: pb.AdmitMode_ADMIT_MODE_TENTATIVE, Items: []*pb.AdmitSubject{subject}}
	if _, err := session.Admit(ctx, tentative); err != nil {
		t.Fatal(err)
	}
	session.AddChanges(JobEnqueued("default/gang"))
	confirmed, err := session.Admit(ctx, &pb.AdmitRequest{Mode: pb.AdmitMode_ADMIT_MODE_CONFIRM})
	if err != nil || len(confirmed.Response.GetResult().GetItems()) != 1 || !confirmed.Response.GetResult().GetItems()[0].GetPermitted() {
		t.Fatal(confirmed, err)
	}
	groups := []*pb.TaskGroup{{Names: []string{"default/gang-0", "default/gang-1"}}}
	placed, err := session.Place(ctx, &pb.PlaceRequest{Groups: groups, Effect: pb.PlaceEffect_PLACE_EFFECT_SESSION})
	if err != nil || !placed.Response.GetResult().GetPlaced() {
		t.Fatal(placed, err)
	}
	session.AddChanges(Unallocate("default/gang-0"))
	if err := session.Flush(ctx); err != nil || session.Effects().GetAppliedThrough() != 5 {
		t.Fatal(err, session.Effects())
	}
}

func TestASessionSetsWhatItsRequestsAreEvaluatedAgainst(t *testing.T) {
	client, ctx := loaded(t, Options{}), within(t)
	session, err := client.OpenSession(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	request := big()
	request.Against = &pb.EvaluationRef{Target: &pb.EvaluationRef_Latest{Latest: &pb.LatestRef{}}}
	if _, err := session.Filter(ctx, request); err == nil {
		t.Fatal("another target was taken")
	}
}
