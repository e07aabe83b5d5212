package verify

import (
	"volcano.sh/apis/pkg/apis/scheduling"
	"volcano.sh/apis/pkg/apis/scheduling/scheme"
	schedulingv1 "volcano.sh/apis/pkg/apis/scheduling/v1beta1"
	"volcano.sh/volcano/pkg/scheduler/api"
)

func internalQueue(queue *schedulingv1.Queue) *scheduling.Queue {
	made := &scheduling.Queue{}
	if err := scheme.Scheme.Convert(queue, made, nil); err != nil {
		panic(err)
	}
	return made
}

func internalGroup(group *schedulingv1.PodGroup) *api.PodGroup {
	made := &scheduling.PodGroup{}
	if err := scheme.Scheme.Convert(group, made, nil); err != nil {
		panic(err)
	}
	return &api.PodGroup{PodGroup: *made, Version: api.PodGroupVersionV1Beta1}
}
