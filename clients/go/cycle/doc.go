// Package cycle runs one scheduling cycle of a scheduler that has plugins, with Pumice behind them.
//
// A [Scheduler] lives as long as the process, a [Cycle] as long as one cycle. Questions are asked at few points, in
// batches: [Cycle.Prepare] asks for a whole task class over all nodes. [Cycle.Fits], [Cycle.Score],
// [Cycle.CompareJobs], [Cycle.Allocatable] and the like look answers up. What happens in the cycle is told with
// [Cycle.Happened]; it is numbered, rides on the next question, and makes stale what it touches and nothing else.
//
// The package knows no scheduler: clients/go/volcano is a thin adapter to it.
package cycle
