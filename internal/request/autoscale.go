package request

// Autoscale is the request of `talosops autoscale`: what an autoscaler needs to add machines to a pool.
type Autoscale struct {
	Common

	Proxmox map[string]string `json:"proxmox"` // as in [ImageFile]; secret
	Pool    string            `json:"pool"`
	// Marker is the tag by which machines that the autoscaler added are recognized.
	Marker string `json:"marker"`
	// Region is the name of the Proxmox cluster in provider ids.
	Region    string            `json:"region"`
	Template  string            `json:"template"` // the name of VM templates
	Hosts     []string          `json:"hosts"`    // the zones of the nodes
	FirstVMID int               `json:"firstVmid"`
	PVEPool   string            `json:"resourcePool"`
	Datastore string            `json:"datastore"`
	Max       int               `json:"max"`
	Cores     int               `json:"cores"`
	MemoryMiB int               `json:"memoryMiB"`
	DiskGiB   int               `json:"diskGiB"`
	Tags      []string          `json:"tags,omitempty"`
	Labels    map[string]string `json:"labels,omitempty"`
	Taints    map[string]string `json:"taints,omitempty"` // key → value:Effect
	Talos     string            `json:"talos"`            // version
	// KubernetesVersion is that of the kubelets.
	KubernetesVersion string `json:"kubernetesVersion"`
	// UserData is the machine configuration, as a Go template of [talos.Autoscaled]; secret.
	UserData   string `json:"userData"`
	Kubeconfig string `json:"kubeconfig,omitempty"` // secret
}
