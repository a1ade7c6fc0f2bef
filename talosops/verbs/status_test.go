package verbs

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"talos-proxmox/internal/cli"
	"talos-proxmox/internal/goldentest"
	"talos-proxmox/internal/request"
	"talos-proxmox/talosops/cluster"
	"talos-proxmox/talosops/clustertest"
	"talos-proxmox/talosops/talosapi"
	"talos-proxmox/talosops/verbtest"
)

const (
	appliedConfiguration = "version: v1alpha1\nmachine:\n  token: abcdef.0123456789abcdef\n  sysctls: {vm.swappiness: \"10\"}\n"
	changedConfiguration = "version: v1alpha1\nmachine:\n  token: zyxwvu.0123456789abcdef\n  sysctls: {vm.swappiness: \"60\"}\n"
)

var statusTime = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)

// healthyCluster is a cluster that is as planned: its first control plane leads etcd, and nodes wait for a CNI.
func healthyCluster(t *testing.T) (*statusQuery, *clustertest.Fake) {
	t.Helper()

	c, f, _ := clustertest.NewRunning()
	f.Statuses["127.0.9.1"] = talosapi.EtcdStatus{HasLeader: true, Leads: true}

	req := &statusRequest{}
	req.Cluster, req.Configurations = "prod", map[string]string{}
	req.ControlPlanes, req.Workers = c.ControlPlanes, []request.Node{{Name: "w-1", Address: netip.MustParseAddr("127.0.9.4")}, {Name: "w-2", Address: netip.MustParseAddr("127.0.9.5")}}
	req.KubernetesVersion = "v1.35.0"

	for i, n := range req.waitRequest().nodes() {
		req.Versions = append(req.Versions, request.Versions{Node: n.Name, Talos: "v1.13.9", Schematic: "376567"})
		req.Configurations[n.Name], f.Active[n.Address.String()] = appliedConfiguration, appliedConfiguration
		f.TalosVersions[n.Address.String()] = "v1.13.9"
		f.NodeList[i].Ready, f.NodeList[i].ReadyMessage = false, "reason:NetworkPluginNotReady message: cni plugin not initialized"
	}

	certificate := func(life, left time.Duration) *x509.Certificate {
		return &x509.Certificate{NotBefore: statusTime.Add(left - life), NotAfter: statusTime.Add(left)}
	}
	q := &statusQuery{
		Cluster: c, req: req, adminClient: f, now: func() time.Time { return statusTime },
		fetchCertificate: func(_ context.Context, endpoint string, _ *x509.CertPool) (*x509.Certificate, error) {
			if _, port, _ := net.SplitHostPort(endpoint); port == "50000" {
				return certificate(24*time.Hour, 13*time.Hour), nil
			}

			return certificate(365*24*time.Hour, 200*24*time.Hour), nil
		},
		clientCertificates: []namedCertificate{
			{"kubeconfig", "pulumi up renews it", certificate(365*24*time.Hour, 40*24*time.Hour)},
			{"talosconfig", "pulumi up renews it", certificate(365*24*time.Hour, 300*24*time.Hour)},
		},
	}

	return q, f
}

func TestStatusOfAHealthyCluster(t *testing.T) {
	t.Parallel()

	q, f := healthyCluster(t)
	q.req.GPUs = []request.GPUs{{Node: "w-1", Count: 2}}
	f.NodeList[3].Allocatable = map[string]string{"nvidia.com/gpu": "2"}
	f.NodeList[4].Ready = true

	folder := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(folder, "home-prod-etcd-20261122T030000Z.age"), nil, 0o600))
	q.req.Backup = &request.BackupStatus{Directory: folder, Name: "home-prod", MaxAge: "48h"}

	s := q.query(t.Context())
	assert.Equal(t, request.StatusOK, s.Status)
	assert.Empty(t, s.Care)
	assert.Empty(t, s.Drift)
	assert.Equal(t, []request.Member{
		{Name: "cp-1", Leader: true, Healthy: true}, {Name: "cp-2", Healthy: true}, {Name: "cp-3", Healthy: true},
	}, s.Members)
	require.NoError(t, statusError(s))

	text := s.Table(0)
	goldentest.Equal(t, "testdata/"+t.Name()+".txt", strings.ReplaceAll(text, folder, "/backups"))
	assert.Len(t, s.Certificates, 2+5+5+3, "the JSON has all of them")
}

