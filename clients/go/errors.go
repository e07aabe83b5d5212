package pumice

import (
	"errors"
	"fmt"
	"strings"
	"time"

	pb "github.com/pumice-scheduler/pumice/clients/go/pumicev1"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Error is the failure of a whole call.
type Error struct {
	// Code is the status code of the call.
	Code codes.Code
	// Reason is a stable code such as SESSION_EXPIRED. Empty: the service did not answer.
	Reason string
	// Message is a sentence for people.
	Message string
	// Metadata has the amounts and names that belong to the reason.
	Metadata map[string]string
	// Fields has the fields of the request that are wrong, and the reason of each.
	Fields map[string]string
	// RetryAfter is the wait that the service asks for before the next attempt. If it is set, the call had no effect, unless the
	// reason is STORE_FAILED.
	RetryAfter time.Duration
	// ResponseMetadata has the effects of a session's changes. Nil outside of a session.
	ResponseMetadata *pb.ResponseMetadata
	// Report has the diagnostics of a rejected policy.
	Report *pb.PolicyReport
	// Outcome is the outcome of a batch that the service did not apply.
	Outcome *pb.BatchOutcome

	cause error
}

// Reasons on which callers act.
const (
	ReasonSessionExpired = "SESSION_EXPIRED"
	ReasonSessionUnknown = "SESSION_UNKNOWN"
	ReasonEpochChanged   = "EPOCH_CHANGED"
	ReasonSessionBusy    = "SESSION_BUSY"
	ReasonResyncNeeded   = "RESYNC_NEEDED"
	// ReasonStoreFailed is of a server that cannot write to its store.
	ReasonStoreFailed = "STORE_FAILED"
	// ReasonUnknownOutcome is of a server whose store did not say whether it has the change. Metadata has the "key" that settles it.
	ReasonUnknownOutcome = "UNKNOWN_OUTCOME"
	// ReasonSessionUnreachable is set by this client: the server that opened the session does not answer, and another one is in
	// use. Whether the call had an effect is unknown. The session is lost: open another one.
	ReasonSessionUnreachable = "SESSION_UNREACHABLE"
	// ReasonCircuitOpen is set by this client: after several failures in a row it sends no calls for a while.
	ReasonCircuitOpen = "CIRCUIT_OPEN"
)

// shownDiagnostics is the number of a report's diagnostics in a message.
const shownDiagnostics = 3

// Error is the code, the reason, the message and, of a rejected policy, its first diagnostics.
func (failure *Error) Error() string {
	var text strings.Builder
	text.WriteString(failure.Code.String())
	if failure.Reason != "" {
		text.WriteString(" " + failure.Reason)
	}
	text.WriteString(": " + failure.Message)
	list := failure.Report.GetDiagnostics()
	for at, diagnostic := range list {
		if at == shownDiagnostics {
			fmt.Fprintf(&text, "\n  … %d more in Report", len(list)-at)
			break
		}
		text.WriteString("\n  ")
		if diagnostic.GetLine() > 0 {
			fmt.Fprintf(&text, "line %d, column %d: ", diagnostic.GetLine(), diagnostic.GetColumn())
		}
		if diagnostic.GetPath() != "" {
			text.WriteString(diagnostic.GetPath() + ": ")
		}
		text.WriteString(diagnostic.GetMessage())
	}
	return text.String()
}

// Unwrap returns the error of the connection.
func (failure *Error) Unwrap() error {
	return failure.cause
}

// Unavailable reports whether the service gave no answer: it cannot be reached, is stopping, or took too long. With several
// addresses, none of them did.
func (failure *Error) Unavailable() bool {
	if failure.Reason == ReasonSessionUnreachable {
		return false
	}
	switch failure.Code {
	case codes.Unavailable, codes.DeadlineExceeded:
		return true
	case codes.Internal, codes.Unknown, codes.ResourceExhausted:
		// The connection broke while a response was read, or the service throttles callers.
		return failure.Reason == "" || failure.RetryAfter > 0
	default:
		return false
	}
}

// movesOn reports whether another server may answer where this one did not.
func (failure *Error) movesOn() bool {
	if failure.Reason == ReasonStoreFailed {
		return true
	}
	return failure.Code != codes.ResourceExhausted && failure.Unavailable() && failure.RetryAfter == 0
}

// Decided reports whether the service answered, and the call had no effect.
func (failure *Error) Decided() bool {
	switch failure.Code {
	case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled, codes.Internal, codes.Unknown:
		return false
	default:
		return failure.Reason != "" && failure.Reason != ReasonSessionBusy
	}
}

// SessionEnded reports whether the session has ended, the service does not know it (then Metadata may name the server that does,
// under "server"), or its server cannot be reached while another one is in use.
func (failure *Error) SessionEnded() bool {
	return failure.Reason == ReasonSessionExpired || failure.Reason == ReasonSessionUnknown || failure.Reason == ReasonSessionUnreachable
}

// ErrFenced is the error of a feed after another process with a higher epoch has begun to write its source.
var ErrFenced = errors.New("another process writes this source, with a higher epoch")

// ErrFeedClosed is the error of a feed that was closed.
var ErrFeedClosed = errors.New("the feed is closed")

// readError reads the status of a call and its details.
func readError(err error) *Error {
	given, _ := status.FromError(err)
	failure := &Error{Code: given.Code(), Message: given.Message(), cause: err}
	for _, detail := range given.Details() {
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
			failure.ResponseMetadata = detail
		case *pb.PolicyReport:
			failure.Report = detail
		case *pb.BatchOutcome:
			failure.Outcome = detail
		}
	}
	return failure
}

// locate adds the target to the message of an error that no Pumice server gave, so that a wrong address is seen.
func (failure *Error) locate(target string) *Error {
	if failure.Reason != "" {
		return failure
	}
	const remedy = "Pumice serves gRPC on port 7461 by default; port 7462 serves probes and metrics"
	switch failure.Code {
	case codes.Unavailable:
		failure.Message = fmt.Sprintf("no Pumice server at %s: %s (%s)", target, failure.Message, remedy)
	case codes.DeadlineExceeded:
		failure.Message = fmt.Sprintf("no response from %s in time: %s", target, failure.Message)
	case codes.Unimplemented:
		failure.Message = fmt.Sprintf(
			"%s does not serve this call: %s (another program or an older Pumice listens there; %s)", target, failure.Message, remedy)
	case codes.Unknown, codes.Internal:
		failure.Message = fmt.Sprintf("unusable response from %s: %s (%s)", target, failure.Message, remedy)
	}
	return failure
}
