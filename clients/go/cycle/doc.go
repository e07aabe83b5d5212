// Package cycle runs one scheduling cycle of a scheduler that has plugins, with Pumice behind them.
//
// A [Scheduler] lives as long as the process, a [Cycle] as long as one cycle. A cycle makes few calls, in batches:
// [Cycle.Prepare] fetches the results of a whole task class over all nodes, and [Cycle.Fits], [Cycle.Score],
// [Cycle.CompareJobs], [Cycle.Allocatable] and similar methods look them up. [Cycle.Record] records an event of the cycle.
// Events are numbered, are sent with the next call, and make only those results stale that they affect.
//
// The package knows no scheduler: clients/go/volcano is a thin adapter to it.
package cycle
