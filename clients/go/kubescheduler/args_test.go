package kubescheduler

import (
	"strings"
	"testing"
	"time"

	pumice "github.com/pumice-scheduler/pumice/clients/go"

	"k8s.io/apimachinery/pkg/runtime"
)

func parsed(text string) (Args, error) {
	return ParseArgs(&runtime.Unknown{Raw: []byte(text)})
}

func TestArgumentsHaveDefaults(t *testing.T) {
	for _, object := range []runtime.Object{nil, &runtime.Unknown{}, &runtime.Unknown{Raw: []byte("{}")}} {
		args, err := ParseArgs(object)
		if err != nil {
			t.Fatal(err)
		}
		table, err := args.Fallback.table()
		if err != nil || args.Address != pumice.DefaultTarget || args.Policy != "default" || args.Source != "kube-scheduler" ||
			args.Budget.Duration != time.Second || !*args.Admit || args.ResourceFit != "None" || args.Scores != ScoresAuto ||
			table[pumice.CallFilter] != pumice.FailClosed || table[pumice.CallScore] != pumice.Abstain || table[pumice.CallAdmit] != pumice.FailClosed {
			t.Fatalf("%+v %v %v", args, table, err)
		}
	}
}

func TestArgumentsAreReadAndOthersRefused(t *testing.T) {
	args, err := parsed(`{"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "PumiceArgs", "address": "https://pumice:7461",
		"policy": "gpu", "source": "koord", "budget": "250ms", "fallback": {"filter": "FailOpen"}, "admit": false, "resourceFit": "Idle"}`)
	if err != nil || args.Budget.Duration != 250*time.Millisecond || *args.Admit || args.Fallback.Filter != "FailOpen" {
		t.Fatalf("%+v %v", args, err)
	}
	for text, complaint := range map[string]string{
		`{"adress": "x"}`:                     "adress",
		`{"kind": "OtherArgs"}`:               "kind",
		`{"budget": "-1s"}`:                   "budget",
		`{"resourceFit": "Maybe"}`:            "resourceFit",
		`{"scores": "Maybe"}`:                 "scores",
		`{"fallback": {"filter": "Perhaps"}}`: "Perhaps",
		`{"fallback": {"score": "FailOpen"}}`: "fallback.score",
		`{"tls": {"certFile": "a"}}`:          "keyFile",
		`{"admit": "yes"}`:                    "admit",
		`[]`:                                  "array",
	} {
		if _, err := parsed(text); err == nil || !strings.Contains(err.Error(), complaint) {
			t.Errorf("%s: %v", text, err)
		}
	}
}
