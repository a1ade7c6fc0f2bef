package main

// What the program creates in Flux' namespace for manifests: the ConfigMap of facts, and the Secret with Cilium's
// values.
const (
	factsName  = "cluster-facts"
	valuesName = "cilium-values"
)

// exampleFacts are the keys of the ConfigMap with examples: docs/gitops.md has the same list.
var exampleFacts = map[string]string{ //nolint:gochecknoglobals // a table
	"CLUSTER_NAME":       "prod",
	"CLUSTER_REGION":     "pve",
	"CLUSTER_ENDPOINT":   "https://10.0.0.5:6443",
	"CONTROL_PLANES":     "10.0.0.10, 10.0.0.11, 10.0.0.12",
	"NODE_CIDR":          "10.0.0.0/24",
	"POD_CIDR":           "10.244.0.0/16",
	"SERVICE_CIDR":       "10.96.0.0/12",
	"LOAD_BALANCER_POOL": "10.0.0.200-10.0.0.220",
	"TALOS_VERSION":      "v1.14.4",
	"KUBERNETES_VERSION": "v1.37.2",
	"CILIUM_VERSION":     "1.20.2",
	"DATASTORES":         "local-zfs",
	"BACKUP_NAME":        "prod-prod",
	"BACKUP_RECIPIENT":   "age1lvyvwawkr0mcnnnncaghunadrqkmuf9e6507x9y920xxpp866cnql7dp2z",
	"BACKUP_ENDPOINT":    "https://s3.eu-central-1.amazonaws.com",
	"BACKUP_REGION":      "eu-central-1",
	"BACKUP_BUCKET":      "prod-backups",
	"BACKUP_FOLDER":      "talos/prod/prod-prod",
}
