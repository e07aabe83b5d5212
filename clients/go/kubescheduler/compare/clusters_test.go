package compare

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	pumice "github.com/pumice-scheduler/pumice/clients/go"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
)

// dice makes random objects, each by a pair of documents and a seed.
type dice struct{ *rand.Rand }

func newDice(pair int, seed uint64) dice {
	return dice{rand.New(rand.NewPCG(seed, uint64(pair)))}
}

// in is true in one of n cases.
func (dice dice) in(n int) bool { return dice.IntN(n) == 0 }

func pick[T any](dice dice, items ...T) T { return items[dice.IntN(len(items))] }

func some[T any](dice dice, most int, make func() T) []T {
	var items []T
	for range dice.IntN(most + 1) {
		items = append(items, make())
	}
	return items
}

var (
	topologyKeys = []string{"kubernetes.io/hostname", "topology.kubernetes.io/zone", "topology.kubernetes.io/zone", "disk", "nowhere"}
	imageSizes   = []int64{5 << 20, 80 << 20, 300 << 20, 2000 << 20}
)

// randomCluster is a cluster, and pods that look for a node.
type randomCluster struct {
	nodes   []*corev1.Node
	placed  []*corev1.Pod
	waiting []*corev1.Pod
	// namespaces have labels, which namespace selectors read.
	namespaces []*corev1.Namespace
	services   []*corev1.Service
	// controllers, replicas and stateful control pods.
	controllers []*corev1.ReplicationController
	replicas    []*appsv1.ReplicaSet
	stateful    []*appsv1.StatefulSet
}

// makeCluster makes a cluster, with amounts of whole pods only if they count.
func (dice dice) makeCluster(waiting int, podLevel bool) randomCluster {
	var made randomCluster
	for number := range 1 + dice.IntN(9) {
		made.nodes = append(made.nodes, dice.node(fmt.Sprintf("n%d", number)))
	}
	if dice.in(2) {
		dice.makeRoom(made.nodes)
	}
	terms := dice.in(2)
	for number := range dice.IntN(14) {
		pod := dice.pod(fmt.Sprintf("p%d", number), terms)
		pod.Spec.NodeName = made.nodes[dice.IntN(len(made.nodes))].Name
		pod.Status.Phase = corev1.PodRunning
		if dice.in(8) {
			now := metav1.Now()
			pod.DeletionTimestamp = &now
		}
		made.placed = append(made.placed, pod)
	}
	for number := range waiting {
		made.waiting = append(made.waiting, dice.pod(fmt.Sprintf("w%d", number), dice.in(2)))
	}
	for _, pod := range slices.Concat(made.placed, made.waiting) {
		if podLevel && dice.in(10) {
			requests := corev1.ResourceList{"cpu": resource.MustParse(pick(dice, "4", "5500m"))}
			if dice.in(2) {
				requests["memory"] = resource.MustParse("5Gi")
			}
			pod.Spec.Resources = &corev1.ResourceRequirements{Requests: requests}
		}
	}
	dice.addOwners(&made)
	return made
}

// addOwners adds the namespaces, and owners of pods. Some pods are controlled by one that is not there.
func (dice dice) addOwners(made *randomCluster) {
	for _, name := range []string{"default", "other", "empty"} {
		labels := map[string]string{"kubernetes.io/metadata.name": name}
		if dice.in(2) {
			labels["team"] = pick(dice, "x", "y")
		}
		made.namespaces = append(made.namespaces, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}})
	}
	meta := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Name: name, Namespace: pick(dice, "default", "default", "other"), UID: types.UID(name)}
	}
	for number := range dice.IntN(3) {
		service := &corev1.Service{ObjectMeta: meta(fmt.Sprintf("service%d", number))}
		service.Spec.Selector = pick(dice, nil, map[string]string{"app": pick(dice, "a", "b", "c")}, map[string]string{"tier": "1"})
		made.services = append(made.services, service)
	}
	selectors := func() *metav1.LabelSelector {
		made := dice.labelSelector()
		if made == nil {
			made = &metav1.LabelSelector{}
		}
		return made
	}
	for number := range 2 {
		replica := &appsv1.ReplicaSet{ObjectMeta: meta(fmt.Sprintf("replicas%d", number))}
		replica.Spec.Selector = selectors()
		made.replicas = append(made.replicas, replica)
	}
	set := &appsv1.StatefulSet{ObjectMeta: meta("stateful")}
	set.Spec.Selector = selectors()
	made.stateful = append(made.stateful, set)
	controller := &corev1.ReplicationController{ObjectMeta: meta("controller")}
	controller.Spec.Selector = map[string]string{"app": pick(dice, "a", "b")}
	made.controllers = append(made.controllers, controller)
	yes := true
	for _, pod := range slices.Concat(made.placed, made.waiting) {
		if dice.in(2) {
			owner := pick(dice,
				metav1.OwnerReference{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: pick(dice, "replicas0", "replicas1", "gone")},
				metav1.OwnerReference{APIVersion: "apps/v1", Kind: "StatefulSet", Name: "stateful"},
				metav1.OwnerReference{APIVersion: "v1", Kind: "ReplicationController", Name: "controller"},
				metav1.OwnerReference{APIVersion: "batch/v1", Kind: "Job", Name: "replicas0"},
				metav1.OwnerReference{APIVersion: "apps/v1beta1", Kind: "ReplicaSet", Name: "replicas0"},
			)
			owner.Controller, owner.UID = &yes, types.UID(owner.Name)
			pod.OwnerReferences = []metav1.OwnerReference{owner}
		}
	}
}

