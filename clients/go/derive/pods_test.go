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
		Kubernetes     *kubernetesBlock
		Kubernetes1_35 *kubernetesBlock `json:"kubernetes_1_35"`
		Volcano        *volcanoBlock
		Koordinator    *koordinatorBlock
		Card           *cardBlock
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
	Resreq, Limit   vector
	WithoutInit     vector `json:"without_init"`
	BestEffort      bool   `json:"best_effort"`
	HasSidecar      bool   `json:"has_sidecar"`
	SchedulingGated bool   `json:"scheduling_gated"`
	Status, Node    string
	Priority        int32
	Preemptable     bool
	RevocableZone   string `json:"revocable_zone"`
}

type koordinatorBlock struct {
	Names   []string
	Amounts map[string]int64
}

type cardBlock struct {
	Panic            any
	Requests, Limits map[string]string
	CardGPU          *struct {
		Milli float64
		Error string
	} `json:"card_gpu"`
	Resreq     vector
	BestEffort bool `json:"best_effort"`
}

func TestRecordedPods(t *testing.T) {
	cases := vectors.Cases[podCase](t, "pods")
	failed, skipped := 0, 0
	for _, recorded := range cases {
		if !HasPodLevelStatus() && usesPodLevelStatus(t, recorded.Pod) {
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
		judge("kubernetes", []map[string]string{block.Requests, block.Limits}, checkKubernetes(&pod, V1_36, block))
	}
	if block := expect.Kubernetes1_35; block != nil {
		judge("kubernetes_1_35", []map[string]string{block.Requests, block.Limits}, checkKubernetes(&pod, V1_35, block))
	}
	if block := expect.Volcano; block != nil {
		judge("volcano", nil, checkVolcano(&pod, block))
	}
	if block := expect.Koordinator; block != nil {
		judge("koordinator", nil, checkKoordinator(&pod, block))
	}
	if block := expect.Card; block != nil {
		judge("card", []map[string]string{block.Requests, block.Limits}, checkCard(&pod, block))
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

func checkKubernetes(pod *corev1.Pod, release Release, block *kubernetesBlock) error {
	amounts, err := Kubernetes(pod, release)
	if err != nil {
		return err
	}
	var wrong []error
	if block.Requests != nil {
		wrong = append(wrong, differ("requests", block.Requests, texts(amounts.Requests)))
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

func checkVector(what string, expected vector, amounts VolcanoAmounts) error {
	got := vector{CPU: amounts.Float("cpu"), Memory: amounts.Float("memory"), Scalars: map[string]float64{}}
	for name := range amounts {
		if amount := amounts.Float(name); amount != 0 && name != "cpu" && name != "memory" {
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
	return errors.Join(
		checkVector("resreq", block.Resreq, task.Resreq()),
		checkVector("without_init", block.WithoutInit, task.WithoutInit),
		checkVector("limit", block.Limit, task.Limit),
		differ("best_effort", block.BestEffort, task.BestEffort),
		differ("has_sidecar", block.HasSidecar, task.HasSidecar),
		differ("gated", block.SchedulingGated, task.SchedulingGated),
		differ("status", block.Status, task.Status),
		differ("node", block.Node, task.Node),
		differ("priority", block.Priority, task.Priority),
		differ("preemptable", block.Preemptable, task.Preemptable),
		differ("revocable_zone", block.RevocableZone, task.RevocableZone),
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

func checkCard(pod *corev1.Pod, block *cardBlock) error {
	amounts, err := Cards(pod)
	if err != nil {
		return err
	}
	wrong := []error{checkVector("resreq", block.Resreq, amounts.Resreq), differ("best_effort", block.BestEffort, amounts.BestEffort)}
	if block.Panic == nil {
		milli, err := amounts.Milli("nvidia.com/gpu")
		if err != nil && !errors.Is(err, ErrNoCard) {
			return err
		}
		wrong = append(wrong,
			differ("requests", block.Requests, texts(amounts.Requests)),
			differ("limits", block.Limits, texts(amounts.Limits)),
			differ("cards", block.CardGPU.Milli, float64(milli)),
			differ("no card", block.CardGPU.Error != "", err != nil))
	}
	return errors.Join(wrong...)
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
		if block == "volcano" || block == "card" {
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

func TestAmountsThatDoNotFitAreRefused(t *testing.T) {
	for _, requests := range []string{`{"memory":"10E"}`, `{"cpu":"-1"}`, `{"cpu":"1e2147483647"}`, `{"memory":"8Ei"}`} {
		var pod corev1.Pod
		if err := json.Unmarshal(fmt.Appendf(nil, `{"spec":{"containers":[{"resources":{"requests":%s}}]}}`, requests), &pod); err != nil {
			t.Fatal(err)
		}
		for _, derivation := range []Derivation{AsKubernetes, AsVolcano} {
			if _, err := Effective(&pod, derivation); !errors.Is(err, ErrAmount) {
				t.Errorf("%s: %v", requests, err)
			}
		}
	}
}
