// The charts and definitions that the lab has: nothing is built of these modules.
module talos-proxmox/lab/platform/charts

go 1.26.0

require (
	github.com/prometheus-operator/prometheus-operator v0.85.0
	sigs.k8s.io/gateway-api v1.6.1
)