// owners finds the owners of the cluster.
func (cluster *randomCluster) owners() pumice.Owners {
	return pumice.Owners{
		Services: func(namespace string) ([]*corev1.Service, error) {
			var found []*corev1.Service
			for _, service := range cluster.services {
				if service.Namespace == namespace {
					found = append(found, service)
				}
			}
			return found, nil
		},
		ReplicationController: finder(cluster.controllers),
		ReplicaSet:            finder(cluster.replicas),
		StatefulSet:           finder(cluster.stateful),
	}
}

func finder[T metav1.Object](all []T) func(namespace, name string) (T, error) {
	return func(namespace, name string) (T, error) {
		for _, own := range all {
			if own.GetNamespace() == namespace && own.GetName() == name {
				return own, nil
			}
		}
		var none T
		return none, fmt.Errorf("no %s/%s", namespace, name)
	}
}

func (dice dice) node(name string) *corev1.Node {
	labels := map[string]string{}
	set := func(key string, values ...string) {
		if !dice.in(6) {
			labels[key] = pick(dice, values...)
		}
	}
	set("kubernetes.io/hostname", name)
	set("topology.kubernetes.io/zone", "a", "b", "c")
	set("disk", "ssd", "hdd", "")
	set("rank", "5", "-3", "+7", "007", "x", "9223372036854775807", "9223372036854775808")
	amounts := corev1.ResourceList{
		"cpu":    resource.MustParse(pick(dice, "1500m", "2", "4", "8", "0")),
		"memory": resource.MustParse(pick(dice, "2Gi", "4Gi", "7999999999", "16Gi")),
		"pods":   resource.MustParse(pick(dice, "2", "4", "10", "110")),
	}
	if dice.in(3) {
		amounts["nvidia.com/gpu"] = resource.MustParse(pick(dice, "0", "1", "4", "8"))
	}
	if dice.in(3) {
		amounts["ephemeral-storage"] = resource.MustParse(pick(dice, "1Gi", "10Gi"))
	}
	if dice.in(4) {
		amounts["hugepages-2Mi"] = resource.MustParse(pick(dice, "64Mi", "1Gi"))
	}
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("node-" + name), Labels: labels},
		Spec:       corev1.NodeSpec{Unschedulable: dice.in(10)},
		Status: corev1.NodeStatus{
			Allocatable: amounts, Capacity: amounts,
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
		},
	}
	if dice.in(3) {
		node.Spec.Taints = some(dice, 3, dice.taint)
	}
	for number, size := range imageSizes {
		if dice.in(3) {
			names := []string{fmt.Sprintf("image%d:latest", number), fmt.Sprintf("registry:5000/image%d:v1", number)}
			node.Status.Images = append(node.Status.Images, corev1.ContainerImage{Names: names, SizeBytes: size})
		}
	}
	return node
}

// makeRoom leaves few reasons to refuse a node, so that many are scored.
func (dice dice) makeRoom(nodes []*corev1.Node) {
	for _, node := range nodes {
		node.Spec.Unschedulable = false
		amounts := node.Status.Allocatable
		amounts["cpu"] = resource.MustParse(pick(dice, "16", "31500m"))
		amounts["memory"] = resource.MustParse(pick(dice, "32Gi", "70000000001"))
		amounts["pods"], amounts["nvidia.com/gpu"] = resource.MustParse("110"), resource.MustParse(pick(dice, "16", "7"))
		amounts["ephemeral-storage"], amounts["hugepages-2Mi"] = resource.MustParse("20Gi"), resource.MustParse("1Gi")
		for at := range node.Spec.Taints {
			node.Spec.Taints[at].Effect = corev1.TaintEffectPreferNoSchedule
		}
	}
}

