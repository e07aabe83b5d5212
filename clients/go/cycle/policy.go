package cycle

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	pumice "github.com/pumice-scheduler/pumice/clients/go"
	pb "github.com/pumice-scheduler/pumice/clients/go/pumicev1"

	"google.golang.org/grpc/codes"
)

// PolicyMode is the relation between the scheduler's configuration and the policy of the service.
type PolicyMode int

const (
	// FollowPolicy lets the policy of the service govern, from the first cycle after it came into force. The scheduler's
	// configuration decides which plugins take part, and their tiers and switches; the policy decides their arguments.
	// While the service has only its built-in policy, it counts as unavailable.
	FollowPolicy PolicyMode = iota
	// PushPolicy puts the configuration in force in the service whenever the two differ.
	PushPolicy
	// CheckPolicy compares them; while they differ the service counts as unavailable.
	CheckPolicy
)

// ErrPolicyDiffers is the error of a cycle whose policy is not the scheduler's configuration (CheckPolicy), was replaced
// again and again (PushPolicy), or does not have the expected hash (FollowPolicy).
var ErrPolicyDiffers = errors.New("the policy of the service is not the expected one")

// ErrPolicyMissing is the error of a cycle under FollowPolicy while the service has only its built-in policy, or a policy
// without any of the scheduler's plugins.
var ErrPolicyMissing = errors.New("the service has no policy for this scheduler")

// errPolicyChanged is the error of a cycle that lost its session, while the policy changed.
var errPolicyChanged = errors.New("the session was lost, and another policy is in force now")

// PolicyVersion identifies a version of a policy in the service.
type PolicyVersion struct {
	// Name of the policy.
	Name string
	// Version is its number.
	Version uint64
	// Hash is the SHA-256 of its document, hexadecimal.
	Hash string
	// Origin tells where it came from: "rpc:ADDRESS", "file:PATH", "rollback:VERSION" or "built-in".
	Origin string
}

// String is the version in messages.
func (version PolicyVersion) String() string {
	return fmt.Sprintf("policy %s, version %d (%.12s, %s)", version.Name, version.Version, version.Hash, version.Origin)
}

func versionOf(policy *pb.Policy) PolicyVersion {
	return PolicyVersion{Name: policy.GetName(), Version: policy.GetVersion(), Hash: policy.GetHash(), Origin: policy.GetOrigin()}
}

// GoverningPolicy is the policy that decides, compared with the scheduler's configuration.
type GoverningPolicy struct {
	PolicyVersion
	// OnlyScheduler are the scheduler's plugins that the policy does not name: they have no opinion.
	OnlyScheduler []string
	// OnlyPolicy are served plugins that only the policy names: the scheduler does not ask them.
	OnlyPolicy []string
	// HierarchyDiffers is true if enableHierarchy of drf differs: shares are the policy's, and the scheduler's switch
	// decides whether they order queues.
	HierarchyDiffers bool
	// OtherRelease is the release that the policy follows, if it is not Settings.Release: its rules are not those of the
	// scheduler that asks. Empty: they are, or the policy is corrected and follows none.
	OtherRelease string
}

// policyInForce is the policy of the last session, as it was read.
type policyInForce struct {
	PolicyVersion
	// builtIn is true also for a rollback to the built-in policy.
	builtIn       bool
	compatibility string
	effective     string
	configuration configuration
}

// readPolicy reads the policy that a session is pinned to, unless it was read before.
func (cycle *Cycle) readPolicy(ctx context.Context, metadata *pb.ResponseMetadata) (*policyInForce, error) {
	scheduler := cycle.scheduler
	name, version := scheduler.settings.Policy, metadata.GetPolicyVersion()
	if known := scheduler.inForce; known != nil && known.Version == version && known.Hash == metadata.GetPolicyHash() {
		return known, nil
	}
	got, err := cycle.getPolicy(ctx, version)
	if err != nil {
		return nil, err
	}
	read := &policyInForce{PolicyVersion: versionOf(got), effective: got.GetEffectiveDocument()}
	if read.Name == "" {
		read.Name = name
	}
	if read.builtIn, err = cycle.isBuiltIn(ctx, got); err != nil {
		return nil, err
	}
	if read.configuration, err = parseConfiguration(read.effective); err != nil {
		return nil, err
	}
	read.compatibility = read.configuration.Pumice.Compatibility
	scheduler.inForce = read
	return read, nil
}

