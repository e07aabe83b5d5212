package derive

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/big"
	"slices"
	"strings"
	"testing"

	"github.com/pumice-scheduler/pumice/clients/go/internal/vectors"

	corev1 "k8s.io/api/core/v1"
)

type podCase struct {
	Name   string
	Pod    json.RawMessage
	Expect struct {
		Kubernetes  *kubernetesBlock
		Volcano     *volcanoBlock
		Koordinator *koordinatorBlock
	}
}

type kubernetesBlock struct {
	Requests, Limits map[string]string
	Counted          *struct {
		CPUMilli         int64 `json:"cpu_milli"`
		Memory           int64
		EphemeralStorage int64 `json:"ephemeral_storage"`
		Scalars          map[string]int64
	}
	Nonzero *struct {
		CPUMilli int64 `json:"cpu_milli"`
		Memory   int64
	}
}

type vector struct {
	CPU, Memory float64
	Scalars     map[string]float64
}

type volcanoBlock struct {
	Resreq, Limit vector
	Status        string
	Priority      int32
}

type koordinatorBlock struct {
	Names   []string
	Amounts map[string]int64
}

func TestRecordedPods(t *testing.T) {
	cases := vectors.Cases[podCase](t, "pods")
	failed, skipped := 0, 0
	for _, recorded := range cases {
		if resourcesField == nil && usesPodLevelStatus(t, recorded.Pod) {
			// A scheduler with these types cannot see the fields. The tests of kubescheduler run here with newer ones.
			skipped++
			continue
		}
		for block, err := range checkPod(recorded) {
			if err != nil {
				failed++
				t.Errorf("%s %s: %v", recorded.Name, block, err)
			}
		}
	}
	t.Logf("pods: %d cases, %d failed, %d need newer types of Kubernetes", len(cases), failed, skipped)
}

// usesPodLevelStatus reports whether a pod has amounts in its status that older types do not have.
func usesPodLevelStatus(t *testing.T, text []byte) bool {
	t.Helper()
	var pod struct {
		Status struct{ Resources, AllocatedResources json.RawMessage }
	}
	if err := json.Unmarshal(text, &pod); err != nil {
		t.Fatal(err)
	}
	return pod.Status.Resources != nil || pod.Status.AllocatedResources != nil
}

func checkPod(recorded podCase) map[string]error {
	var pod corev1.Pod
	if err := json.Unmarshal(recorded.Pod, &pod); err != nil {
		return map[string]error{"pod": err}
	}
	results := map[string]error{}
	judge := func(block string, sums []map[string]string, err error) {
		// A refusal is right where upstream got the amounts wrong.
		if errors.Is(err, ErrAmount) && hadToBeRefused(recorded.Pod, block, sums) {
			err = nil
		}
		results[block] = err
	}
	expect := recorded.Expect
	if block := expect.Kubernetes; block != nil {
		judge("kubernetes", []map[string]string{block.Requests, block.Limits}, checkKubernetes(&pod, block))
	}
	if block := expect.Volcano; block != nil {
		judge("volcano", nil, checkVolcano(&pod, block))
	}
	if block := expect.Koordinator; block != nil {
		judge("koordinator", nil, checkKoordinator(&pod, block))
	}
	return results
}

func differ(what string, expected, got any) error {
	if fmt.Sprint(expected) == fmt.Sprint(got) {
		return nil
	}
	return fmt.Errorf("%s: %v, expected %v", what, got, expected)
}

func texts(list Quantities) map[string]string {
	canonical := make(map[string]string, len(list))
	for name, quantity := range list {
		canonical[name] = quantity.String()
	}
	return canonical
}

func checkKubernetes(pod *corev1.Pod, block *kubernetesBlock) error {
	amounts, err := Kubernetes(pod)
	if err != nil {
		return err
	}
	var wrong []error
	if block.Requests != nil {
		wrong = append(wrong, differ("requests", block.Requests, texts(quantities(requestsOf(pod, nil)))))
	}
	if block.Limits != nil {
		wrong = append(wrong, differ("limits", block.Limits, texts(amounts.Limits)))
	}
	if block.Nonzero != nil {
		wrong = append(wrong, differ("nonzero", *block.Nonzero, struct{ a, b int64 }{amounts.NonzeroCPUMilli, amounts.NonzeroMemory}))
	}
	if block.Counted != nil {
		scalars := maps.Clone(amounts.Counted)
		for name, expected := range map[string]int64{
			"cpu": block.Counted.CPUMilli, "memory": block.Counted.Memory, "ephemeral-storage": block.Counted.EphemeralStorage,
		} {
			wrong = append(wrong, differ(name, expected, scalars[name]))
			delete(scalars, name)
		}
		wrong = append(wrong, differ("scalars", block.Counted.Scalars, scalars))
	}
	return errors.Join(wrong...)
}

// checkVector compares amounts with Volcano's, which it sums in doubles.
func checkVector(what string, expected vector, amounts VolcanoAmounts) error {
	of := func(name string) float64 {
		return math.Ldexp(float64(amounts[name].high), 64) + float64(amounts[name].low)
	}
	got := vector{CPU: of("cpu"), Memory: of("memory"), Scalars: map[string]float64{}}
	for name := range amounts {
		if amount := of(name); amount != 0 && name != "cpu" && name != "memory" {
			got.Scalars[name] = amount
		}
	}
	maps.DeleteFunc(expected.Scalars, func(_ string, amount float64) bool { return amount == 0 })
	if expected.Scalars == nil {
		expected.Scalars = map[string]float64{}
	}
	return differ(what, expected, got)
}

