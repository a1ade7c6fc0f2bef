package verbs

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"net/netip"
	"os"
	"sync"
	"testing"
	"time"

	"filippo.io/age"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"

	"talos-proxmox/internal/backup"
	"talos-proxmox/internal/goldentest"
	"talos-proxmox/internal/request"
	"talos-proxmox/talosops/clustertest"
	"talos-proxmox/talosops/talosapi"
	"talos-proxmox/talosops/verbtest"
)

// lostCluster fakes control planes whose etcd is to be restored, by address. They reboot within a minute.
type lostCluster struct {
	clustertest.Unimplemented

	mu            sync.Mutex // nodes are asked at once, and change meanwhile
	down          map[string]error
	booting       map[string]time.Time // until when
	data          map[string]bool
	leader        bool
	restored      string   // the snapshot that was restored
	actions       []string // in order
	wipeErrors    map[string]error
	recoverErrors []error                      // of the next attempts
	lostRestores  int                          // restores that a reboot loses
	unresponsive  map[string]bool              // members that do not answer
	saveErrors    map[string]error             // of requests for a machine's data
	sealed        bool                         // the snapshot has an origin
	originErr     error                        // of requests for the origin
	wipes         map[string]talosapi.EtcdWipe // by address; EPHEMERAL without volumes by default
	wipeAskErr    error
	instantly     bool         // reboots take no time
	onRecover     func(string) // gets the snapshot; may be nil
}

func newLostCluster() *lostCluster {
	c := &lostCluster{
		down: map[string]error{}, booting: map[string]time.Time{}, data: map[string]bool{}, wipeErrors: map[string]error{},
		unresponsive: map[string]bool{}, saveErrors: map[string]error{},
	}
	for _, n := range clustertest.ControlPlanes().ControlPlanes {
		c.data[n.Address.String()] = true
	}

	return c
}

func (c *lostCluster) Services(_ context.Context, address netip.Addr) ([]talosapi.Service, error) {
	c.mu.Lock()
	defer c.mu.Unlock()

	if time.Now().Before(c.booting[address.String()]) {
		return nil, errors.New("connection refused")
	}

	if c.restored != "" && c.leader {
		c.data[address.String()] = true // it joins
	}

	state := "Preparing"
	if c.data[address.String()] {
		state = "Running"
	}

	return []talosapi.Service{{ID: "etcd", State: state}}, c.down[address.String()]
}

func (c *lostCluster) Members(context.Context, netip.Addr) ([]talosapi.Member, error) {
	c.mu.Lock()
	defer c.mu.Unlock()

	if !c.leader {
		return nil, errors.New("etcdserver: no leader")
	}

	return c.members(), nil
}

// members returns the control planes that have data; c is locked.
func (c *lostCluster) members() (list []talosapi.Member) {
	for _, n := range clustertest.ControlPlanes().ControlPlanes {
		if c.data[n.Address.String()] {
			list = append(list, talosapi.Member{Hostname: n.Name})
		}
	}

	return list
}

// later changes what c fakes after a while.
func (c *lostCluster) later(after time.Duration, change func()) {
	time.AfterFunc(after, func() {
		c.mu.Lock()
		defer c.mu.Unlock()

		change()
	})
}

func (c *lostCluster) HasEtcdData(_ context.Context, address netip.Addr) (bool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()

	return c.data[address.String()], nil
}

func (c *lostCluster) EtcdStatus(_ context.Context, address netip.Addr) (talosapi.EtcdStatus, error) {
	c.mu.Lock()
	defer c.mu.Unlock()

	if c.unresponsive[address.String()] {
		return talosapi.EtcdStatus{}, errors.New("context deadline exceeded")
	}

	return talosapi.EtcdStatus{HasLeader: c.leader}, nil
}

func (c *lostCluster) Origin(context.Context, netip.Addr, string) (backup.Origin, error) {
	return clustertest.Origin(), c.originErr
}

func (c *lostCluster) Snapshot(_ context.Context, address netip.Addr, to io.Writer) error {
	c.mu.Lock()
	defer c.mu.Unlock()

	if c.unresponsive[address.String()] {
		panic("a member that does not answer is asked for a snapshot")
	}

	_, err := to.Write(clustertest.EtcdSnapshot("left on " + address.String()))

	return errors.Join(err, c.saveErrors[address.String()])
}

