package kubescheduler

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	pb "github.com/pumice-scheduler/pumice/clients/go/pumicev1"

	corev1 "k8s.io/api/core/v1"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
)

// memberClass has equal pods of a group and the names of their tasks, in the same order.
type memberClass struct {
	names []string
	pods  []*corev1.Pod
}

// memberClasses folds equal members: by priority, then by what they are, and within a class by name, shorter ones first.
func (plugin *Plugin) memberClasses(members []*corev1.Pod) ([]memberClass, error) {
	type member struct {
		record *pb.Task
		signed string
		pod    *corev1.Pod
	}
	list := []member{}
	for _, pod := range members {
		record, signed, err := plugin.hub.mirror.signed(pod)
		if err != nil {
			return nil, fmt.Errorf("pod %s: %w", pod.Name, err)
		}
		list = append(list, member{record, signed, pod})
	}
	slices.SortFunc(list, func(one, other member) int {
		return cmp.Or(
			cmp.Compare(other.record.GetPriority(), one.record.GetPriority()), cmp.Compare(one.signed, other.signed),
			cmp.Compare(len(one.record.GetName()), len(other.record.GetName())), cmp.Compare(one.record.GetName(), other.record.GetName()),
		)
	})
	classes := []memberClass{}
	for at, one := range list {
		if at == 0 || list[at-1].signed != one.signed {
			classes = append(classes, memberClass{})
		}
		last := &classes[len(classes)-1]
		last.names, last.pods = append(last.names, one.record.GetName()), append(last.pods, one.pod)
	}
	return classes, nil
}

// candidates are the nodes that kube-scheduler's own rules about nodes leave to a member: a policy need not have them. nil: all.
func (plugin *Plugin) candidates(ctx context.Context, classes []memberClass, nodes []fwk.NodeInfo) *pb.NodeSet {
	possible := []fwk.NodeInfo{}
	for _, info := range nodes {
		if slices.ContainsFunc(classes, func(class memberClass) bool { return mayUse(ctx, class.pods[0], info.Node()) }) {
			possible = append(possible, info)
		}
	}
	all, err := plugin.handle.SnapshotSharedLister().NodeInfos().List()
	if err == nil && len(possible) == len(all) {
		return nil
	}
	return plugin.byName(possible)
}

// mayUse reports whether labels, taints and the cordon of a node permit a pod.
func mayUse(ctx context.Context, pod *corev1.Pod, node *corev1.Node) bool {
	taints := node.Spec.Taints
	if node.Spec.Unschedulable {
		taints = append(slices.Clone(taints), corev1.Taint{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule})
	}
	hard := func(taint *corev1.Taint) bool { return taint.Effect != corev1.TaintEffectPreferNoSchedule }
	if _, refused := corev1helpers.FindMatchingUntoleratedTaint(klog.FromContext(ctx), taints, pod.Spec.Tolerations, hard, true); refused {
		return false
	}
	matches, err := nodeaffinity.GetRequiredNodeAffinity(pod).Match(node)
	return err == nil && matches
}
