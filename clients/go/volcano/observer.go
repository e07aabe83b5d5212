package volcano

import (
	"time"

	"github.com/pumice-scheduler/pumice/clients/go/cycle"

	"k8s.io/klog/v2"
)

// observer logs and counts what cycles do, and tells the observer of a fork as well.
type observer struct {
	next cycle.Observer
	// refused has the records that are newly left out since the last session, for their events.
	refused []cycle.RefusedRecord
}

// Opened logs and measures the beginning of a cycle.
func (observer *observer) Opened(sent int, took time.Duration) {
	klog.V(3).InfoS("Pumice knows the state", "sent", sent, "took", took)
	openSeconds.Observe(took.Seconds())
	observer.next.Opened(sent, took)
}

// Closed logs and measures the end of a cycle.
func (observer *observer) Closed(usage cycle.Usage) {
	klog.V(3).InfoS("Pumice was asked", "calls", usage.Calls, "waited", usage.Waited, "changes", usage.Changes)
	cycles.Inc()
	waitedSeconds.Observe(usage.Waited.Seconds())
	observer.next.Closed(usage)
}

// Unavailable logs and counts a cycle without the service.
func (observer *observer) Unavailable(err error) {
	klog.ErrorS(err, "Pumice is not asked for the rest of this cycle")
	unavailable.Inc()
	observer.next.Unavailable(err)
}

// Drifted logs and counts nodes with another usage.
func (observer *observer) Drifted(nodes []string) {
	klog.ErrorS(nil, "Pumice's usage of nodes differs; everything is sent again", "nodes", nodes)
	drifted.Add(float64(len(nodes)))
	observer.next.Drifted(nodes)
}

// loggedRecords is the number of refused records that one cycle logs by name.
const loggedRecords = 20

// Refused logs and counts records that are left out.
func (observer *observer) Refused(fresh []cycle.RefusedRecord, now int) {
	for number, record := range fresh {
		refusedTotal.WithLabelValues(record.Kind).Inc()
		if number < loggedRecords {
			klog.ErrorS(nil, "Pumice goes on with the last good record of an object", "kind", record.Kind, "name", record.Name,
				"field", record.Field, "why", record.Message, "unreadable", record.Unreadable)
		}
	}
	if len(fresh) > loggedRecords {
		klog.ErrorS(nil, "Pumice goes on with the last good records of more objects", "number", len(fresh)-loggedRecords)
	}
	refusedNow.Set(float64(now))
	observer.refused = append(observer.refused, fresh...)
	observer.next.Refused(fresh, now)
}

// Governed logs the policy that decides.
func (observer *observer) Governed(policy cycle.GoverningPolicy) {
	klog.InfoS("Another policy governs", "policy", policy.Name, "version", policy.Version, "hash", policy.Hash, "origin", policy.Origin)
	if len(policy.OnlyScheduler) > 0 {
		klog.InfoS("The policy does not name plugins of the scheduler's configuration: they have no opinion", "plugins", policy.OnlyScheduler)
	}
	if len(policy.OnlyPolicy) > 0 {
		klog.InfoS("The scheduler's configuration does not name plugins of the policy: they are not asked", "plugins", policy.OnlyPolicy)
	}
	if policy.HierarchyDiffers {
		klog.InfoS("enableHierarchy of drf differs: the policy decides the shares, the scheduler's configuration whether they order queues")
	}
	if policy.OtherRelease != "" {
		klog.InfoS("The policy follows the rules of another release of Volcano; name the scheduler's as its compatibility, unless you compare releases",
			"policy", policy.OtherRelease, "scheduler", Release())
	}
	otherRelease.Set(map[bool]float64{true: 1}[policy.OtherRelease != ""])
	policyVersion.Reset()
	policyVersion.WithLabelValues(policy.Name, policy.Hash).Set(float64(policy.Version))
	observer.next.Governed(policy)
}

// PolicyPushed logs what the scheduler's configuration has replaced.
func (observer *observer) PolicyPushed(was, now cycle.PolicyVersion, own bool) {
	if own {
		klog.InfoS("The scheduler's configuration is in force in Pumice", "now", now.String())
	} else {
		klog.ErrorS(nil, "The scheduler's configuration has replaced a policy that somebody else put in force (policy mode hand)",
			"replaced", was.String(), "now", now.String())
	}
	observer.next.PolicyPushed(was, now, own)
}
