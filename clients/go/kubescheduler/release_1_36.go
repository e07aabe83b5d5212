//go:build kubernetes_1_36

package kubescheduler

// Release is the release of kube-scheduler into which this build of the plugin goes, as policies name it.
const Release = "kube-scheduler-1.36"
