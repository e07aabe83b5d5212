// Package compare asks kube-scheduler's own plugins and Pumice about the same random clusters; it has only tests.
package compare
