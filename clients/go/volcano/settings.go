package volcano

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	pumice "github.com/pumice-scheduler/pumice/clients/go"
	"github.com/pumice-scheduler/pumice/clients/go/cycle"

	"k8s.io/klog/v2"
	"volcano.sh/volcano/pkg/scheduler/framework"
	"volcano.sh/volcano/pkg/scheduler/plugins/binpack"
	"volcano.sh/volcano/pkg/scheduler/plugins/drf"
	resourcestrategyfit "volcano.sh/volcano/pkg/scheduler/plugins/resource-strategy-fit"
)

// Settings are what the plugins of one process share.
type Settings struct {
	// Target of the service, as pumice.Dial takes it. Default pumice.DefaultTarget.
	Target string
	// Client options. The time of a call is bounded by the budget, too.
	Client pumice.Options
	// Cycle settings; the client is made from Target. The observer is notified beside the plugins' own logs and metrics.
	Cycle cycle.Settings
	// Shadow: in-tree answers are used, Pumice's are compared.
	Shadow bool
	// Comparison counts in shadow mode. Default: differences are logged.
	Comparison *cycle.Comparison
	// InTree are the plugins that shadow mode compares with, by name.
	InTree map[string]framework.PluginBuilder
}

// Names of the plugins that the service serves and Volcano names.
func Names() []string {
	return []string{"resource-strategy-fit", "drf", "capacity-card", "binpack"}
}

// Register puts the plugins in place of the in-tree ones of the same names.
func Register() {
	for _, name := range Names() {
		framework.RegisterPluginBuilder(name, func(arguments framework.Arguments) framework.Plugin { return New(name, arguments) })
	}
}

// FromEnvironment reads settings from PUMICE_TARGET, PUMICE_POLICY, PUMICE_POLICY_MODE (follow, hand, check),
// PUMICE_POLICY_HASH, PUMICE_COMPATIBILITY (corrected, upstream), PUMICE_SOURCE, PUMICE_FALLBACK (fail-closed, abstain), PUMICE_SHADOW,
// PUMICE_BUDGET_CALLS, PUMICE_BUDGET_TIME, PUMICE_KEEP_FOR (durations such as 5s), PUMICE_VERIFY_EVERY and PUMICE_PLANS.
func FromEnvironment() (Settings, error) {
	settings := Settings{Target: os.Getenv("PUMICE_TARGET")}
	settings.Cycle.Policy = os.Getenv("PUMICE_POLICY")
	settings.Cycle.PolicyHash = os.Getenv("PUMICE_POLICY_HASH")
	settings.Cycle.Source = os.Getenv("PUMICE_SOURCE")
	settings.Cycle.Compatibility = os.Getenv("PUMICE_COMPATIBILITY")
	wrong := []error{
		choice("PUMICE_COMPATIBILITY", map[string]func(){"corrected": func() {}, "upstream": func() {}}),
		choice("PUMICE_POLICY_MODE", map[string]func(){
			"follow": func() {}, "hand": func() { settings.Cycle.PolicyMode = cycle.PushPolicy },
			"check": func() { settings.Cycle.PolicyMode = cycle.CheckPolicy },
		}),
		choice("PUMICE_FALLBACK", map[string]func(){
			"fail-closed": func() {}, "abstain": func() { settings.Cycle.Fallback = cycle.Abstain },
		}),
		choice("PUMICE_SHADOW", map[string]func(){"false": func() {}, "true": func() { settings.Shadow = true }}),
		choice("PUMICE_PLANS", map[string]func(){"false": func() {}, "true": func() { settings.Cycle.Plans = true }}),
		number("PUMICE_BUDGET_CALLS", func(value int) { settings.Cycle.Budget.Calls = value }),
		duration("PUMICE_BUDGET_TIME", func(value time.Duration) { settings.Cycle.Budget.Time = value }),
		duration("PUMICE_KEEP_FOR", func(value time.Duration) { settings.Cycle.KeepFor = value }),
		number("PUMICE_VERIFY_EVERY", func(value int) { settings.Cycle.VerifyEvery = value }),
	}
	return settings, errors.Join(wrong...)
}

func choice(name string, take map[string]func()) error {
	text := os.Getenv(name)
	if text == "" {
		return nil
	}
	chosen, known := take[text]
	if !known {
		return fmt.Errorf("%s: %q is none of %s", name, text, strings.Join(slices.Sorted(maps.Keys(take)), ", "))
	}
	chosen()
	return nil
}

func number(name string, take func(int)) error {
	text := os.Getenv(name)
	if text == "" {
		return nil
	}
	value, err := strconv.Atoi(text)
	if err != nil {
		return fmt.Errorf("%s: %q is no whole number", name, text)
	}
	take(value)
	return nil
}

func duration(name string, take func(time.Duration)) error {
	text := os.Getenv(name)
	if text == "" {
		return nil
	}
	value, err := time.ParseDuration(text)
	if err != nil {
		return fmt.Errorf("%s: %q is no duration with a unit, such as 5s or 500ms", name, text)
	}
	take(value)
	return nil
}

// process is what the plugins of one process share: plugins in shared objects, too.
type process struct {
	settings  Settings
	scheduler *cycle.Scheduler
	wrong     error

	mutex sync.Mutex
	// By session, as long as one is open.
	open   map[*framework.Session]*running
	memory *memory

	observer *observer
	events   eventWriter
}

var (
	sharedMutex sync.Mutex
	shared      *process
)

// Configure sets what the plugins of this process share. Without it the first plugin reads the environment.
func Configure(settings Settings) error {
	sharedMutex.Lock()
	defer sharedMutex.Unlock()
	made := start(settings)
	shared = made
	return made.wrong
}

func current() *process {
	sharedMutex.Lock()
	defer sharedMutex.Unlock()
	if shared == nil {
		settings, err := FromEnvironment()
		shared = start(settings)
		if err != nil {
			shared.wrong = err
		}
		if shared.wrong != nil {
			klog.ErrorS(shared.wrong, "Pumice cannot be asked")
		}
	}
	return shared
}

func start(settings Settings) *process {
	if settings.Target == "" {
		settings.Target = pumice.DefaultTarget
	}
	if settings.Cycle.Observer == nil {
		settings.Cycle.Observer = cycle.NoObserver{}
	}
	if settings.Client.Metrics == nil {
		settings.Client.Metrics = pumice.NoMetrics{}
	}
	if settings.Client.Logger == nil {
		// The observer logs refused records by name.
		settings.Client.Logger = slog.New(slog.DiscardHandler)
	}
	settings.Client.Metrics = counting{next: settings.Client.Metrics}
	watched := &observer{next: settings.Cycle.Observer}
	settings.Cycle.Observer = watched
	if settings.Comparison == nil {
		settings.Comparison = &cycle.Comparison{Report: func(hook, query string, used, result any) {
			klog.V(3).InfoS("Pumice would result otherwise", "hook", hook, "query", query, "used", used, "pumice", result)
		}}
	}
	if settings.InTree == nil {
		settings.InTree = map[string]framework.PluginBuilder{
			resourcestrategyfit.PluginName: resourcestrategyfit.New, drf.PluginName: drf.New, binpack.PluginName: binpack.New,
		}
	}
	made := &process{settings: settings, open: map[*framework.Session]*running{}, memory: newMemory(), observer: watched}
	client, err := pumice.Dial(settings.Target, settings.Client)
	if err == nil {
		settings.Cycle.Client = client
		made.scheduler, err = cycle.New(settings.Cycle)
	}
	made.wrong = err
	return made
}