func TestStatusNamesWhatNeedsCare(t *testing.T) {
	t.Parallel()

	golden := goldentest.NewCases(t)

	day := 24 * time.Hour

	for name, change := range map[string]func(*statusQuery, *clustertest.Fake){
		"a node that is silent": func(_ *statusQuery, f *clustertest.Fake) {
			f.Down["127.0.9.4"] = errors.New("no route to host")
		},
		"a service that is not healthy": func(_ *statusQuery, f *clustertest.Fake) {
			f.NodeServices["127.0.9.4"][1].Healthy = false
		},
		"a member that is down": func(_ *statusQuery, f *clustertest.Fake) {
			f.Down["etcd 127.0.9.2"] = errors.New("connection refused")
		},
		"a member that is missing, one that is not planned, and an alarm": func(_ *statusQuery, f *clustertest.Fake) {
			f.MemberList[2].Hostname, f.Alarms = "old", []string{"NOSPACE of member 2a"}
		},
		"an API that is not ready": func(_ *statusQuery, f *clustertest.Fake) {
			f.APIDown["127.0.9.1"] = errors.New("500 Internal Server Error")
		},
		"versions that get no fixes any more": func(q *statusQuery, f *clustertest.Fake) {
			for i := range q.req.Versions {
				q.req.Versions[i].Talos = "v1.12.6"
			}

			for i, n := range q.req.waitRequest().nodes() {
				f.TalosVersions[n.Address.String()], f.NodeList[i].Kubelet = "v1.12.6", "v1.34.3"
			}

			q.req.KubernetesVersion = "" // it is the same for all, and not compared here
		},
		"another version and schematic than planned": func(_ *statusQuery, f *clustertest.Fake) {
			f.TalosVersions["127.0.9.5"], f.Images["127.0.9.5"] = "v1.13.8", "none"
		},
		"another configuration than the one that was applied": func(_ *statusQuery, f *clustertest.Fake) {
			f.Active["127.0.9.5"] = changedConfiguration
		},
		"a configuration that is staged": func(_ *statusQuery, f *clustertest.Fake) {
			f.Persistent["127.0.9.5"] = changedConfiguration
		},
		"a configuration that waits for a restart": func(_ *statusQuery, f *clustertest.Fake) {
			f.NodeList[3].Annotations = map[string]string{cluster.RestartAnnotation: "an earlier boot"}
			f.NodeList[3].BootID = "first"
			f.NodeList[4].Annotations, f.NodeList[4].BootID = map[string]string{cluster.RestartAnnotation: "first"}, "first"
		},
		"a node that is not Ready, and cordoned": func(_ *statusQuery, f *clustertest.Fake) {
			f.NodeList[4].ReadyMessage, f.NodeList[4].Unschedulable = "PLEG is not healthy", true
		},
		"a node that is not registered": func(_ *statusQuery, f *clustertest.Fake) { f.NodeList = f.NodeList[:4] },
		"fewer GPUs": func(q *statusQuery, _ *clustertest.Fake) {
			q.req.GPUs = []request.GPUs{{Node: "w-1", Count: 1}}
		},
		"a client's certificate that ends within thirty days": func(q *statusQuery, _ *clustertest.Fake) {
			c := q.clientCertificates[1]
			c.NotBefore, c.NotAfter = statusTime.Add(-335*day), statusTime.Add(30*day-time.Second)
		},
		"a certificate that has ended": func(q *statusQuery, _ *clustertest.Fake) {
			q.clientCertificates[0].NotAfter = statusTime.Add(-time.Minute)
		},
		"no snapshot": func(q *statusQuery, _ *clustertest.Fake) {
			q.req.Backup = &request.BackupStatus{Directory: "/nowhere", Name: "home-prod", MaxAge: "48h"}
		},
		"no copy off-site": func(q *statusQuery, _ *clustertest.Fake) {
			q.req.Backup = &request.BackupStatus{
				Directory: "/nowhere", Name: "home-prod", MaxAge: "48h", OffSite: &request.OffSite{},
			}
		},
		"copies off-site that are not known": func(q *statusQuery, _ *clustertest.Fake) {
			q.req.Backup = &request.BackupStatus{Directory: "/nowhere", Name: "home-prod", OffSite: &request.OffSite{Problem: "the bucket is away"}}
		},
		"a host that has to reboot": func(q *statusQuery, _ *clustertest.Fake) { q.req.RebootPending = []string{"pve2"} },
		"a token that ends": func(q *statusQuery, _ *clustertest.Fake) {
			q.req.Credentials.Warn("proxmoxve:apiToken", nil, "pulumi@pve!talos ends on 2026-12-15")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			q, f := healthyCluster(t)
			change(q, f)

			s := q.query(t.Context())
			assert.Equal(t, request.StatusCare, s.Status)
			golden.Equal(t, name, s.Care.Lines())
			assert.NotContains(t, s.Table(0), "0123456789abcdef", "values are not told")
			assert.Equal(t, 1, cli.Status(&cobra.Command{}, statusError(s)))
		})
	}
}

