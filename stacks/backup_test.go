package stacks

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v4"

	"talos-proxmox/internal/request"
	"talos-proxmox/internal/scripttest"
)

// Public keys of age whose secret halves no one has.
const (
	forEtcd    = "age1ql3z7hjy54pw3hyww5ayyfg7zqgvc7w3j2elw8zmrj2kg5sfn9aqmcac8p"
	forSecrets = "age1lggyhqrw2nlhcxprm67z43rta597azn8gknawjehu9d9dl0jq3yqqvfafg"
)

// keptStack is a stack of the lab's file with backups, whose CLI and talosops are the test's.
func keptStack(t *testing.T, change func(map[string]any)) (b Backups, asked func() []string) {
	t.Helper()

	var file struct {
		Config map[string]any `yaml:"config"`
	}

	content, err := os.ReadFile("../Pulumi.lab.yaml")
	require.NoError(t, err)
	require.NoError(t, yaml.Unmarshal(content, &file))

	file.Config["talos-proxmox:backup"] = map[string]any{
		"recipients": []any{forEtcd}, "secretsRecipients": []any{forSecrets}, "directory": "kept",
	}
	for _, host := range file.Config["talos-proxmox:hosts"].([]any) {
		host.(map[string]any)["ssh"] = map[string]any{"acceptAnyHostKey": true}
	}

	if change != nil {
		change(file.Config)
	}

	values := map[string]any{}

	for key, value := range file.Config {
		text, err := handedOver(value)
		require.NoError(t, err)

		values[key] = map[string]any{"value": text}
	}

	pulumi := func(_ context.Context, _ io.Reader, args ...string) ([]byte, error) {
		switch line := strings.Join(args, " "); {
		case strings.HasPrefix(line, "config"):
			return json.Marshal(values)
		case strings.HasPrefix(line, "stack export"):
			return []byte(`{"version": 3, "deployment": {"resources": []}}`), nil
		default:
			return nil, errors.New("no one asks " + line)
		}
	}
	folder := t.TempDir()
	talosops := filepath.Join(folder, "talosops")
	script := "#!/bin/sh\necho \"$1\" >> " + folder + "/asked\ncat >> " + folder + "/asked\necho working >&2\n" +
		`echo '{"snapshot": "/kept/file.age", "bytes": 2049, "from": "lab-cp-2", "removed": ["x"]}'` + "\n"
	scripttest.Program(t, talosops, script)
	b.Deployed, err = ReadDeployed(t.Context(), pulumi, "lab", folder, talosops, io.Discard)
	require.NoError(t, err)

	return b, func() []string {
		content, err := os.ReadFile(filepath.Join(folder, "asked"))
		require.NoError(t, err)

		return strings.SplitN(string(content), "\n", 2)
	}
}

func TestASnapshotIsAskedForWithWhatTheStackFileSays(t *testing.T) {
	t.Parallel()
	b, asked := keptStack(t, nil)
	b.Deployed = withState(t, b.Deployed)

	lines, err := b.Etcd(t.Context())
	require.NoError(t, err)
	assert.Equal(t, []string{"lab: /kept/file.age, 3 KiB from lab-cp-2; 1 older removed"}, lines)

	said := asked()
	assert.Equal(t, "snapshot", said[0])

	var sent request.Snapshot
	require.NoError(t, json.Unmarshal([]byte(said[1]), &sent))
	assert.ElementsMatch(t, []string{"os:reader", "os:etcd:backup"}, rolesOf(t, sent.Talosconfig))
	assert.Equal(t, "the configuration", sent.Configuration, "its key seals the snapshot")
	assert.Equal(t, []string{forEtcd}, sent.Recipients)
	assert.Equal(t, "lab-lab", sent.Name)
	assert.Equal(t, filepath.Join(b.Project, "kept"), sent.Directory)
	assert.Equal(t, 14, sent.Keep)
	assert.Len(t, sent.ControlPlanes, 3)
}

// TestAClusterThatFailsDoesNotKeepTheOthersFromTheirSnapshots: one of two was planned, and never brought up.
func TestAClusterThatFailsDoesNotKeepTheOthersFromTheirSnapshots(t *testing.T) {
	t.Parallel()
	b, _ := keptStack(t, nil)
	b.Deployed = withState(t, b.Deployed)

	planned := b.Plan.Clusters[0]
	planned.Name = "new"
	b.Plan.Clusters = slices.Insert(b.Plan.Clusters, 0, planned)

	lines, err := b.Etcd(t.Context())
	require.ErrorContains(t, err, "cluster new: stack lab has no machine secrets and configurations of cluster new")
	assert.Equal(t, []string{"lab: /kept/file.age, 3 KiB from lab-cp-2; 1 older removed"}, lines)
}

func TestARestoreIsAskedFor(t *testing.T) {
	t.Parallel()
	b, asked := keptStack(t, nil)
	err := b.Restore(t.Context(), Restore{Cluster: "lab"})
	require.ErrorContains(t, err, "stack lab has no talosconfig of cluster lab")

	b.Deployed = withState(t, b.Deployed)
	require.NoError(t, b.Restore(t.Context(), Restore{
		Cluster: "lab", Confirm: "lab", Snapshot: "/kept/file.age", Identities: "a key", Timeout: time.Hour,
	}))

	said := asked()
	assert.Equal(t, "restore", said[0])

	var sent request.Restore
	require.NoError(t, json.Unmarshal([]byte(said[1]), &sent))
	assert.Equal(t, "1h0m0s", sent.Timeout)
	assert.Equal(t, "a key", sent.Identities)
	assert.Equal(t, "lab", sent.Confirm)
	assert.Equal(t, "/kept/file.age", sent.Snapshot)
}

