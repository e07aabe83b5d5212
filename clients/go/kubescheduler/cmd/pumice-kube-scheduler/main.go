// Pumice-kube-scheduler is kube-scheduler with Pumice's plugins built in.
package main

import (
	"os"

	"github.com/pumice-scheduler/pumice/clients/go/kubescheduler"

	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	"k8s.io/kubernetes/cmd/kube-scheduler/app"
)

func main() {
	options := []app.Option{}
	for name, factory := range kubescheduler.Registry() {
		options = append(options, app.WithPlugin(name, factory))
	}
	os.Exit(cli.Run(app.NewSchedulerCommand(options...)))
}
