package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	etcdversion "go.etcd.io/etcd/api/v3/version"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// command returns labkube with arguments; it ends with the test, and with the test process.
func command(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()

	self, err := os.Executable()
	require.NoError(t, err)

	c := exec.CommandContext(t.Context(), self, args...)
	c.Env = append(os.Environ(), asLabkube+"=1")
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}

	return c
}

// server is a running part. Its log is printed if the test fails.
type server struct {
	cmd   *exec.Cmd
	log   string
	ended chan struct{}
}

func serve(t *testing.T, args ...string) *server {
	t.Helper()

	log, err := os.CreateTemp(t.TempDir(), "log")
	require.NoError(t, err)

	s := &server{cmd: command(t, args...), log: log.Name(), ended: make(chan struct{})}
	s.cmd.Stdout, s.cmd.Stderr = log, log
	require.NoError(t, s.cmd.Start())
	require.NoError(t, log.Close())

	go func() {
		_ = s.cmd.Wait()

		close(s.ended)
	}()

	t.Cleanup(func() {
		s.kill()

		if t.Failed() {
			t.Logf("%v:\n%s", args, s.output(t))
		}
	})

	return s
}

// kill kills a part, as a power cut does.
func (s *server) kill() {
	_ = s.cmd.Process.Kill()
	<-s.ended
}

// waitFor waits for a condition, as long as the part runs.
func (s *server) waitFor(t *testing.T, what string, done func() bool) {
	t.Helper()

	for !done() {
		select {
		case <-s.ended:
			t.Fatalf("the part has ended before: %s", what)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func (s *server) output(t *testing.T) string {
	t.Helper()

	text, err := os.ReadFile(s.log)
	require.NoError(t, err)

	return string(text)
}

func freeAddress(t *testing.T) string {
	t.Helper()

	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, l.Close())

	return l.Addr().String()
}

// member is a member of etcd.
type member struct {
	name, dir, peer, client string

	*server
}

func newMember(t *testing.T, name string) *member {
	t.Helper()

	return &member{name: name, dir: t.TempDir(), peer: "http://" + freeAddress(t), client: "http://" + freeAddress(t)}
}

// start runs the member as a version; cluster are the members of a new cluster.
func (m *member) start(t *testing.T, version string, cluster ...*member) {
	t.Helper()

	args := []string{
		"--as", version, "etcd", "--name", m.name, "--data-dir", m.dir, "--unsafe-no-fsync", "--log-level=warn",
		"--listen-peer-urls", m.peer, "--initial-advertise-peer-urls", m.peer,
		"--listen-client-urls", m.client, "--advertise-client-urls", m.client,
	}

	if len(cluster) > 0 {
		peers := make([]string, 0, len(cluster))
		for _, c := range cluster {
			peers = append(peers, c.name+"="+c.peer)
		}

		args = append(args, "--initial-cluster", strings.Join(peers, ","))
	}

	m.server = serve(t, args...)
}

// connect returns a client of this member only.
func (m *member) connect(t *testing.T) *clientv3.Client {
	t.Helper()

	c, err := clientv3.New(clientv3.Config{Endpoints: []string{m.client}, Logger: zap.NewNop()})
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })

	return c
}

// put writes a key as soon as the member accepts it.
func (m *member) put(t *testing.T, key string) {
	t.Helper()

	c := m.connect(t)

	m.waitFor(t, m.name+" accepts "+key, func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()

		_, err := c.Put(ctx, key, "of "+m.name)

		return err == nil
	})
}

// keys returns the member's own keys.
func (m *member) keys(t *testing.T) []string {
	t.Helper()

	r, err := m.connect(t).Get(t.Context(), "",
		clientv3.WithPrefix(), clientv3.WithSerializable(), clientv3.WithKeysOnly())
	require.NoError(t, err)

	keys := make([]string, 0, len(r.Kvs))
	for _, kv := range r.Kvs {
		keys = append(keys, string(kv.Key))
	}

	return keys
}

