package request

// Backup configures where snapshots of a cluster's etcd are stored.
type Backup struct {
	// The prefix of file names. Default: the cluster's name.
	Name string `json:"name" pulumi:"name,optional"`
	// The directory; ~/ is the home directory of the user who runs Pulumi.
	Directory string `json:"directory" pulumi:"directory"`
	// Public age keys (age1…) to which snapshots are encrypted.
	Recipients []string `json:"recipients" pulumi:"recipients"`
	// How many snapshots to keep. Default: 0, all.
	Keep int `json:"keep" pulumi:"keep,optional"`
}

// Snapshot is the request of `talosops snapshot`.
type Snapshot struct {
	Common

	Talosconfig string `json:"talosconfig"` // secret
	Backup
	// Configuration is the machine configuration of a control plane, which contains the key of the seal; secret. Empty =
	// it is read from a control plane, which requires the role os:admin.
	Configuration string `json:"configuration,omitempty"`
}

// StatusFolder is the exit status of `talosops snapshot` if the directory is not writable, for any cluster.
const StatusFolder = 3

// SnapshotResult is the result of `talosops snapshot`.
type SnapshotResult struct {
	Snapshot string   `json:"snapshot"`          // path of the encrypted file
	Bytes    int64    `json:"bytes"`             // of the decrypted snapshot
	Digest   string   `json:"digest"`            // its SHA-256, without the digest appended to it
	From     string   `json:"from"`              // the control plane
	Removed  []string `json:"removed,omitempty"` // older snapshots
}

// Restore is the request of `talosops restore`.
type Restore struct {
	Common

	Talosconfig string `json:"talosconfig"` // secret
	Cluster     string `json:"cluster"`
	Confirm     string `json:"confirm"`              // the cluster's name again
	Snapshot    string `json:"snapshot"`             // path, encrypted or not
	Identities  string `json:"identities,omitempty"` // secret keys of age, as age-keygen writes them; secret
	// SkipHashCheck accepts a database copied from a machine's disk, which has no digest.
	SkipHashCheck bool `json:"skipHashCheck,omitempty"`
	// Unsealed accepts a snapshot without a seal.
	Unsealed bool `json:"unsealed,omitempty"`
	// Backup is where etcd data of surviving control planes is saved before it is wiped; nil = nowhere.
	Backup *Backup `json:"backup,omitempty"`
	// DiscardSurvivors wipes that data even if it cannot be saved.
	DiscardSurvivors bool `json:"discardSurvivors,omitempty"`
	// Healthy restores although etcd is healthy.
	Healthy bool `json:"healthy,omitempty"`
	// LoseVolumes are the volumes on the wiped partitions of control planes, as node/volume, that may be lost.
	LoseVolumes []string `json:"loseVolumes,omitempty"`
	// Running describes machines, by name, that run and are none of the control planes: VM 2005 on pve3 (running). Null =
	// it is not known which machines run.
	Running map[string]string `json:"running"`
	// Gone are names of former control planes that do not run, whatever Running has.
	Gone []string `json:"gone,omitempty"`
}

// RestoreResult is the result of `talosops restore`.
type RestoreResult struct {
	Restored bool     `json:"restored"`
	Members  []string `json:"members"`
	// Survivors are the paths of the encrypted files with the saved etcd data, by control plane.
	Survivors map[string]string `json:"survivors,omitempty"`
}
