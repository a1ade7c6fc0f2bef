// The chart and the definitions of Cilium that the lab's clusters have: nothing is built of it.
module talos-proxmox/lab/platform/cilium

go 1.26.0

require github.com/cilium/cilium v1.19.6
