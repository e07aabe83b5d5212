package pumice

import (
	pb "github.com/pumice-scheduler/pumice/clients/go/pumicev1"

	"google.golang.org/protobuf/proto"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// constraintsOf makes the constraints on nodes and on other pods of a pod that asks for such devices; nil: it has none.
func constraintsOf(pod *corev1.Pod, devices *pb.DeviceRequest) *pb.PodConstraints {
	spec := &pod.Spec
	constraints := &pb.PodConstraints{
		NodeSelector: spec.NodeSelector, Affinity: affinityOf(spec.Affinity), HostPorts: hostPorts(pod),
		Tolerations: messages(spec.Tolerations, func(own *corev1.Toleration) *pb.Toleration {
			return &pb.Toleration{Key: own.Key, Operator: string(own.Operator), Value: own.Value, Effect: string(own.Effect)}
		}),
		TopologySpreadConstraints: messages(spec.TopologySpreadConstraints, spreadConstraint),
		Images:                    images(spec),
		Devices:                   devices,
	}
	for at := range spec.Volumes {
		if image := spec.Volumes[at].Image; image != nil && image.Reference != "" {
			constraints.ImageVolumes = append(constraints.ImageVolumes, image.Reference)
		}
	}
	if len(constraints.ImageVolumes) == 0 && noneNamed(constraints.Images) {
		// The number of containers matters only where there are images.
		constraints.Images = nil
	}
	if proto.Size(constraints) == 0 {
		return nil
	}
	return constraints
}

// images returns the image of each container and init container.
func images(spec *corev1.PodSpec) []string {
	var names []string
	for at := range spec.Containers {
		names = append(names, spec.Containers[at].Image)
	}
	for at := range spec.InitContainers {
		names = append(names, spec.InitContainers[at].Image)
	}
	return names
}

func noneNamed(images []string) bool {
	for _, image := range images {
		if image != "" {
			return false
		}
	}
	return true
}

// hostPorts returns the ports that a pod takes on its node: hostPort, which the API server sets to containerPort for pods
// on the host's network; a pod without a phase is a manifest that it has not seen. Of init containers only those that keep
// running count.
func hostPorts(pod *corev1.Pod) []*pb.HostPort {
	onHost := pod.Status.Phase == "" && pod.Spec.HostNetwork
	var ports []*pb.HostPort
	add := func(container *corev1.Container) {
		for _, port := range container.Ports {
			number := port.HostPort
			if onHost && number == 0 {
				number = port.ContainerPort
			}
			if number > 0 {
				ports = append(ports, &pb.HostPort{Protocol: string(port.Protocol), HostIp: port.HostIP, Port: number})
			}
		}
	}
	for at := range pod.Spec.Containers {
		add(&pod.Spec.Containers[at])
	}
	for at := range pod.Spec.InitContainers {
		container := &pod.Spec.InitContainers[at]
		if container.RestartPolicy != nil && *container.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			add(container)
		}
	}
	return ports
}

func affinityOf(affinity *corev1.Affinity) *pb.Affinity {
	if affinity == nil {
		return nil
	}
	made := &pb.Affinity{}
	if node := affinity.NodeAffinity; node != nil {
		made.NodeAffinity = notEmpty(nodeAffinity(node))
	}
	if with := affinity.PodAffinity; with != nil {
		made.PodAffinity = notEmpty(&pb.PodAffinity{
			Required:  messages(with.RequiredDuringSchedulingIgnoredDuringExecution, podTerm),
			Preferred: messages(with.PreferredDuringSchedulingIgnoredDuringExecution, weightedPodTerm),
		})
	}
	if against := affinity.PodAntiAffinity; against != nil {
		made.PodAntiAffinity = notEmpty(&pb.PodAffinity{
			Required:  messages(against.RequiredDuringSchedulingIgnoredDuringExecution, podTerm),
			Preferred: messages(against.PreferredDuringSchedulingIgnoredDuringExecution, weightedPodTerm),
		})
	}
	return notEmpty(made)
}

