package engine_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"filippo.io/age"
	"github.com/pulumi/pulumi/sdk/v3/go/auto/optup"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v4"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"talos-proxmox/internal/backup"
	"talos-proxmox/internal/operations"
	"talos-proxmox/lab/server"
)

// realWorld opens a lab whose clusters are real etcd and Kubernetes.
func realWorld(t *testing.T) *world {
	t.Helper()

	return openWorld(t, realOptions(t))
}

// realOptions are those of a lab whose clusters are real etcd and Kubernetes.
func realOptions(t *testing.T) server.Options {
	t.Helper()

	binary := os.Getenv("LABKUBE")
	if binary == "" {
		t.Skip("real etcd and Kubernetes: make test-kubernetes runs this (LABKUBE names the built labkube)")
	}

	return server.Options{Speed: testSpeed, Hosts: 2, Kubernetes: server.KubernetesReal, Labkube: binary}
}

// TestRealRestore is the restore drill: after every control plane has lost its data, data from before the snapshot is
// there, later data is not, and nobody reads a backup without the secret keys.
func TestRealRestore(t *testing.T) {
	t.Parallel()

	w := realWorld(t)
	d := newDrill(t, w)

	s := w.stack(3, 1)
	s.Clusters[0].VIP = 0
	file := d.withBackups(s.yaml(t))
	w.up(file)

	report, status := w.clusterStatus()
	assert.Equal(t, operations.StatusAttention, status)
	assert.Equal(
		t, []string{"backup: there is no snapshot of etcd in " + d.folder + ": talos-proxmox backup etcd takes one"}, report.Care.Lines(),
	)

	snapshot := d.backUp()

	report, status = w.clusterStatus()
	assert.Zero(t, status, "%v", report.Care.Lines())
	assert.Equal(t, snapshot, report.Backup.Snapshot)
	assert.Len(t, report.Members, 3)

	d.wipeMajority(s)

	report, status = w.clusterStatus()
	assert.Equal(t, operations.StatusAttention, status)
	assert.Contains(t, report.Care.Error(), "one: no Kubernetes API lists the nodes: ")

	out, err := w.runCommand("restore", w.options.Stack, snapshot, "--identities", d.keyFile(d.etcdKey), "--confirm", "two")
	require.Error(t, err)
	assert.Contains(t, out, `confirm: "two" is not the cluster's name`)

	out, err = w.runCommand("restore", w.options.Stack, snapshot, "--identities", d.keyFile(d.secretsKey), "--confirm", "one")
	require.Error(t, err)
	assert.Contains(t, out, "unable to decrypt "+snapshot)

	another := d.resealed(snapshot)
	out, err = w.runCommand("restore", w.options.Stack, another, "--identities", d.keyFile(d.etcdKey), "--confirm", "one")
	require.Error(t, err)
	assert.Contains(t, out, another+" belongs to another cluster")
	assert.NotContains(t, out, "its data is saved")

	out, err = w.runCommand("restore", w.options.Stack, snapshot, "--identities", d.keyFile(d.etcdKey), "--confirm", "one")
	require.NoError(t, err, out)
	d.requireSurvivor(out)
	assert.Contains(t, out, "one-cp-1: etcd: the snapshot belongs to its cluster, made 20")
	assert.Contains(t, out, "one-cp-3: etcd: wiping its data and rebooting")
	assert.Contains(t, out, "one-cp-1: etcd: bootstrapping the cluster from the snapshot")
	assert.Contains(t, out, "one: etcd is restored")
	assert.NotContains(t, out, "AGE-SECRET-KEY")

	w.up(file, optup.Refresh())
	w.up(file, optup.Refresh(), optup.ExpectNoChanges())
	w.requireMembers(3)
	d.requireRestored()

	report, status = w.clusterStatus()
	assert.Zero(t, status, "%v", report.Care.Lines())

	out, err = w.runCommand("restore", w.options.Stack, snapshot, "--identities", d.keyFile(d.etcdKey), "--confirm", "one")
	require.Error(t, err)
	assert.Contains(t, out, "etcd of cluster one is healthy")
	d.requireRestored()
}