func (c *lostCluster) Database(_ context.Context, address netip.Addr, to io.Writer) error {
	whole := clustertest.EtcdSnapshot("left on " + address.String())
	_, err := to.Write(whole[:len(whole)-sha256.Size])

	return errors.Join(err, c.saveErrors[address.String()])
}

func (c *lostCluster) EtcdWipe(_ context.Context, address netip.Addr) (talosapi.EtcdWipe, error) {
	wipe, ok := c.wipes[address.String()]
	if !ok {
		wipe.Partition = constants.EphemeralPartitionLabel
	}

	return wipe, c.wipeAskErr
}

func (c *lostCluster) WipeEtcd(_ context.Context, address netip.Addr, partition string) error {
	c.mu.Lock()
	defer c.mu.Unlock()

	if want, _ := c.EtcdWipe(context.Background(), address); partition != want.Partition {
		panic("another partition is wiped: " + partition)
	}

	if err := c.wipeErrors[address.String()]; err != nil {
		delete(c.wipeErrors, address.String())

		return err
	}

	c.actions = append(c.actions, "wipe "+address.String())
	c.data[address.String()], c.unresponsive[address.String()] = false, false

	if !c.instantly {
		c.booting[address.String()] = time.Now().Add(time.Minute)
	}

	if len(c.members()) < 2 {
		c.leader = false
	}

	return nil
}

func (c *lostCluster) Recover(_ context.Context, address netip.Addr, snapshot io.Reader) error {
	c.mu.Lock()
	defer c.mu.Unlock()

	if len(c.recoverErrors) > 0 {
		err := c.recoverErrors[0]
		c.recoverErrors = c.recoverErrors[1:]

		return err
	}

	c.actions = append(c.actions, "recover "+address.String())

	content, err := io.ReadAll(snapshot)
	if err != nil {
		return err
	}

	if c.lostRestores > 0 {
		c.lostRestores--
		c.booting[address.String()] = time.Now().Add(time.Minute)

		return nil
	}

	if c.onRecover != nil {
		c.onRecover(string(content))
	}

	c.restored, c.leader, c.data[address.String()] = string(content), true, true

	return nil
}

func newTestRestorer(t *testing.T, c *lostCluster) (*restorer, *bytes.Buffer) {
	t.Helper()

	identity, err := age.GenerateX25519Identity()
	require.NoError(t, err)

	req := &restoreRequest{Restore: request.Restore{
		Common:     clustertest.ControlPlanes(),
		Cluster:    "prod",
		Confirm:    "prod",
		Snapshot:   "file",
		Identities: identity.String(),
		Backup: &request.Backup{
			Name: "home-prod", Directory: t.TempDir(), Recipients: []string{identity.Recipient().String()},
		},
		Running: map[string]string{},
	}}
	req.Unsealed = true

	of, progress := clustertest.NewCluster(c, nil)
	of.Timeout, of.Interval = 30*time.Minute, time.Second
	r := newRestorer(of, req)
	r.raiseRevision = func(*os.File) error { return nil } // these tests send no database
	r.readObjects = func(*os.File) (etcdObjects, error) {
		return etcdObjects{volumes: map[string]*corev1.PersistentVolume{}}, nil
	}
	r.openSnapshot = func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(clustertest.EtcdSnapshot("kept"))), nil
	}

	return r, progress
}

