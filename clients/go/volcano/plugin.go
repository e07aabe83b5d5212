package volcano

import (
	"context"
	"fmt"
	"slices"

	"github.com/pumice-scheduler/pumice/clients/go/cycle"

	"k8s.io/klog/v2"
	"volcano.sh/apis/pkg/apis/scheduling"
	"volcano.sh/volcano/pkg/scheduler/api"
	"volcano.sh/volcano/pkg/scheduler/framework"
)

// plugin replaces one in-tree plugin with calls to Pumice.
type plugin struct {
	name      string
	arguments framework.Arguments
	// Of the open session.
	process *process
	inTree  framework.Plugin
}

// New makes the plugin of a name. The arguments reach Pumice with the whole configuration, when a session opens; those that
// begin with "pumice." are options of the adapter.
func New(name string, arguments framework.Arguments) framework.Plugin {
	return &plugin{name: name, arguments: arguments}
}

// Name is that of the plugin which it replaces.
func (plugin *plugin) Name() string {
	return plugin.name
}

// running is a cycle that the plugins of a session share.
type running struct {
	session *framework.Session
	cycle   *cycle.Cycle
	users   int
	// quiet: the in-tree plugins decide, so that nobody is told of what Pumice rejects.
	quiet  bool
	events *eventWriter
	// nominated is the task whose planned node Volcano looks at first.
	nominated *nomination
	// rejected is the rejection of the task that is being asked about.
	rejected *cycle.Rejection
}

// OnSessionOpen opens the cycle, or joins that of another plugin, and puts the plugin's functions in place.
func (plugin *plugin) OnSessionOpen(session *framework.Session) {
	plugin.process, plugin.inTree = processOf(session), nil
	if builder := plugin.process.settings.InTree[plugin.name]; plugin.process.settings.Shadow && builder != nil {
		plugin.inTree = builder(plugin.arguments)
	}
	if plugin.inTree != nil {
		plugin.inTree.OnSessionOpen(session)
	}
	running := plugin.process.join(session)
	if running == nil {
		if plugin.inTree == nil && plugin.process.settings.Cycle.Fallback == cycle.FailClosed {
			session.AddPrePredicateFn(plugin.name, func(*api.TaskInfo) error {
				return fmt.Errorf("pumice cannot be asked: %w", plugin.process.wrong)
			})
		}
		return
	}
	hooks := hooksOf(plugin.name, running)
	if plugin.inTree != nil {
		if err := hooks.shadow(plugin.process.settings.Comparison, session); err != nil {
			klog.ErrorS(err, "Nothing is compared", "plugin", plugin.name)
		}
		return
	}
	hooks.register(session)
}

// OnSessionClose leaves the cycle; the last one ends it.
func (plugin *plugin) OnSessionClose(session *framework.Session) {
	if plugin.inTree != nil {
		plugin.inTree.OnSessionClose(session)
	}
	if plugin.process != nil {
		plugin.process.leave(session)
	}
}

// CycleOf is the cycle of an open session, nil if Pumice is not asked in it.
func CycleOf(session *framework.Session) *cycle.Cycle {
	process := processOf(session)
	process.mutex.Lock()
	defer process.mutex.Unlock()
	if found := process.open[session]; found != nil {
		return found.cycle
	}
	return nil
}

func (process *process) join(session *framework.Session) *running {
	process.mutex.Lock()
	defer process.mutex.Unlock()
	if process.wrong != nil {
		return nil
	}
	found := process.open[session]
	if found == nil {
		found = &running{session: session, cycle: process.begin(session), quiet: process.settings.Shadow, events: &process.events}
		if found.cycle.Due() {
			found.cycle.Verify(usage(session))
		}
		found.listen()
		process.open[session] = found
	}
	found.users++
	return found
}

// begin sends what has changed.
func (process *process) begin(session *framework.Session) *cycle.Cycle {
	var names []string
	for _, tier := range session.Tiers {
		for _, option := range tier.Plugins {
			if slices.Contains(Names(), option.Name) {
				names = append(names, option.Name)
			}
		}
	}
	policy := cycle.Policy{Document: document(session), Plugins: names}
	made := process.scheduler.Open(context.Background(), snapshotOf(session), policy)
	process.refused(session)
	return made
}

// Open begins a cycle on a session's state without any plugin, for measurements. The caller closes it.
func Open(session *framework.Session) *cycle.Cycle {
	return processOf(session).begin(session)
}

func (process *process) leave(session *framework.Session) {
	process.mutex.Lock()
	defer process.mutex.Unlock()
	found := process.open[session]
	if found == nil {
		return
	}
	found.endNomination()
	if found.users--; found.users == 0 {
		found.cycle.Close()
		delete(process.open, session)
	}
}

// usage is what the scheduler takes nodes to use.
func usage(session *framework.Session) map[string]cycle.Amounts {
	all := make(map[string]cycle.Amounts, len(session.Nodes))
	for name, node := range session.Nodes {
		amounts := cycle.Amounts{"cpu": node.Used.MilliCPU, "memory": node.Used.Memory}
		for resource, value := range node.Used.ScalarResources {
			amounts[string(resource)] = value
		}
		all[name] = amounts
	}
	return all
}

// task is a task as the cycle knows it.
func (running *running) task(info *api.TaskInfo) cycle.Task {
	task := cycle.Task{ID: string(info.UID), Name: info.Namespace + "/" + info.Name}
	if job := running.session.Jobs[info.Job]; job != nil {
		task.Job, task.Queue = string(job.UID), string(job.Queue)
	}
	return task
}

// listen records events of the session in the cycle. The status of the task tells the kind of an event.
func (running *running) listen() {
	running.session.AddEventHandler(&framework.EventHandler{
		AllocateFunc: func(event *framework.Event) {
			running.endNomination()
			placement := cycle.Unevicted
			switch event.Task.Status {
			case api.Allocated, api.Binding:
				placement = cycle.Allocated
			case api.Pipelined:
				placement = cycle.Pipelined
			default:
			}
			running.cycle.Record(placement, running.task(event.Task), event.Task.NodeName)
		},
		DeallocateFunc: func(event *framework.Event) {
			placement := cycle.Withdrawn
			if event.Task.Status == api.Releasing {
				placement = cycle.Evicted
			}
			running.cycle.Record(placement, running.task(event.Task), event.Task.NodeName)
		},
	})
	running.cycle.OnRejected(running.explain)
	running.cycle.OnRevoked(func(job, reason string) {
		klog.InfoS("A job waits on: its admission was not confirmed", "job", job, "why", reason)
		if info := running.session.Jobs[api.JobID(job)]; info != nil {
			info.PodGroup.Status.Phase = scheduling.PodGroupPending
		}
	})
}