// versions returns the member's version, and those of the cluster and its storage; zero while it does not answer.
func (m *member) versions(t *testing.T) etcdversion.Versions {
	t.Helper()

	var v etcdversion.Versions

	r, err := http.Get(m.client + "/version")
	if err != nil {
		return v
	}

	defer func() { _ = r.Body.Close() }()

	require.NoError(t, json.NewDecoder(r.Body).Decode(&v))

	return v
}

func (m *member) waitVersions(t *testing.T, want etcdversion.Versions) {
	t.Helper()

	m.waitFor(t, fmt.Sprintf("%s is %+v", m.name, want), func() bool { return m.versions(t) == want })
}

// snapshot saves the member's database.
func (m *member) snapshot(t *testing.T) string {
	t.Helper()

	r, err := m.connect(t).Snapshot(t.Context())
	require.NoError(t, err)

	file, err := os.Create(filepath.Join(t.TempDir(), "snapshot"))
	require.NoError(t, err)

	_, err = io.Copy(file, r)
	require.NoError(t, err)
	require.NoError(t, file.Close())

	return file.Name()
}

// restoreSnapshot creates a new cluster of one member from a snapshot.
func restoreSnapshot(t *testing.T, snapshot string) *member {
	t.Helper()

	m := newMember(t, "restored")

	for _, args := range [][]string{
		{"status", snapshot},
		{
			"restore", snapshot, "--data-dir", m.dir, "--name", m.name, "--initial-cluster", m.name + "=" + m.peer,
			"--initial-advertise-peer-urls", m.peer,
		},
	} {
		out, err := command(t, append([]string{"etcdutl", "snapshot"}, args...)...).CombinedOutput()
		require.NoError(t, err, string(out))
	}

	return m
}

// TestEtcdUpgrade restarts three members one by one as the next minor, with the same data.
func TestEtcdUpgrade(t *testing.T) {
	t.Parallel()

	build := etcdversion.Versions{Server: etcdversion.Version, Cluster: "3.7.0", Storage: "3.7.0"}
	before := etcdversion.Versions{Server: "3.6.16", Cluster: "3.6.0", Storage: "3.6.0"}
	mixed := etcdversion.Versions{Server: build.Server, Cluster: before.Cluster, Storage: before.Storage}

	members := []*member{newMember(t, "a"), newMember(t, "b"), newMember(t, "c")}
	for _, m := range members {
		m.start(t, before.Server, members...)
	}

	for _, m := range members {
		m.waitVersions(t, before)
	}

	members[0].put(t, "before")

	old := members[0].snapshot(t)
	keys := []string{"before"}

	for i, m := range members {
		m.kill()
		m.start(t, build.Server)

		key := "upgraded-" + m.name
		m.put(t, key)
		assert.Equal(t, append(keys, key), m.keys(t))

		keys = append(keys, key)

		if i < len(members)-1 {
			m.waitVersions(t, mixed)
		}
	}

	for _, m := range members {
		m.waitVersions(t, build)
		assert.ElementsMatch(t, keys, m.keys(t))
	}

	newer := members[0].snapshot(t)

	t.Run("a snapshot is restored", func(t *testing.T) {
		m := restoreSnapshot(t, newer)
		m.start(t, build.Server)
		m.put(t, "restored")
		m.waitVersions(t, build)
		assert.ElementsMatch(t, append(keys, "restored"), m.keys(t))
	})

	for _, version := range []etcdversion.Versions{before, build} {
		t.Run("a snapshot of the minor before is restored as "+version.Server, func(t *testing.T) {
			m := restoreSnapshot(t, old)
			m.start(t, version.Server)
			m.put(t, "restored")
			m.waitVersions(t, version)
			assert.Equal(t, []string{"before", "restored"}, m.keys(t))
		})
	}

	for name, m := range map[string]*member{"a member": members[2], "a snapshot": restoreSnapshot(t, newer)} {
		t.Run(name+" is not downgraded", func(t *testing.T) {
			if m.server != nil {
				m.kill()
			}

			m.start(t, before.Server)
			<-m.ended
			assert.False(t, m.cmd.ProcessState.Success())
			assert.Contains(t, m.output(t), "invalid downgrade; server version is lower than determined cluster version")

			m.start(t, build.Server)
			m.put(t, "refused")
			assert.ElementsMatch(t, append(keys, "refused"), m.keys(t))
		})
	}
}

