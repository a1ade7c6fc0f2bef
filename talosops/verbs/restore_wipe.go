package verbs

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/constants"

	"talos-proxmox/internal/request"
	"talos-proxmox/talosops/checks"
	"talos-proxmox/talosops/cluster"
	"talos-proxmox/talosops/kube"
	"talos-proxmox/talosops/talosapi"
)

// approveWipes reports whether the etcd data of all control planes that have any may be wiped: whether all volumes that
// go with it are named in the request.
func (r *restorer) approveWipes(ctx context.Context, observed []observation, current checks.Report) bool {
	lost := map[string]string{}
	approved := true

	for i, s := range observed {
		if !s.hasData {
			continue
		}

		wipe, known := r.wipes[s.Name]
		if !known {
			var err error
			if wipe, err = r.Talos.EtcdWipe(ctx, s.Address); err != nil {
				current[i].Problem, current[i].Detail = "does not say which volumes go with its etcd data", err.Error()
				approved = false

				continue
			}

			r.wipes[s.Name] = wipe
		}

		maps.Copy(lost, lostVolumes(s.Node, wipe, r.objects))
	}

	r.abort = r.refuseLoss(lost)

	return approved && r.abort == nil
}

// refuseLoss returns an error that names the volumes that would be lost, unless the request names them all.
func (r *restorer) refuseLoss(lost map[string]string) error {
	names := slices.Sorted(maps.Keys(lost))
	if !slices.ContainsFunc(names, func(name string) bool { return !slices.Contains(r.req.LoseVolumes, name) }) {
		return nil
	}

	lines := make([]string, 0, len(names))
	for _, name := range names {
		lines = append(lines, "  "+name+": "+lost[name])
	}

	return fmt.Errorf("nothing was wiped: etcd shares the partition %s of these control planes with volumes of pods, which "+
		"would be lost with it:\n%s\nsave what you need of them (docs/recovery.md#volumes-on-control-planes); then, to lose them, "+
		"repeat with --lose-volumes %s",
		constants.EphemeralPartitionLabel, strings.Join(lines, "\n"), strings.Join(names, ","))
}

// lostVolumes describes the volumes, as node/volume, that a wipe of a control plane's etcd data deletes.
func lostVolumes(n request.Node, wipe talosapi.EtcdWipe, of etcdObjects) map[string]string {
	lost := map[string]string{}
	if wipe.Partition != constants.EphemeralPartitionLabel {
		return lost
	}

	for _, name := range wipe.Directories {
		lost[n.Name+"/"+name] = "a user volume, which is a directory"
	}

	for _, volume := range of.volumes {
		where := kube.LocalPath(volume)
		apart := slices.ContainsFunc(append(wipe.Apart, "/dev"), func(folder string) bool {
			return where == folder || strings.HasPrefix(where, folder+"/")
		})

		var labels map[string]string
		if node := of.nodes[n.Name]; node != nil {
			labels = node.Labels
		}

		if claim := volume.Spec.ClaimRef; !apart && kube.MayBeOn(volume, n.Name, labels) {
			lost[n.Name+"/"+volume.Name] = fmt.Sprintf("the volume of claim %s/%s, at %s", claim.Namespace, claim.Name, where)
		}
	}

	return lost
}

// wipe saves the data of control planes that have any, and makes them wipe it; they reboot afterwards.
func (r *restorer) wipe(ctx context.Context, observed []observation, current checks.Report) {
	if r.abort = r.saveSurvivors(ctx, observed); r.abort != nil || !r.approveWipes(ctx, observed, current) {
		return
	}

	for i, s := range observed {
		// A member that sees a leader again has joined those that are not wiped yet.
		if at, ok := r.wipedAt[s.Name]; !s.hasData || ok && time.Since(at) < resendAfter && !s.hasQuorum() {
			continue
		}

		r.touched = true

		err := r.Talos.WipeEtcd(ctx, s.Address, r.wipes[s.Name].Partition)
		if err != nil {
			current[i].Problem, current[i].Detail = "cannot be wiped", err.Error()

			continue
		}

		r.wipedAt[s.Name] = time.Now()
		r.PrintNote(ctx, s.Name, cluster.EtcdCheck, "wiping its data and rebooting")
	}
}
