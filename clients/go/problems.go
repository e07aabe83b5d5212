package pumice

import (
	"errors"
	"fmt"

	pb "github.com/pumice-scheduler/pumice/clients/go/pumicev1"
)

// ProblemError reports the items of a response that have a problem instead of a result. The response comes with it, and
// its other items hold. [AllowProblems] removes it for callers that read the problem of each item themselves.
type ProblemError struct {
	// Call is the call.
	Call Call
	// Items are the items with a problem, in the order of the request.
	Items []ItemProblem
}

// ItemProblem is the problem of one item.
type ItemProblem struct {
	// Item is the position of the item in the result, from 0; of Order, the queues count before the jobs.
	Item int
	// Problem is the reason why the item has no result.
	Problem *pb.Problem
}

// Error is the first problem, and the number of the others.
func (problems *ProblemError) Error() string {
	first := problems.Items[0].Problem
	text := fmt.Sprintf("%s: %s: %s", problems.Call, first.GetReason(), first.GetMessage())
	if first.GetField() != "" {
		text = fmt.Sprintf("%s: %s: %s: %s", problems.Call, first.GetField(), first.GetReason(), first.GetMessage())
	}
	if more := len(problems.Items) - 1; more > 0 {
		text += fmt.Sprintf(" (and %d more)", more)
	}
	return text
}

// AllowProblems drops a ProblemError: AllowProblems(client.Filter(ctx, request)).
func AllowProblems[R any](reply Reply[R], err error) (Reply[R], error) {
	var problems *ProblemError
	if errors.As(err, &problems) {
		return reply, nil
	}
	return reply, err
}

// withProblems adds a ProblemError to a response of the service in which an item has a problem.
func withProblems[R any](call Call, reply Reply[R], err error) (Reply[R], error) {
	if err != nil || reply.Origin != OriginService {
		return reply, err
	}
	if found := problemsOf(reply.Response); len(found) > 0 {
		return reply, &ProblemError{Call: call, Items: found}
	}
	return reply, nil
}

func problemsOf(response any) []ItemProblem {
	switch response := response.(type) {
	case *pb.FilterResponse:
		return itemProblems(response.GetResult().GetItems())
	case *pb.ScoreResponse:
		return itemProblems(response.GetResult().GetItems())
	case *pb.PlaceResponse:
		return itemProblems(response.GetResult().GetGroups())
	case *pb.AdmitResponse:
		return itemProblems(response.GetResult().GetItems())
	case *pb.OrderResponse:
		queues := response.GetResult().GetQueues()
		found := itemProblems(queues)
		for _, item := range itemProblems(response.GetResult().GetJobs()) {
			found = append(found, ItemProblem{Item: len(queues) + item.Item, Problem: item.Problem})
		}
		return found
	case *pb.SelectVictimsResponse:
		return itemProblems(response.GetResult().GetItems())
	}
	return nil
}

func itemProblems[I interface{ GetProblem() *pb.Problem }](items []I) (found []ItemProblem) {
	for at, item := range items {
		if problem := item.GetProblem(); problem != nil {
			found = append(found, ItemProblem{Item: at, Problem: problem})
		}
	}
	return found
}

// problemOf is the error of an item that has a problem; nil if it has none.
func problemOf(call Call, problem *pb.Problem) error {
	if problem == nil {
		return nil
	}
	return &ProblemError{Call: call, Items: []ItemProblem{{Problem: problem}}}
}
