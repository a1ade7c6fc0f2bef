package operations

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

	"talos-proxmox/internal/backup"
	"talos-proxmox/internal/request"
	"talos-proxmox/internal/scripttest"
)

// Public keys of age, without secret keys.
const (
	etcdRecipient    = "age1ql3z7hjy54pw3hyww5ayyfg7zqgvc7w3j2elw8zmrj2kg5sfn9aqmcac8p"
	secretsRecipient = "age1lggyhqrw2nlhcxprm67z43rta597azn8gknawjehu9d9dl0jq3yqqvfafg"
)

// newBackups returns a stack of the lab's file with backups, with a fake CLI and a fake talosops whose last request is
// returned by the function.
func newBackups(t *testing.T, change func(map[string]any)) (b Backups, lastRequest func() []string) {
	t.Helper()

	var file struct {
		Config map[string]any `yaml:"config"`
	}

	content, err := os.ReadFile("../../Pulumi.lab.yaml")
	require.NoError(t, err)
	require.NoError(t, yaml.Unmarshal(content, &file))

	file.Config["talos-proxmox:backup"] = map[string]any{
		"recipients": []any{etcdRecipient}, "secretsRecipients": []any{secretsRecipient}, "directory": "backups",
	}
	for _, host := range file.Config["talos-proxmox:hosts"].([]any) {
		host.(map[string]any)["ssh"] = map[string]any{"acceptAnyHostKey": true}
	}

	if change != nil {
		change(file.Config)
	}

	values := map[string]any{}

	for key, value := range file.Config {
		text, isText := value.(string)
		if !isText {
			encoded, err := json.Marshal(value)
			require.NoError(t, err)

			text = string(encoded)
		}

		values[key] = map[string]any{"value": text}
	}

	pulumi := func(_ context.Context, _ io.Reader, args ...string) ([]byte, error) {
		switch line := strings.Join(args, " "); {
		case strings.HasPrefix(line, "config"):
			return json.Marshal(values)
		case strings.HasPrefix(line, "stack export"):
			return []byte(`{"version": 3, "deployment": {"resources": []}}`), nil
		default:
			return nil, errors.New("unexpected command " + line)
		}
	}
	folder := t.TempDir()
	talosops := filepath.Join(folder, "talosops")
	script := "#!/bin/sh\necho \"$1\" >> " + folder + "/request\ncat >> " + folder + "/request\necho working >&2\n" +
		`echo '{"snapshot": "/backups/file.age", "bytes": 2049, "from": "lab-cp-2", "removed": ["x"]}'` + "\n"
	scripttest.Program(t, talosops, script)
	b.Deployed, err = ReadDeployed(t.Context(), pulumi, "lab", folder, talosops, io.Discard)
	require.NoError(t, err)

	return b, func() []string {
		content, err := os.ReadFile(filepath.Join(folder, "request"))
		require.NoError(t, err)

		return strings.SplitN(string(content), "\n", 2)
	}
}

func TestEtcdSnapshotRequest(t *testing.T) {
	t.Parallel()
	b, lastRequest := newBackups(t, nil)
	b.Deployed = withState(t, b.Deployed)

	lines, err := b.Etcd(t.Context())
	require.NoError(t, err)
	assert.Equal(t, []string{"lab: /backups/file.age, 3 KiB from lab-cp-2; 1 older removed"}, lines)

	call := lastRequest()
	assert.Equal(t, "snapshot", call[0])

	var sent request.Snapshot
	require.NoError(t, json.Unmarshal([]byte(call[1]), &sent))
	assert.ElementsMatch(t, []string{"os:reader", "os:etcd:backup"}, clientRoles(t, sent.Talosconfig))
	assert.Equal(t, "the configuration", sent.Configuration, "its key seals the snapshot")
	assert.Equal(t, []string{etcdRecipient}, sent.Recipients)
	assert.Equal(t, "lab-lab", sent.Name)
	assert.Equal(t, filepath.Join(b.Project, "backups"), sent.Directory)
	assert.Equal(t, 14, sent.Keep)
	assert.Len(t, sent.ControlPlanes, 3)
}

