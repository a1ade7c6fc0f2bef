package verbs

import (
	"fmt"
	"net/netip"
	"os"
	"testing"

	"github.com/siderolabs/talos/pkg/machinery/constants"
	"github.com/siderolabs/talos/pkg/machinery/resources/block"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	bolt "go.etcd.io/bbolt"
	"google.golang.org/protobuf/encoding/protowire"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/client-go/kubernetes/scheme"

	"talos-proxmox/internal/request"
	"talos-proxmox/talosops/clustertest"
	"talos-proxmox/talosops/kube"
	"talos-proxmox/talosops/talosapi"
)

// localVolume returns a volume of a claim on a node; an empty node = without a node affinity.
func localVolume(name, node, path string) *corev1.PersistentVolume {
	v := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}}
	v.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "app", Name: "data-" + name}
	v.Spec.Local = &corev1.LocalVolumeSource{Path: path}

	if node != "" {
		v.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{
			NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{
				{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{node}},
			}}},
		}}
	}

	return v
}

func hostPathVolume(name, path string) *corev1.PersistentVolume {
	v := localVolume(name, "", "")
	v.Spec.Local, v.Spec.HostPath = nil, &corev1.HostPathVolumeSource{Path: path}

	return v
}

func nodeWith(name string, labels ...string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelHostname: name}}}
	for _, label := range labels {
		n.Labels[label] = ""
	}

	return n
}

const controlPlaneLabel = "node-role.kubernetes.io/control-plane"

// pair returns etcd's message of a key and its value, with the fields around them.
func pair(key string, value []byte) []byte {
	message := protowire.AppendTag(nil, 1, protowire.BytesType)
	message = protowire.AppendString(message, key)
	message = protowire.AppendTag(message, 2, protowire.VarintType)
	message = protowire.AppendVarint(message, 7)
	message = protowire.AppendTag(message, 5, protowire.BytesType)

	return protowire.AppendBytes(message, value)
}

// stored returns an object as Kubernetes stores it.
func stored(t *testing.T, object runtime.Object) []byte {
	t.Helper()

	encoder := scheme.Codecs.EncoderForVersion(
		protobuf.NewSerializer(scheme.Scheme, scheme.Scheme), corev1.SchemeGroupVersion,
	)
	text, err := runtime.Encode(encoder, object)
	require.NoError(t, err)

	return text
}

// TestObjectsOfASnapshot: the last revision of a key counts, and a deleted one does not.
func TestObjectsOfASnapshot(t *testing.T) {
	t.Parallel()

	released := localVolume("released", "cp-1", "/var/mnt/local/released")
	released.Spec.ClaimRef = nil
	network := localVolume("network", "", "")
	network.Spec.Local, network.Spec.NFS = nil, &corev1.NFSVolumeSource{}

	path := databaseWith(t, func(tx *bolt.Tx, keys *bolt.Bucket) {
		next := uint64(2)
		put := func(suffix, key string, value []byte) {
			require.NoError(t, keys.Put(append(revision(next), suffix...), pair(key, value)))

			next++
		}

		put("", "/registry/persistentvolumes/moved", stored(t, localVolume("moved", "cp-2", "/var/old")))
		put("", "/registry/persistentvolumes/moved", stored(t, localVolume("moved", "cp-1", "/var/new/")))
		put("", "/registry/persistentvolumes/deleted", stored(t, localVolume("deleted", "cp-1", "/var/deleted")))
		put("t", "/registry/persistentvolumes/deleted", nil)
		put("", "/registry/persistentvolumes/released", stored(t, released))
		put("", "/registry/persistentvolumes/network", stored(t, network))
		put("", "/registry/persistentvolumes/sealed", []byte("k8s:enc:secretbox:v1:key2:…"))
		put("", "/registry/minions/cp-1", stored(t, nodeWith("cp-1", controlPlaneLabel)))
		put("", "/registry/secrets/default/a", []byte("k8s:enc:secretbox:v1:key2:…"))

		members, err := tx.CreateBucket([]byte("members"))
		require.NoError(t, err)
		require.NoError(t, members.Put([]byte("8e9e05c52164694d"), []byte(`{"id":10276657743932975437,"name":"cp-1"}`)))
		require.NoError(t, members.Put([]byte("91bc3c398fb3c146"), []byte(`{"id":10501334649042878790,"name":"cp-4"}`)))
	})

	found, err := readEtcdObjects(openFile(t, path))
	require.NoError(t, err)
	assert.Equal(t, []string{"cp-1", "cp-4"}, found.members)
	assert.Contains(t, found.nodes["cp-1"].Labels, controlPlaneLabel)
	require.Len(t, found.volumes, 1)
	assert.Equal(t, "/var/new", kube.LocalPath(found.volumes["moved"]))
	assert.Equal(t, []string{"/registry/persistentvolumes/sealed"}, found.unreadable)

	require.NoError(t, raiseRevision(openFile(t, path)))

	again, err := readEtcdObjects(openFile(t, path))
	require.NoError(t, err)
	assert.Equal(t, found.members, again.members)

	text := databaseWith(t, func(*bolt.Tx, *bolt.Bucket) {}) + ".text"
	require.NoError(t, os.WriteFile(text, make([]byte, 8192), 0o600))
	_, err = readEtcdObjects(openFile(t, text))
	require.ErrorContains(t, err, "cannot be read: invalid database")
}

