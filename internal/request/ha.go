package request

// HA is the request of `talosops ha`: a machine's high availability in Proxmox.
type HA struct {
	Proxmox     map[string]string `json:"proxmox"` // as in [ImageFile]; secret
	Machine     string            `json:"machine"`
	VMID        int               `json:"vmid"`
	MaxRestart  int               `json:"maxRestart"`
	MaxRelocate int               `json:"maxRelocate"`
	Comment     string            `json:"comment"`
	// Hosts are those on which it may run; none = all.
	Hosts []string `json:"hosts,omitempty"`
	// Apart are the VMIDs of machines of which no two run on one host, with this one; ApartRule is the rule's name, which
	// is removed without them. Empty = the machine is no control plane.
	Apart     []int  `json:"apart,omitempty"`
	ApartRule string `json:"apartRule,omitempty"`
}
