package request

// Volume is the request of `talosops volume`: a volume that outlives the machine whose disk it is.
type Volume struct {
	Proxmox map[string]string `json:"proxmox"` // as in [ImageFile]; secret
	// Host is that of the machine, a new one's as planned.
	Host      string `json:"host"`
	Datastore string `json:"datastore"`
	StackID   string `json:"stackId"`
	Machine   string `json:"machine"`
	VMID      int    `json:"vmid"`
	Name      string `json:"name"`
	SizeGiB   int    `json:"sizeGiB"`
}

// VolumeResult is the result of `talosops volume`.
type VolumeResult struct {
	ID string `json:"id"` // of Proxmox: local-lvm:vm-…
}