// TestKubernetesUpgrade runs an API server as one minor after another, on the same etcd.
func TestKubernetesUpgrade(t *testing.T) {
	t.Parallel()

	etcd := newMember(t, "a")
	etcd.start(t, etcdversion.Version, etcd)

	dir := t.TempDir()
	tokens, key := filepath.Join(dir, "tokens"), filepath.Join(dir, "apiserver.key")

	require.NoError(t, os.WriteFile(tokens, []byte("secret,admin,admin\n"), 0o600))

	var objects []string

	for _, test := range []struct {
		version, minor string
		served         []string
	}{
		{"v1.34.9", "34", nil},
		{"v1.35.4", "35", nil},
		{"v1.36.1", "36", []string{"mutatingadmissionpolicies"}},
		{buildVersion(), "37", []string{"mutatingadmissionpolicies", "podcertificaterequests"}},
	} {
		address := freeAddress(t)
		_, port, _ := net.SplitHostPort(address)
		server := serve(t, "--as", test.version, "kube-apiserver", "--etcd-servers", etcd.client, "--cert-dir", dir,
			"--bind-address=127.0.0.1", "--advertise-address=127.0.0.1", "--secure-port", port,
			"--endpoint-reconciler-type=none", "--token-auth-file", tokens, "--authorization-mode=AlwaysAllow",
			"--service-account-issuer=https://"+address, "--service-account-key-file", key,
			"--service-account-signing-key-file", key, "--service-cluster-ip-range=172.20.0.0/16")

		kubectl := func(args ...string) (string, error) {
			out, err := command(t, append([]string{
				"--as", test.version, "kubectl", "--kubeconfig=/dev/null", "--cache-dir", filepath.Join(dir, "cache", port),
				"--server=https://" + address, "--token=secret", "--insecure-skip-tls-verify",
			}, args...)...).CombinedOutput()

			return string(out), err
		}

		server.waitFor(t, test.version+" is ready", func() bool {
			_, err := kubectl("get", "--raw", "/readyz")

			return err == nil
		})

		out, err := kubectl("version")
		require.NoError(t, err, out)
		assert.Contains(t, out, "Client Version: "+test.version+"\n")
		assert.Contains(t, out, "Server Version: "+test.version+"\n")

		out, err = kubectl("get", "--raw", "/version")
		require.NoError(t, err, out)

		for _, field := range []string{"minor", "emulationMinor"} {
			assert.Contains(t, out, fmt.Sprintf("%q: %q", field, test.minor))
		}

		for path, resource := range map[string]string{
			"/apis/admissionregistration.k8s.io/v1": "mutatingadmissionpolicies",
			"/apis/certificates.k8s.io/v1":          "podcertificaterequests",
		} {
			out, err = kubectl("get", "--raw", path)
			require.NoError(t, err, out)

			assert.Equal(t, slices.Contains(test.served, resource), strings.Contains(out, `"`+resource+`"`),
				"%s has %s", test.version, resource)
		}

		objects = append(objects, "as-"+test.version)
		out, err = kubectl("-n", "kube-system", "create", "configmap", "as-"+test.version)
		require.NoError(t, err, out)

		out, err = kubectl("-n", "kube-system", "get", "configmaps", "-o", "name")
		require.NoError(t, err, out)

		for _, name := range objects {
			assert.Contains(t, out, "configmap/"+name+"\n", test.version)
		}

		server.kill()
	}
}
