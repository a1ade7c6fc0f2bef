package operations

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"talos-proxmox/internal/ownership"
	"talos-proxmox/internal/proxmoxapi"
	"talos-proxmox/internal/request"
	"talos-proxmox/internal/spec"
	"talos-proxmox/internal/talos"
	"talos-proxmox/stacks"
)

// RestoreOptions are the options for restoring a cluster's etcd.
type RestoreOptions struct {
	Cluster       string
	Confirm       string   // the cluster's name again
	Snapshot      string   // path, encrypted or not; or the address of an off-site copy
	Identities    string   // secret keys of age, as age-keygen writes them; secret
	SkipHashCheck bool     // for a database that was copied from a machine's disk
	Unsealed      bool     // accept a snapshot without a seal, which identifies its cluster
	Discard       bool     // discard the data of control planes if it cannot be saved
	Healthy       bool     // restore although etcd is healthy
	LoseVolumes   []string // volumes on control planes that may be lost: node/volume
	// Gone are control planes that are not in the stack file, and do not run whatever Proxmox says; [NoneGone] = there
	// is none.
	Gone    []string
	Timeout time.Duration // 0 = the default of talosops restore
}

// NoneGone stands for no control plane in [RestoreOptions.Gone].
const NoneGone = "none"

// Restore restores a cluster's etcd from a snapshot, see talosops restore. Before it, Proxmox is asked for control
// planes of the cluster that are not in the stack file and still run: they would remain a second cluster.
func (b Backups) Restore(ctx context.Context, r RestoreOptions) error {
	clusters, err := b.clusters([]string{r.Cluster})
	if err != nil {
		return err
	}

	state, err := b.readState(ctx)
	if err != nil {
		return err
	}

	req := b.restoreRequest(clusters[0], r)
	if req.Talosconfig, err = state.talosconfig(clusters[0], talos.Authority.TemporaryAdministrator); err != nil {
		return b.missingError(clusters[0], "machine secrets")
	}

	if req.Running, err = b.otherMachines(ctx, clusters[0], state.id, r.Gone); err != nil {
		return err
	}

	if strings.Contains(r.Snapshot, "://") {
		if b.OffSite == nil {
			return fmt.Errorf("%s is kept elsewhere, and stack %s has no backup.s3: set it, or fetch the file and name that",
				r.Snapshot, b.Stack)
		}

		temporary, err := os.MkdirTemp("", "talos-proxmox-")
		if err != nil {
			return fmt.Errorf("unable to fetch the snapshot: %w", err)
		}
		defer os.RemoveAll(temporary) //nolint:errcheck // its contents are encrypted

		if r.Snapshot, err = b.OffSite.Fetch(ctx, r.Snapshot, temporary); err != nil {
			return err
		}
	}

	if req.Snapshot, err = filepath.Abs(r.Snapshot); err != nil {
		return fmt.Errorf("unable to find the snapshot %s: %w", r.Snapshot, err)
	}

	_, err = b.talosops(ctx, "restore", req)

	return err
}

// restoreRequest returns the request without what is asked for, and without the snapshot.
func (b Backups) restoreRequest(c spec.Cluster, r RestoreOptions) request.Restore {
	req := request.Restore{
		Common: controlPlanes(c, r.Timeout), Cluster: r.Cluster, Confirm: r.Confirm, Identities: r.Identities,
		SkipHashCheck: r.SkipHashCheck, Unsealed: r.Unsealed, DiscardSurvivors: r.Discard,
		Healthy: r.Healthy, LoseVolumes: r.LoseVolumes,
		Gone: slices.DeleteFunc(slices.Clone(r.Gone), func(name string) bool { return name == NoneGone }),
	}

	if recipients := b.Plan.Backup.Recipients; len(recipients) > 0 { // where the data of control planes is saved
		req.Backup = &request.Backup{Name: b.Plan.BackupName(c), Directory: b.directory(), Recipients: recipients}
	}

	return req
}

// otherMachines describes the machines, by name, that are not planned and not stopped, and may be control planes of the
// cluster; nil = Proxmox did not answer, and the user says which control planes are gone. One that certainly is a
// control plane of the cluster, and is not gone, is an error.
func (b Backups) otherMachines(
	ctx context.Context, c spec.Cluster, id string, gone []string,
) (map[string]string, error) {
	proxmox := b.Proxmox()

	listed, err := proxmox.List(ctx)
	if err != nil {
		if len(gone) > 0 {
			return nil, nil //nolint:nilnil // talosops then goes by what the user says alone
		}

		return nil, fmt.Errorf("%w\nso it is unknown whether control planes that were taken out of the stack file still run; "+
			"they would remain a second cluster. Repeat when Proxmox answers; or make sure that they are off, and name "+
			"them with --gone (--gone %s if there is none)", err, NoneGone)
	}

	planned := map[int]bool{}
	for _, n := range b.Plan.Members() {
		planned[n.VMID] = true
	}

	listed = slices.DeleteFunc(slices.Clone(listed), func(vm proxmoxapi.Listed) bool {
		return vm.Type != "qemu" || vm.Template == 1 || vm.Status == "stopped" || planned[vm.VMID]
	})
	owners := make([]bool, len(listed))

	var wg sync.WaitGroup
	for i, vm := range listed {
		wg.Go(func() { owners[i] = b.isControlPlane(ctx, proxmox, vm, c, id) })
	}

	wg.Wait()

	running := map[string]string{}

	var problems []string

	for i, vm := range listed {
		running[vm.Name] = fmt.Sprintf("VM %d on %s (%s)", vm.VMID, vm.Host, vm.Status)
		if owners[i] && !slices.Contains(gone, vm.Name) {
			problems = append(problems, "  "+vm.Name+": "+running[vm.Name])
		}
	}

	if len(problems) > 0 {
		return nil, fmt.Errorf("these machines are control planes of cluster %s, are not in the stack file, and are not off; "+
			"with their etcd data they would remain a second cluster. Nothing was changed:\n%s\n"+
			"shut them down in Proxmox (`qm stop`), or set them in the stack file; or, if one certainly does not run, name it with --gone",
			c.Name, strings.Join(problems, "\n"))
	}

	return running, nil
}

// isControlPlane reports whether a VM has the marker of a control plane of this stack's cluster. An unreadable VM, as
// on a host that is away, is judged by its name.
func (b Backups) isControlPlane(
	ctx context.Context, proxmox *proxmoxapi.Machines, vm proxmoxapi.Listed, c spec.Cluster, id string,
) bool {
	config, err := proxmox.PendingConfig(ctx, vm.Host, vm.VMID)
	if err != nil {
		return strings.HasPrefix(vm.Name, c.Name+"-cp-")
	}

	description := string(config["description"])
	owner, _ := ownership.OwnerOf(description)
	stack := ownership.Owner{Name: stacks.Project + "/" + b.Plan.Stack, ID: id}
	before, after, _ := strings.Cut(ownership.NodeAbout(string(spec.RoleControlPlane), "\x00", c.Name), "\x00")
	about := ownership.About(description)

	return (owner.Matches(stack) || owner.IsNamesake(stack)) &&
		strings.HasPrefix(about, before) && strings.HasSuffix(about, after)
}
