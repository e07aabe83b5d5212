package cycle

import (
	"fmt"
	"maps"
	"slices"
	"sync"
)

// samplesPerHook is the number of differences that are kept of each hook.
const samplesPerHook = 20

// Comparison counts, in shadow mode, the differences between the service's results and those that were used. It is safe to
// use from several goroutines.
type Comparison struct {
	// Report is called with each difference. May be nil.
	Report func(hook, query string, used, pumice any)

	mutex sync.Mutex
	hooks map[string]*HookComparison
}

// HookComparison is the comparison of one hook.
type HookComparison struct {
	// Hook names plugin and hook, such as "drf/JobOrder".
	Hook string
	// Calls is the number of compared calls, Differences that of different results.
	Calls, Differences uint64
	// Samples are the first differences.
	Samples []string
}

// Add adds one call.
func (comparison *Comparison) Add(hook string, same bool, query func() string, used, pumice any) {
	comparison.mutex.Lock()
	if comparison.hooks == nil {
		comparison.hooks = map[string]*HookComparison{}
	}
	entry := comparison.hooks[hook]
	if entry == nil {
		entry = &HookComparison{Hook: hook}
		comparison.hooks[hook] = entry
	}
	entry.Calls++
	if same {
		comparison.mutex.Unlock()
		return
	}
	entry.Differences++
	text := query()
	if len(entry.Samples) < samplesPerHook {
		entry.Samples = append(entry.Samples, fmt.Sprintf("%s: used %v, Pumice says %v", text, used, pumice))
	}
	comparison.mutex.Unlock()
	if comparison.Report != nil {
		comparison.Report(hook, text, used, pumice)
	}
}

// Hooks returns the counts so far, sorted by hook.
func (comparison *Comparison) Hooks() []HookComparison {
	comparison.mutex.Lock()
	defer comparison.mutex.Unlock()
	var list []HookComparison
	for _, name := range slices.Sorted(maps.Keys(comparison.hooks)) {
		entry := *comparison.hooks[name]
		entry.Samples = slices.Clone(entry.Samples)
		list = append(list, entry)
	}
	return list
}
