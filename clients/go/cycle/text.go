package cycle

import (
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// DocumentText writes a configuration as a policy document. It keeps the types that YAML gave: plugins tell 5 from 5.0.
func DocumentText(configuration any) string {
	var text strings.Builder
	write(&text, reflect.ValueOf(configuration))
	return text.String()
}

// WithoutOptions leaves the options of the adapter, which are no part of a policy, out of a plugin's arguments.
func WithoutOptions(arguments map[string]any) map[string]any {
	left := maps.Clone(arguments)
	maps.DeleteFunc(left, func(name string, _ any) bool { return IsOption(name) })
	return left
}

func write(text *strings.Builder, value reflect.Value) {
	for value.Kind() == reflect.Interface && !value.IsNil() {
		value = value.Elem()
	}
	switch value.Kind() {
	case reflect.Invalid, reflect.Interface:
		text.WriteString("null")
	case reflect.String:
		text.WriteString(strconv.Quote(value.String()))
	case reflect.Float64, reflect.Float32:
		text.WriteString(float(value.Float()))
	case reflect.Map:
		// YAML keys may be of any type.
		entries := map[string]reflect.Value{}
		for _, key := range value.MapKeys() {
			entries[fmt.Sprint(key.Interface())] = value.MapIndex(key)
		}
		text.WriteString("{")
		for number, name := range slices.Sorted(maps.Keys(entries)) {
			separate(text, number)
			text.WriteString(strconv.Quote(name) + ": ")
			write(text, entries[name])
		}
		text.WriteString("}")
	case reflect.Slice:
		text.WriteString("[")
		for number := range value.Len() {
			separate(text, number)
			write(text, value.Index(number))
		}
		text.WriteString("]")
	case reflect.Bool, reflect.Int, reflect.Int64, reflect.Int32, reflect.Uint, reflect.Uint64, reflect.Uint32:
		fmt.Fprint(text, value.Interface())
	default:
		text.WriteString(strconv.Quote(fmt.Sprint(value.Interface())))
	}
}

func separate(text *strings.Builder, number int) {
	if number > 0 {
		text.WriteString(", ")
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
