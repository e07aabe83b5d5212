// Package derive turns pods into effective amounts, as each scheduler counts them.
//
// The server derives the same from the objects that it is sent. A scheduler in Go holds decoded objects and asks about them at once, so that
// it sends records instead. The derivations differ: see [Kubernetes] with its non-zero requests, [Volcano] and [FitPlus]. Quantities are those of
// Kubernetes; where its own conversions are wrong (they overflow to 0 or to another number), the amount is refused here, or not evaluated
// ([Effective]).
package derive

import (
	"errors"
	"fmt"
	"math/big"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
)

// ErrQuantity is what a text that is no quantity fails with.
var ErrQuantity = errors.New("not a quantity")

// ErrAmount is what a quantity that is no amount of its resource fails with: negative, or beyond 64 bits.
var ErrAmount = errors.New("not an amount")

// errBeyond is the ErrAmount of amounts beyond 64 bits.
var errBeyond = fmt.Errorf("%w: it does not fit in 64 bits", ErrAmount)

const (
	maxText            = 4096
	maxWrittenExponent = 100_000
	maxInt64           = 1<<63 - 1
)

// ParseQuantity reads a quantity as Kubernetes does, apart from texts that it misreads: without a digit (Kubernetes
// takes them for 0), with an exponent outside of 32 bits (Kubernetes cuts it), or one that it would spend minutes on.
func ParseQuantity(text string) (resource.Quantity, error) {
	if len(text) > maxText {
		return resource.Quantity{}, fmt.Errorf("`%.64s…`: %w: too long", text, ErrQuantity)
	}
	if !strings.ContainsAny(beforeSuffix(text), "0123456789") {
		return resource.Quantity{}, fmt.Errorf("`%.64s`: %w: it has no digits", text, ErrQuantity)
	}
	if exponent, given := exponentOf(text); given && !writable(text, exponent) {
		return resource.Quantity{}, fmt.Errorf("`%.64s`: %w: its exponent is too large", text, ErrQuantity)
	}
	quantity, err := resource.ParseQuantity(text)
	if err != nil {
		return resource.Quantity{}, fmt.Errorf("`%.64s`: %w: %w", text, ErrQuantity, err)
	}
	return quantity, nil
}

// beforeSuffix is the part before the first letter.
func beforeSuffix(text string) string {
	end := strings.IndexFunc(text, func(char rune) bool { return !strings.ContainsRune("+-.0123456789", char) })
	if end < 0 {
		return text
	}
	return text[:end]
}

// exponentOf is the number after `e` or `E`, if that is how the text ends.
func exponentOf(text string) (int64, bool) {
	number := text[len(beforeSuffix(text)):]
	if len(number) < 2 || (number[0] != 'e' && number[0] != 'E') {
		return 0, false
	}
	exponent, err := strconv.ParseInt(number[1:], 10, 64)
	if errors.Is(err, strconv.ErrRange) {
		// Kubernetes refuses it by itself.
		return 0, false
	}
	return exponent, err == nil
}

// writable says whether Kubernetes answers within a moment: its fast form takes any exponent of 32 bits with few
// digits, its other form writes the power of ten out.
func writable(text string, exponent int64) bool {
	if int64(int32(exponent)) != exponent {
		return false
	}
	if exponent >= -maxWrittenExponent && exponent <= maxWrittenExponent {
		return true
	}
	digits := strings.TrimLeft(beforeSuffix(text), "+-")
	whole, fraction, _ := strings.Cut(digits, ".")
	whole = strings.TrimLeft(whole, "0")
	if strings.Trim(digits, "0.") == "" {
		return true
	}
	scale := exponent - int64(len(fraction))
	return max(len(whole), 1)+len(fraction) <= 18 && scale >= -9
}

// Value is the number of whole units, rounded away from zero, or an error where Kubernetes' own is another number.
func Value(quantity resource.Quantity) (int64, error) {
	return scaled(&quantity, 0, (&quantity).Value)
}

// Milli is the number of thousandths, rounded away from zero, or an error where Kubernetes' own is another number.
func Milli(quantity resource.Quantity) (int64, error) {
	return scaled(&quantity, 3, (&quantity).MilliValue)
}

func scaled(quantity *resource.Quantity, places int32, upstream func() int64) (int64, error) {
	beyond := fmt.Errorf("`%s`: %w", show(quantity), errBeyond)
	if fast, ok := plain(quantity, places); ok {
		return fast, nil
	}
	copied := quantity.DeepCopy()
	decimal := copied.AsDec()
	unscaled, power := new(big.Int).Set(decimal.UnscaledBig()), int64(places)-int64(decimal.Scale())
	if unscaled.Sign() == 0 {
		return 0, nil
	}
	if power >= 19 || capped(quantity, unscaled, power-int64(places)) {
		return 0, beyond
	}
	if power < 0 {
		unscaled = divideUp(unscaled, -power)
	} else {
		unscaled.Mul(unscaled, pow10(power))
	}
	if !unscaled.IsInt64() {
		return 0, beyond
	}
	if exact := unscaled.Int64(); exact == upstream() {
		return exact, nil
	}
	return 0, fmt.Errorf("`%s`: %w: Kubernetes miscounts it", show(quantity), ErrAmount)
}

// plain is the amount of what most pods hold, without big integers.
func plain(quantity *resource.Quantity, places int32) (int64, bool) {
	whole, ok := quantity.AsInt64()
	if !ok || whole < 0 || whole == maxInt64 {
		return 0, false
	}
	if places == 0 {
		return whole, true
	}
	return whole * 1000, whole <= maxInt64/1000
}

// capped says whether Kubernetes may have cut a binary amount to 2^63-1.
func capped(quantity *resource.Quantity, unscaled *big.Int, power int64) bool {
	limit := new(big.Int).Abs(unscaled)
	return quantity.Format == resource.BinarySI && power == 0 && limit.IsInt64() && limit.Int64() == maxInt64
}

// divideUp divides by 10^power and rounds away from zero.
func divideUp(number *big.Int, power int64) *big.Int {
	if power > maxText+64 {
		return big.NewInt(int64(number.Sign()))
	}
	quotient, rest := new(big.Int).QuoRem(number, pow10(power), new(big.Int))
	return quotient.Add(quotient, big.NewInt(int64(rest.Sign())))
}

func pow10(power int64) *big.Int {
	return new(big.Int).Exp(big.NewInt(10), big.NewInt(power), nil)
}

// isLong reports whether a quantity is so far beyond any amount that Kubernetes would write a long power of ten out for a sum or comparison.
func isLong(quantity *resource.Quantity) bool {
	return quantity.AsApproximateFloat64() > 1e100
}

func show(quantity *resource.Quantity) string {
	copied := quantity.DeepCopy()
	return copied.String()
}

// Format writes an amount in the given unit as quantity text: memory with binary suffixes, the rest with decimal ones.
func Format(unit Unit, name string, amount int64) string {
	format := resource.DecimalSI
	if name == "memory" {
		format = resource.BinarySI
	}
	if unit == UnitMilli {
		return resource.NewMilliQuantity(amount, format).String()
	}
	return resource.NewQuantity(amount, format).String()
}
