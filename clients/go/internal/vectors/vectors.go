// Package vectors reads the recorded answers of the real schedulers, for tests.
package vectors

import (
	"compress/gzip"
	"encoding/json"
	"math/big"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
)

// Root is the top of the project.
func Root() string {
	_, here, _, _ := runtime.Caller(0)
	return filepath.Join(filepath.Dir(here), "..", "..", "..", "..")
}

// Cases reads the cases of a family.
func Cases[T any](t *testing.T, family string) []T {
	t.Helper()
	file, err := os.Open(filepath.Join(Root(), "tests", "vectors", family+".json.gz"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	plain, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	var recorded struct{ Cases []T }
	if err := json.NewDecoder(plain).Decode(&recorded); err != nil {
		t.Fatal(err)
	}
	if len(recorded.Cases) < 100 {
		t.Fatalf("%s: only %d cases", family, len(recorded.Cases))
	}
	return recorded.Cases
}

// Refused says whether upstream reads the text as some number though a service refuses it.
func Refused(text string) bool {
	number, suffix := split(text)
	_, _, known := powers(suffix)
	return !strings.ContainsAny(number, "0123456789") || !known
}

// Exact is the number of 10^-places in the text, rounded away from zero, by a second, naive reading; nil if it has more
// than 30 digits.
func Exact(text string, places int64) *big.Int {
	number, suffix := split(text)
	tens, twos, _ := powers(suffix)
	whole, fraction, _ := strings.Cut(strings.TrimLeft(number, "+-"), ".")
	amount, _ := new(big.Int).SetString("0"+whole+fraction, 10)
	amount.Lsh(amount, twos)
	if amount.Sign() == 0 {
		return amount
	}
	shift := tens - int64(len(fraction)) + places
	if int64(len(amount.String()))+shift > 30 {
		return nil
	}
	if shift >= 0 {
		amount.Mul(amount, new(big.Int).Exp(big.NewInt(10), big.NewInt(shift), nil))
	} else if int64(len(amount.String()))+shift < -1 {
		amount.SetInt64(1)
	} else {
		rest := new(big.Int)
		amount.QuoRem(amount, new(big.Int).Exp(big.NewInt(10), big.NewInt(-shift), nil), rest)
		if rest.Sign() > 0 {
			amount.Add(amount, big.NewInt(1))
		}
	}
	if strings.HasPrefix(text, "-") {
		amount.Neg(amount)
	}
	return amount
}

func split(text string) (number, suffix string) {
	end := strings.IndexFunc(text, func(char rune) bool { return !strings.ContainsRune("+-.0123456789", char) })
	if end < 0 {
		return text, ""
	}
	return text[:end], text[end:]
}

func powers(suffix string) (tens int64, twos uint, known bool) {
	if suffix == "" {
		return 0, 0, true
	}
	if strings.HasSuffix(suffix, "i") {
		return 0, uint(strings.Index("KMGTPE", suffix[:1])*10 + 10), true
	}
	if len(suffix) == 1 {
		return int64(strings.Index("num?kMGTPE", suffix))*3 - 9, 0, true
	}
	number, err := strconv.ParseInt(suffix[1:], 10, 32)
	return number, 0, err == nil
}
