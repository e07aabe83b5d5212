package derive

import (
	"fmt"
	"math/big"
	"testing"

	"github.com/pumice-scheduler/pumice/clients/go/internal/vectors"

	"k8s.io/apimachinery/pkg/api/resource"
)

type quantityCase struct {
	Name, In string
	Expect   struct {
		Error, Canonical, Format string
		Hang                     bool
		Sign                     int
		Value, Milli             int64
		Volcano                  struct{ CPU, Memory, Scalar, Pods float64 }
		Koordinator              struct{ CPU, Other int64 }
	}
}

func TestRecordedQuantities(t *testing.T) {
	cases := vectors.Cases[quantityCase](t, "quantities")
	failed := 0
	for _, recorded := range cases {
		if err := checkQuantity(recorded); err != nil {
			failed++
			t.Errorf("%s %q: %v", recorded.Name, recorded.In, err)
		}
	}
	t.Logf("quantities: %d passed, %d failed", len(cases)-failed, failed)
}

func checkQuantity(recorded quantityCase) error {
	expect := recorded.Expect
	quantity, err := ParseQuantity(recorded.In)
	refused := expect.Error != "" || expect.Hang || vectors.Refused(recorded.In)
	if refused != (err != nil) {
		return fmt.Errorf("refused: %v, expected %v", err, refused)
	}
	if refused {
		return nil
	}
	if got := quantity.String(); got != expect.Canonical {
		return fmt.Errorf("canonical %s, expected %s", got, expect.Canonical)
	}
	if quantity.Sign() != expect.Sign || string(quantity.Format) != expect.Format {
		return fmt.Errorf("sign %d, format %s", quantity.Sign(), quantity.Format)
	}
	whole, wholeErr := Value(quantity)
	milli, milliErr := Milli(quantity)
	if err := checkConversion(recorded.In, 0, expect.Value, whole, wholeErr); err != nil {
		return fmt.Errorf("value: %w", err)
	}
	if err := checkConversion(recorded.In, 3, expect.Milli, milli, milliErr); err != nil {
		return fmt.Errorf("milli: %w", err)
	}
	return checkAmounts(quantity, recorded, wholeErr == nil && whole >= 0, milliErr == nil && milli >= 0)
}

// checkConversion compares a recorded number where it is the exact one; elsewhere the conversion must be refused.
func checkConversion(text string, places, recorded, got int64, err error) error {
	exact := vectors.Exact(text, places)
	if exact != nil && exact.Cmp(big.NewInt(recorded)) == 0 {
		if err != nil || got != recorded {
			return fmt.Errorf("%d %w, expected %d", got, err, recorded)
		}
	} else if err == nil {
		return fmt.Errorf("%d, expected a refusal", got)
	}
	return nil
}

func checkAmounts(quantity resource.Quantity, recorded quantityCase, whole, milli bool) error {
	volcano, koordinator := recorded.Expect.Volcano, recorded.Expect.Koordinator
	for _, wanted := range []struct {
		name   string
		served bool
		unit   Unit
		amount float64
	}{
		{"cpu", milli, KindCPU.Unit(), volcano.CPU},
		{"memory", whole, KindMemory.Unit(), volcano.Memory},
		{"nvidia.com/gpu", milli, KindScalar.Unit(), volcano.Scalar},
		{"pods", whole, KindPods.Unit(), volcano.Pods},
		{"cpu", milli, KindCPU.KubernetesUnit(), float64(koordinator.CPU)},
		{"nvidia.com/gpu", whole, KindScalar.KubernetesUnit(), float64(koordinator.Other)},
	} {
		amount, err := Amount(wanted.unit, wanted.name, quantity)
		if wanted.served != (err == nil) || (err == nil && float64(amount) != wanted.amount) {
			return fmt.Errorf("%s: %d %w, expected %v", wanted.name, amount, err, wanted.amount)
		}
	}
	return nil
}

func TestHugeExponentsAreRefusedAtOnce(t *testing.T) {
	for _, text := range []string{"1e2147483648", "1e-2147483648", "1e-1000000000", "12345678901234567890e1000000", "+", "Gi", "e5"} {
		if _, err := ParseQuantity(text); err == nil {
			t.Errorf("%s was read", text)
		}
	}
	large, err := ParseQuantity("1e2147483647")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Value(large); err == nil {
		t.Error("1e2147483647 has a value")
	}
	one, huge := exact{*resource.NewQuantity(1, resource.DecimalSI)}, exact{large}
	for _, sum := range []exact{one.plus(huge), huge.plus(one), one.atLeast(huge), huge.atLeast(one)} {
		if !isLong(&sum.quantity) {
			t.Error("a sum with 1e2147483647 is written out, or less")
		}
	}
}

func TestKindsFollowTheNamingRules(t *testing.T) {
	for name, kind := range map[string]Kind{
		"cpu": KindCPU, "hugepages-2Mi": KindScalar, "requests.kubernetes.io/x": KindScalar, "nvidia.com/gpu": KindScalar,
		"count/pods": KindCountQuota, "gpu": KindUncounted, "a/b/c": KindUncounted, "requests.nvidia.com/gpu": KindUncounted,
		"NVIDIA.com/gpu": KindUncounted, "nvidia.com/_x": KindUncounted, "nvidia.com/gpu\n": KindUncounted,
	} {
		if got := KindOf(name); got != kind {
			t.Errorf("%q: %d, expected %d", name, got, kind)
		}
	}
}
