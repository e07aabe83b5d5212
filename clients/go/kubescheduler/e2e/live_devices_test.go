//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"slices"

	pb "github.com/pumice-scheduler/pumice/clients/go/pumicev1"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// gpuDriver is the driver and the class of the devices.
const gpuDriver = "gpu.example.com"

// showsDevices: nodes have the devices of their slices, and pods ask for those of their claims; what comes later changes both.
func (live *live) showsDevices(servers ...*watched) {
	ctx, devices := context.Background(), live.client.ResourceV1()
	check := func(err error) {
		live.t.Helper()
		if err != nil {
			live.t.Fatal(err)
		}
	}
	shows := func(what string, holds func(*watched) error) {
		live.t.Helper()
		for _, server := range servers {
			live.until(what, func() error { return holds(server) })
		}
	}
	slice, err := devices.ResourceSlices().Create(ctx, gpuSlice("node-1", 4), metav1.CreateOptions{})
	check(err)
	shows("the node has the devices of its slice", func(server *watched) error { return server.hasDevices("node-1", 4) })

	live.addClaimingPod("by-template", "", corev1.PodResourceClaim{Name: "gpu", ResourceClaimTemplateName: new("two")})
	live.addClaimingPod("by-claim", "node-1", corev1.PodResourceClaim{Name: "gpu", ResourceClaimName: new("one")})
	shows("a pod whose claim is missing says so", func(server *watched) error { return server.asks("default/by-claim", 0) })
	template := &resourcev1.ResourceClaimTemplate{ObjectMeta: metav1.ObjectMeta{Name: "two"}, Spec: resourcev1.ResourceClaimTemplateSpec{Spec: gpuClaim(2)}}
	_, err = devices.ResourceClaimTemplates("default").Create(ctx, template, metav1.CreateOptions{})
	check(err)
	shows("the pod asks for the devices of the template", func(server *watched) error { return server.asks("default/by-template", 2) })
	claim, err := devices.ResourceClaims("default").Create(ctx, &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: "one"}, Spec: gpuClaim(1)}, metav1.CreateOptions{})
	check(err)
	shows("the pod asks for the device of the claim", func(server *watched) error { return server.asks("default/by-claim", 1) })
	claim.Status.Allocation = &resourcev1.AllocationResult{Devices: resourcev1.DeviceAllocationResult{
		Results: []resourcev1.DeviceRequestAllocationResult{{Request: "gpu", Driver: gpuDriver, Pool: "node-1", Device: "gpu-2"}},
	}}
	_, err = devices.ResourceClaims("default").UpdateStatus(ctx, claim, metav1.UpdateOptions{})
	check(err)
	shows("the pod has the device that was allocated", func(server *watched) error { return server.asks("default/by-claim", 1, 2) })

	slice.Spec.Devices = slice.Spec.Devices[1:]
	slice.Spec.Pool.Generation++
	_, err = devices.ResourceSlices().Update(ctx, slice, metav1.UpdateOptions{})
	check(err)
	shows("the node has the devices of the changed slice", func(server *watched) error { return server.hasDevices("node-1", 3) })
	shows("the device of the pod has another number", func(server *watched) error { return server.asks("default/by-claim", 1, 1) })

	check(devices.ResourceSlices().Delete(ctx, slice.Name, metav1.DeleteOptions{}))
	shows("the node has no devices", func(server *watched) error { return server.hasDevices("node-1", 0) })
	check(devices.ResourceClaims("default").Delete(ctx, "one", metav1.DeleteOptions{}))
	check(devices.ResourceClaimTemplates("default").Delete(ctx, "two", metav1.DeleteOptions{}))
	for _, name := range []string{"by-template", "by-claim"} {
		shows("a pod whose claim has gone says so", func(server *watched) error { return server.asks("default/"+name, 0) })
		live.deletePod(name)
	}
}

// gpuSlice is that of a node with GPUs.
func gpuSlice(node string, count int) *resourcev1.ResourceSlice {
	made := &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: "slice-" + node}, Spec: resourcev1.ResourceSliceSpec{
		Driver: gpuDriver, NodeName: new(node), Pool: resourcev1.ResourcePool{Name: node, Generation: 1, ResourceSliceCount: 1},
	}}
	for number := range count {
		made.Spec.Devices = append(made.Spec.Devices, resourcev1.Device{
			Name:       fmt.Sprintf("gpu-%d", number),
			Attributes: map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{"productName": {StringValue: new("A100")}},
			Capacity:   map[resourcev1.QualifiedName]resourcev1.DeviceCapacity{"memory": {Value: resource.MustParse("80Gi")}},
		})
	}
	return made
}

// gpuClaim is a claim of GPUs of that number.
func gpuClaim(count int64) resourcev1.ResourceClaimSpec {
	exactly := &resourcev1.ExactDeviceRequest{DeviceClassName: gpuDriver, AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: count}
	return resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{Requests: []resourcev1.DeviceRequest{{Name: "gpu", Exactly: exactly}}}}
}

func (live *live) addClaimingPod(name, node string, claim corev1.PodResourceClaim) {
	made := pod(name, "elsewhere", "1", 0, nil)
	made.Spec.NodeName = node
	made.Spec.ResourceClaims = []corev1.PodResourceClaim{claim}
	(&scheduledCluster{cluster: live.cluster}).create(made)
}

// hasDevices wants a node to have this number of devices.
func (watched *watched) hasDevices(node string, count uint32) error {
	nodes, err := watched.client.ListNodes(context.Background(), &pb.ListNodesRequest{Names: []string{node}})
	if err != nil {
		return err
	}
	for _, own := range nodes.GetNodes() {
		devices := own.GetNode().GetDevices()
		if devices.GetCount() == count && (count == 0 || devices.GetModel() == "A100" && devices.GetMemoryMib() == 80<<10) {
			return nil
		}
	}
	return fmt.Errorf("%v, and %d devices wanted", nodes, count)
}

// asks wants the request of a pod, and the devices that it has; no devices: its claims are not evaluated.
func (watched *watched) asks(name string, count uint32, assigned ...uint32) error {
	tasks, err := watched.client.ListTasks(context.Background(), &pb.ListTasksRequest{Names: []string{name}})
	if err != nil {
		return err
	}
	for _, task := range tasks.GetTasks() {
		request := task.GetTask().GetConstraints().GetDevices()
		isEvaluated := !slices.Contains(task.GetTask().GetUnevaluatedFields(), "resourceClaims")
		if request.GetCount() == count && slices.Equal(request.GetAssigned(), assigned) && isEvaluated == (count > 0) {
			return nil
		}
	}
	return fmt.Errorf("%v, and %d devices %v wanted", tasks, count, assigned)
}
