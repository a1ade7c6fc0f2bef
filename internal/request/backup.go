package request

// Backup says where snapshots of a cluster's etcd are stored.
type Backup struct {
	// The prefix of its files' names. Default: the cluster's name.
	Name string `json:"name" pulumi:"name,optional"`
	// The directory; ~/ is the home directory of the user who runs Pulumi.
	Directory string `json:"directory" pulumi:"directory"`
	// Public keys of age (age1…) that snapshots are encrypted to.
	Recipients []string `json:"recipients" pulumi:"recipients"`
	// How many snapshots are kept. Default: 0, all.
	Keep int `json:"keep" pulumi:"keep,optional"`
}

// Snapshot is what `talosops snapshot` reads.
type Snapshot struct {
	Common

	Talosconfig string `json:"talosconfig"` // secret
	Backup
	// Configuration is the machine configuration of a control plane, which has the key of the seal; secret. Empty = a
	// control plane is asked for its own, which shows it to administrators alone.
	Configuration string `json:"configuration,omitempty"`
}

// StatusFolder is the exit status of `talosops snapshot` where the folder takes nothing, whoever is asked.
const StatusFolder = 3

// Taken is what `talosops snapshot` prints.
type Taken struct {
	Snapshot string   `json:"snapshot"`          // path of the encrypted file
	Bytes    int64    `json:"bytes"`             // of the snapshot itself
	Digest   string   `json:"digest"`            // its SHA-256, without the digest at its end
	From     string   `json:"from"`              // the control plane
	Removed  []string `json:"removed,omitempty"` // older snapshots
}

// Restore is what `talosops restore` reads.
type Restore struct {
	Common

	Talosconfig string `json:"talosconfig"` // secret
	Cluster     string `json:"cluster"`
	Confirm     string `json:"confirm"`              // the cluster's name again
	Snapshot    string `json:"snapshot"`             // path, encrypted or not
	Identities  string `json:"identities,omitempty"` // secret keys of age, as age-keygen writes them; secret
	// SkipHashCheck is for a database that was copied from a machine's disk, which has no digest.
	SkipHashCheck bool `json:"skipHashCheck,omitempty"`
	// Unsealed takes a snapshot that does not say which cluster it is of.
	Unsealed bool `json:"unsealed,omitempty"`
	// Backup is where the data of control planes that still have some is kept before it is wiped; nil = nowhere.
	Backup *Backup `json:"backup,omitempty"`
	// DiscardSurvivors wipes that data even where it could not be kept.
	DiscardSurvivors bool `json:"discardSurvivors,omitempty"`
}

// Restored is what `talosops restore` prints.
type Restored struct {
	Restored bool     `json:"restored"`
	Members  []string `json:"members"`
	// Survivors are the paths of the encrypted files that have what control planes had, by control plane.
	Survivors map[string]string `json:"survivors,omitempty"`
}
