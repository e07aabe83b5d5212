module github.com/pumice-scheduler/pumice/clients/go/volcano

go 1.24.0

require (
	github.com/prometheus/client_golang v1.22.0
	k8s.io/api v0.34.1
	k8s.io/apimachinery v0.34.1
	k8s.io/client-go v0.34.1
	k8s.io/klog/v2 v2.130.1
	github.com/pumice-scheduler/pumice/clients/go v0.1.0
	volcano.sh/apis v0.0.0
	volcano.sh/volcano v0.0.0
)

replace github.com/pumice-scheduler/pumice/clients/go => ../
