package compare

import (
	"context"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	informercache "k8s.io/client-go/tools/cache"
	fwk "k8s.io/kube-scheduler/framework"
	schedulerapi "k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/scheme"
	"k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	schedulermetrics "k8s.io/kubernetes/pkg/scheduler/metrics"
)

func TestMain(main *testing.M) {
	schedulermetrics.Register()
	main.Run()
}

// withoutObjects are plugins that judge objects which these clusters do not have.
var withoutObjects = map[string]bool{
	names.VolumeRestrictions: true, names.NodeVolumeLimits: true, names.VolumeBinding: true, names.VolumeZone: true,
	names.DynamicResources: true, names.DefaultPreemption: true, names.NodeDeclaredFeatures: true, names.GangScheduling: true,
}

// lister has the snapshot of the cluster of the moment.
type lister struct{ fwk.SharedLister }

// noDevices has no device class for any resource.
type noDevices struct{ fwk.SharedDRAManager }

func (noDevices) DeviceClassResolver() fwk.DeviceClassResolver { return noDevices{} }

func (noDevices) GetDeviceClass(corev1.ResourceName) *resourcev1.DeviceClass { return nil }

// kube is kube-scheduler's framework with the only profile of a document, over one cluster after the other.
type kube struct {
	framework framework.Framework
	lister    *lister
	factory   informers.SharedInformerFactory
	ctx       context.Context
}

// newKube makes the framework of a document, with nothing that is left out.
func newKube(t *testing.T, document string, leftOut map[string]bool) *kube {
	t.Helper()
	decoded, _, err := scheme.Codecs.UniversalDecoder().Decode([]byte(document), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	profile := decoded.(*schedulerapi.KubeSchedulerConfiguration).Profiles[0]
	var stored []schedulerapi.Plugin
	for _, plugin := range profile.Plugins.MultiPoint.Enabled {
		if !leftOut[plugin.Name] {
			stored = append(stored, plugin)
		}
	}
	profile.Plugins.MultiPoint.Enabled = stored
	if !has(stored, names.PrioritySort) {
		profile.Plugins.QueueSort.Enabled = []schedulerapi.Plugin{{Name: names.PrioritySort}}
	}
	if !has(stored, names.DefaultBinder) {
		profile.Plugins.Bind.Enabled = []schedulerapi.Plugin{{Name: names.DefaultBinder}}
	}
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	client := fake.NewClientset()
	factory := informers.NewSharedInformerFactory(client, 0)
	made := &kube{lister: &lister{cache.NewSnapshot(nil, nil)}, factory: factory, ctx: ctx}
	made.framework, err = frameworkruntime.NewFramework(ctx, plugins.NewInTreeRegistry(), &profile,
		frameworkruntime.WithClientSet(client), frameworkruntime.WithInformerFactory(factory),
		frameworkruntime.WithSnapshotSharedLister(made.lister), frameworkruntime.WithSharedDRAManager(noDevices{}), frameworkruntime.WithParallelism(1))
	if err != nil {
		t.Fatal(err)
	}
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	return made
}

// use makes a cluster that of the framework.
func (kube *kube) use(t *testing.T, cluster *randomCluster) {
	t.Helper()
	kube.lister.SharedLister = cache.NewSnapshot(cluster.placed, cluster.nodes)
	core, apps := kube.factory.Core().V1(), kube.factory.Apps().V1()
	replace(t, core.Namespaces().Informer(), cluster.namespaces)
	replace(t, core.Services().Informer(), cluster.services)
	replace(t, core.ReplicationControllers().Informer(), cluster.controllers)
	replace(t, apps.ReplicaSets().Informer(), cluster.replicas)
	replace(t, apps.StatefulSets().Informer(), cluster.stateful)
}

// replace puts objects into the cache of an informer, whose fake API server has none.
func replace[T any](t *testing.T, informer informercache.SharedIndexInformer, objects []T) {
	t.Helper()
	list := make([]any, 0, len(objects))
	for _, object := range objects {
		list = append(list, object)
	}
	if err := informer.GetIndexer().Replace(list, ""); err != nil {
		t.Fatal(err)
	}
}

func has(plugins []schedulerapi.Plugin, name string) bool {
	for _, plugin := range plugins {
		if plugin.Name == name {
			return true
		}
	}
	return false
}

// filters are the nodeFilters of the profile.
func (kube *kube) filters() []string {
	var names []string
	for _, plugin := range kube.framework.ListPlugins().Filter.Enabled {
		if slices.Contains(nodeFilters, plugin.Name) {
			names = append(names, plugin.Name)
		}
	}
	return names
}

// rejection is the first plugin that refuses a node.
type rejection struct {
	plugin  string
	lasting bool
}

// verdict is what comes of one pod.
type verdict struct {
	fit     []string
	refused map[string]rejection
	// failed says that the scores failed, so that the pod gets no node.
	failed string
	// totals are the weighted sums of the nodes that fit.
	totals map[string]int64
	// parts are the weighted scores by plugin and node; a plugin that skipped the pod has none.
	parts map[string]map[string]int64
}

// judge runs the points of a scheduling cycle up to the scores.
func (kube *kube) judge(t *testing.T, pod *corev1.Pod) verdict {
	t.Helper()
	done := verdict{refused: map[string]rejection{}, totals: map[string]int64{}, parts: map[string]map[string]int64{}}
	state := framework.NewCycleState()
	infos, err := kube.lister.NodeInfos().List()
	if err != nil {
		t.Fatal(err)
	}
	narrowed, status, _ := kube.framework.RunPreFilterPlugins(kube.ctx, state, pod)
	if status.Code() == fwk.Error {
		t.Fatal(status)
	}
	var feasible []fwk.NodeInfo
	for _, info := range infos {
		name, judged := info.Node().Name, status
		switch {
		case !status.IsSuccess():
		case !narrowed.AllNodes() && !narrowed.NodeNames.Has(name):
			done.refused[name] = rejection{plugin: names.NodeAffinity, lasting: true}
			continue
		default:
			judged = kube.framework.RunFilterPlugins(kube.ctx, state, pod, info)
		}
		if judged.IsSuccess() {
			feasible = append(feasible, info)
			done.fit = append(done.fit, name)
			continue
		}
		done.refused[name] = rejection{plugin: judged.Plugin(), lasting: judged.Code() == fwk.UnschedulableAndUnresolvable}
	}
	if len(feasible) == 0 {
		return done
	}
	if status := kube.framework.RunPreScorePlugins(kube.ctx, state, pod, feasible); !status.IsSuccess() {
		done.failed = status.Message()
		return done
	}
	scores, status := kube.framework.RunScorePlugins(kube.ctx, state, pod, feasible)
	if !status.IsSuccess() {
		done.failed = status.Message()
		return done
	}
	for _, node := range scores {
		done.totals[node.Name] = node.TotalScore
		for _, score := range node.Scores {
			if done.parts[score.Name] == nil {
				done.parts[score.Name] = map[string]int64{}
			}
			done.parts[score.Name][node.Name] = score.Score
		}
	}
	return done
}
