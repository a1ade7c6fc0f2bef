package request

// Backup is where snapshots of a cluster's etcd are kept.
type Backup struct {
	Name       string   `json:"name"`       // that files' names begin with: of the stack and the cluster
	Directory  string   `json:"directory"`  // may begin with ~/
	Recipients []string `json:"recipients"` // public keys of age
	Keep       int      `json:"keep"`       // how many snapshots stay; 0 = all
}
