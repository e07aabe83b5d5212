package pumice

import (
	"errors"
	"fmt"
	"time"

	pb "pumice/clients/go/pumicev1"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Error is a call that failed as a whole.
type Error struct {
	// Code is the status of the call.
	Code codes.Code
	// Reason is a stable word such as SESSION_EXPIRED; empty if the service did not answer.
	Reason string
	// Message is a sentence for people.
	Message string
	// Metadata are figures and names that belong to the reason.
	Metadata map[string]string
	// Fields says per field of the request what is wrong with it.
	Fields map[string]string
	// RetryAfter is set where the service said when to ask again: it has done nothing.
	RetryAfter time.Duration
	// Stamp says, in a session, how far the session came.
	Stamp *pb.ResponseMetadata
	// Report is there for a refused policy.
	Report *pb.PolicyReport
	// Outcome is there for a batch that was not taken.
	Outcome *pb.BatchOutcome

	cause error
}

// Reasons that callers act upon.
const (
	ReasonSessionExpired = "SESSION_EXPIRED"
	ReasonSessionUnknown = "SESSION_UNKNOWN"
	ReasonEpochChanged   = "EPOCH_CHANGED"
	ReasonSessionBusy    = "SESSION_BUSY"
	ReasonResyncNeeded   = "RESYNC_NEEDED"
	// ReasonCircuitOpen is this client's: the service has failed so often that it is not asked for a while.
	ReasonCircuitOpen = "CIRCUIT_OPEN"
)

// Error is code, reason and message.
func (failure *Error) Error() string {
	if failure.Reason == "" {
		return fmt.Sprintf("%s: %s", failure.Code, failure.Message)
	}
	return fmt.Sprintf("%s %s: %s", failure.Code, failure.Reason, failure.Message)
}

// Unwrap is the error of the connection.
func (failure *Error) Unwrap() error {
	return failure.cause
}

// Away says that the service did not answer: it cannot be reached, is stopping, or took too long.
func (failure *Error) Away() bool {
	switch failure.Code {
	case codes.Unavailable, codes.DeadlineExceeded:
		return true
	case codes.Internal, codes.Unknown, codes.ResourceExhausted:
		// A connection that breaks while an answer is read, and a service that turns callers away for now.
		return failure.Reason == "" || failure.RetryAfter > 0
	default:
		return false
	}
}

// Decided says that the service has answered, and what was asked did not happen.
func (failure *Error) Decided() bool {
	switch failure.Code {
	case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled, codes.Internal, codes.Unknown:
		return false
	default:
		return failure.Reason != "" && failure.Reason != ReasonSessionBusy
	}
}

// SessionEnded says that the session is over or not known any more.
func (failure *Error) SessionEnded() bool {
	return failure.Reason == ReasonSessionExpired || failure.Reason == ReasonSessionUnknown
}

// ErrFenced is what a feed fails with that another process has fenced: it stops writing.
var ErrFenced = errors.New("another process writes this source, with a higher epoch")

// readError reads the status of a call and its details.
func readError(err error) *Error {
	said, _ := status.FromError(err)
	failure := &Error{Code: said.Code(), Message: said.Message(), cause: err}
	for _, detail := range said.Details() {
		switch detail := detail.(type) {
		case *errdetails.ErrorInfo:
			failure.Reason, failure.Metadata = detail.GetReason(), detail.GetMetadata()
		case *errdetails.RetryInfo:
			failure.RetryAfter = detail.GetRetryDelay().AsDuration()
		case *errdetails.BadRequest:
			failure.Fields = make(map[string]string, len(detail.GetFieldViolations()))
			for _, violation := range detail.GetFieldViolations() {
				failure.Fields[violation.GetField()] = violation.GetDescription()
			}
		case *pb.ResponseMetadata:
			failure.Stamp = detail
		case *pb.PolicyReport:
			failure.Report = detail
		case *pb.BatchOutcome:
			failure.Outcome = detail
		}
	}
	return failure
}