func TestStatusOfAnOldSnapshot(t *testing.T) {
	t.Parallel()

	q, _ := healthyCluster(t)
	folder := t.TempDir()
	path := filepath.Join(folder, "home-prod-etcd-20261120T030000Z.age")
	require.NoError(t, os.WriteFile(path, nil, 0o600))

	q.req.Backup = &request.BackupStatus{Directory: folder, Name: "home-prod", MaxAge: "48h"}

	inFolder := "backup: the newest snapshot of etcd is older than 48h: " + path
	assert.Equal(t, []string{inFolder}, q.query(t.Context()).Care.Lines())

	offSite := &q.req.Backup.OffSite
	*offSite = &request.OffSite{NewestBackup: request.NewestBackup{
		Snapshot: "s3://bucket/home-prod-etcd-20261122T030000Z.age", Taken: statusTime.Add(-50 * time.Hour),
	}}

	assert.Equal(t, []string{
		"backup: the newest snapshot of etcd is older than 48h: s3://bucket/home-prod-etcd-20261122T030000Z.age", inFolder,
	}, q.query(t.Context()).Care.Lines())

	(*offSite).Taken = statusTime.Add(-9 * time.Hour)
	s := q.query(t.Context())
	assert.Empty(t, s.Care.Lines(), "the folder may be another computer's")
	assert.Contains(t, s.Table(0), "Newest snapshot off-site: s3://bucket/home-prod-etcd-20261122T030000Z.age, 9 hours ago\n")
}

// TestStatusOfASnapshotOfTheFuture: it does not hide that the newest is too old.
func TestStatusOfASnapshotOfTheFuture(t *testing.T) {
	t.Parallel()

	q, _ := healthyCluster(t)
	folder := t.TempDir()
	old := filepath.Join(folder, "home-prod-etcd-20261120T030000Z.age")
	future := filepath.Join(folder, "home-prod-etcd-20361120T030000Z-01.age")

	for _, path := range []string{old, future} {
		require.NoError(t, os.WriteFile(path, nil, 0o600))
	}

	q.req.Backup = &request.BackupStatus{Directory: folder, Name: "home-prod", ID: "01", MaxAge: "48h"}
	s := q.query(t.Context())
	require.Len(t, s.Care, 2)
	assert.Contains(t, s.Care.Lines()[0], "backup: the snapshot "+future+" is dated later than now (")
	assert.Equal(t, "backup: the newest snapshot of etcd is older than 48h: "+old, s.Care.Lines()[1])
}

func TestStatusOfAClusterWithoutAQuorum(t *testing.T) {
	t.Parallel()

	q, f := healthyCluster(t)
	f.Down["127.0.9.2"], f.Down["127.0.9.3"] = errors.New("no route to host"), errors.New("no route to host")
	f.Statuses["127.0.9.1"] = talosapi.EtcdStatus{}

	for _, n := range q.req.ControlPlanes {
		f.APIDown[n.Address.String()] = errors.New("connection refused")
	}

	s := q.query(t.Context())
	assert.Equal(t, request.StatusCare, s.Status)
	assert.Equal(t, []string{
		"prod: no Kubernetes API lists the nodes: connection refused",
		"cp-1: its member of etcd sees no leader",
		"cp-1: the Kubernetes API is not ready on 127.0.9.1: connection refused",
		"cp-2: Talos does not answer on 127.0.9.2: no route to host",
		"cp-3: Talos does not answer on 127.0.9.3: no route to host",
	}, s.Care.Lines())
	assert.Empty(t, s.Members)
	assert.Contains(t, s.Table(0), "w-1   worker         v1.13.9  376567     -        -           -     -      -\n")
}