// TestEtcdSnapshotsContinueAfterAFailure has a second cluster, which was never deployed.
func TestEtcdSnapshotsContinueAfterAFailure(t *testing.T) {
	t.Parallel()
	b, _ := newBackups(t, nil)
	b.Deployed = withState(t, b.Deployed)

	planned := b.Plan.Clusters[0]
	planned.Name = "new"
	b.Plan.Clusters = slices.Insert(b.Plan.Clusters, 0, planned)

	lines, err := b.Etcd(t.Context())
	require.ErrorContains(t, err, "cluster new: stack lab has no machine secrets of cluster new")
	assert.Equal(t, []string{"lab: /backups/file.age, 3 KiB from lab-cp-2; 1 older removed"}, lines)
}

func TestBackupErrors(t *testing.T) {
	t.Parallel()

	without := func(config map[string]any) { delete(config, "talos-proxmox:backup") }
	for name, test := range map[string]struct {
		change func(map[string]any)
		run    func(context.Context, Backups) error
		want   string
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
		}, "stack lab has no machine secrets of cluster lab: bring it up once, then repeat"},
		"a talosops that fails": {nil, func(ctx context.Context, b Backups) error {
			b.TalosOps, b.Pulumi = "/bin/false", withState(t, b.Deployed).Pulumi
			_, err := b.Etcd(ctx)

			return err
		}, "cluster lab: talosops snapshot did not succeed, see above: exit status 1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, _ := newBackups(t, test.change)
			require.ErrorContains(t, test.run(t.Context(), b), test.want)
		})
	}
}

// fakeOffSite records the names of files, or fails.
type fakeOffSite struct {
	files []string
	err   error
}

func (e *fakeOffSite) Put(_ context.Context, file string, _ time.Time) (string, error) {
	e.files = append(e.files, file)

	return "s3://bucket/" + filepath.Base(file), e.err
}

func (e *fakeOffSite) Fetch(_ context.Context, _, folder string) (string, error) {
	return filepath.Join(folder, "fetched.age"), e.err
}

func (e *fakeOffSite) Newest(_ context.Context, name, _ string, _ time.Time) (backup.Found, error) {
	return backup.Found{Newest: "s3://bucket/" + name + ".age", Created: time.Unix(0, 0).UTC()}, e.err
}

// TestOffSiteCopyIsIndependentOfTheFolder expects that a copy is made in one place if the other fails.
func TestOffSiteCopyIsIndependentOfTheFolder(t *testing.T) {
	t.Parallel()

	const local = "lab: /backups/file.age, 3 KiB from lab-cp-2; 1 older removed"

	full := "#!/bin/sh\ncase $(cat) in *'\"directory\":\"'*/backups'\"'*) echo 'no space left on device' >&2; exit 3;; esac\n" +
		`echo '{"snapshot": "/tmp/of-its-own.age", "bytes": 2049, "from": "lab-cp-2"}'` + "\n"

	for name, test := range map[string]struct {
		talosops string // empty = the one that succeeds
		bucket   fakeOffSite
		lines    []string
		wantErr  string
		files    []string // the off-site ones
	}{
		"both": {lines: []string{local, "lab: s3://bucket/file.age"}, files: []string{"/backups/file.age"}},
		"the bucket fails": {
			bucket: fakeOffSite{err: errors.New("no route to host")}, lines: []string{local}, wantErr: "cluster lab: no route to host",
			files: []string{"/backups/file.age"},
		},
		"the folder fails": {
			talosops: full, lines: []string{"lab: s3://bucket/of-its-own.age"},
			wantErr: "cluster lab: talosops snapshot did not succeed, see above: exit status 3", files: []string{"/tmp/of-its-own.age"},
		},
		"no snapshot is taken": {
			talosops: "#!/bin/sh\nexit 1\n", wantErr: "cluster lab: talosops snapshot did not succeed, see above: exit status 1",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			b, _ := newBackups(t, nil)
			b.Deployed = withState(t, b.Deployed)
			b.OffSite = &test.bucket

			if test.talosops != "" {
				scripttest.Program(t, b.TalosOps, test.talosops)
			}

			lines, err := b.Etcd(t.Context())
			assert.Equal(t, test.lines, lines)
			assert.Equal(t, test.files, test.bucket.files)

			if test.wantErr == "" {
				require.NoError(t, err)
			} else {
				require.EqualError(t, err, test.wantErr)
			}
		})
	}
}
