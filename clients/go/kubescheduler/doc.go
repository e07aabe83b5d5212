// Package kubescheduler lets kube-scheduler, and schedulers made of its framework, ask Pumice: a plugin of the scheduling
// framework, to be built into the scheduler's program without a fork.
package kubescheduler
