//go:build kubernetes_1_36

package kubescheduler

import (
	"k8s.io/client-go/informers"
	fwk "k8s.io/kube-scheduler/framework"
)

// watchGroups does nothing: the PodGroups of this release are an alpha API that the next one has replaced.
func (mirror *mirror) watchGroups(informers.SharedInformerFactory) error {
	return nil
}

// attemptOf is nil: the pods of a group share nothing, and go one by one.
func attemptOf(fwk.CycleState) fwk.PodGroupCycleState {
	return nil
}
