package derive_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// fields are an object of the API, or a part of one, as JSON has it.
type fields = map[string]any

// dice makes random objects, each by a seed. They are what an API server may store, and what only a manifest may say.
type dice struct{ *rand.Rand }

func (dice dice) in(n int) bool { return dice.IntN(n) == 0 }

func pick[T any](dice dice, items ...T) T { return items[dice.IntN(len(items))] }

func some[T any](dice dice, most int, make func() T) []T {
	items := []T{}
	for range dice.IntN(most + 1) {
		items = append(items, make())
	}
	return items
}

// maybe sets a field in one of n cases.
func (dice dice) maybe(n int, into fields, name string, make func() any) {
	if dice.in(n) {
		into[name] = make()
	}
}

var (
	// resourceNames are names that all schedulers count, that some count, and that none counts.
	resourceNames = []string{
		"cpu", "cpu", "cpu", "memory", "memory", "memory", "ephemeral-storage", "hugepages-2Mi", "nvidia.com/gpu", "example.com/dongle", "pods",
		"count/pods", "attachable-volumes-csi-x", "requests.nvidia.com/gpu", "gpu", "a/b/c", "kubernetes.io/batch-cpu", "koordinator.sh/gpu-core",
		"koordinator.sh/gpu-memory-ratio", "koordinator.sh/gpu-memory", "koordinator.sh/gpu.shared", "koordinator.sh/gpu", "volcano.sh/vgpu-number",
		"volcano.sh/vgpu-memory", "volcano.sh/vgpu-cores", "volcano.sh/gpu-memory", "volcano.sh/gpu-number", "nvidia.com/gpumem", "nvidia.com/gpucores",
		"nvidia.com/gpumem-percentage",
	}
	plainAmounts = []any{"0", "1", "2", "4", "8", "500m", "100m", "64Mi", "1Gi", "2Gi", "50", "200", 3, 100}
	// oddAmounts are what Kubernetes reads as well, or what everybody refuses who counts it; hugeAmounts are too large for some or all.
	oddAmounts = []any{
		"0.5", "1.5", ".5", "1.", "+2", "1e3", "12E2", "1Ki", "1.5Gi", "0.1Gi", "1500u", "3n", "100k", "1M", "2T", "1e-3", "0.0001", "-1", "-0", "-100m",
		"001", "0x", " 2 ", 0, 7, 1.5, 2e3, nil,
	}
	hugeAmounts = []any{
		"1E", "1e18", "1e30", "7Ei", "8Ei", "123456789012345678", "9223372036854775807", "9223372036854775808", "10P", "10E", "9E", "4P", "1e40",
		"1e-9", 9e30, strings.Repeat("123456789", 5), strings.Repeat("123456789", 20) + "E",
	}
)

// oddity chooses the amounts that few objects have beside plain ones, because one that is refused hides all else.
func (dice dice) oddity() []any {
	switch dice.IntN(8) {
	case 0:
		return oddAmounts
	case 1:
		return hugeAmounts
	}
	return nil
}

// amounts are a list of resources, with an odd one if there are such.
func (dice dice) amounts(most int, odd []any) fields {
	list := fields{}
	for range dice.IntN(most + 1) {
		list[pick(dice, resourceNames...)] = pick(dice, plainAmounts...)
	}
	if len(odd) > 0 && len(list) > 0 && dice.in(2) {
		list[pick(dice, resourceNames...)] = pick(dice, odd...)
	}
	return list
}

func (dice dice) resources(odd []any) any {
	made := fields{}
	dice.maybe(2, made, "requests", func() any { return dice.amounts(4, odd) })
	dice.maybe(2, made, "limits", func() any { return dice.amounts(4, odd) })
	return made
}

// shares are limits by which one scheduler shares devices.
func (dice dice) shares() any {
	limits := fields{}
	for _, name := range resourceNames {
		if strings.HasPrefix(name, pick(dice, "koordinator.sh/", "koordinator.sh/", "volcano.sh/vgpu", "nvidia.com/gpu")) && dice.in(2) {
			limits[name] = pick[any](dice, 0, 1, 2, 3, 50, 100, 150, 200, 300, "8Gi")
		}
	}
	return fields{"limits": limits}
}

var containerNames = []string{"main", "helper", "proxy", "init-a"}

