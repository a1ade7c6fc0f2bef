package verbs

import (
	"context"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/constants"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"talos-proxmox/internal/request"
	"talos-proxmox/talosops/checks"
	"talos-proxmox/talosops/cluster"
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
		where := localPath(volume)
		apart := slices.ContainsFunc(append(wipe.Apart, "/dev"), func(folder string) bool {
			return where == folder || strings.HasPrefix(where, folder+"/")
		})

		if claim := volume.Spec.ClaimRef; !apart && mayBeOn(volume, n.Name, of.nodes) {
			lost[n.Name+"/"+volume.Name] = fmt.Sprintf("the volume of claim %s/%s, at %s", claim.Namespace, claim.Name, where)
		}
	}

	return lost
}

// localPath returns the path of a volume on its node; empty = it is not on a node.
func localPath(volume *corev1.PersistentVolume) string {
	switch source := volume.Spec.PersistentVolumeSource; {
	case source.Local != nil:
		return path.Clean(source.Local.Path)
	case source.HostPath != nil:
		return path.Clean(source.HostPath.Path)
	default:
		return ""
	}
}

// mayBeOn reports whether a volume's node affinity allows a node; a volume without one may be anywhere.
func mayBeOn(volume *corev1.PersistentVolume, name string, nodes map[string]*corev1.Node) bool {
	affinity := volume.Spec.NodeAffinity
	if affinity == nil || affinity.Required == nil {
		return true
	}

	node := nodes[name]
	if node == nil {
		node = &corev1.Node{ObjectMeta: metav1.ObjectMeta{
			Name: name, Labels: map[string]string{corev1.LabelHostname: name},
		}}
	}

	matches, err := nodeaffinity.NewLazyErrorNodeSelector(affinity.Required).Match(node)

	return matches || err != nil
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
