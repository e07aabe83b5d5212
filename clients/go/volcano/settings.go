package volcano

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"

	pumice "github.com/pumice-scheduler/pumice/clients/go"
	"github.com/pumice-scheduler/pumice/clients/go/cycle"

	"k8s.io/klog/v2"
	"volcano.sh/volcano/pkg/scheduler/framework"
)

// Settings are what the plugins of one process share.
type Settings struct {
	// Target of the service, as pumice.Dial takes it: one address, or several with commas between. Default pumice.DefaultTarget.
	Target string
	// Client options. The time of a call is bounded by the budget, too.
	Client pumice.Options
	// Cycle settings; the client is made from Target. The observer is notified beside the plugins' own logs and metrics.
	Cycle cycle.Settings
	// Shadow: in-tree answers are used, Pumice's are compared. It takes a build with the tag shadow.
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

// FromEnvironment reads settings from PUMICE_TARGET, PUMICE_POLICY_MODE and so on: cycle.OptionNames lists them.
func FromEnvironment() (Settings, error) {
	return read(nil)
}

// read reads settings from the environment and from plugins' arguments.
func read(arguments map[string]any) (Settings, error) {
	options, err := cycle.ReadOptions(os.Getenv, arguments)
	return Settings{Target: options.Target, Client: options.Client, Cycle: options.Settings, Shadow: options.Shadow}, err
}

// errNoShadow is the error of shadow mode in a build without it.
var errNoShadow = errors.New("shadow: this build has no shadow mode; build the scheduler with -tags shadow")

// process is what the plugins of one process share: plugins in shared objects, too.
type process struct {
	settings  Settings
	client    *pumice.Client
	scheduler *cycle.Scheduler
	wrong     error
	// configured by a fork; otherwise key is the text of the arguments.
	configured bool
	key        string

	mutex sync.Mutex
	// By session, as long as one is open.
	open map[*framework.Session]*running

	observer *observer
	events   eventWriter
}

var (
	sharedMutex sync.Mutex
	shared      *process
)

// Configure sets what the plugins of this process share. Without it each session's plugins read the environment and their
// arguments.
func Configure(settings Settings) error {
	sharedMutex.Lock()
	defer sharedMutex.Unlock()
	made := start(settings)
	made.configured = true
	shared.replace(made)
	return made.wrong
}

// replace puts another process in the place of the last one, which sends nothing more.
func (last *process) replace(made *process) {
	if last != nil && last.client != nil {
		// Its heartbeats would go on otherwise.
		_ = last.client.Close()
	}
	shared = made
}

// processOf is what the plugins of a session share. When their arguments have changed, it is made again.
func processOf(session *framework.Session) *process {
	sharedMutex.Lock()
	defer sharedMutex.Unlock()
	if shared != nil && shared.configured {
		return shared
	}
	arguments, err := optionsOf(session)
	key := fmt.Sprint(arguments)
	if shared != nil && shared.key == key {
		return shared
	}
	settings, unreadable := read(arguments)
	made := start(settings)
	made.key = key
	if wrong := errors.Join(err, unreadable); wrong != nil {
		made.wrong = wrong
	}
	if made.wrong != nil {
		klog.ErrorS(made.wrong, "Pumice cannot be asked")
	}
	shared.replace(made)
	return made
}

// optionsOf are the options among the arguments of a session's plugins.
func optionsOf(session *framework.Session) (map[string]any, error) {
	arguments := map[string]any{}
	for _, tier := range session.Tiers {
		for _, plugin := range tier.Plugins {
			if !slices.Contains(Names(), plugin.Name) {
				continue
			}
			for name, value := range plugin.Arguments {
				if !cycle.IsOption(name) {
					continue
				}
				if other, found := arguments[name]; found && fmt.Sprint(other) != fmt.Sprint(value) {
					return arguments, fmt.Errorf("%s: is %v for one plugin and %v for another; give it once", name, other, value)
				}
				arguments[name] = value
			}
		}
	}
	return arguments, nil
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
	settings.Cycle.Release = Release()
	klog.InfoS("The adapter of Pumice is built into this release of Volcano", "release", settings.Cycle.Release)
	schedulerRelease.WithLabelValues(settings.Cycle.Release).Set(1)
	watched := &observer{next: settings.Cycle.Observer}
	settings.Cycle.Observer = watched
	if settings.Comparison == nil {
		settings.Comparison = &cycle.Comparison{Report: func(hook, query string, used, result any) {
			klog.V(3).InfoS("Pumice would result otherwise", "hook", hook, "query", query, "used", used, "pumice", result)
		}}
	}
	if settings.InTree == nil {
		settings.InTree = inTree()
	}
	made := &process{settings: settings, open: map[*framework.Session]*running{}, observer: watched}
	client, err := pumice.Dial(settings.Target, settings.Client)
	if err == nil {
		settings.Cycle.Client, made.client = client, client
		made.scheduler, err = cycle.New(settings.Cycle)
	}
	if err == nil && settings.Shadow && !hasShadow {
		err = errNoShadow
	}
	made.wrong = err
	return made
}
