package volcano

import (
	"github.com/pumice-scheduler/pumice/clients/go/cycle"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	"volcano.sh/apis/pkg/apis/scheduling"
	"volcano.sh/volcano/pkg/scheduler/api"
)

// explain tells the owner of a job why it may not start: in the job's fit error, which Volcano writes into conditions of
// pods and of the pod group, in the pod group's condition, and in an event. A rejected task waits for explainTask.
func (running *running) explain(rejection cycle.Rejection) {
	if running.quiet {
		return
	}
	if rejection.Task != "" {
		running.rejected = &rejection
		return
	}
	job := running.session.Jobs[api.JobID(rejection.Job)]
	if job == nil || job.PodGroup == nil {
		return
	}
	klog.V(3).InfoS("A job may not start", "job", rejection.Job, "code", rejection.Code, "why", rejection.Message)
	job.JobFitErrors = rejection.String()
	running.condition(job, rejection)
	if rejection.Event {
		running.session.RecordPodGroupEvent(job.PodGroup, v1.EventTypeWarning, rejection.Code, rejection.Message)
		eventsTotal.WithLabelValues(rejection.Code).Inc()
	}
}

// explainTask tells the owner of a task why its queue does not take it.
func (running *running) explainTask(task *api.TaskInfo) {
	rejection := running.rejected
	job := running.session.Jobs[task.Job]
	if rejection == nil || job == nil {
		return
	}
	running.rejected = nil
	klog.V(3).InfoS("A queue does not take a task", "task", rejection.Task, "code", rejection.Code, "why", rejection.Message)
	failed := api.NewFitErrors()
	failed.SetError(rejection.String())
	job.NodesFitErrors[task.UID] = failed
	running.condition(job, *rejection)
	if rejection.Event {
		pod := &v1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: task.Namespace, Name: task.Name}
		if task.Pod != nil {
			pod.UID = task.Pod.UID
		}
		running.events.write(pod, rejection.Code, rejection.Message)
		eventsTotal.WithLabelValues(rejection.Code).Inc()
	}
}

// condition writes the reason into the pod group. The plugin gang replaces it at the end of the session by its own, with
// the job's fit error in it.
func (running *running) condition(job *api.JobInfo, rejection cycle.Rejection) {
	if job.PodGroup == nil {
		return
	}
	err := running.session.UpdatePodGroupCondition(job, &scheduling.PodGroupCondition{
		Type: scheduling.PodGroupUnschedulableType, Status: v1.ConditionTrue, LastTransitionTime: metav1.Now(),
		TransitionID: string(running.session.UID), Reason: rejection.Code, Message: rejection.Message,
	})
	if err != nil {
		klog.ErrorS(err, "A pod group has no condition", "job", rejection.Job)
		return
	}
	if running.session.DirtyJobs != nil {
		running.session.MarkJobDirty(job.UID)
	}
}