func nodeAffinity(node *corev1.NodeAffinity) *pb.NodeAffinity {
	made := &pb.NodeAffinity{
		Preferred: messages(node.PreferredDuringSchedulingIgnoredDuringExecution, func(own *corev1.PreferredSchedulingTerm) *pb.PreferredNodeTerm {
			return &pb.PreferredNodeTerm{Weight: own.Weight, Preference: nodeTerm(&own.Preference)}
		}),
	}
	// A list without terms matches no node; without a list every node matches.
	if required := node.RequiredDuringSchedulingIgnoredDuringExecution; required != nil {
		made.Required = &pb.NodeSelector{Terms: messages(required.NodeSelectorTerms, nodeTerm)}
	}
	return made
}

func nodeTerm(term *corev1.NodeSelectorTerm) *pb.NodeSelectorTerm {
	requirement := func(own *corev1.NodeSelectorRequirement) *pb.SelectorRequirement {
		return &pb.SelectorRequirement{Key: own.Key, Operator: string(own.Operator), Values: own.Values}
	}
	return &pb.NodeSelectorTerm{
		MatchExpressions: messages(term.MatchExpressions, requirement), MatchFields: messages(term.MatchFields, requirement),
	}
}

func podTerm(term *corev1.PodAffinityTerm) *pb.PodAffinityTerm {
	return &pb.PodAffinityTerm{
		LabelSelector: labelSelector(term.LabelSelector), Namespaces: term.Namespaces,
		NamespaceSelector: labelSelector(term.NamespaceSelector), TopologyKey: term.TopologyKey,
	}
}

func weightedPodTerm(term *corev1.WeightedPodAffinityTerm) *pb.WeightedPodAffinityTerm {
	return &pb.WeightedPodAffinityTerm{Weight: term.Weight, Term: podTerm(&term.PodAffinityTerm)}
}

func labelSelector(selector *metav1.LabelSelector) *pb.LabelSelector {
	if selector == nil {
		return nil
	}
	return &pb.LabelSelector{
		MatchLabels: selector.MatchLabels,
		MatchExpressions: messages(selector.MatchExpressions, func(own *metav1.LabelSelectorRequirement) *pb.SelectorRequirement {
			return &pb.SelectorRequirement{Key: own.Key, Operator: string(own.Operator), Values: own.Values}
		}),
	}
}

func spreadConstraint(own *corev1.TopologySpreadConstraint) *pb.TopologySpreadConstraint {
	made := &pb.TopologySpreadConstraint{
		MaxSkew: own.MaxSkew, TopologyKey: own.TopologyKey, WhenUnsatisfiable: string(own.WhenUnsatisfiable),
		LabelSelector: labelSelector(own.LabelSelector), MinDomains: own.MinDomains, MatchLabelKeys: own.MatchLabelKeys,
	}
	if policy := own.NodeAffinityPolicy; policy != nil {
		made.NodeAffinityPolicy = string(*policy)
	}
	if policy := own.NodeTaintsPolicy; policy != nil {
		made.NodeTaintsPolicy = string(*policy)
	}
	return made
}

func taints(node *corev1.Node) []*pb.Taint {
	return messages(node.Spec.Taints, func(own *corev1.Taint) *pb.Taint {
		return &pb.Taint{Key: own.Key, Value: own.Value, Effect: string(own.Effect)}
	})
}

func nodeImages(node *corev1.Node) []*pb.NodeImage {
	return messages(node.Status.Images, func(own *corev1.ContainerImage) *pb.NodeImage {
		return &pb.NodeImage{Names: own.Names, SizeBytes: own.SizeBytes}
	})
}

// messages makes a message of each item.
func messages[T, M any](items []T, message func(*T) *M) []*M {
	var made []*M
	for at := range items {
		made = append(made, message(&items[at]))
	}
	return made
}

// notEmpty returns nil for a message without content.
func notEmpty[M proto.Message](message M) (none M) {
	if proto.Size(message) == 0 {
		return none
	}
	return message
}
