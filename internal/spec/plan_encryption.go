package spec

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"talos-proxmox/internal/talos"
)

// Encryption are the keys that the volumes of nodes are encrypted with (LUKS2), which are decided when a machine is
// created.
type Encryption struct {
	// The key of STATE, which has the machine configuration with the cluster's secrets. `nodeID` = derived from the UUID
	// of the VM's SMBIOS, against a disk that is read without its VM's configuration; `tpm` = sealed by the VM's TPM, for
	// a system that was booted with Secure Boot; `static` = the passphrase, which Talos writes to the unencrypted META
	// partition as well.
	State string `json:"state,omitempty" jsonschema:"default=none,enum=none,enum=nodeID,enum=tpm,enum=static" pulumi:"state,optional"`
	// The key of EPHEMERAL, which has etcd, images, and logs and data of pods: as for `state`.
	Ephemeral string `json:"ephemeral,omitempty" jsonschema:"default=none,enum=none,enum=nodeID,enum=tpm,enum=static" pulumi:"ephemeral,optional"`
	// The keys of user volumes, by the name in the UserVolumeConfig of a patch: as for `state`.
	Volumes map[string]string `json:"volumes,omitempty" pulumi:"volumes,optional"`
	// The passphrase of volumes with the key `static`; must be stored encrypted.
	Passphrase string `json:"passphrase,omitempty" pulumi:"passphrase,optional" provider:"secret"`
}

// keyKinds are the kinds of keys in stack files.
var keyKinds = []string{"none", talos.KeyNodeID, talos.KeyTPM, talos.KeyStatic}

// keys returns the kinds of keys, by their paths below that of the encryption.
func (e Encryption) keys() map[string]string {
	keys := map[string]string{"state": e.State, "ephemeral": e.Ephemeral}
	for name, kind := range e.Volumes {
		keys[joinPath("volumes", name)] = kind
	}

	return keys
}

// ForTalos returns the encryption of a node's machine configuration; none for nil.
func (e *Encryption) ForTalos() talos.Encryption {
	if e == nil {
		return talos.Encryption{}
	}

	return talos.Encryption(*e)
}

// Volumes returns the keys of the node's volumes, from the stack file and the patches of its cluster and its own.
func (n Node) Volumes(clusterPatches []string) (talos.Volumes, error) {
	return talos.PlannedVolumes(n.Encryption.ForTalos(), slices.Concat(clusterPatches, n.Patches))
}

// planEncryption sets the encryption of the machines of a cluster's pools, and checks that they have what their keys
// need.
func (p *planner) planEncryption(path string, c ClusterConfig, cluster *Cluster, pools []*pool) {
	if c.Encryption != nil {
		var sharing []*pool

		for _, g := range pools {
			if g.Encryption == nil {
				sharing = append(sharing, g)
			}
		}

		p.planKeys(path+".encryption", *c.Encryption, cluster, sharing)
	}

	for _, g := range pools {
		if g.Encryption != nil {
			p.planKeys(g.path+".encryption", *g.Encryption, cluster, []*pool{g})
		}

		p.checkPatchedKeys(g, *cluster)
		p.checkVolumeKeys(g, *cluster)
	}
}