func (dice dice) taint() corev1.Taint {
	return corev1.Taint{
		Key: pick(dice, "team", "gpu", "node.kubernetes.io/unschedulable"), Value: pick(dice, "", "x", "y"),
		Effect: pick(dice, corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute),
	}
}

func (dice dice) toleration() corev1.Toleration {
	return corev1.Toleration{
		Key:      pick(dice, "", "team", "gpu", "node.kubernetes.io/unschedulable"),
		Operator: pick(dice, "", corev1.TolerationOpEqual, corev1.TolerationOpExists, corev1.TolerationOpExists, corev1.TolerationOperator("Lt")),
		Value:    pick(dice, "", "x", "y"),
		Effect:   pick(dice, "", "", corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute),
	}
}

func (dice dice) pod(name string, terms bool) *corev1.Pod {
	labels := map[string]string{}
	if !dice.in(5) {
		labels["app"] = pick(dice, "a", "b", "c")
	}
	if dice.in(2) {
		labels["tier"] = pick(dice, "1", "2")
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: pick(dice, "default", "default", "default", "other"), UID: types.UID("pod-" + name), Labels: labels,
		},
		Spec:   corev1.PodSpec{Containers: []corev1.Container{dice.container("main")}},
		Status: corev1.PodStatus{Phase: corev1.PodPending},
	}
	spec := &pod.Spec
	if dice.in(4) {
		spec.Containers = append(spec.Containers, dice.container("more"))
	}
	if dice.in(4) {
		first := dice.container("first")
		if dice.in(2) {
			always := corev1.ContainerRestartPolicyAlways
			first.RestartPolicy = &always
		}
		spec.InitContainers = append(spec.InitContainers, first)
	}
	if dice.in(6) {
		spec.Volumes = some(dice, 3, dice.volume)
	}
	if dice.in(10) {
		spec.Overhead = corev1.ResourceList{"cpu": resource.MustParse("10m"), "memory": resource.MustParse("1Mi")}
	}
	if dice.in(2) {
		spec.Tolerations = some(dice, 3, dice.toleration)
	}
	if dice.in(5) {
		spec.NodeSelector = map[string]string{pick(dice, "disk", "topology.kubernetes.io/zone"): pick(dice, "ssd", "a", "")}
	}
	if dice.in(3) {
		dice.addNodeAffinity(spec)
	}
	if terms {
		dice.addPodTerms(spec)
	}
	return pod
}

func (dice dice) container(name string) corev1.Container {
	requests := corev1.ResourceList{}
	if !dice.in(4) {
		requests["cpu"] = resource.MustParse(pick(dice, "0", "1m", "100m", "333m", "1", "2"))
	}
	if !dice.in(4) {
		requests["memory"] = resource.MustParse(pick(dice, "0", "1", "128Mi", "1Gi", "1000000001"))
	}
	if dice.in(5) {
		requests["nvidia.com/gpu"] = resource.MustParse(pick(dice, "0", "1", "2"))
	}
	if dice.in(8) {
		requests["ephemeral-storage"] = resource.MustParse(pick(dice, "0", "100Mi", "2Gi"))
	}
	if dice.in(12) {
		requests["hugepages-2Mi"] = resource.MustParse("32Mi")
	}
	container := corev1.Container{Name: name, Resources: corev1.ResourceRequirements{Requests: requests}}
	container.Image = dice.image()
	if dice.in(6) {
		container.Ports = some(dice, 2, func() corev1.ContainerPort {
			return corev1.ContainerPort{
				ContainerPort: 80, HostPort: pick(dice, int32(0), 80, 443), Protocol: pick(dice, "", corev1.ProtocolTCP, corev1.ProtocolUDP),
				HostIP: pick(dice, "", "", "0.0.0.0", "127.0.0.1", "10.0.0.1", "::"),
			}
		})
	}
	return container
}

// image is the name of one that nodes may have.
func (dice dice) image() string {
	number := dice.IntN(len(imageSizes))
	return pick(dice, fmt.Sprintf("image%d", number), fmt.Sprintf("registry:5000/image%d:v1", number), "unknown", "image1:v2")
}

// volume is an image in most cases.
func (dice dice) volume() corev1.Volume {
	source := corev1.VolumeSource{Image: &corev1.ImageVolumeSource{Reference: dice.image()}}
	return corev1.Volume{VolumeSource: pick(dice, source, source, corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}})}
}