func TestVolumesThatAreLost(t *testing.T) {
	t.Parallel()

	node := request.Node{Name: "cp-1", Address: netip.MustParseAddr("127.0.9.1")}
	ephemeral := talosapi.EtcdWipe{
		Partition: "EPHEMERAL", Directories: []string{"local"}, Apart: []string{"/var/mnt/data", "/var/lib/disk"},
	}

	const directory = "a user volume, which is a directory"

	for name, test := range map[string]struct {
		wipe   talosapi.EtcdWipe
		volume *corev1.PersistentVolume
		nodes  map[string]*corev1.Node
		lost   map[string]string
	}{
		"a volume on the node": {
			ephemeral, localVolume("a", "cp-1", "/var/mnt/local/a"), nil,
			map[string]string{"cp-1/local": directory, "cp-1/a": "the volume of claim app/data-a, at /var/mnt/local/a"},
		},
		"a volume on another node": {
			ephemeral, localVolume("a", "general-1", "/var/mnt/local/a"), nil, map[string]string{"cp-1/local": directory},
		},
		"a volume that any node may have": {
			ephemeral, hostPathVolume("a", "/var/local"), nil,
			map[string]string{"cp-1/local": directory, "cp-1/a": "the volume of claim app/data-a, at /var/local"},
		},
		"a volume on a disk of its own": {
			ephemeral, localVolume("a", "cp-1", "/var/mnt/data/a"), nil, map[string]string{"cp-1/local": directory},
		},
		"a volume beside a disk": {
			talosapi.EtcdWipe{Partition: "EPHEMERAL", Apart: []string{"/var/mnt/data"}},
			localVolume("a", "cp-1", "/var/mnt/data2"), nil,
			map[string]string{"cp-1/a": "the volume of claim app/data-a, at /var/mnt/data2"},
		},
		"a device": {
			talosapi.EtcdWipe{Partition: "EPHEMERAL"}, localVolume("a", "cp-1", "/dev/sdb"), nil, map[string]string{},
		},
		"a node that has another label": {
			talosapi.EtcdWipe{Partition: "EPHEMERAL"},
			localVolume("a", "renamed", "/var/a"),
			map[string]*corev1.Node{"cp-1": {ObjectMeta: metav1.ObjectMeta{
				Name: "cp-1", Labels: map[string]string{corev1.LabelHostname: "renamed"},
			}}},
			map[string]string{"cp-1/a": "the volume of claim app/data-a, at /var/a"},
		},
		"etcd on a partition of its own": {
			talosapi.EtcdWipe{Partition: "ETCD", Directories: []string{"local"}},
			localVolume("a", "cp-1", "/var/mnt/local/a"),
			nil,
			map[string]string{},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			assert.Equal(t, test.lost, lostVolumes(node, test.wipe, etcdObjects{
				nodes: test.nodes, volumes: map[string]*corev1.PersistentVolume{"a": test.volume},
			}))
		})
	}
}

// TestWipeOfThePartitionWithEtcd: Talos 1.14 may have a partition of its own for etcd.
func TestWipeOfThePartitionWithEtcd(t *testing.T) {
	t.Parallel()

	located := func(device string) block.VolumeStatusSpec { return block.VolumeStatusSpec{Location: device} }
	directory := block.VolumeStatusSpec{Type: block.VolumeTypeDirectory}

	for name, test := range map[string]struct {
		volumes map[string]block.VolumeStatusSpec
		want    talosapi.EtcdWipe
	}{
		"a Talos without the volume": {nil, talosapi.EtcdWipe{Partition: "EPHEMERAL"}},
		"a directory": {
			map[string]block.VolumeStatusSpec{constants.EtcdDataVolumeID: directory}, talosapi.EtcdWipe{Partition: "EPHEMERAL"},
		},
		"a partition": {
			map[string]block.VolumeStatusSpec{constants.EtcdDataVolumeID: located("/dev/vda7")},
			talosapi.EtcdWipe{Partition: "ETCD"},
		},
		"volumes of users": {
			map[string]block.VolumeStatusSpec{
				"EPHEMERAL": {Location: "/dev/sda6", MountSpec: block.MountSpec{TargetPath: "/var"}},
				"u-local":   directory, "u-disk": located("/dev/sdb1"), "e-old": located("/dev/sdc1"), "x-share": {}, "r-raw": located("/dev/sdd1"),
				"u-missing": {Type: block.VolumeTypePartition},
				"/dev/sde1": {Location: "/dev/sde1", MountSpec: block.MountSpec{TargetPath: "/var/lib/longhorn"}},
			},
			talosapi.EtcdWipe{
				Partition: "EPHEMERAL", Directories: []string{"local"},
				Apart: []string{"/var/lib/longhorn", "/var/mnt/old", "/var/mnt/disk", "/var/mnt/share"},
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			authority, n := clustertest.NewAuthority(t), &clustertest.TalosNode{Name: "cp-1", Volumes: test.volumes}
			address := clustertest.ServeTalos(t, authority, n)

			clients, err := talosapi.New(authority.Talosconfig(t))
			require.NoError(t, err)
			t.Cleanup(clients.Close)

			wipe, err := clients.EtcdWipe(t.Context(), address)
			require.NoError(t, err)
			assert.Equal(t, test.want.Partition, wipe.Partition)
			assert.ElementsMatch(t, test.want.Directories, wipe.Directories)
			assert.ElementsMatch(t, test.want.Apart, wipe.Apart)

			require.NoError(t, clients.WipeEtcd(t.Context(), address, wipe.Partition))
			assert.Equal(t, []string{test.want.Partition}, n.WipedPartitions, fmt.Sprint(wipe))
		})
	}
}
