package volcano

import (
	"volcano.sh/volcano/pkg/scheduler/api"
	"volcano.sh/volcano/pkg/scheduler/framework"
)

// Release is the release of Volcano into which this build of the adapter goes, as policies name it. No constant of Volcano
// tells it in a fork, so that it is told by methods that came with a release: its patch releases look alike, and a later
// source of the main branch counts as ed72c7c81.
func Release() string {
	_, orders := any((*framework.Session)(nil)).(interface{ JobOrderCompareFn(left, right any) int })
	_, counts := any((*api.JobInfo)(nil)).(interface{ ScheduledTaskNum() int32 })
	switch {
	case counts:
		return "volcano-ed72c7c81"
	case orders:
		return "volcano-1.15.1"
	default:
		return "volcano-1.14.4"
	}
}