// planKeys sets the encryption of pools that share one.
func (p *planner) planKeys(path string, e Encryption, cluster *Cluster, pools []*pool) {
	keys := e.keys()
	isStatic := slices.Contains(slices.Collect(maps.Values(keys)), talos.KeyStatic)

	switch {
	case isStatic && e.Passphrase == "":
		p.addMissing(path+".passphrase", "is missing, and a volume has the key static; set it: pulumi config set --secret "+
			"--path 'talos-proxmox:%s.passphrase'", path)
	case !isStatic && e.Passphrase != "":
		p.problems.Add(path+".passphrase", nil, "is not used, because no volume has the key static; remove it")
	default:
		p.checkPassword(path+".passphrase", e.Passphrase)
	}

	if e.State == talos.KeyStatic {
		p.warn("%s.state: Talos writes the passphrase to the unencrypted META partition as well, to open STATE with it; "+
			"nodeID protects no less", path)
	}

	var patches []string

	for _, g := range pools {
		for i := range g.nodes {
			n := &g.nodes[i]
			n.Encryption = &e
			n.OverridePaths = withPath(n.OverridePaths, "encryption", path)
			patches = append(patches, n.Patches...)
		}

		for _, key := range slices.Sorted(maps.Keys(keys)) {
			hasMachines := len(g.nodes) > 0 || g.autoscale != nil
			if at := path + "." + key; keys[key] == talos.KeyTPM && hasMachines && !p.problems.Has(at) {
				if missing := p.missingForTPM(g); missing != "" {
					p.problems.Add(at, talos.KeyTPM, "%s, or choose nodeID", missing)
				}
			}
		}
	}

	p.checkUserVolumes(path+".volumes", e, slices.Concat(cluster.Patches, patches))
}

// withPath returns the paths with another one; the machines of a pool may share them.
func withPath(paths map[string]string, key, path string) map[string]string {
	paths = maps.Clone(paths)
	if paths == nil {
		paths = map[string]string{}
	}

	paths[key] = path

	return paths
}

// checkUserVolumes checks the keys of user volumes, which patches define.
func (p *planner) checkUserVolumes(path string, e Encryption, patches []string) {
	defined := talos.UserVolumes(patches)

	inPatches, err := talos.PlannedVolumes(talos.Encryption{}, patches)
	if err != nil {
		return // of a patch, which is reported
	}

	for _, name := range slices.Sorted(maps.Keys(e.Volumes)) {
		switch at := joinPath(path, name); {
		case !slices.Contains(keyKinds, e.Volumes[name]):
			p.problems.Add(at, e.Volumes[name], "is not a valid value here; %s", Suggest(e.Volumes[name], keyKinds))
		case p.options.Blinded: // patches may be encrypted
		case !slices.Contains(defined, name):
			p.problems.Add(at, nil, "is not a user volume on a disk; %s",
				suggestName(name, defined, "patches, with a UserVolumeConfig"))
		case len(inPatches[talos.UserVolume(name)]) > 0:
			p.problems.Add(at, nil, "has the encryption of its UserVolumeConfig as well; remove it here, or there")
		}
	}
}

// checkPatchedKeys reports patches with keys of the TPM for machines without one.
func (p *planner) checkPatchedKeys(g *pool, cluster Cluster) {
	check := func(patches, paths []string) {
		for i, patch := range patches {
			volumes, err := talos.PlannedVolumes(talos.Encryption{}, []string{patch})
			if err != nil || p.problems.Has(paths[i]) {
				continue
			}

			if encrypted := volumes.EncryptedWith(talos.KeyTPM); len(encrypted) > 0 {
				if missing := p.missingForTPM(g); missing != "" {
					p.problems.Add(paths[i], nil, "gives %s a key of the TPM, which %s, or use another key",
						strings.Join(encrypted, ", "), missing)
				}
			}
		}
	}

	for _, n := range g.nodes {
		check(cluster.Patches, cluster.PatchPaths)
		check(n.Patches, n.PatchPaths)
	}
}

// missingForTPM says what a pool's machines lack for keys of the TPM; empty = nothing. Talos seals them for a signed
// system (internal/pkg/secureboot/tpm2), which only images for Secure Boot have.
func (p *planner) missingForTPM(g *pool) string {
	var remedies []string
	if !g.TPM {
		remedies = append(remedies, g.path+".tpm: true")
	}

	if class, known := p.classes[g.Template]; known && class.System == nil && !class.SecureBoot {
		remedies = append(remedies, class.path+".secureBoot: true")
	}

	if len(remedies) == 0 {
		return ""
	}

	return fmt.Sprintf("needs machines with a TPM and Secure Boot; set %s", strings.Join(remedies, " and "))
}