// codeOf returns the status code of a failed call; OK: the error is nil, or not that of a call.
func codeOf(err error) codes.Code {
	var failure *pumice.Error
	if errors.As(err, &failure) {
		return failure.Code
	}
	return codes.OK
}

// exists checks, before the first session, that there is a policy of the name. Without one no session opens, so the state
// is sent by itself.
func (cycle *Cycle) exists(ctx context.Context) error {
	scheduler := cycle.scheduler
	if scheduler.settings.PolicyMode != FollowPolicy || scheduler.inForce != nil {
		return nil
	}
	_, err := cycle.getPolicy(ctx, 0)
	if codeOf(err) != codes.NotFound {
		return err
	}
	if err := cycle.timed(func() error {
		_, err := scheduler.feed.Flush(ctx)
		return err
	}); err != nil {
		return err
	}
	return fmt.Errorf("%w: there is no policy %s; push it with `pumice policy push`", ErrPolicyMissing, scheduler.settings.Policy)
}

func (cycle *Cycle) getPolicy(ctx context.Context, version uint64) (policy *pb.Policy, err error) {
	err = cycle.timed(func() error {
		response, err := cycle.scheduler.settings.Client.GetPolicy(ctx, &pb.GetPolicyRequest{
			Name: cycle.scheduler.settings.Policy, Version: version,
		})
		policy = response.GetPolicy()
		return err
	})
	return policy, err
}

// isBuiltIn follows rollbacks to the version that they returned to. A version that is no longer kept was somebody's.
func (cycle *Cycle) isBuiltIn(ctx context.Context, policy *pb.Policy) (bool, error) {
	for {
		back, rolledBack := strings.CutPrefix(policy.GetOrigin(), "rollback:")
		version, err := strconv.ParseUint(back, 10, 64)
		if !rolledBack || err != nil || version == 0 || version >= policy.GetVersion() {
			return policy.GetOrigin() == "built-in", nil
		}
		policy, err = cycle.getPolicy(ctx, version)
		if codeOf(err) == codes.NotFound {
			return false, nil
		}
		if err != nil {
			return false, err
		}
	}
}

// governs reports, as an error, why the policy of a session may not decide. `again` is true if the scheduler's
// configuration has to be put in force once more.
func (scheduler *Scheduler) governs(policy *policyInForce, plugins []string) (again bool, err error) {
	if scheduler.settings.PolicyMode != FollowPolicy {
		if policy.Hash != scheduler.hash {
			// Another caller has put another policy in force, or the service was restarted.
			return true, fmt.Errorf("%w: %s is in force", ErrPolicyDiffers, policy)
		}
		return false, nil
	}
	switch expected := scheduler.settings.PolicyHash; {
	case expected != "" && expected != policy.Hash:
		return false, fmt.Errorf("%w: %s is in force, and hash %s is expected", ErrPolicyDiffers, policy, expected)
	case expected == "" && policy.builtIn:
		return false, fmt.Errorf("%w: %s is built in; push the scheduler's with `pumice policy push`", ErrPolicyMissing, policy)
	case len(plugins) > 0 && !slices.ContainsFunc(plugins, func(name string) bool { return slices.Contains(policy.configuration.plugins(), name) }):
		return false, fmt.Errorf("%w: %s names none of %s", ErrPolicyMissing, policy, strings.Join(plugins, ", "))
	default:
		return false, nil
	}
}

// compare compares a policy with the scheduler's configuration.
func (scheduler *Scheduler) compare(policy *policyInForce, own Policy) GoverningPolicy {
	made := GoverningPolicy{PolicyVersion: policy.PolicyVersion}
	named := policy.configuration.plugins()
	for _, plugin := range own.Plugins {
		if !slices.Contains(named, plugin) {
			made.OnlyScheduler = append(made.OnlyScheduler, plugin)
		}
	}
	for _, plugin := range named {
		if scheduler.served[plugin] != nil && !slices.Contains(own.Plugins, plugin) {
			made.OnlyPolicy = append(made.OnlyPolicy, plugin)
		}
	}
	if configured, err := parseConfiguration(own.Document); err == nil && slices.Contains(own.Plugins, "drf") && slices.Contains(named, "drf") {
		made.HierarchyDiffers = configured.hierarchical() != policy.configuration.hierarchical()
	}
	if followed := policy.release(); scheduler.settings.Release != "" && followed != scheduler.settings.Release {
		made.OtherRelease = followed
	}
	return made
}