func (dice dice) container(init bool, odd []any) fields {
	made := fields{"name": pick(dice, containerNames...)}
	dice.maybe(2, made, "resources", func() any { return dice.resources(odd) })
	dice.maybe(6, made, "resources", dice.shares)
	dice.maybe(2, made, "image", func() any { return pick(dice, "registry/a:1", "registry/b:2", "") })
	dice.maybe(3, made, "ports", func() any {
		return some(dice, 2, func() any {
			port := fields{"containerPort": 8000 + dice.IntN(4)}
			dice.maybe(2, port, "hostPort", func() any { return dice.IntN(3) * 9000 })
			dice.maybe(2, port, "protocol", func() any { return pick(dice, "TCP", "UDP", "") })
			dice.maybe(4, port, "hostIP", func() any { return "127.0.0.1" })
			return port
		})
	})
	if init {
		dice.maybe(2, made, "restartPolicy", func() any { return pick(dice, "Always", "OnFailure", "Never") })
	}
	return made
}

// statuses are those of containers, some of which are resized in place.
func (dice dice) statuses(odd []any) any {
	return some(dice, 3, func() any {
		made := fields{"name": pick(dice, containerNames...), "ready": true}
		dice.maybe(2, made, "resources", func() any { return dice.resources(odd) })
		dice.maybe(2, made, "allocatedResources", func() any { return dice.amounts(3, odd) })
		return made
	})
}

func (dice dice) texts(keys, values []string) any {
	made := fields{}
	for range dice.IntN(4) {
		made[pick(dice, keys...)] = pick(dice, values...)
	}
	return made
}

func (dice dice) labels() any {
	return dice.texts([]string{"app", "tier", "team", "volcano.sh/task-spec", "volcano.sh/preemptable"}, []string{"a", "b", "", "true"})
}

func (dice dice) annotations() any {
	made := dice.texts([]string{"scheduling.k8s.io/group-name", "scheduling.volcano.sh/group-name"}, []string{"gang", "other", ""}).(fields)
	dice.maybe(3, made, "volcano.sh/task-priority", func() any { return pick(dice, "7", "-3", "+5", "07", "x", "", "2147483648", "1.5") })
	dice.maybe(3, made, "volcano.sh/task-spec", func() any { return pick(dice, "worker", "") })
	dice.maybe(3, made, "volcano.sh/preemptable", func() any { return pick(dice, "true", "T", "no", "") })
	dice.maybe(3, made, "volcano.sh/revocable-zone", func() any { return pick(dice, "*", "zone") })
	dice.maybe(4, made, "volcano.sh/card.name", func() any { return pick(dice, "A100", "") })
	return made
}

func (dice dice) pod(number int) fields {
	metadata := fields{"name": fmt.Sprintf("p%04d", number), "uid": fmt.Sprintf("uid-%d", number)}
	dice.maybe(2, metadata, "namespace", func() any { return pick(dice, "default", "team") })
	dice.maybe(2, metadata, "labels", dice.labels)
	dice.maybe(2, metadata, "annotations", dice.annotations)
	dice.maybe(2, metadata, "creationTimestamp", func() any { return pick[any](dice, "2026-11-01T08:00:00Z", "2026-11-01T09:00:00+01:00", nil) })
	dice.maybe(6, metadata, "deletionTimestamp", func() any { return "2026-11-01T09:00:00Z" })
	dice.maybe(3, metadata, "ownerReferences", dice.owners)
	odd := dice.oddity()
	return fields{"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": dice.spec(odd), "status": dice.status(odd)}
}

func (dice dice) spec(odd []any) fields {
	spec := fields{}
	containers := []any{dice.container(false, odd)}
	for range dice.IntN(3) {
		containers = append(containers, dice.container(false, odd))
	}
	spec["containers"] = containers
	dice.maybe(2, spec, "initContainers", func() any {
		return some(dice, 3, func() any { return dice.container(true, odd) })
	})
	dice.maybe(4, spec, "overhead", func() any { return dice.amounts(2, odd) })
	dice.maybe(4, spec, "resources", func() any { return dice.resources(odd) })
	dice.maybe(2, spec, "schedulerName", func() any { return pick(dice, "default-scheduler", "koord-scheduler", "volcano", "mine", "") })
	dice.maybe(2, spec, "nodeName", func() any { return pick(dice, "n0", "n1", "gone", "") })
	dice.maybe(2, spec, "priority", func() any { return pick[any](dice, 0, 1, 7, -3, 2_000_000_000, nil) })
	dice.maybe(3, spec, "priorityClassName", func() any { return pick(dice, "high", "unknown", "") })
	dice.maybe(3, spec, "preemptionPolicy", func() any { return pick(dice, "Never", "PreemptLowerPriority") })
	dice.maybe(5, spec, "schedulingGates", func() any {
		return some(dice, 2, func() any {
			return fields{"name": pick(dice, "example.com/wait", "scheduling.volcano.sh/queue-allocation-gate")}
		})
	})
	dice.maybe(6, spec, "schedulingGroup", func() any { return fields{"podGroupName": pick(dice, "gang", "plain", "")} })
	dice.maybe(6, spec, "hostNetwork", func() any { return dice.in(2) })
	dice.maybe(5, spec, "resourceClaims", func() any { return some(dice, 1, func() any { return fields{"name": "c", "resourceClaimName": "c"} }) })
	dice.maybe(4, spec, "volumes", func() any { return some(dice, 2, dice.volume) })
	dice.constrain(spec)
	return spec
}