func TestStatusOfAClusterThatDoesNotAnswer(t *testing.T) {
	t.Parallel()

	q, f := healthyCluster(t)
	for _, n := range q.req.waitRequest().nodes() {
		f.Down[n.Address.String()] = errors.New("no route to host")
		f.APIDown[n.Address.String()] = errors.New("no route to host")
	}

	s := q.query(t.Context())
	assert.Equal(t, request.StatusUnknown, s.Status)
	assert.Contains(t, s.Table(0), "Cluster prod does not answer:\n")
	assert.Equal(t, 2, cli.Status(&cobra.Command{}, statusError(s)))
}

func TestStatusOverRealConnections(t *testing.T) {
	t.Parallel()

	served := clustertest.Serve(t, &clustertest.TalosNode{}, clustertest.HealthyAPI())
	req := request.Status{Cluster: "prod", Wait: request.Wait{
		Common: served.Common, Talosconfig: served.Talosconfig, Kubeconfig: served.Kubeconfig,
	}}

	stdout, stderr, err := run(t, "status", req, verbtest.NoInterrupt, "--json")
	require.Error(t, err)
	assert.Equal(t, 1, cli.Status(nil, err), "etcd's status is not implemented here")

	var s request.ClusterStatus
	require.NoError(t, json.Unmarshal([]byte(stdout), &s))
	assert.Equal(t, "v1.12.6", s.Nodes[0].Talos)
	assert.Equal(t, "376567", s.Nodes[0].Schematic)

	var of []string
	for _, c := range s.Certificates {
		of = append(of, c.Of)
	}

	assert.ElementsMatch(t, []string{
		"kubeconfig", "talosconfig", "authority of Talos", "authority of Kubernetes", "cp-1 Talos API", "cp-1 Kubernetes API",
	}, of)
	verbtest.AssertNoSecrets(t, req.Talosconfig+req.Kubeconfig, stdout+stderr)

	stdout, _, err = run(t, "status", req, verbtest.NoInterrupt)
	require.ErrorContains(t, err, "cluster prod needs care, see above")
	assert.Contains(t, stdout, "Cluster prod needs care:\n")
}

func TestStatusRefusesUnknownFlags(t *testing.T) {
	t.Parallel()

	root := verbtest.NewRoot(Commands())
	root.SetArgs([]string{"status", "--wrong"})
	root.SetIn(strings.NewReader(""))

	cmd, err := root.ExecuteContextC(t.Context())
	assert.Equal(t, 2, cli.Status(cmd, err))
}

// TestCertificatesOfOtherAuthoritiesAreRejected: only a certificate of the cluster's authority is accepted.
func TestCertificatesOfOtherAuthoritiesAreRejected(t *testing.T) {
	t.Parallel()

	own, other := clustertest.NewAuthority(t), clustertest.NewAuthority(t)
	serve := func(a *clustertest.Authority) string {
		server := httptest.NewUnstartedServer(http.NotFoundHandler())
		server.TLS, server.Config.ErrorLog = a.ServerTLS(t, "127.0.0.1"), log.New(io.Discard, "", 0)
		server.StartTLS()
		t.Cleanup(server.Close)

		return server.Listener.Addr().String()
	}

	_, pools, wrong, err := readClientCertificates(nil, own.Talosconfig(t), own.Kubeconfig(t, "https://127.0.9.1:6443"))
	require.NoError(t, err)
	assert.Empty(t, wrong)

	for _, service := range []string{servesTalos, servesKubernetes} {
		shown, err := servingCertificate(t.Context(), serve(own), pools[service])
		require.NoError(t, err)
		assert.Equal(t, "test", shown.Subject.CommonName)

		_, err = servingCertificate(t.Context(), serve(other), pools[service])
		require.ErrorContains(t, err, "somebody else answers on 127.0.0.1:")
	}

	_, err = servingCertificate(t.Context(), serve(other), pools[servesKubelet])
	require.NoError(t, err, "a kubelet signs its own certificate")
}

