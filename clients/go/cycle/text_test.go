package cycle

import (
	"context"
	"math"
	"strings"
	"testing"

	pumice "github.com/pumice-scheduler/pumice/clients/go"
	"github.com/pumice-scheduler/pumice/clients/go/internal/testserver"
	pb "github.com/pumice-scheduler/pumice/clients/go/pumicev1"

	"go.yaml.in/yaml/v2"
)

// TestADocumentThatWasWrittenHasTheEffectOfItsText reads a configuration as Volcano does, writes it, and puts both in force.
func TestADocumentThatWasWrittenHasTheEffectOfItsText(t *testing.T) {
	const text = `actions: "enqueue, allocate"
tiers:
- plugins:
  - {name: drf, enableHierarchy: false, enableJobOrder: true}
  - name: resource-strategy-fit
    arguments:
      resourceStrategyFitWeight: 10
      resources:
        cpu: {type: MostAllocated, weight: 2}
        "example.com/gpu\u00e9": {type: LeastAllocated, weight: 3}
      sra: {enable: true, resources: "example.com/gpu, cpu", weight: 7, resourceWeight: {example.com/gpu: 3}}
  - name: binpack
    arguments: {binpack.weight: 5.0, binpack.cpu: "7", binpack.resources: "example.com/a, 1", 12: true}
configurations:
- {name: enqueue, arguments: {overcommit-factor: 1.5, none: null, list: [1, "a", {b: 2.0}]}}
`
	client, err := pumice.Dial(testserver.Start(t).Address, pumice.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	effective := func(document string) string {
		reply, err := client.ReloadPolicy(context.Background(), &pb.ReloadPolicyRequest{Document: document})
		if err != nil {
			t.Fatal(err, document)
		}
		return reply.GetPolicy().GetEffectiveDocument()
	}
	var read map[string]any
	if err := yaml.Unmarshal([]byte(text), &read); err != nil {
		t.Fatal(err)
	}
	given, written := effective(text), effective(DocumentText(read))
	if same, err := sameEffect(given, written); !same || err != nil || given == "" {
		t.Fatal(err, given, written)
	}
	if DocumentText(5.0) != "5.0" || DocumentText(5) != "5" || DocumentText(math.Inf(-1)) != "-.inf" || DocumentText(nil) != "null" {
		t.Error("types are lost")
	}
	arguments := map[string]any{"pumice.target": "t", "binpack.cpu": 1}
	if left := DocumentText(WithoutOptions(arguments)); strings.Contains(left, "target") || len(arguments) != 2 {
		t.Error(left)
	}
}
