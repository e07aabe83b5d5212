package volcano

import (
	"fmt"
	"maps"
	"math"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/pumice-scheduler/pumice/clients/go/cycle"

	"volcano.sh/volcano/cmd/scheduler/app/options"
	"volcano.sh/volcano/pkg/scheduler/conf"
	"volcano.sh/volcano/pkg/scheduler/framework"
)

// document is the configuration of a session as a policy: volcano-scheduler.conf as it was understood. A switch that is
// not set counts as off, as it does for the session.
func document(session *framework.Session) string {
	var text strings.Builder
	fmt.Fprintf(&text, "{\"actions\": %q, \"tiers\": [", actions())
	for number, tier := range session.Tiers {
		separate(&text, number)
		text.WriteString("{\"plugins\": [")
		for number, plugin := range tier.Plugins {
			separate(&text, number)
			option(&text, plugin)
		}
		text.WriteString("]}")
	}
	text.WriteString("]")
	if len(session.Configurations) > 0 {
		text.WriteString(", \"configurations\": [")
		for number, action := range session.Configurations {
			separate(&text, number)
			fmt.Fprintf(&text, "{\"name\": %q, \"arguments\": ", action.Name)
			write(&text, action.Arguments)
			text.WriteString("}")
		}
		text.WriteString("]")
	}
	text.WriteString("}")
	return text.String()
}

// actions are the enabled actions. Volcano keeps no order of them where a plugin could read it, so that the file tells it.
func actions() string {
	var enabled []string
	for name, on := range conf.EnabledActionMap {
		if on {
			enabled = append(enabled, name)
		}
	}
	if len(enabled) == 0 {
		enabled = []string{"allocate"}
	}
	var file []byte
	if options.ServerOpts != nil && options.ServerOpts.SchedulerConf != "" {
		// Without the file, or while it is being replaced, the order is alphabetical, which decides nothing.
		file, _ = os.ReadFile(options.ServerOpts.SchedulerConf)
	}
	return cycle.OrderActions(enabled, file)
}

func separate(text *strings.Builder, number int) {
	if number > 0 {
		text.WriteString(", ")
	}
}

// option writes a plugin's entry by the tags under which Volcano reads it.
func option(text *strings.Builder, plugin conf.PluginOption) {
	value := reflect.ValueOf(plugin)
	text.WriteString("{")
	for at := range value.NumField() {
		tag := strings.Split(value.Type().Field(at).Tag.Get("yaml"), ",")[0]
		field := value.Field(at)
		if tag == "" || tag == "-" || field.Kind() == reflect.Map && field.Len() == 0 {
			continue
		}
		separate(text, at)
		fmt.Fprintf(text, "%q: ", tag)
		if arguments, are := field.Interface().(map[string]any); are {
			field = reflect.ValueOf(withoutOptions(arguments))
		}
		if enabled, is := field.Interface().(*bool); is {
			text.WriteString(strconv.FormatBool(enabled != nil && *enabled))
			continue
		}
		write(text, field.Interface())
	}
	text.WriteString("}")
}

// withoutOptions leaves out the options of the adapter, which are no part of a policy.
func withoutOptions(arguments map[string]any) map[string]any {
	left := maps.Clone(arguments)
	maps.DeleteFunc(left, func(name string, _ any) bool { return cycle.IsOption(name) })
	return left
}

// write keeps the types that YAML gave: plugins tell 5 from 5.0.
func write(text *strings.Builder, value any) {
	switch value := value.(type) {
	case nil:
		text.WriteString("null")
	case string:
		text.WriteString(strconv.Quote(value))
	case bool:
		text.WriteString(strconv.FormatBool(value))
	case float64:
		text.WriteString(float(value))
	default:
		other(text, reflect.ValueOf(value))
	}
}

func other(text *strings.Builder, value reflect.Value) {
	switch value.Kind() {
	case reflect.Map:
		// YAML keys may be of any type.
		entries := map[string]reflect.Value{}
		for _, key := range value.MapKeys() {
			entries[fmt.Sprint(key.Interface())] = value.MapIndex(key)
		}
		text.WriteString("{")
		for number, name := range slices.Sorted(maps.Keys(entries)) {
			separate(text, number)
			fmt.Fprintf(text, "%q: ", name)
			write(text, entries[name].Interface())
		}
		text.WriteString("}")
	case reflect.Slice:
		text.WriteString("[")
		for number := range value.Len() {
			separate(text, number)
			write(text, value.Index(number).Interface())
		}
		text.WriteString("]")
	case reflect.Int, reflect.Int64, reflect.Int32, reflect.Uint, reflect.Uint64, reflect.Uint32:
		fmt.Fprint(text, value.Interface())
	default:
		text.WriteString(strconv.Quote(fmt.Sprint(value.Interface())))
	}
}

func float(value float64) string {
	switch {
	case math.IsNaN(value):
		return ".nan"
	case math.IsInf(value, 1):
		return ".inf"
	case math.IsInf(value, -1):
		return "-.inf"
	}
	text := strconv.FormatFloat(value, 'f', -1, 64)
	if !strings.Contains(text, ".") {
		text += ".0"
	}
	return text
}