// TestRealRestoreOfACopiedDatabase restores a cluster from the database on its member's disk, which has no hash: a
// restore refuses that without --skip-hash-check.
func TestRealRestoreOfACopiedDatabase(t *testing.T) {
	t.Parallel()

	w := realWorld(t)
	s := w.stack(1, 1)
	s.Clusters[0].VIP = 0
	w.up(s.yaml(t))

	meta := metav1.ObjectMeta{Name: drillName, Namespace: "default"}
	_, err := w.kubeClient().CoreV1().ConfigMaps("default").Create(
		t.Context(), &corev1.ConfigMap{ObjectMeta: meta, Data: map[string]string{"is": "here"}}, metav1.CreateOptions{},
	)
	require.NoError(t, err)

	// etcd's log, which is not copied, may have what the database does not have yet.
	require.Eventually(t, func() bool {
		content, err := os.ReadFile(w.database())

		return err == nil && bytes.Contains(content, []byte("configmaps/default/"+drillName))
	}, within, 100*time.Millisecond)

	vm := w.vm("one-cp-1")
	w.stopVM(vm.ID)

	database := filepath.Join(t.TempDir(), "db")
	content, err := os.ReadFile(w.database())
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(database, content, 0o600))
	w.startVM(vm.ID)

	w.wipe(w.talosconfig(), w.plan(s).Clusters[0].ControlPlanes[0].Address.Addr().String())

	out, err := w.runCommand("restore", w.options.Stack, database, "--confirm", "one")
	require.Error(t, err)
	assert.Contains(t, out, "choose another one")

	out, err = w.runCommand("restore", w.options.Stack, database, "--confirm", "one", "--skip-hash-check")
	require.Error(t, err)
	assert.Contains(t, out, "does not say which cluster it belongs to")

	out, err = w.runCommand("restore", w.options.Stack, database, "--confirm", "one", "--skip-hash-check", "--unsealed")
	require.NoError(t, err, out)

	w.up(s.yaml(t), optup.Refresh())
	w.requireMembers(1)

	kept, err := w.kubeClient().CoreV1().ConfigMaps("default").Get(
		t.Context(), drillName, metav1.GetOptions{},
	)
	require.NoError(t, err)
	assert.Equal(t, "here", kept.Data["is"])
}

// database returns the path of the only etcd member's database on its machine's disk.
func (w *world) database() string {
	w.t.Helper()

	var found []string

	require.NoError(w.t, filepath.WalkDir(w.dir, func(path string, _ fs.DirEntry, _ error) error {
		if strings.HasSuffix(path, filepath.Join("member", "snap", "db")) {
			found = append(found, path)
		}

		return nil
	}))
	require.Len(w.t, found, 1)

	return found[0]
}

// wipe resets a control plane's etcd data, as soon as it answers.
func (w *world) wipe(talosconfig, address string) {
	w.t.Helper()

	c := w.talosClient(talosconfig, address)
	require.EventuallyWithT(w.t, func(t *assert.CollectT) {
		require.NoError(t, c.ResetGeneric(w.t.Context(), &machineapi.ResetRequest{
			Reboot:                 true,
			SystemPartitionsToWipe: []*machineapi.ResetPartitionSpec{{Label: constants.EphemeralPartitionLabel, Wipe: true}},
		}))
	}, within, 100*time.Millisecond, "%s takes a reset", address)
	require.NoError(w.t, c.Close())
}

// drill has a cluster's marker objects and the keys of its backups.
type drill struct {
	*testing.T

	w                   *world
	etcdKey, secretsKey *age.X25519Identity
	folder              string
	revision            string // of the last write
}

func newDrill(t *testing.T, w *world) *drill {
	t.Helper()

	d := &drill{T: t, w: w, folder: filepath.Join(t.TempDir(), "backups")}

	for _, identity := range []**age.X25519Identity{&d.etcdKey, &d.secretsKey} {
		key, err := age.GenerateX25519Identity()
		require.NoError(t, err)

		*identity = key
	}

	return d
}

func (d *drill) withBackups(stack string) string {
	return stack + fmt.Sprintf("  talos-proxmox:backup: {recipients: [%s], secretsRecipients: [%s], directory: %s}\n",
		d.etcdKey.Recipient(), d.secretsKey.Recipient(), d.folder)
}

// keyFile writes a secret key to a file.
func (d *drill) keyFile(key *age.X25519Identity) string {
	path := filepath.Join(d.TempDir(), "key.txt")
	require.NoError(d, os.WriteFile(path, []byte(key.String()+"\n"), 0o600))

	return path
}

const drillName, drillText = "drill", "a text that only the cluster's key opens"