func (dice dice) addNodeAffinity(spec *corev1.PodSpec) {
	affinity := &corev1.NodeAffinity{}
	if dice.in(2) {
		affinity.RequiredDuringSchedulingIgnoredDuringExecution = &corev1.NodeSelector{NodeSelectorTerms: some(dice, 3, dice.nodeTerm)}
	}
	if dice.in(2) {
		affinity.PreferredDuringSchedulingIgnoredDuringExecution = some(dice, 3, func() corev1.PreferredSchedulingTerm {
			return corev1.PreferredSchedulingTerm{Weight: int32(dice.IntN(101)), Preference: dice.nodeTerm()}
		})
	}
	spec.Affinity = &corev1.Affinity{NodeAffinity: affinity}
}

func (dice dice) nodeTerm() corev1.NodeSelectorTerm {
	var term corev1.NodeSelectorTerm
	if !dice.in(4) {
		term.MatchExpressions = some(dice, 2, dice.nodeExpression)
	}
	if dice.in(5) {
		term.MatchFields = some(dice, 2, func() corev1.NodeSelectorRequirement {
			names := []string{pick(dice, "n0", "n1", "n2", "n9")}
			if dice.in(8) {
				names = append(names, "n1")
			}
			return corev1.NodeSelectorRequirement{
				Key:      pick(dice, "metadata.name", "metadata.name", "metadata.name", "metadata.namespace"),
				Operator: pick(dice, corev1.NodeSelectorOpIn, corev1.NodeSelectorOpIn, corev1.NodeSelectorOpNotIn, corev1.NodeSelectorOpExists),
				Values:   names,
			}
		})
	}
	return term
}

// nodeExpression is valid in most cases.
func (dice dice) nodeExpression() corev1.NodeSelectorRequirement {
	made := corev1.NodeSelectorRequirement{Key: pick(dice, "disk", "topology.kubernetes.io/zone", "kubernetes.io/hostname", "nowhere")}
	switch dice.IntN(6) {
	case 0, 1:
		made.Operator = pick(dice, corev1.NodeSelectorOpIn, corev1.NodeSelectorOpNotIn)
		made.Values = []string{pick(dice, "ssd", "a", "b", "n0", "")}
		if dice.in(2) {
			made.Values = append(made.Values, pick(dice, "hdd", "c"))
		}
	case 2:
		made.Operator = pick(dice, corev1.NodeSelectorOpExists, corev1.NodeSelectorOpDoesNotExist)
	case 3, 4:
		made.Key, made.Operator = "rank", pick(dice, corev1.NodeSelectorOpGt, corev1.NodeSelectorOpLt)
		made.Values = []string{pick(dice, "4", "6", "007", "0", "9223372036854775806")}
	default:
		made.Key = pick(dice, "disk", "rank", "not a name", "x/y/z", "")
		made.Operator = pick(dice, corev1.NodeSelectorOpIn, corev1.NodeSelectorOpExists, corev1.NodeSelectorOpGt, "in", "")
		made.Values = pick(dice, nil, []string{"-5"}, []string{"ssd", "not a value"}, []string{"1", "2"})
	}
	return made
}

func (dice dice) addPodTerms(spec *corev1.PodSpec) {
	if spec.Affinity == nil {
		spec.Affinity = &corev1.Affinity{}
	}
	weighted := func() corev1.WeightedPodAffinityTerm {
		return corev1.WeightedPodAffinityTerm{Weight: int32(1 + dice.IntN(100)), PodAffinityTerm: dice.podTerm()}
	}
	if dice.in(2) {
		with := &corev1.PodAffinity{}
		if dice.in(2) {
			with.RequiredDuringSchedulingIgnoredDuringExecution = some(dice, 2, dice.podTerm)
		}
		if dice.in(2) {
			with.PreferredDuringSchedulingIgnoredDuringExecution = some(dice, 2, weighted)
		}
		spec.Affinity.PodAffinity = with
	}
	if dice.in(2) {
		against := &corev1.PodAntiAffinity{}
		if dice.in(2) {
			against.RequiredDuringSchedulingIgnoredDuringExecution = some(dice, 2, dice.podTerm)
		}
		if dice.in(2) {
			against.PreferredDuringSchedulingIgnoredDuringExecution = some(dice, 2, weighted)
		}
		spec.Affinity.PodAntiAffinity = against
	}
	if dice.in(2) {
		spec.TopologySpreadConstraints = some(dice, 3, dice.spreadConstraint)
	}
}

func (dice dice) podTerm() corev1.PodAffinityTerm {
	term := corev1.PodAffinityTerm{LabelSelector: dice.labelSelector(), TopologyKey: pick(dice, topologyKeys...)}
	if dice.in(4) {
		term.Namespaces = []string{pick(dice, "default", "other")}
	}
	if dice.in(4) {
		term.NamespaceSelector = pick(dice, &metav1.LabelSelector{}, dice.namespaceSelector())
	}
	return term
}

