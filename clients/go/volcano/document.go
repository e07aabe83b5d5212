package volcano

import (
	"os"
	"reflect"
	"strings"

	"github.com/pumice-scheduler/pumice/clients/go/cycle"

	"volcano.sh/volcano/cmd/scheduler/app/options"
	"volcano.sh/volcano/pkg/scheduler/conf"
	"volcano.sh/volcano/pkg/scheduler/framework"
)

// document is the configuration of a session as a policy: volcano-scheduler.conf as it was understood. A switch that is
// not set counts as off, as it does for the session.
func document(session *framework.Session) string {
	tiers := []any{}
	for _, tier := range session.Tiers {
		plugins := []any{}
		for _, plugin := range tier.Plugins {
			plugins = append(plugins, entryOf(plugin))
		}
		tiers = append(tiers, map[string]any{"plugins": plugins})
	}
	made := map[string]any{"actions": actions(), "tiers": tiers}
	if len(session.Configurations) > 0 {
		configurations := []any{}
		for _, action := range session.Configurations {
			configurations = append(configurations, map[string]any{"name": action.Name, "arguments": map[string]any(action.Arguments)})
		}
		made["configurations"] = configurations
	}
	return cycle.DocumentText(made)
}

// actions are the enabled actions. Volcano keeps no order of them where a plugin could read it, so that the file tells it.
func actions() string {
	var enabled []string
	for name, on := range conf.EnabledActionMap {
		if on {
			enabled = append(enabled, name)
		}
	}
	var file []byte
	if options.ServerOpts != nil && options.ServerOpts.SchedulerConf != "" {
		// Without the file, or while it is being replaced, the order is alphabetical, which decides nothing.
		file, _ = os.ReadFile(options.ServerOpts.SchedulerConf)
	}
	return cycle.OrderActions(enabled, file)
}

// entryOf is a plugin's entry by the tags under which Volcano reads it.
func entryOf(plugin conf.PluginOption) map[string]any {
	entry, value := map[string]any{}, reflect.ValueOf(plugin)
	for at := range value.NumField() {
		tag := strings.Split(value.Type().Field(at).Tag.Get("yaml"), ",")[0]
		if tag == "" || tag == "-" {
			continue
		}
		switch field := value.Field(at).Interface().(type) {
		case *bool:
			entry[tag] = field != nil && *field
		case map[string]any:
			if len(field) > 0 {
				entry[tag] = cycle.WithoutOptions(field)
			}
		default:
			entry[tag] = field
		}
	}
	return entry
}