func checkVolcano(pod *corev1.Pod, block *volcanoBlock) error {
	task, err := Volcano(pod)
	if err != nil {
		return err
	}
	// Volcano counts the pod itself, too.
	add(task.Requests, VolcanoAmounts{"pods": wideOf(1)})
	return errors.Join(
		checkVector("resreq", block.Resreq, task.Requests),
		checkVector("limit", block.Limit, task.Limit),
		differ("status", block.Status, Status(pod)),
		differ("priority", block.Priority, task.Priority),
	)
}

func checkKoordinator(pod *corev1.Pod, block *koordinatorBlock) error {
	amounts, err := FitPlus(pod)
	if err != nil {
		return err
	}
	return errors.Join(
		differ("names", block.Names, slices.Sorted(maps.Keys(amounts))),
		differ("amounts", block.Amounts, amounts),
	)
}

// hadToBeRefused says whether some amount is negative, or beyond 64 bits in the unit of the block.
func hadToBeRefused(pod json.RawMessage, block string, sums []map[string]string) bool {
	decoder := json.NewDecoder(strings.NewReader(string(pod)))
	decoder.UseNumber()
	var value any
	if decoder.Decode(&value) != nil {
		return false
	}
	found := lists(value)
	for _, list := range sums {
		for name, text := range list {
			found = append(found, [2]string{name, text})
		}
	}
	return slices.ContainsFunc(found, func(entry [2]string) bool {
		name, text := entry[0], entry[1]
		if vectors.Refused(text) || strings.HasPrefix(text, "-") {
			return true
		}
		unit := KindOf(name).KubernetesUnit()
		if block == "volcano" {
			unit = KindOf(name).Unit()
		}
		places := int64(0)
		if unit == UnitMilli {
			places = 3
		}
		exact := vectors.Exact(text, places)
		return exact == nil || exact.Cmp(big.NewInt(math.MaxInt64)) > 0
	})
}

// lists are the entries of every resource list in the pod.
func lists(value any) (entries [][2]string) {
	switch value := value.(type) {
	case []any:
		for _, item := range value {
			entries = append(entries, lists(item)...)
		}
	case map[string]any:
		for name, field := range value {
			list, isList := field.(map[string]any)
			if !isList || !slices.Contains([]string{"requests", "limits", "overhead", "allocatedResources"}, name) {
				entries = append(entries, lists(field)...)
				continue
			}
			for resource, text := range list {
				if text != nil {
					entries = append(entries, [2]string{resource, strings.TrimSpace(fmt.Sprint(text))})
				}
			}
		}
	}
	return entries
}

func TestTheSchedulerChoosesTheDerivation(t *testing.T) {
	for scheduler, gpus := range map[string]string{"": "1", "default-scheduler": "1", "koord-scheduler": "1", "volcano": "500m", "mine": "500m"} {
		var pod corev1.Pod
		text := `{"spec":{"schedulerName":%q,"containers":[{"resources":{"requests":{"nvidia.com/gpu":"500m"}}}]}}`
		if err := json.Unmarshal(fmt.Appendf(nil, text, scheduler), &pod); err != nil {
			t.Fatal(err)
		}
		task, err := Effective(&pod, Auto)
		if err != nil || task.Requests["nvidia.com/gpu"] != gpus {
			t.Errorf("%q: %v %v", scheduler, task.Requests, err)
		}
	}
}

// effectiveOf derives a pod of one container with these resources.
func effectiveOf(t *testing.T, spec, resources string, derivation Derivation) (EffectiveTask, error) {
	t.Helper()
	var pod corev1.Pod
	if err := json.Unmarshal(fmt.Appendf(nil, `{"spec":{%s"containers":[{"resources":%s}]}}`, spec, resources), &pod); err != nil {
		t.Fatal(err)
	}
	return Effective(&pod, derivation)
}

func TestAmountsThatAreNegativeAreRefused(t *testing.T) {
	for _, requests := range []string{`{"cpu":"-1"}`, `{"memory":"10E","cpu":"-1"}`, `{"cpu":"-1e2147483647"}`} {
		for _, derivation := range []Derivation{AsKubernetes, AsVolcano} {
			if _, err := effectiveOf(t, "", `{"requests":`+requests+`}`, derivation); !errors.Is(err, ErrAmount) {
				t.Errorf("%s: %v", requests, err)
			}
		}
	}
}

func TestAmountsBeyondAllNodesAreNotEvaluated(t *testing.T) {
	digits := strings.Repeat("123456789", 5)
	for _, amount := range []string{"10E", "1e40", "1e2147483647", digits} {
		for _, derivation := range []Derivation{AsKubernetes, AsVolcano} {
			limits := fmt.Sprintf(`{"limits":{"cpu":%q,"memory":"1Gi"}}`, amount)
			waiting, err := effectiveOf(t, "", limits, derivation)
			if cpu := waiting.Requests["cpu"]; err != nil || !waiting.Bounded || cpu != "3074457345618258" || waiting.Requests["memory"] != "1Gi" {
				t.Errorf("%s waits: %v %v", amount, waiting, err)
			}
			running, err := effectiveOf(t, `"nodeName":"n",`, limits, derivation)
			if err != nil || !running.Bounded || running.Requests["cpu"] != "0" || running.Requests["memory"] != "1Gi" {
				t.Errorf("%s runs: %v %v", amount, running, err)
			}
		}
	}
	// What no scheduler counts says nothing.
	for _, amount := range []string{"10E", "1e2147483647", digits} {
		task, err := effectiveOf(t, "", fmt.Sprintf(`{"limits":{"cpu":"1","gpu":%q}}`, amount), Auto)
		if err != nil || task.Bounded || task.Requests["cpu"] != "1" {
			t.Errorf("%s: %v %v", amount, task, err)
		}
	}
}
