package kubescheduler

import (
	"sync"
	"time"

	pumice "github.com/pumice-scheduler/pumice/clients/go"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

const subsystem = "scheduler_pumice"

// The metrics stand on the scheduler's own page.
var (
	calls = metrics.NewCounterVec(&metrics.CounterOpts{
		Subsystem: subsystem, Name: "calls_total", StabilityLevel: metrics.ALPHA,
		Help: "Calls of the decision service, by method and result (OK, the reason of the error, or its code).",
	}, []string{"method", "result"})
	callSeconds = metrics.NewHistogramVec(&metrics.HistogramOpts{
		Subsystem: subsystem, Name: "call_duration_seconds", StabilityLevel: metrics.ALPHA,
		Help: "Time of a call, attempts and waits included.", Buckets: metrics.ExponentialBuckets(0.0001, 2, 15),
	}, []string{"method"})
	replies = metrics.NewCounterVec(&metrics.CounterOpts{
		Subsystem: subsystem, Name: "replies_total", StabilityLevel: metrics.ALPHA,
		Help: "Decision calls, by call and origin of the reply: service, fail_closed, fail_open, abstain, error.",
	}, []string{"call", "origin"})
	circuitOpen = metrics.NewGauge(&metrics.GaugeOpts{
		Subsystem: subsystem, Name: "circuit_open", StabilityLevel: metrics.ALPHA,
		Help: "1 while the service is not asked because it did not answer.",
	})
	addressInUse = metrics.NewGaugeVec(&metrics.GaugeOpts{
		Subsystem: subsystem, Name: "address_in_use", StabilityLevel: metrics.ALPHA,
		Help: "1 for the address of the decision service that is asked, 0 for those that were asked before.",
	}, []string{"address"})
	failovers = metrics.NewCounterVec(&metrics.CounterOpts{
		Subsystem: subsystem, Name: "address_changes_total", StabilityLevel: metrics.ALPHA,
		Help: "How often another address was asked from then on, by that address.",
	}, []string{"address"})
	schedulerRelease = metrics.NewGaugeVec(&metrics.GaugeOpts{
		Subsystem: subsystem, Name: "scheduler_release", StabilityLevel: metrics.ALPHA,
		Help: "1 for the release of kube-scheduler into which the plugin is built.",
	}, []string{"release"})
	policyOfOtherRelease = metrics.NewGaugeVec(&metrics.GaugeOpts{
		Subsystem: subsystem, Name: "policy_of_other_release", StabilityLevel: metrics.ALPHA,
		Help: "1 while the policy in force follows another release of kube-scheduler, by policy.",
	}, []string{"policy"})
	resyncs = metrics.NewCounterVec(&metrics.CounterOpts{
		Subsystem: subsystem, Name: "resyncs_total", StabilityLevel: metrics.ALPHA,
		Help: "How often the whole state was sent again, by reason.",
	}, []string{"reason"})
	refusedRecords = metrics.NewCounter(&metrics.CounterOpts{
		Subsystem: subsystem, Name: "refused_records_total", StabilityLevel: metrics.ALPHA,
		Help: "Records of nodes and pods that the service did not take.",
	})
	unreadable = metrics.NewCounterVec(&metrics.CounterOpts{
		Subsystem: subsystem, Name: "unreadable_objects_total", StabilityLevel: metrics.ALPHA,
		Help: "Nodes and pods of which no record could be made.",
	}, []string{"kind"})
	withoutService = metrics.NewCounterVec(&metrics.CounterOpts{
		Subsystem: subsystem, Name: "decisions_without_service_total", StabilityLevel: metrics.ALPHA,
		Help: "Decisions about pods while the service was unavailable: bound (fail open, abstain), waits (fail closed).",
	}, []string{"decision"})
	foreseenPodsTotal = metrics.NewCounter(&metrics.CounterOpts{
		Subsystem: subsystem, Name: "foreseen_pods_total", StabilityLevel: metrics.ALPHA,
		Help: "Pods that an answer about an equal pod before them has served.",
	})
	gangs = metrics.NewCounterVec(&metrics.CounterOpts{
		Subsystem: subsystem, Name: "gangs_total", StabilityLevel: metrics.ALPHA,
		Help: "Attempts to place the pods of a group together, by result: placed, rejected, then bound or released.",
	}, []string{"result"})
	waiting = metrics.NewGauge(&metrics.GaugeOpts{
		Subsystem: subsystem, Name: "waiting_pods", StabilityLevel: metrics.ALPHA,
		Help: "Pods that were refused a node by the service, for want of it or of their pod group, and are watched for a reason to try again.",
	})
	retried = metrics.NewCounterVec(&metrics.CounterOpts{
		Subsystem: subsystem, Name: "retried_pods_total", StabilityLevel: metrics.ALPHA,
		Help: "Waiting pods put back into the queue, by reason: back, policy, state, groups.",
	}, []string{"reason"})
)

var registerOnce sync.Once

func registerMetrics() {
	registerOnce.Do(func() {
		legacyregistry.MustRegister(calls, callSeconds, replies, circuitOpen, addressInUse, failovers, schedulerRelease, policyOfOtherRelease,
			resyncs, refusedRecords, unreadable, withoutService, foreseenPodsTotal, gangs, waiting, retried)
		schedulerRelease.WithLabelValues(Release).Set(1)
	})
}

// counting hears of the client's calls.
type counting struct{}

// Call counts a call.
func (counting) Call(method, reason string, _ int, took time.Duration) {
	calls.WithLabelValues(method, reason).Inc()
	callSeconds.WithLabelValues(method).Observe(took.Seconds())
}

// Replied does nothing: the plugin counts its own replies, including those to calls that were never sent.
func (counting) Replied(pumice.Call, pumice.Origin) {}

// InUse keeps the address that is asked, and counts changes of it.
func (counting) InUse(address, before, _ string) {
	addressInUse.WithLabelValues(address).Set(1)
	if before != "" {
		addressInUse.WithLabelValues(before).Set(0)
		failovers.WithLabelValues(address).Inc()
	}
}

// Circuit keeps the state of the circuit.
func (counting) Circuit(open bool) {
	circuitOpen.Set(map[bool]float64{true: 1}[open])
}

// Resync counts a resync.
func (counting) Resync(_, reason string) {
	resyncs.WithLabelValues(reason).Inc()
}

// Refused counts refused records.
func (counting) Refused(_ string, records int) {
	refusedRecords.Add(float64(records))
}
