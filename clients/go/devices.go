package pumice

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/pumice-scheduler/pumice/clients/go/derive"
	pb "github.com/pumice-scheduler/pumice/clients/go/pumicev1"

	corev1 "k8s.io/api/core/v1"
)

// sharingResources are those by which one scheduler shares devices.
type sharingResources struct {
	// number is that of the devices; without it, one.
	number string
	// memory is that of each device in MiB.
	memory string
	// percent is that of each device; 100 and more are whole devices.
	percent []string
	// together: memory, in bytes, and percent are those of all devices together.
	together bool
}

const (
	mebibyte = 1 << 20
	// maxDevices is the most devices of a node.
	maxDevices = 64
)

// sharing are the ways of Volcano, HAMi and Koordinator.
var sharing = [...]sharingResources{
	{"volcano.sh/vgpu-number", "volcano.sh/vgpu-memory", []string{"volcano.sh/vgpu-cores"}, false},
	{"volcano.sh/gpu-number", "volcano.sh/gpu-memory", nil, false},
	{"nvidia.com/gpu", "nvidia.com/gpumem", []string{"nvidia.com/gpucores", "nvidia.com/gpumem-percentage"}, false},
	{"koordinator.sh/gpu.shared", "koordinator.sh/gpu-memory", []string{"koordinator.sh/gpu-core", "koordinator.sh/gpu-memory-ratio", "koordinator.sh/gpu"}, true},
}

// largest is the largest amount of the names in the lists, in whole units; false: no list has one.
func largest(lists []corev1.ResourceList, names ...string) (most uint64, found bool, err error) {
	for _, list := range lists {
		for _, name := range names {
			quantity, listed := list[corev1.ResourceName(name)]
			if !listed {
				continue
			}
			amount, err := derive.Amount(derive.UnitWhole, name, quantity)
			if err != nil {
				return 0, false, err
			}
			most, found = max(most, uint64(amount)), true
		}
	}
	return most, found, nil
}

// podDevices are the devices that a pod shares; nil: it shares none. Of several containers the one that asks for most counts.
func podDevices(pod *corev1.Pod) (*pb.DeviceRequest, error) {
	lists := make([]corev1.ResourceList, 0, 4)
	for at := range pod.Spec.Containers {
		if limits := pod.Spec.Containers[at].Resources.Limits; len(limits) > 0 {
			lists = append(lists, limits)
		}
	}
	for at := range sharing {
		own := &sharing[at]
		number, numbered, err := largest(lists, own.number)
		if err != nil {
			return nil, err
		}
		memory, limited, err := largest(lists, own.memory)
		if err != nil {
			return nil, err
		}
		percent, parted, err := largest(lists, own.percent...)
		if err != nil {
			return nil, err
		}
		// A number of NVIDIA's devices alone shares nothing.
		if limited || parted || numbered && !strings.HasPrefix(own.number, "nvidia.com/") {
			return own.request(number, numbered, memory, percent)
		}
	}
	return nil, nil
}

// request makes the request of amounts, of which one that is not given is 0.
func (own *sharingResources) request(number uint64, numbered bool, memory, percent uint64) (*pb.DeviceRequest, error) {
	count := max(number, 1)
	if own.together {
		among := count
		if number == 0 && percent > 100 && percent%100 == 0 {
			among = percent / 100
		}
		if !numbered {
			count = among
		}
		memory, percent = quotientUp(quotientUp(memory, mebibyte), among), quotientUp(percent, among)
	}
	if percent > 100 {
		if percent%100 != 0 {
			return nil, fmt.Errorf("%d percent of devices: above 100 only whole devices can be meant", percent)
		}
		count = max(count, percent/100)
	}
	if count > maxDevices {
		return nil, fmt.Errorf("%d devices: a node has at most %d", count, maxDevices)
	}
	return &pb.DeviceRequest{Count: uint32(count), Milli: uint32(min(percent, 100) * 10), MemoryMib: uint32(min(memory, math.MaxUint32))}, nil
}

func quotientUp(amount, by uint64) uint64 {
	return (amount + by - 1) / by
}

// Labels of a node with the number, the model, and the memory in MiB of its devices, as NVIDIA's feature discovery writes them.
const (
	deviceCount  = "nvidia.com/gpu.count"
	deviceModel  = "nvidia.com/gpu.product"
	deviceMemory = "nvidia.com/gpu.memory"
)

// sharedOnNodes are the resources of a node that say that its devices are shared; of those that HAMi shares by, the memory does alone.
var sharedOnNodes = func() (names []string) {
	for _, own := range sharing {
		for _, name := range append([]string{own.number, own.memory}, own.percent...) {
			if name == "nvidia.com/gpumem" || !strings.HasPrefix(name, "nvidia.com/") {
				names = append(names, name)
			}
		}
	}
	return names
}()

// nodeDevices are the devices of a node whose allocatable amounts say that pods share them; nil: they are not shared.
func nodeDevices(node *corev1.Node) (*pb.NodeDevices, error) {
	allocatable := node.Status.Allocatable
	if !slices.ContainsFunc(sharedOnNodes, func(name string) bool { _, found := allocatable[corev1.ResourceName(name)]; return found }) {
		return nil, nil
	}
	var wrong error
	// first is the first of the resources that the node has.
	first := func(names ...string) (uint64, bool) {
		for _, name := range names {
			amount, found, err := largest([]corev1.ResourceList{allocatable}, name)
			if wrong = errors.Join(wrong, err); found {
				return amount, true
			}
		}
		return 0, false
	}
	ratio, parted := first("koordinator.sh/gpu-memory-ratio", "koordinator.sh/gpu-core")
	number, _ := first("nvidia.com/gpu", "volcano.sh/gpu-number")
	bytes, limited := first("koordinator.sh/gpu-memory")
	memory, _ := first("volcano.sh/gpu-memory", "volcano.sh/vgpu-memory")
	if wrong != nil {
		return nil, wrong
	}
	count := number
	if parted {
		count = ratio / 100
	}
	if labelled, err := strconv.ParseUint(node.Labels[deviceCount], 10, 64); err == nil {
		count = labelled
	}
	if count == 0 || count > maxDevices {
		return nil, nil
	}
	if limited {
		memory = bytes / mebibyte
	}
	memory /= count
	if labelled, err := strconv.ParseUint(node.Labels[deviceMemory], 10, 64); err == nil {
		memory = labelled
	}
	made := &pb.NodeDevices{Model: node.Labels[deviceModel], Count: uint32(count)}
	if memory <= math.MaxUint32 {
		made.MemoryMib = uint32(memory)
	}
	return made, nil
}