// TestUsersClientsAreShown: status itself uses clients of its own, whatever became of those in the stack's outputs.
func TestUsersClientsAreShown(t *testing.T) {
	t.Parallel()

	own, former := clustertest.NewAuthority(t), clustertest.NewAuthority(t)
	clients := func(a *clustertest.Authority) *request.Clients {
		return &request.Clients{Talosconfig: a.Talosconfig(t), Kubeconfig: a.Kubeconfig(t, "https://127.0.9.1:6443")}
	}
	all := []string{"authority of Kubernetes", "kubeconfig", "authority of Talos", "talosconfig"}

	for name, test := range map[string]struct {
		users *request.Clients
		shown []string
		wrong []string
	}{
		"of this authority": {clients(own), all, nil},
		"of the authority before a rotation": {clients(former), all, []string{
			"kubeconfig: its certificate is of a former authority: pulumi up renews it",
			"talosconfig: its certificate is of a former authority: pulumi up renews it",
		}},
		"none": {&request.Clients{}, []string{all[0], all[2]}, []string{
			"kubeconfig: the stack's outputs have none, as after secrets reseal: pulumi up writes it",
			"talosconfig: the stack's outputs have none, as after secrets reseal: pulumi up writes it",
		}},
		"unreadable ones": {&request.Clients{Talosconfig: "a secret", Kubeconfig: "another"}, []string{all[0], all[2]}, []string{
			"kubeconfig: it is unreadable: pulumi up writes it again", "talosconfig: it is unreadable: pulumi up writes it again",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			list, _, wrong, err := readClientCertificates(
				test.users, own.Talosconfig(t), own.Kubeconfig(t, "https://127.0.9.1:6443"),
			)
			require.NoError(t, err)
			assert.ElementsMatch(t, test.wrong, wrong.Lines())

			var shown []string
			for _, c := range list {
				shown = append(shown, c.owner)
			}

			assert.Equal(t, test.shown, shown)
		})
	}
}

// TestStatusOfLocalVolumes: volumes of pods are listed by the nodes that they may be on, if the request asks for them.
func TestStatusOfLocalVolumes(t *testing.T) {
	t.Parallel()

	q, f := healthyCluster(t)
	volume := func(name, path string, nodes ...string) corev1.PersistentVolume {
		v := corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}}
		v.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "default", Name: "of-" + name}
		v.Spec.Local = &corev1.LocalVolumeSource{Path: path}

		if len(nodes) > 0 {
			v.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{
				NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{
					{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: nodes},
				}}},
			}}
		}

		return v
	}
	f.Volumes = []corev1.PersistentVolume{volume("a", "/var/mnt/local/a/", "w-1"), volume("b", "/var/mnt/local/b", "w-1", "renamed")}
	f.NodeList[4].Labels = map[string]string{corev1.LabelHostname: "renamed"} // w-2

	assert.Empty(t, q.query(t.Context()).LocalVolumes)

	q.req.LocalVolumes = true

	want := []request.LocalVolume{
		{Node: "w-1", Name: "a", Claim: "default/of-a", Path: "/var/mnt/local/a"},
		{Node: "w-1", Name: "b", Claim: "default/of-b", Path: "/var/mnt/local/b"},
		{Node: "w-2", Name: "b", Claim: "default/of-b", Path: "/var/mnt/local/b"},
	}
	s := q.query(t.Context())
	assert.Equal(t, want, s.LocalVolumes)
	assert.Empty(t, s.VolumesUnknown)
	assert.True(t, s.KubernetesAnswers())

	for _, n := range q.ControlPlanes {
		f.APIDown[n.Address.String()] = errors.New("500 Internal Server Error")
	}

	s = q.query(t.Context())
	assert.Empty(t, s.LocalVolumes)
	assert.Equal(t, "no Kubernetes API lists the PersistentVolumes: 500 Internal Server Error", s.VolumesUnknown)
	assert.False(t, s.KubernetesAnswers())
}
