package volcano

import (
	"time"

	pumice "github.com/pumice-scheduler/pumice/clients/go"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"k8s.io/klog/v2"
)

const (
	namespace = "volcano"
	subsystem = "pumice"
)

// The metrics are on the scheduler's own page.
var (
	calls = promauto.NewCounterVec(prometheus.CounterOpts{
		Namespace: namespace, Subsystem: subsystem, Name: "calls_total",
		Help: "Calls of the decision service, by method and result (OK, the reason of the error, or its code).",
	}, []string{"method", "result"})
	callSeconds = promauto.NewHistogramVec(prometheus.HistogramOpts{
		Namespace: namespace, Subsystem: subsystem, Name: "call_duration_seconds",
		Help: "Time of a call, attempts and waits included.", Buckets: prometheus.ExponentialBuckets(0.0001, 2, 15),
	}, []string{"method"})
	circuitOpen = promauto.NewGauge(prometheus.GaugeOpts{
		Namespace: namespace, Subsystem: subsystem, Name: "circuit_open",
		Help: "1 while no calls are sent, because the service failed repeatedly.",
	})
	addressInUse = promauto.NewGaugeVec(prometheus.GaugeOpts{
		Namespace: namespace, Subsystem: subsystem, Name: "address_in_use",
		Help: "1 for the address of the decision service that is asked, 0 for those that were asked before.",
	}, []string{"address"})
	failovers = promauto.NewCounterVec(prometheus.CounterOpts{
		Namespace: namespace, Subsystem: subsystem, Name: "address_changes_total",
		Help: "How often another address was asked from then on, by that address.",
	}, []string{"address"})
	resyncs = promauto.NewCounterVec(prometheus.CounterOpts{
		Namespace: namespace, Subsystem: subsystem, Name: "resyncs_total",
		Help: "Full syncs after a loss, by reason.",
	}, []string{"reason"})
	cycles = promauto.NewCounter(prometheus.CounterOpts{
		Namespace: namespace, Subsystem: subsystem, Name: "cycles_total",
		Help: "Scheduling cycles.",
	})
	unavailable = promauto.NewCounter(prometheus.CounterOpts{
		Namespace: namespace, Subsystem: subsystem, Name: "unavailable_cycles_total",
		Help: "Scheduling cycles in which the service was, or became, unavailable.",
	})
	openSeconds = promauto.NewHistogram(prometheus.HistogramOpts{
		Namespace: namespace, Subsystem: subsystem, Name: "open_duration_seconds",
		Help: "Time to find and send the changes at the beginning of a cycle.", Buckets: prometheus.ExponentialBuckets(0.001, 2, 14),
	})
	waitedSeconds = promauto.NewHistogram(prometheus.HistogramOpts{
		Namespace: namespace, Subsystem: subsystem, Name: "cycle_wait_seconds",
		Help: "Time that a cycle waited for the service.", Buckets: prometheus.ExponentialBuckets(0.001, 2, 14),
	})
	drifted = promauto.NewCounter(prometheus.CounterOpts{
		Namespace: namespace, Subsystem: subsystem, Name: "drifted_nodes_total",
		Help: "Nodes whose usage in the service differed from the scheduler's.",
	})
	refusedNow = promauto.NewGauge(prometheus.GaugeOpts{
		Namespace: namespace, Subsystem: subsystem, Name: "refused_records",
		Help: "Records that are left out now: unreadable, or refused by the service.",
	})
	refusedTotal = promauto.NewCounterVec(prometheus.CounterOpts{
		Namespace: namespace, Subsystem: subsystem, Name: "refused_records_total",
		Help: "Records that were left out, by kind.",
	}, []string{"kind"})
	policyVersion = promauto.NewGaugeVec(prometheus.GaugeOpts{
		Namespace: namespace, Subsystem: subsystem, Name: "policy_version",
		Help: "Version of the policy that governs, by its name and hash.",
	}, []string{"policy", "hash"})
	schedulerRelease = promauto.NewGaugeVec(prometheus.GaugeOpts{
		Namespace: namespace, Subsystem: subsystem, Name: "scheduler_release",
		Help: "1 for the release of Volcano into which the adapter is built.",
	}, []string{"release"})
	otherRelease = promauto.NewGauge(prometheus.GaugeOpts{
		Namespace: namespace, Subsystem: subsystem, Name: "policy_of_other_release",
		Help: "1 while the policy that governs follows another release than the scheduler's.",
	})
	eventsTotal = promauto.NewCounterVec(prometheus.CounterOpts{
		Namespace: namespace, Subsystem: subsystem, Name: "events_total",
		Help: "Events written for rejected jobs and tasks, by reason.",
	}, []string{"reason"})
)

// counting counts the client's calls, and tells the metrics of a fork as well.
type counting struct {
	next pumice.Metrics
}

// Call counts a call.
func (counting counting) Call(method, reason string, attempts int, took time.Duration) {
	calls.WithLabelValues(method, reason).Inc()
	callSeconds.WithLabelValues(method).Observe(took.Seconds())
	counting.next.Call(method, reason, attempts, took)
}

// Replied tells the fork.
func (counting counting) Replied(call pumice.Call, origin pumice.Origin) {
	counting.next.Replied(call, origin)
}

// InUse keeps the address that is asked, and counts changes of it.
func (counting counting) InUse(address, before, reason string) {
	addressInUse.WithLabelValues(address).Set(1)
	if before != "" {
		addressInUse.WithLabelValues(before).Set(0)
		failovers.WithLabelValues(address).Inc()
		klog.InfoS("Pumice is asked at another address", "address", address, "before", before, "why", reason)
	}
	counting.next.InUse(address, before, reason)
}

// Circuit keeps the state of the circuit.
func (counting counting) Circuit(open bool) {
	circuitOpen.Set(map[bool]float64{true: 1}[open])
	counting.next.Circuit(open)
}

// Resync counts a full sync.
func (counting counting) Resync(source, reason string) {
	resyncs.WithLabelValues(reason).Inc()
	counting.next.Resync(source, reason)
}

// Refused tells the fork: the observer counts refused records by name.
func (counting counting) Refused(source string, records int) {
	counting.next.Refused(source, records)
}
