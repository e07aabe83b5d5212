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

// itemProblems returns the items that have a problem, and an error if there is no result, or not one item for each of those
// asked about: a result that is missing must not look like one without nodes.
func itemProblems[T any, I interface{ GetProblem() *pb.Problem }](result *T, items []I, asked int) (found []ItemProblem, err error) {
	if result == nil {
		return nil, fmt.Errorf("%w: it has no result", ErrIncomplete)
	}
	if len(items) != asked {
		return nil, fmt.Errorf("%w: %d of %d", ErrIncomplete, len(items), asked)
	}
	for at, item := range items {
		if problem := item.GetProblem(); problem != nil {
			found = append(found, ItemProblem{Item: at, Problem: problem})
		}
	}
	return found, nil
}

// problemOf is the error of an item that has a problem; nil if it has none.
func problemOf(call Call, problem *pb.Problem) error {
	if problem == nil {
		return nil
	}
	return &ProblemError{Call: call, Items: []ItemProblem{{Problem: problem}}}
}
