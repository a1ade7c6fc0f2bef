package request

// HA is the request of `talosops ha`: a machine's high availability in Proxmox.
type HA struct {
	Proxmox map[string]string `json:"proxmox"` // as in [ImageFile]; secret
	Machine string            `json:"machine"`
	HAMachine
}

// HAMachine is the high availability that a machine is to have.
type HAMachine struct {
	VMID        int    `json:"vmid"`
	MaxRestart  int    `json:"maxRestart"`
	MaxRelocate int    `json:"maxRelocate"`
	Comment     string `json:"comment"`
	// Hosts are those on which it may run; none = all.
	Hosts []string `json:"hosts,omitempty"`
	// Apart are the VMIDs of machines of which no two run on one host, with this one; ApartRule is the rule's name, which
	// is removed without them. Empty = the machine is no control plane.
	Apart     []int  `json:"apart,omitempty"`
	ApartRule string `json:"apartRule,omitempty"`
	// Schedule is when disks are copied to the other hosts of Hosts, as a calendar event of Proxmox; empty = never.
	// RateMBs limits each copy, in megabytes per second; 0 = no limit.
	Schedule string `json:"schedule,omitempty"`
	RateMBs  int    `json:"rateMBs,omitempty"`
}
