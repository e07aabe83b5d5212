package pumice

import (
	"errors"
	"fmt"
	"strings"

	"github.com/pumice-scheduler/pumice/clients/go/derive"
	pb "github.com/pumice-scheduler/pumice/clients/go/pumicev1"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// longestName is the number of bytes that a name may have by default (limit `name_bytes`): a namespace, a slash, a name.
const longestName = 253 + 1 + 253

// RecordError is the error of an object of which no record can be made.
type RecordError struct {
	// Field is the path of the field that cannot be read. Empty: unknown.
	Field string
	// Cause is the reason.
	Cause error
}

// Error is the field and the reason.
func (failure *RecordError) Error() string {
	if failure.Field == "" {
		return failure.Cause.Error()
	}
	return failure.Field + ": " + failure.Cause.Error()
}

// Unwrap returns the reason.
func (failure *RecordError) Unwrap() error {
	return failure.Cause
}

var errNameless = &RecordError{Field: "metadata.name", Cause: errors.New("is missing; give the object a name")}

// PutNode puts the record of a node. If no record can be made of the object, PutNode marks the node unreadable, which the
// next Flush sends, and returns the *RecordError: the last good record stays in force.
func (feed *Feed) PutNode(node *corev1.Node) error {
	record, err := NodeRecord(node)
	if err != nil {
		feed.PutUnreadable(unreadable(pb.RecordKind_RECORD_KIND_NODE, node.Name, err))
		return err
	}
	feed.Put(&pb.Cluster{Nodes: []*pb.Node{record}})
	return nil
}

// PutNamespace puts the record of a namespace, whose labels the namespace selectors of pods read.
func (feed *Feed) PutNamespace(namespace *corev1.Namespace) {
	feed.Put(&pb.Cluster{Namespaces: []*pb.Namespace{NamespaceRecord(namespace)}})
}

// PutPod puts the record of a pod, as PutNode does for a node. A node whose pod cannot be read takes no new tasks, unless a
// good record counts the pod there.
func (feed *Feed) PutPod(pod *corev1.Pod, derivation derive.Derivation) error {
	record, err := TaskRecord(pod, derivation)
	if err != nil {
		feed.PutUnreadable(UnreadableTask(pod, err))
		return err
	}
	feed.Put(&pb.Cluster{Tasks: []*pb.Task{record}})
	return nil
}

// PutQueue puts the record of a Volcano Queue, which QueueRecord reads, as PutNode does for a node.
func (feed *Feed) PutQueue(object any) error {
	record, err := QueueRecord(object)
	if err != nil {
		_, name := nameOf(object)
		feed.PutUnreadable(unreadable(pb.RecordKind_RECORD_KIND_QUEUE, name, err))
		return err
	}
	feed.Put(&pb.Cluster{Queues: []*pb.Queue{record}})
	return nil
}

// PutJob puts the record of a Volcano PodGroup, which JobRecord reads, as PutNode does for a node.
func (feed *Feed) PutJob(object any, priority int32) error {
	record, err := JobRecord(object, priority)
	if err != nil {
		namespace, name := nameOf(object)
		if name != "" {
			name = namespaced(namespace, name)
		}
		feed.PutUnreadable(unreadable(pb.RecordKind_RECORD_KIND_JOB, name, err))
		return err
	}
	feed.Put(&pb.Cluster{Jobs: []*pb.Job{record}})
	return nil
}

// PutUnreadable marks records that cannot be read; the next Flush sends the marks. The last good record of such a name
// stays in force, marked invalid, until Put or Remove names it. Options.Logger gets a warning for each new mark.
func (feed *Feed) PutUnreadable(list ...*pb.UnreadableRecord) {
	feed.mutex.Lock()
	defer feed.mutex.Unlock()
	for _, unread := range list {
		warn := func(message string) {
			feed.client.options.Logger.Warn(message, "source", feed.source, "kind", kindWord(unread.GetKind()),
				"name", unread.GetName(), "field", unread.GetField(), "message", unread.GetMessage())
		}
		switch {
		case unread.GetName() == "" || len(unread.GetName()) > longestName:
			// The service would refuse the whole batch.
			warn("an object of a feed cannot be read and is left out: it has no name that a record can have")
		case feed.store.mark(unread):
			warn("an object of a feed cannot be read: its last good record stays in force")
		}
	}
}

func kindWord(kind pb.RecordKind) string {
	return strings.ToLower(strings.TrimPrefix(kind.String(), "RECORD_KIND_"))
}

// UnreadableTask is the mark of a pod of which TaskRecord made no record, with the node that the pod occupies.
func UnreadableTask(pod *corev1.Pod, err error) *pb.UnreadableRecord {
	name := ""
	if pod.Name != "" {
		name = namespaced(pod.Namespace, pod.Name)
	}
	mark := unreadable(pb.RecordKind_RECORD_KIND_TASK, name, err)
	switch pod.Status.Phase {
	case "", corev1.PodSucceeded, corev1.PodFailed:
		// A pod without a phase comes from no API server.
	default:
		if len(pod.Spec.NodeName) <= longestName {
			mark.Node = pod.Spec.NodeName
		}
	}
	return mark
}

func unreadable(kind pb.RecordKind, name string, err error) *pb.UnreadableRecord {
	mark := &pb.UnreadableRecord{Kind: kind, Name: name, Message: err.Error()}
	var failure *RecordError
	if errors.As(err, &failure) {
		mark.Field, mark.Message = failure.Field, failure.Cause.Error()
	}
	// A text that is not UTF-8 would hold up the whole batch.
	mark.Field, mark.Message = strings.ToValidUTF8(mark.Field, "\uFFFD"), strings.ToValidUTF8(mark.Message, "\uFFFD")
	return mark
}

func namespaced(namespace, name string) string {
	if namespace == "" {
		namespace = metav1.NamespaceDefault
	}
	return namespace + "/" + name
}

// nameOf reads the name of an object of which nothing else may be readable. Empty: not even the name can be read.
func nameOf(object any) (namespace, name string) {
	read := struct {
		Metadata struct{ Namespace, Name string }
	}{}
	if decode(object, &read) != nil {
		return "", ""
	}
	return read.Metadata.Namespace, read.Metadata.Name
}

// fieldError is a RecordError with a formatted reason.
func fieldError(field, format string, arguments ...any) *RecordError {
	return &RecordError{Field: field, Cause: fmt.Errorf(format, arguments...)}
}