func (dice dice) volume() any {
	return pick(dice,
		fields{"name": "a", "emptyDir": fields{}}, fields{"name": "b", "configMap": fields{"name": "c"}},
		fields{"name": "c", "persistentVolumeClaim": fields{"claimName": "c"}}, fields{"name": "d", "ephemeral": fields{}},
		fields{"name": "e", "csi": fields{"driver": "x"}}, fields{"name": "f", "image": fields{"reference": pick(dice, "registry/data:1", "")}},
		fields{"name": "g", "hostPath": fields{"path": "/"}}, fields{"name": "h", "fc": fields{}}, fields{"name": "i", "persistentVolumeClaim": nil})
}

func (dice dice) status(odd []any) fields {
	status := fields{}
	if !dice.in(5) {
		status["phase"] = pick(dice, "Pending", "Pending", "Running", "Running", "Succeeded", "Failed", "Unknown", "Odd")
	}
	dice.maybe(4, status, "nominatedNodeName", func() any { return pick(dice, "n0", "") })
	dice.maybe(3, status, "conditions", func() any {
		return some(dice, 2, func() any {
			return fields{"type": pick(dice, "PodResizePending", "PodResizeInProgress", "Ready"), "status": "True", "reason": pick(dice, "Infeasible", "Deferred", "")}
		})
	})
	dice.maybe(2, status, "containerStatuses", func() any { return dice.statuses(odd) })
	dice.maybe(3, status, "initContainerStatuses", func() any { return dice.statuses(odd) })
	dice.maybe(4, status, "resources", func() any { return dice.resources(odd) })
	dice.maybe(4, status, "allocatedResources", func() any { return dice.amounts(3, odd) })
	return status
}

func (dice dice) owners() any {
	kind, version := pick(dice, "ReplicaSet", "StatefulSet", "ReplicationController", "Job"), "apps/v1"
	switch kind {
	case "ReplicationController":
		version = "v1"
	case "Job":
		version = "batch/v1"
	}
	owner := fields{"apiVersion": version, "kind": kind, "name": pick(dice, "owner", "owner", "gone"), "uid": "u"}
	dice.maybe(2, owner, "controller", func() any { return true })
	return []any{owner}
}

// node is a node of which some share their devices.
func (dice dice) node(number int) fields {
	metadata := fields{"name": fmt.Sprintf("n%d", number), "uid": fmt.Sprintf("node-%d", number), "creationTimestamp": "2026-11-01T08:00:00Z"}
	dice.maybe(2, metadata, "labels", func() any {
		labels := dice.labels().(fields)
		dice.maybe(2, labels, "nvidia.com/gpu.count", func() any { return pick(dice, "4", "0", "65", "many") })
		dice.maybe(2, labels, "nvidia.com/gpu.memory", func() any { return pick(dice, "15360", "-1", "4294967296", "") })
		dice.maybe(2, labels, "nvidia.com/gpu.product", func() any { return "T4" })
		return labels
	})
	dice.maybe(3, metadata, "annotations", func() any {
		made := fields{}
		dice.maybe(2, made, "volcano.sh/oversubscription-cpu", func() any { return pick(dice, "2000", "0.5", "many", "", "-1", "1e3", "1k", ".", "+1") })
		dice.maybe(2, made, "volcano.sh/oversubscription-memory", func() any { return pick(dice, "1073741824", "1Gi", "1.5", "", "-1", "1e3", "1.2.3") })
		return made
	})
	spec, status := fields{}, fields{}
	dice.maybe(4, spec, "unschedulable", func() any { return dice.in(2) })
	dice.maybe(3, spec, "taints", func() any {
		return some(dice, 2, func() any {
			return fields{"key": pick(dice, "k", "l"), "value": pick(dice, "v", ""), "effect": pick(dice, "NoSchedule", "NoExecute")}
		})
	})
	if !dice.in(6) {
		status["allocatable"] = dice.amounts(8, dice.oddity())
	}
	dice.maybe(2, status, "conditions", func() any {
		return []any{fields{"type": "DiskPressure", "status": "False"}, fields{"type": "Ready", "status": pick(dice, "True", "False", "Unknown")}}
	})
	dice.maybe(3, status, "images", func() any {
		return some(dice, 2, func() any {
			return fields{"names": []string{"registry/a:1", "registry/a@sha256:1"}, "sizeBytes": dice.IntN(1 << 30)}
		})
	})
	return fields{"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": spec, "status": status}
}
