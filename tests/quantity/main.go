// Reads quantities with k8s.io/apimachinery, for a comparison with the service's own arithmetic.
//
// Each line of the input is a quantity in hexadecimal. Each line of the output is "error", or the canonical text, the sign, the bits
// of the approximate float, whole units and thousandths. A batch is answered before the next one is waited for.
package main

import (
	"bufio"
	"encoding/hex"
	"fmt"
	"io"
	"math"
	"os"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
)

func main() {
	in, out := bufio.NewReaderSize(os.Stdin, 1<<20), bufio.NewWriter(os.Stdout)
	for {
		line, err := in.ReadString('\n')
		if err == io.EOF && line == "" {
			break
		}
		text, wrong := hex.DecodeString(strings.TrimSuffix(line, "\n"))
		if wrong != nil || (err != nil && err != io.EOF) {
			fmt.Fprintln(os.Stderr, "a line is not hexadecimal:", wrong, err)
			os.Exit(1)
		}
		fmt.Fprintln(out, read(string(text)))
		if in.Buffered() == 0 && out.Flush() != nil {
			os.Exit(1)
		}
	}
}

func read(text string) string {
	quantity, err := resource.ParseQuantity(text)
	if err != nil {
		return "error"
	}
	float := quantity.AsApproximateFloat64()
	bits := fmt.Sprintf("%016x", math.Float64bits(float))
	if math.IsNaN(float) {
		bits = "nan"
	}
	return fmt.Sprintf("%s %d %s %d %d", quantity.String(), quantity.Sign(), bits, quantity.Value(), quantity.MilliValue())
}
