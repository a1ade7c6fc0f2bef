package datacentre

import "time"

// CloneRequest says how a VM or template is cloned.
type CloneRequest struct {
	NewID       int
	Name        string
	Description string
	// Target is the host of the clone, the source's by default; another one needs shared storage.
	Target string
	// Storage is where a full clone's disks go; by default where they were.
	Storage string
	Format  string
	Pool    string
	// Snapshot is what to clone of the source; no VM of the lab has one.
	Snapshot string
	// Full is a copy (true) or a linked clone (false); nil is a linked clone of a template and a copy of anything else.
	Full *bool
}

// ShutdownOptions says how patient a shutdown is.
type ShutdownOptions struct {
	// Timeout is how long the guest has (modelled); 180 s by default.
	Timeout time.Duration
	// ForceStop switches the VM off after the timeout, instead of failing.
	ForceStop bool
}

// DestroyOptions says what goes with a VM.
type DestroyOptions struct {
	// DestroyUnreferencedDisks removes the VM's disks that the configuration does not name too.
	DestroyUnreferencedDisks, SkipLock bool
}

// MoveRequest says where a disk goes.
type MoveRequest struct {
	Disk, Storage, Format string
	// Delete removes the original, which otherwise stays as an unused disk.
	Delete bool
}

// DownloadRequest says what is downloaded to a storage.
type DownloadRequest struct {
	URL string
	// Content is iso, vztmpl or import; Filename the name on the storage.
	Content, Filename string
	// Compression is how the download is packed: gz, zst or empty.
	Compression string
	// Checksum is compared with the downloaded (still compressed) bytes; ChecksumAlgorithm is sha256 or
	// sha512.
	Checksum, ChecksumAlgorithm string
}