// backUp creates marker objects, takes a snapshot and exports the secrets; then it creates a namespace.
func (d *drill) backUp() string {
	d.Helper()

	client := d.w.kubeClient()
	meta := metav1.ObjectMeta{Name: drillName, Namespace: "default"}
	_, err := client.CoreV1().ConfigMaps("default").Create(
		d.Context(), &corev1.ConfigMap{ObjectMeta: meta, Data: map[string]string{"is": "here"}}, metav1.CreateOptions{},
	)
	require.NoError(d, err)
	_, err = client.CoreV1().Secrets("default").Create(
		d.Context(), &corev1.Secret{ObjectMeta: meta, StringData: map[string]string{"is": drillText}}, metav1.CreateOptions{},
	)
	require.NoError(d, err)

	out, err := d.w.runCommand("backup", "etcd", d.w.options.Stack)
	require.NoError(d, err, out)
	assert.Contains(d, out, "KiB from one-cp-")

	out, err = d.w.runCommand("secrets", "export", d.w.options.Stack)
	require.NoError(d, err, out)
	assert.NotContains(d, out, "PRIVATE KEY")

	snapshots, err := filepath.Glob(filepath.Join(d.folder, "lab-one-etcd-*.age"))
	require.NoError(d, err)
	require.Len(d, snapshots, 1)

	content := d.open(snapshots[0], d.etcdKey)
	assert.Contains(d, string(content), "here")
	assert.NotContains(d, string(content), drillText, "the snapshot has Secrets encrypted")

	exported, err := filepath.Glob(filepath.Join(d.folder, "lab-one-secrets-*.age"))
	require.NoError(d, err)
	require.Len(d, exported, 1)

	var bundle secrets.Bundle
	require.NoError(d, yaml.Unmarshal(d.open(exported[0], d.secretsKey), &bundle))

	bundle.Clock = secrets.NewClock()
	require.NoError(d, bundle.Validate(nil))
	_, err = backup.Open(exported[0], d.etcdKey.String())
	require.ErrorContains(d, err, "unable to decrypt")

	_, err = client.CoreV1().Namespaces().Create(
		d.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "lost"}}, metav1.CreateOptions{},
	)
	require.NoError(d, err)
	require.NoError(d, client.CoreV1().ConfigMaps("default").Delete(d.Context(), drillName, metav1.DeleteOptions{}))

	later, err := client.CoreV1().Namespaces().List(d.Context(), metav1.ListOptions{})
	require.NoError(d, err)

	d.revision = later.ResourceVersion

	return snapshots[0]
}

func (d *drill) open(path string, key *age.X25519Identity) []byte {
	d.Helper()

	file, err := backup.Open(path, key.String())
	require.NoError(d, err)

	content, err := io.ReadAll(file)
	require.NoError(d, err)
	require.NoError(d, file.Close())

	return content
}

// wipeMajority leaves one of three members: the third is off while the others lose their data, and a majority with it.
func (d *drill) wipeMajority(s stack) {
	d.Helper()

	third := d.w.vm("one-cp-3")
	d.w.stopVM(third.ID)

	for _, n := range d.w.plan(s).Clusters[0].ControlPlanes[:2] {
		d.w.wipe(d.w.talosconfig(), n.Address.Addr().String())
	}

	d.w.startVM(third.ID)
}

// resealed returns the same snapshot with another cluster's seal.
func (d *drill) resealed(snapshot string) string {
	d.Helper()

	origin := backup.Origin{ID: "another"}.WithSealKey("another cluster's key")
	file, err := backup.Folder{Path: d.TempDir(), Name: "lab-two", Origin: &origin}.Write(
		backup.Etcd, time.Now(), []string{d.etcdKey.Recipient().String()}, 0, func(to io.Writer) error {
			_, err := to.Write(d.open(snapshot, d.etcdKey))

			return err
		},
	)
	require.NoError(d, err)

	return file.Path
}

// requireSurvivor checks that the third control plane's data is kept, including what is not in the snapshot. It was
// started without a majority, so that its member does not answer, and its database is copied.
func (d *drill) requireSurvivor(out string) {
	d.Helper()

	kept, err := filepath.Glob(filepath.Join(d.folder, "lab-one-survivor-one-cp-3-*.age"))
	require.NoError(d, err)
	require.Len(d, kept, 1)
	assert.Contains(d, out, "one-cp-3: etcd: its data is saved in "+kept[0]+", a copied database")
	assert.Contains(d, string(d.open(kept[0], d.etcdKey)), "/registry/namespaces/lost")
}

func (d *drill) requireRestored() {
	d.Helper()

	client := d.w.kubeClient()

	kept, err := client.CoreV1().ConfigMaps("default").Get(d.Context(), drillName, metav1.GetOptions{})
	require.NoError(d, err)
	assert.Equal(d, "here", kept.Data["is"])

	secret, err := client.CoreV1().Secrets("default").Get(d.Context(), drillName, metav1.GetOptions{})
	require.NoError(d, err)
	assert.Equal(d, drillText, string(secret.Data["is"]))

	_, err = client.CoreV1().Namespaces().Get(d.Context(), "lost", metav1.GetOptions{})
	require.True(d, apierrors.IsNotFound(err), "%v", err)

	nodes, err := client.CoreV1().Nodes().List(d.Context(), metav1.ListOptions{})
	require.NoError(d, err)
	assert.Len(d, nodes.Items, 4)

	// A client with a revision from after the snapshot gets Expired, and lists again.
	bounded, cancel := context.WithTimeout(d.Context(), time.Minute)
	defer cancel()

	events, err := client.CoreV1().Namespaces().Watch(bounded, metav1.ListOptions{ResourceVersion: d.revision})
	if err == nil {
		got := <-events.ResultChan()
		events.Stop()

		err = apierrors.FromObject(got.Object)
	}

	assert.True(d, apierrors.IsResourceExpired(err) || apierrors.IsGone(err), "%v", err)
}