// dropOpenSelectors leaves out the selectors of namespaces that a namespace without labels matches: kube-scheduler takes
// them for selectors of all namespaces, and `corrected` does not.
func (made *randomCluster) dropOpenSelectors(t *testing.T) {
	t.Helper()
	drop := func(term *corev1.PodAffinityTerm) {
		selector, err := metav1.LabelSelectorAsSelector(term.NamespaceSelector)
		if err != nil {
			t.Fatal(err)
		}
		if !selector.Empty() && selector.Matches(labels.Set{}) {
			term.NamespaceSelector = nil
		}
	}
	for _, pod := range made.waiting {
		if pod.Spec.Affinity == nil {
			continue
		}
		var required []corev1.PodAffinityTerm
		var preferred []corev1.WeightedPodAffinityTerm
		if own := pod.Spec.Affinity.PodAffinity; own != nil {
			required, preferred = own.RequiredDuringSchedulingIgnoredDuringExecution, own.PreferredDuringSchedulingIgnoredDuringExecution
		}
		for at := range required {
			drop(&required[at])
		}
		for at := range preferred {
			drop(&preferred[at].PodAffinityTerm)
		}
		if own := pod.Spec.Affinity.PodAntiAffinity; own != nil {
			required, preferred = own.RequiredDuringSchedulingIgnoredDuringExecution, own.PreferredDuringSchedulingIgnoredDuringExecution
			for at := range required {
				drop(&required[at])
			}
			for at := range preferred {
				drop(&preferred[at].PodAffinityTerm)
			}
		}
	}
}

func (dice dice) namespaceSelector() *metav1.LabelSelector {
	if dice.in(2) {
		return &metav1.LabelSelector{MatchLabels: map[string]string{"team": pick(dice, "x", "y")}}
	}
	expression := metav1.LabelSelectorRequirement{Key: "team", Operator: pick(dice, metav1.LabelSelectorOpExists, metav1.LabelSelectorOpDoesNotExist)}
	if dice.in(2) {
		expression = metav1.LabelSelectorRequirement{
			Key: "kubernetes.io/metadata.name", Operator: pick(dice, metav1.LabelSelectorOpIn, metav1.LabelSelectorOpNotIn),
			Values: []string{pick(dice, "default", "other", "empty")},
		}
	}
	return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{expression}}
}

func (dice dice) labelSelector() *metav1.LabelSelector {
	if dice.in(12) {
		return nil
	}
	made := &metav1.LabelSelector{}
	if !dice.in(3) {
		made.MatchLabels = map[string]string{"app": pick(dice, "a", "b", "c")}
	}
	if dice.in(3) {
		expression := metav1.LabelSelectorRequirement{Key: pick(dice, "app", "tier")}
		if dice.in(2) {
			expression.Operator = pick(dice, metav1.LabelSelectorOpIn, metav1.LabelSelectorOpNotIn)
			expression.Values = []string{pick(dice, "a", "1"), pick(dice, "b", "2")}
		} else {
			expression.Operator = pick(dice, metav1.LabelSelectorOpExists, metav1.LabelSelectorOpDoesNotExist)
		}
		made.MatchExpressions = append(made.MatchExpressions, expression)
	}
	return made
}

func (dice dice) spreadConstraint() corev1.TopologySpreadConstraint {
	made := corev1.TopologySpreadConstraint{
		MaxSkew: int32(1 + dice.IntN(3)), TopologyKey: pick(dice, topologyKeys...),
		WhenUnsatisfiable: pick(dice, corev1.DoNotSchedule, corev1.ScheduleAnyway), LabelSelector: dice.labelSelector(),
	}
	if made.LabelSelector == nil {
		made.LabelSelector = &metav1.LabelSelector{}
	}
	if made.WhenUnsatisfiable == corev1.DoNotSchedule && dice.in(3) {
		domains := int32(1 + dice.IntN(4))
		made.MinDomains = &domains
	}
	policy := func() *corev1.NodeInclusionPolicy {
		chosen := pick(dice, corev1.NodeInclusionPolicyHonor, corev1.NodeInclusionPolicyIgnore)
		return pick(dice, nil, &chosen)
	}
	made.NodeAffinityPolicy, made.NodeTaintsPolicy = policy(), policy()
	if dice.in(5) {
		made.MatchLabelKeys = []string{pick(dice, "tier", "nowhere")}
	}
	return made
}
