package kube

import (
	"context"
	"net/netip"
	"path"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
)

// LocalVolumes lists the PersistentVolumes that are directories or disks of a node, and have a claim.
func (k *Client) LocalVolumes(ctx context.Context, address netip.Addr) (local []corev1.PersistentVolume, err error) {
	list, err := call(ctx, k, address, func(ctx context.Context, c serverClient) (*corev1.PersistentVolumeList, error) {
		return c.CoreV1().PersistentVolumes().List(ctx, metav1.ListOptions{})
	})
	if err != nil {
		return nil, err
	}

	for _, volume := range list.Items {
		if IsClaimedLocally(&volume) {
			local = append(local, volume)
		}
	}

	return local, nil
}

// IsClaimedLocally reports whether a volume is on a node, and has a claim.
func IsClaimedLocally(volume *corev1.PersistentVolume) bool {
	return volume.Spec.ClaimRef != nil && LocalPath(volume) != ""
}

// LocalPath returns the path of a volume on its node; empty = it is not on a node.
func LocalPath(volume *corev1.PersistentVolume) string {
	switch source := volume.Spec.PersistentVolumeSource; {
	case source.Local != nil:
		return path.Clean(source.Local.Path)
	case source.HostPath != nil:
		return path.Clean(source.HostPath.Path)
	default:
		return ""
	}
}

// MayBeOn reports whether a volume's node affinity allows a node; a volume without one may be anywhere. Nil labels are
// unknown, and taken for those of a node that nobody has labelled.
func MayBeOn(volume *corev1.PersistentVolume, node string, labels map[string]string) bool {
	affinity := volume.Spec.NodeAffinity
	if affinity == nil || affinity.Required == nil {
		return true
	}

	if labels == nil {
		labels = map[string]string{corev1.LabelHostname: node}
	}

	matches, err := nodeaffinity.NewLazyErrorNodeSelector(affinity.Required).Match(
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node, Labels: labels}},
	)

	return matches || err != nil
}
