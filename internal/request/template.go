package request

// ImageFile is the request of `talosops image`: a file of the content type import, which a host downloads.
type ImageFile struct {
	// Proxmox are the settings of the provider in the stack's configuration, such as endpoint and apiToken; what it does
	// not have is read from the environment. Secret.
	Proxmox   map[string]string `json:"proxmox"`
	Host      string            `json:"host"`
	Datastore string            `json:"datastore"`
	File      string            `json:"file"` // its name identifies its contents
	URL       string            `json:"url"`
	// Checksum is the file's SHA-256 in hexadecimal; empty = not compared.
	Checksum string `json:"checksum,omitempty"`
}

// Template is the request of `talosops template`: a template of Talos that is made from an image.
type Template struct {
	Proxmox map[string]string `json:"proxmox"` // as in [ImageFile]; secret
	Host    string            `json:"host"`
	VMID    int               `json:"vmid"`
	Name    string            `json:"name"`
	// Owner is project/stack, and ID the stack's id, as in the template's marker.
	Owner string `json:"owner"`
	ID    string `json:"id,omitempty"`
	// Provenance is a digest of what the template is made of, About a description of its contents.
	Provenance string `json:"provenance"`
	About      string `json:"about"`
	// Image is the volume of the image: local:import/talos-….qcow2.
	Image     string `json:"image"`
	Datastore string `json:"datastore"`
	Bridge    string `json:"bridge"`
	Cores     int    `json:"cores"`
	MemoryMiB int    `json:"memoryMiB"`
	DiskGiB   int    `json:"diskGiB"`
}
