package cycle

import (
	"fmt"
	"maps"
	"slices"
	"sync"
)

// samplesKept per hook.
const samplesKept = 20

// Comparison counts, in shadow mode, how the service's answers compare with those that were used. It is safe to use from
// several goroutines.
type Comparison struct {
	// Report hears of each difference. Nil: nobody.
	Report func(hook, question string, used, pumice any)

	mutex sync.Mutex
	hooks map[string]*HookComparison
}

// HookComparison is the comparison of one hook.
type HookComparison struct {
	// Hook is plugin and hook, "drf/JobOrder".
	Hook string
	// Calls compared, Differences among them.
	Calls, Differences uint64
	// Samples of the differences, the first ones.
	Samples []string
}

// Note takes in one call.
func (comparison *Comparison) Note(hook string, same bool, question func() string, used, pumice any) {
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
	text := question()
	if len(entry.Samples) < samplesKept {
		entry.Samples = append(entry.Samples, fmt.Sprintf("%s: used %v, Pumice says %v", text, used, pumice))
	}
	comparison.mutex.Unlock()
	if comparison.Report != nil {
		comparison.Report(hook, text, used, pumice)
	}
}

// Hooks are the counts so far, by hook.
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
