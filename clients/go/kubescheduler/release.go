package kubescheduler

import (
	"context"
	"fmt"

	pb "github.com/pumice-scheduler/pumice/clients/go/pumicev1"

	"sigs.k8s.io/yaml"
)

// otherRelease is the release of kube-scheduler that a policy follows, if it is not [Release]. Empty: it is, or the policy follows none,
// because it is corrected or Volcano's.
func otherRelease(effectiveDocument string) (string, error) {
	var read struct {
		Kind   string `json:"kind"`
		Pumice struct {
			Compatibility string `json:"compatibility"`
		} `json:"pumice"`
	}
	if err := yaml.Unmarshal([]byte(effectiveDocument), &read); err != nil {
		return "", fmt.Errorf("the policy's document cannot be read: %w", err)
	}
	followed := read.Pumice.Compatibility
	if read.Kind == "" || followed == "corrected" || followed == Release {
		return "", nil
	}
	return followed, nil
}

// reportRelease tells once for each version of the policy whether it follows another release than that of this scheduler.
func (plugin *Plugin) reportRelease(version uint64) {
	ctx, cancel := context.WithTimeout(plugin.hub.ctx, largestPart)
	defer cancel()
	name, log := plugin.args.Policy, plugin.hub.log
	got, err := plugin.hub.client.GetPolicy(ctx, &pb.GetPolicyRequest{Name: name, Version: version})
	followed := ""
	if err == nil {
		followed, err = otherRelease(got.GetPolicy().GetEffectiveDocument())
	}
	if err != nil {
		log.Error(err, "It is unknown which release the policy follows", "policy", name, "version", version)
		return
	}
	if seen := plugin.policy.seen.Load(); seen.Version != version {
		// The next version has its own report.
		return
	}
	if followed != "" {
		log.Info("The policy follows the rules of another release of kube-scheduler; name the scheduler's as its compatibility, unless you compare releases",
			"policy", name, "version", version, "follows", followed, "scheduler", Release)
	}
	policyOfOtherRelease.WithLabelValues(name).Set(map[bool]float64{true: 1}[followed != ""])
}
