package pumice

import (
	"fmt"
	"hash/fnv"
	"strings"

	pb "github.com/pumice-scheduler/pumice/clients/go/pumicev1"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// maxSubGroupValue is the most bytes of a group's values; longer ones are cut to a hash (Volcano ed72c7c81,
// sub_job_info.go).
const maxSubGroupValue = 128

// subGroupPolicy is one of spec.subGroupPolicy of a PodGroup.
type subGroupPolicy struct {
	Name           string
	SubGroupSize   *int32
	MinSubGroups   *int32
	LabelSelector  *metav1.LabelSelector
	MatchLabelKeys []string
}

func subGroupPolicies(policies []subGroupPolicy) []*pb.SubGroupPolicy {
	return messages(policies, func(own *subGroupPolicy) *pb.SubGroupPolicy {
		return &pb.SubGroupPolicy{Name: own.Name, Size: own.SubGroupSize, MinGroups: own.MinSubGroups}
	})
}

// SubGroup returns the group of a pod by the policies of its Volcano PodGroup, which it reads as QueueRecord reads a Queue:
// the value of the record's SubGroup. Empty: the pod is in none. TaskRecord leaves the field empty, because a pod does not
// say how its PodGroup parts it.
func SubGroup(podGroup any, pod *corev1.Pod) (string, error) {
	read := struct {
		Metadata metav1.ObjectMeta
		Spec     struct{ SubGroupPolicy []subGroupPolicy }
	}{}
	if err := readObject(podGroup, &read, &read.Metadata); err != nil {
		return "", err
	}
	for at := range read.Spec.SubGroupPolicy {
		if group := read.Spec.SubGroupPolicy[at].groupOf(pod.Labels); group != "" {
			return group, nil
		}
	}
	return "", nil
}

// groupOf returns the group of a pod with these labels; empty: the policy is not about it.
func (policy *subGroupPolicy) groupOf(labels map[string]string) string {
	if len(policy.MatchLabelKeys) == 0 || !selects(policy.LabelSelector, labels) {
		return ""
	}
	var values []string
	for _, key := range policy.MatchLabelKeys {
		value := labels[key]
		if value == "" {
			return ""
		}
		values = append(values, value)
	}
	joined := strings.Join(values, "-")
	if len(joined) > maxSubGroupValue {
		sum := fnv.New32a()
		sum.Write([]byte(joined))
		joined = fmt.Sprintf("%08x", sum.Sum32())
	}
	return policy.Name + "/" + joined
}

// selects reports whether a selector matches the labels. One that cannot be read matches nothing, as in Volcano.
func selects(selector *metav1.LabelSelector, labels map[string]string) bool {
	if selector == nil {
		return true
	}
	for key, value := range selector.MatchLabels {
		if own, found := labels[key]; !found || own != value {
			return false
		}
	}
	for at := range selector.MatchExpressions {
		if !holds(&selector.MatchExpressions[at], labels) {
			return false
		}
	}
	return true
}

func holds(expression *metav1.LabelSelectorRequirement, labels map[string]string) bool {
	value, found := labels[expression.Key]
	listed := false
	for _, one := range expression.Values {
		listed = listed || one == value
	}
	switch expression.Operator {
	case metav1.LabelSelectorOpIn:
		return found && listed
	case metav1.LabelSelectorOpNotIn:
		return !found || !listed
	case metav1.LabelSelectorOpExists:
		return found
	case metav1.LabelSelectorOpDoesNotExist:
		return !found
	default:
		return false
	}
}