func TestEtcdIsRestored(t *testing.T) {
	t.Parallel()

	all := []string{"wipe 127.0.9.1", "wipe 127.0.9.2", "wipe 127.0.9.3", "recover 127.0.9.1"}
	for name, test := range map[string]struct {
		change func(*lostCluster)
		did    []string
	}{
		"when no member has a majority": {func(*lostCluster) {}, all},
		"when every machine is new": {
			func(c *lostCluster) { clear(c.data) }, []string{"recover 127.0.9.1"},
		},
		"when one machine is left": {
			func(c *lostCluster) { c.data["127.0.9.1"], c.data["127.0.9.2"] = false, false },
			[]string{"wipe 127.0.9.3", "recover 127.0.9.1"},
		},
		"when a machine boots late": {
			func(c *lostCluster) { c.booting["127.0.9.2"] = time.Now().Add(5 * time.Minute) }, all,
		},
		"when a wipe must be asked for again": {
			func(c *lostCluster) { c.wipeErrors["127.0.9.2"] = errors.New("locked") },
			[]string{"wipe 127.0.9.1", "wipe 127.0.9.3", "wipe 127.0.9.2", "recover 127.0.9.1"},
		},
		"when a machine is not ready for it at first": {
			func(c *lostCluster) {
				c.recoverErrors = []error{status.Error(codes.FailedPrecondition, "not ready for recovery yet")}
			}, all,
		},
		"from a snapshot that is sealed": {
			func(c *lostCluster) { c.sealed = true }, all,
		},
		"when a reboot loses the snapshot": {
			func(c *lostCluster) { c.lostRestores = 1 }, append(all[:4:4], "recover 127.0.9.1"),
		},
	} {
		verbtest.InBubble(t, name, func(t *testing.T) {
			c := newLostCluster()
			test.change(c)

			r, progress := newTestRestorer(t, c)
			if c.sealed {
				r.origin, r.req.Unsealed = sealedBy(t, clustertest.Origin()), false
			}

			require.NoError(t, r.wait(t.Context()), progress)
			assert.Equal(t, string(clustertest.EtcdSnapshot("kept")), c.restored)
			assert.Equal(t, test.did, c.actions)
			assert.Contains(t, progress.String(), "cp-1: etcd: bootstrapping the cluster from the snapshot")
		})
	}
}

func TestARestoreRefuses(t *testing.T) {
	t.Parallel()

	golden := goldentest.NewCases(t)

	for name, change := range map[string]func(*lostCluster, *restorer){
		"a healthy cluster": func(c *lostCluster, _ *restorer) { c.leader = true },
		"one that only starts": func(c *lostCluster, _ *restorer) {
			c.later(30*time.Second, func() { c.leader = true })
		},
		"while a control plane is silent": func(c *lostCluster, _ *restorer) {
			c.down["127.0.9.3"] = errors.New("no route to host")
		},
		"a damaged snapshot": func(_ *lostCluster, r *restorer) {
			r.openSnapshot = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(make([]byte, 544))), nil }
		},
		"a snapshot that does not say which cluster it belongs to": func(_ *lostCluster, r *restorer) {
			r.req.Unsealed = false
		},
		"another cluster's snapshot": func(_ *lostCluster, r *restorer) {
			r.origin = sealedBy(t, backup.Origin{ID: "4567"}.WithSealKey("another"))
		},
		"a snapshot of this cluster that was moved into another file": func(_ *lostCluster, r *restorer) {
			r.origin = sealedBy(t, clustertest.Origin())
			r.origin.Seal = sealedBy(t, clustertest.Origin()).Seal
		},
		"while no control plane tells which cluster it is of": func(c *lostCluster, r *restorer) {
			r.origin, c.originErr = sealedBy(t, clustertest.Origin()), errors.New("permission denied")
		},
		"a cluster that someone else begins meanwhile": func(c *lostCluster, _ *restorer) {
			clear(c.data)
			c.recoverErrors = make([]error, 0)
			c.booting["127.0.9.2"] = time.Now().Add(time.Minute)
			c.data["127.0.9.3"] = true

			c.later(150*time.Second, func() { c.data["127.0.9.1"], c.leader = true, true })
		},
	} {
		verbtest.InBubble(t, name, func(t *testing.T) {
			c := newLostCluster()
			r, _ := newTestRestorer(t, c)
			change(c, r)
			golden.Equal(t, name, r.wait(t.Context()), c.actions)
		})
	}
}

// sealedBy returns the origin that is read from a file which this cluster sealed.
func sealedBy(t *testing.T, by backup.Origin) *backup.Origin {
	t.Helper()

	identity, err := age.GenerateX25519Identity()
	require.NoError(t, err)

	file, err := backup.Folder{Path: t.TempDir(), Name: "home-prod", Origin: &by}.Write(
		backup.Etcd, time.Date(2026, 11, 24, 8, 0, 0, 0, time.UTC), []string{identity.Recipient().String()}, 0,
		func(to io.Writer) error { return nil },
	)
	require.NoError(t, err)

	origin, err := backup.ReadOrigin(file.Path, identity.String())
	require.NoError(t, err)
	require.NotNil(t, origin)

	return origin
}
