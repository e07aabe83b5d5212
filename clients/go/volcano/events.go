package volcano

import (
	"strings"
	"sync"

	"github.com/pumice-scheduler/pumice/clients/go/cycle"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typed "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"
	"volcano.sh/apis/pkg/apis/scheduling/v1beta1"
	"volcano.sh/volcano/pkg/scheduler/api"
	"volcano.sh/volcano/pkg/scheduler/framework"
)

// recordRefused is the reason of events on objects whose record is left out.
const recordRefused = "PumiceRecordRefused"

// eventWriter writes events on any object. A session itself has them for pod groups only.
type eventWriter struct {
	once     sync.Once
	recorder record.EventRecorder
}

// start makes the recorder, once there is a cluster.
func (writer *eventWriter) start(client kubernetes.Interface) {
	if client == nil {
		return
	}
	writer.once.Do(func() {
		broadcaster := record.NewBroadcaster()
		broadcaster.StartRecordingToSink(&typed.EventSinkImpl{Interface: client.CoreV1().Events("")})
		writer.recorder = broadcaster.NewRecorder(scheme.Scheme, v1.EventSource{Component: "volcano-pumice"})
	})
}

func (writer *eventWriter) write(object *v1.ObjectReference, reason, message string) {
	if writer.recorder != nil && object != nil {
		writer.recorder.Event(object, v1.EventTypeWarning, reason, message)
	}
}

// refused writes an event on each object whose record is newly left out.
func (process *process) refused(session *framework.Session) {
	process.events.start(session.KubeClient())
	for _, record := range process.observer.refused {
		process.events.write(objectOf(session, record), recordRefused, record.String()+"; the last good record stays in force, if there was one")
	}
	process.observer.refused = nil
}

// objectOf is the object of a record; nil: the session does not have it.
func objectOf(session *framework.Session, refused cycle.RefusedRecord) *v1.ObjectReference {
	switch refused.Kind {
	case "node":
		if node := session.Nodes[refused.Name]; node != nil && node.Node != nil {
			return &v1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: refused.Name, UID: node.Node.UID}
		}
	case "queue":
		if queue := session.Queues[api.QueueID(refused.Name)]; queue != nil {
			return &v1.ObjectReference{APIVersion: v1beta1.SchemeGroupVersion.String(), Kind: "Queue", Name: refused.Name, UID: queue.Queue.UID}
		}
	case "job":
		if job := session.Jobs[api.JobID(refused.Name)]; job != nil && job.PodGroup != nil {
			return &v1.ObjectReference{
				APIVersion: v1beta1.SchemeGroupVersion.String(), Kind: "PodGroup", Namespace: job.Namespace, Name: job.Name, UID: job.PodGroup.UID,
			}
		}
	case "task":
		if pod := podOf(session, refused.Name); pod != nil {
			return &v1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID}
		}
	}
	return nil
}

// podOf finds a pod by the name of its record. Records are refused rarely, so that no index is kept.
func podOf(session *framework.Session, name string) *v1.Pod {
	namespace, name, _ := strings.Cut(name, "/")
	search := func(tasks map[api.TaskID]*api.TaskInfo) *v1.Pod {
		for _, task := range tasks {
			if task.Name == name && task.Namespace == namespace {
				return task.Pod
			}
		}
		return nil
	}
	for _, job := range session.Jobs {
		if pod := search(job.Tasks); pod != nil {
			return pod
		}
	}
	for _, node := range session.Nodes {
		if pod := search(node.Tasks); pod != nil {
			return pod
		}
	}
	return nil
}