// release is the release that a policy follows; empty: none.
func (policy *policyInForce) release() string {
	switch policy.compatibility {
	case "", "corrected":
		return ""
	case "upstream":
		return newestRelease
	default:
		return policy.compatibility
	}
}

// newestRelease is what "upstream" means in a policy with tiers.
const newestRelease = "volcano-ed72c7c81"

// unchanged reports whether the policy of the last session is still in force. PushPolicy does not ask: it notices after
// Settings.KeepFor.
func (cycle *Cycle) unchanged(ctx context.Context) bool {
	scheduler := cycle.scheduler
	if scheduler.settings.PolicyMode == PushPolicy {
		return true
	}
	bound := scheduler.settings.Budget.Open
	ctx, cancel := within(ctx, bound, bound)
	defer cancel()
	var list *pb.ListPoliciesResponse
	err := cycle.timed(func() (err error) {
		list, err = scheduler.settings.Client.ListPolicies(ctx, &pb.ListPoliciesRequest{Name: scheduler.settings.Policy, PageSize: 1})
		return err
	})
	if err != nil || len(list.GetPolicies()) != 1 || scheduler.inForce == nil {
		return false
	}
	newest := list.GetPolicies()[0]
	return newest.GetVersion() == scheduler.inForce.Version && newest.GetHash() == scheduler.inForce.Hash
}

// syncPolicy puts the scheduler's policy in force, or under CheckPolicy compares it.
func (cycle *Cycle) syncPolicy(ctx context.Context) error {
	if cycle.scheduler.settings.PolicyMode == CheckPolicy {
		return cycle.checkPolicy(ctx)
	}
	return cycle.pushPolicy(ctx)
}

func (cycle *Cycle) reload(ctx context.Context, expected *uint64, dry bool) (reply *pb.ReloadPolicyResponse, err error) {
	settings := cycle.scheduler.settings
	err = cycle.timed(func() (err error) {
		reply, err = settings.Client.ReloadPolicy(ctx, &pb.ReloadPolicyRequest{
			Name: settings.Policy, Document: cycle.policy.Document, DryRun: dry, Compatibility: settings.Compatibility,
			ExpectedVersion: expected,
		})
		return err
	})
	return reply, err
}

func (cycle *Cycle) checkPolicy(ctx context.Context) error {
	scheduler := cycle.scheduler
	scheduler.pushed = ""
	inForce, err := cycle.getPolicy(ctx, 0)
	if err != nil {
		return err
	}
	own, err := cycle.reload(ctx, nil, true)
	if err != nil {
		return err
	}
	same, err := sameEffect(inForce.GetEffectiveDocument(), own.GetPolicy().GetEffectiveDocument())
	if err != nil {
		return err
	}
	if !same {
		return fmt.Errorf("%w: %s is in force; from it to the scheduler's configuration:\n%s",
			ErrPolicyDiffers, versionOf(inForce), own.GetDifference())
	}
	scheduler.pushed, scheduler.hash = cycle.policy.Document, inForce.GetHash()
	return nil
}

// pushPolicy replaces the version in force that it has read, and no later one.
func (cycle *Cycle) pushPolicy(ctx context.Context) error {
	scheduler := cycle.scheduler
	scheduler.pushed = ""
	for attempt := 1; ; attempt++ {
		was, err := cycle.getPolicy(ctx, 0)
		if codeOf(err) == codes.NotFound {
			was, err = nil, nil
		}
		if err != nil {
			return err
		}
		// 0: no policy has the name yet.
		expected := was.GetVersion()
		reply, err := cycle.reload(ctx, &expected, false)
		if codeOf(err) == codes.Aborted && attempt < pushAttempts {
			continue
		}
		if err != nil {
			return err
		}
		scheduler.pushed, scheduler.hash = cycle.policy.Document, reply.GetPolicy().GetHash()
		if !reply.GetUnchanged() {
			own := was == nil || was.GetOrigin() == "built-in" || scheduler.own[was.GetHash()]
			scheduler.settings.Observer.PolicyPushed(versionOf(was), versionOf(reply.GetPolicy()), own)
		}
		scheduler.own[scheduler.hash] = true
		return nil
	}
}

// pushAttempts is the number of times that a push is tried while others push, too.
const pushAttempts = 3
