package cycle

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v2"
)

// configuration has the parts of a volcano-scheduler.conf, or of a policy's effective document, that a cycle reads.
type configuration struct {
	Pumice struct {
		Compatibility string `yaml:"compatibility"`
	} `yaml:"pumice"`
	Tiers []struct {
		Plugins []struct {
			Name      string `yaml:"name"`
			Hierarchy bool   `yaml:"enableHierarchy"`
		} `yaml:"plugins"`
	} `yaml:"tiers"`
}

func parseConfiguration(document string) (read configuration, err error) {
	if err := yaml.Unmarshal([]byte(document), &read); err != nil {
		return read, fmt.Errorf("the policy's document cannot be read: %w", err)
	}
	return read, nil
}

// plugins returns the names of the plugins, in the order of the tiers.
func (configuration *configuration) plugins() (names []string) {
	for _, tier := range configuration.Tiers {
		for _, plugin := range tier.Plugins {
			names = append(names, plugin.Name)
		}
	}
	return names
}

// hierarchical reports whether the first entry of drf orders queues by their hierarchy.
func (configuration *configuration) hierarchical() bool {
	for _, tier := range configuration.Tiers {
		for _, plugin := range tier.Plugins {
			if plugin.Name == "drf" {
				return plugin.Hierarchy
			}
		}
	}
	return false
}

// sameEffect reports whether two effective documents decide alike. The order of actions and the settings of the scheduler's
// own metrics decide nothing in the service.
func sameEffect(one, other string) (bool, error) {
	var trees [2]map[string]any
	for at, document := range []string{one, other} {
		if err := yaml.Unmarshal([]byte(document), &trees[at]); err != nil {
			return false, fmt.Errorf("the policy's document cannot be read: %w", err)
		}
		delete(trees[at], "metrics")
		dropOptions(trees[at])
		trees[at]["actions"] = splitActions(fmt.Sprint(trees[at]["actions"]))
	}
	return reflect.DeepEqual(trees[0], trees[1]), nil
}

// dropOptions takes the adapter's own options out of the arguments of plugins, wherever they are in a document.
func dropOptions(tree any) {
	switch tree := tree.(type) {
	case map[string]any:
		for _, value := range tree {
			dropOptions(value)
		}
	case map[any]any:
		for key, value := range tree {
			if name, is := key.(string); is && IsOption(name) {
				delete(tree, key)
				continue
			}
			dropOptions(value)
		}
	case []any:
		for _, value := range tree {
			dropOptions(value)
		}
	}
}

func splitActions(text string) []string {
	names := strings.Split(text, ",")
	for at, name := range names {
		names[at] = strings.TrimSpace(name)
	}
	slices.Sort(names)
	return names
}

// servedActions are the actions that a policy may name. They decide nothing in the service, which refuses all others as
// misspelt.
var servedActions = []string{"enqueue", "allocate", "backfill", "preempt", "reclaim", "shuffle", "gangpreempt", "gangreclaim"}

// OrderActions returns the enabled actions, joined by commas, without those of a fork's own. Their order is that of a
// configuration file, if the file has the same actions; otherwise alphabetical.
func OrderActions(enabled []string, file []byte) string {
	var read struct {
		Actions string `yaml:"actions"`
	}
	sorted := slices.Sorted(slices.Values(enabled))
	names := sorted
	if yaml.Unmarshal(file, &read) == nil && slices.Equal(splitActions(read.Actions), sorted) {
		names = strings.Split(read.Actions, ",")
		for at, name := range names {
			names[at] = strings.TrimSpace(name)
		}
	}
	names = slices.DeleteFunc(names, func(name string) bool { return !slices.Contains(servedActions, name) })
	if len(names) == 0 {
		names = []string{"allocate"}
	}
	return strings.Join(names, ", ")
}