func TestWhatCannotBeKeptIsSaid(t *testing.T) {
	t.Parallel()

	without := func(config map[string]any) { delete(config, "talos-proxmox:backup") }
	for name, test := range map[string]struct {
		change func(map[string]any)
		do     func(context.Context, Backups) error
		wants  string
	}{
		"snapshots without a key": {without, func(ctx context.Context, b Backups) error {
			_, err := b.Etcd(ctx)

			return err
		}, "backup.recipients: there is no public key"},
		"secrets without a key": {without, func(ctx context.Context, b Backups) error {
			_, err := b.Secrets(ctx, time.Now())

			return err
		}, "backup.secretsRecipients: there is no public key"},
		"another cluster": {nil, func(ctx context.Context, b Backups) error {
			_, err := b.Etcd(ctx, "prod")

			return err
		}, `"prod" is not a cluster of stack lab: name some of lab`},
		"a stack that was never up": {nil, func(ctx context.Context, b Backups) error {
			_, err := b.Secrets(ctx, time.Now())

			return err
		}, "stack lab has no machine secrets of cluster lab: bring it up once, then repeat"},
		"a snapshot of a stack that was never up": {nil, func(ctx context.Context, b Backups) error {
			_, err := b.Etcd(ctx)

			return err
		}, "stack lab has no machine secrets and configurations of cluster lab: bring it up once, then repeat"},
		"a talosops that fails": {nil, func(ctx context.Context, b Backups) error {
			b.TalosOps, b.Pulumi = "/bin/false", withState(t, b.Deployed).Pulumi
			_, err := b.Etcd(ctx)

			return err
		}, "cluster lab: talosops snapshot did not succeed, see above: exit status 1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, _ := keptStack(t, test.change)
			require.ErrorContains(t, test.do(t.Context(), b), test.wants)
		})
	}
}

// elsewhere keeps names of files, or fails.
type elsewhere struct {
	kept []string
	err  error
}

func (e *elsewhere) Put(_ context.Context, file string, _ time.Time) (string, error) {
	e.kept = append(e.kept, file)

	return "s3://bucket/" + filepath.Base(file), e.err
}

func (e *elsewhere) Fetch(_ context.Context, _, folder string) (string, error) {
	return filepath.Join(folder, "fetched.age"), e.err
}

func (e *elsewhere) Newest(_ context.Context, name string) (string, time.Time, error) {
	return "s3://bucket/" + name + ".age", time.Unix(0, 0).UTC(), e.err
}

// TestACopyThatFailsDoesNotLoseTheOther: the folder and the bucket each get theirs where the other takes none.
func TestACopyThatFailsDoesNotLoseTheOther(t *testing.T) {
	t.Parallel()

	const local = "lab: /kept/file.age, 3 KiB from lab-cp-2; 1 older removed"

	full := "#!/bin/sh\ncase $(cat) in *'\"directory\":\"'*/kept'\"'*) echo 'no space left on device' >&2; exit 3;; esac\n" +
		`echo '{"snapshot": "/tmp/of-its-own.age", "bytes": 2049, "from": "lab-cp-2"}'` + "\n"

	for name, test := range map[string]struct {
		talosops string // empty = the one that succeeds
		bucket   elsewhere
		lines    []string
		wants    string // error
		kept     []string
	}{
		"both": {lines: []string{local, "lab: s3://bucket/file.age"}, kept: []string{"/kept/file.age"}},
		"the bucket fails": {
			bucket: elsewhere{err: errors.New("no route to host")}, lines: []string{local}, wants: "cluster lab: no route to host",
			kept: []string{"/kept/file.age"},
		},
		"the folder fails": {
			talosops: full, lines: []string{"lab: s3://bucket/of-its-own.age"},
			wants: "cluster lab: talosops snapshot did not succeed, see above: exit status 3", kept: []string{"/tmp/of-its-own.age"},
		},
		"no member gives one": {
			talosops: "#!/bin/sh\nexit 1\n", wants: "cluster lab: talosops snapshot did not succeed, see above: exit status 1",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			b, _ := keptStack(t, nil)
			b.Deployed = withState(t, b.Deployed)
			b.OffSite = &test.bucket

			if test.talosops != "" {
				scripttest.Program(t, b.TalosOps, test.talosops)
			}

			lines, err := b.Etcd(t.Context())
			assert.Equal(t, test.lines, lines)
			assert.Equal(t, test.kept, test.bucket.kept)

			if test.wants == "" {
				require.NoError(t, err)
			} else {
				require.EqualError(t, err, test.wants)
			}
		})
	}
}

func TestACopyElsewhereIsRestored(t *testing.T) {
	t.Parallel()

	b, asked := keptStack(t, nil)
	b.Deployed = withState(t, b.Deployed)
	restore := Restore{Cluster: "lab", Confirm: "lab", Snapshot: "s3://bucket/file.age"}
	require.ErrorContains(t, b.Restore(t.Context(), restore), "stack lab has no backup.s3: set it, or fetch the file")

	b.OffSite = &elsewhere{}
	require.NoError(t, b.Restore(t.Context(), restore))

	var sent request.Restore
	require.NoError(t, json.Unmarshal([]byte(asked()[1]), &sent))
	assert.Equal(t, "fetched.age", filepath.Base(sent.Snapshot))
	assert.NoDirExists(t, filepath.Dir(sent.Snapshot))
}
