// Reads documents with gopkg.in/yaml.v2 as Volcano does, for a comparison with the service's own reader.
//
// Each line of the input is a document in hexadecimal. Each line of the output is its value, written so that two readers
// that agree write the same text: types are letters, floats are bits, texts are hexadecimal ("bytes" if they are no UTF-8), and maps are sorted.
package main

import (
	"bufio"
	"encoding/hex"
	"fmt"
	"io"
	"math"
	"os"
	"sort"
	"strings"
	"unicode/utf8"

	"gopkg.in/yaml.v2"
)

func main() {
	in, out := bufio.NewReaderSize(os.Stdin, 1<<20), bufio.NewWriter(os.Stdout)
	for {
		line, err := in.ReadString('\n')
		if err == io.EOF && line == "" {
			break
		}
		document, wrong := hex.DecodeString(strings.TrimSuffix(line, "\n"))
		if wrong != nil || (err != nil && err != io.EOF) {
			fmt.Fprintln(os.Stderr, "a line is not hexadecimal:", wrong, err)
			os.Exit(1)
		}
		fmt.Fprintln(out, read(document))
		// A batch is answered before the next one is waited for.
		if in.Buffered() == 0 && out.Flush() != nil {
			os.Exit(1)
		}
	}
	if err := out.Flush(); err != nil {
		os.Exit(1)
	}
}

// read returns the value of a document, or "error" if the library refuses it or panics over it.
func read(document []byte) (text string) {
	defer func() {
		if recover() != nil {
			text = "error"
		}
	}()
	var value interface{}
	if err := yaml.Unmarshal(document, &value); err != nil {
		return "error"
	}
	return write(value)
}

func write(value interface{}) string {
	switch value := value.(type) {
	case nil:
		return "~"
	case bool:
		return fmt.Sprint(value)
	case int:
		return fmt.Sprintf("i%d", value)
	case int64:
		return fmt.Sprintf("i%d", value)
	case uint64:
		return fmt.Sprintf("u%d", value)
	case float64:
		if math.IsNaN(value) {
			return "nan"
		}
		return fmt.Sprintf("f%016x", math.Float64bits(value))
	case string:
		if !utf8.ValidString(value) {
			return "bytes"
		}
		return fmt.Sprintf("s%x", value)
	case []interface{}:
		items := make([]string, len(value))
		for i, item := range value {
			items[i] = write(item)
		}
		return "[" + strings.Join(items, ",") + "]"
	case map[interface{}]interface{}:
		pairs := make([]string, 0, len(value))
		for key, item := range value {
			pairs = append(pairs, write(key)+":"+write(item))
		}
		sort.Strings(pairs)
		return "{" + strings.Join(pairs, ",") + "}"
	default:
		return fmt.Sprintf("?%T", value)
	}
}
