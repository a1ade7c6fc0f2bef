package verbs

import (
	"errors"
	"io"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"talos-proxmox/internal/backup"
	"talos-proxmox/talosops/clustertest"
	"talos-proxmox/talosops/talosapi"
	"talos-proxmox/talosops/verbtest"
)

// TestARestoreNamesTheVolumesThatItDeletes: nothing is touched, saved or waited for before they are named.
func TestARestoreNamesTheVolumesThatItDeletes(t *testing.T) {
	t.Parallel()

	local := talosapi.EtcdWipe{Partition: "EPHEMERAL", Directories: []string{"local"}}
	apart := talosapi.EtcdWipe{Partition: "ETCD", Directories: []string{"local"}}

	for name, test := range map[string]struct {
		wipes         map[string]talosapi.EtcdWipe
		inSnapshot    *corev1.PersistentVolume
		inSurvivors   *corev1.PersistentVolume
		change        func(*lostCluster, *restorer)
		lose          []string
		lines         []string // of the refusal; empty = it restores
		flag          string
		savedSurvives bool
	}{
		"a directory and a volume": {
			wipes: map[string]talosapi.EtcdWipe{"127.0.9.1": local}, inSnapshot: localVolume("pvc-1", "cp-1", "/var/mnt/local/1"),
			lines: []string{
				"  cp-1/local: a user volume, which is a directory\n",
				"  cp-1/pvc-1: the volume of claim app/data-pvc-1, at /var/mnt/local/1\n",
			},
			flag: "--lose-volumes cp-1/local,cp-1/pvc-1",
		},
		"one of two is named": {
			wipes: map[string]talosapi.EtcdWipe{"127.0.9.1": local}, inSnapshot: localVolume("pvc-1", "cp-1", "/var/mnt/local/1"),
			lose: []string{"cp-1/local"}, lines: []string{"cp-1/local: ", "cp-1/pvc-1: "},
			flag: "--lose-volumes cp-1/local,cp-1/pvc-1",
		},
		"all are named": {
			wipes: map[string]talosapi.EtcdWipe{"127.0.9.1": local}, inSnapshot: localVolume("pvc-1", "cp-1", "/var/mnt/local/1"),
			lose: []string{"cp-1/pvc-1", "cp-1/local"},
		},
		"etcd has partitions of its own": {
			wipes:      map[string]talosapi.EtcdWipe{"127.0.9.1": apart, "127.0.9.2": apart, "127.0.9.3": apart},
			inSnapshot: localVolume("pvc-1", "cp-1", "/var/mnt/local/1"),
		},
		"only control planes without data have volumes": {
			wipes: map[string]talosapi.EtcdWipe{"127.0.9.1": local}, inSnapshot: localVolume("pvc-1", "cp-1", "/var/mnt/local/1"),
			change: func(c *lostCluster, _ *restorer) { c.data["127.0.9.1"] = false },
		},
		"a volume that was made after the snapshot": {
			inSurvivors: localVolume("pvc-2", "cp-2", "/var/2"),
			lines:       []string{"  cp-2/pvc-2: the volume of claim app/data-pvc-2, at /var/2\n"}, flag: "--lose-volumes cp-2/pvc-2",
			savedSurvives: true,
		},
	} {
		verbtest.InBubble(t, name, func(t *testing.T) {
			c := newLostCluster()
			c.wipes = test.wipes
			r, progress := newTestRestorer(t, c)
			r.req.LoseVolumes = test.lose
			reads := 0
			r.readObjects = func(*os.File) (etcdObjects, error) {
				found, volume := etcdObjects{volumes: map[string]*corev1.PersistentVolume{}}, test.inSnapshot
				if reads++; reads > 1 {
					volume = test.inSurvivors
				}

				if volume != nil {
					found.volumes[volume.Name] = volume
				}

				return found, nil
			}

			if test.change != nil {
				test.change(c, r)
			}

			begin := time.Now()
			err := r.wait(t.Context())

			if len(test.lines) == 0 {
				require.NoError(t, err, progress)
				assert.Equal(t, "recover 127.0.9.1", c.actions[len(c.actions)-1])

				return
			}

			for _, line := range append(test.lines, "nothing was wiped", test.flag) {
				require.ErrorContains(t, err, line)
			}

			assert.Empty(t, c.actions)

			if !test.savedSurvives {
				assert.NotContains(t, progress.String(), "is saved in")
				assert.Less(t, time.Since(begin), leaderlessGrace, "it is said at once")
			}
		})
	}

	verbtest.InBubble(t, "a control plane that does not say what it has", func(t *testing.T) {
		c := newLostCluster()
		c.wipeAskErr = errors.New("permission denied")
		r, _ := newTestRestorer(t, c)
		require.ErrorContains(t, r.wait(t.Context()), "does not say which volumes go with its etcd data: permission denied")
		assert.Empty(t, c.actions)
	})
}

// TestARestoreOfAHealthyCluster: on request, all members are wiped at once, and their data is saved.
func TestARestoreOfAHealthyCluster(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct {
		change func(*lostCluster)
		did    []string
	}{
		"that is whole": {func(*lostCluster) {}, []string{
			"wipe 127.0.9.1", "wipe 127.0.9.2", "wipe 127.0.9.3", "recover 127.0.9.1",
		}},
		"one of whose members is wiped late": {
			func(c *lostCluster) { c.wipeErrors["127.0.9.3"] = errors.New("locked") },
			[]string{"wipe 127.0.9.1", "wipe 127.0.9.2", "wipe 127.0.9.3", "recover 127.0.9.1"},
		},
	} {
		verbtest.InBubble(t, name, func(t *testing.T) {
			c := newLostCluster()
			c.leader = true
			test.change(c)

			r, progress := newTestRestorer(t, c)
			r.req.Healthy = true
			require.NoError(t, r.wait(t.Context()), progress)
			assert.Equal(t, test.did, c.actions)
			assert.Equal(t, string(clustertest.EtcdSnapshot("kept")), c.restored)
			assert.Len(t, r.survivors, 3)
		})
	}
}

// TestARestoreRefusesWhileFormerControlPlanesMayRun: they have the data of before.
func TestARestoreRefusesWhileFormerControlPlanesMayRun(t *testing.T) {
	t.Parallel()

	objects := etcdObjects{
		members: []string{"cp-1", "cp-4", ""}, volumes: map[string]*corev1.PersistentVolume{},
		nodes: map[string]*corev1.Node{
			"cp-1": nodeWith("cp-1", controlPlaneLabel), "cp-5": nodeWith("cp-5", controlPlaneLabel), "general-1": nodeWith("general-1"),
		},
	}
	runs := "VM 2003 on pve1 (running)"

	for name, test := range map[string]struct {
		running map[string]string
		gone    []string
		wants   []string // of the refusal; empty = it restores
	}{
		"one runs":                    {map[string]string{"cp-4": runs, "mail": runs}, nil, []string{"  cp-4: " + runs + "\n", "--gone cp-4"}},
		"both run":                    {map[string]string{"cp-4": runs, "cp-5": runs}, nil, []string{"--gone cp-4,cp-5"}},
		"it is not known":             {nil, nil, []string{"  cp-4: nobody says whether it runs\n", "--gone cp-4,cp-5"}},
		"it is not known of one":      {nil, []string{"cp-5"}, []string{"--gone cp-4"}},
		"none runs":                   {map[string]string{"general-1": runs}, nil, nil},
		"the user says that none run": {nil, []string{"cp-4", "cp-5"}, nil},
	} {
		verbtest.InBubble(t, name, func(t *testing.T) {
			c := newLostCluster()
			r, progress := newTestRestorer(t, c)
			r.readObjects = func(*os.File) (etcdObjects, error) { return objects, nil }
			r.req.Running, r.req.Gone = test.running, test.gone

			err := r.wait(t.Context())
			if len(test.wants) == 0 {
				require.NoError(t, err, progress)

				return
			}

			for _, want := range test.wants {
				require.ErrorContains(t, err, want)
			}

			assert.Empty(t, c.actions)
			assert.NotContains(t, progress.String(), "is saved in")
		})
	}
}

// TestADecryptedSnapshotHasNoName: a killed restore leaves nothing that anybody could find.
func TestADecryptedSnapshotHasNoName(t *testing.T) {
	temporary := t.TempDir()
	t.Setenv("TMPDIR", temporary)

	looked := 0
	look := func() {
		entries, err := os.ReadDir(temporary)
		require.NoError(t, err)
		require.Empty(t, entries)

		looked++
	}

	c := newLostCluster()
	r, _ := newTestRestorer(t, c)
	r.req.Healthy = true // without the pause
	r.Interval = time.Millisecond
	folder := r.req.Backup.Directory
	path := database(t, 2, 70)
	r.readObjects = func(file *os.File) (etcdObjects, error) {
		look()

		if looked == 1 { // the snapshot
			return readEtcdObjects(file)
		}

		return etcdObjects{}, nil
	}
	r.raiseRevision = func(file *os.File) error {
		look()

		return raiseRevision(file)
	}
	r.req.SkipHashCheck = true
	r.openSnapshot = func() (io.ReadCloser, error) { return os.Open(path) }
	c.onRecover = func(snapshot string) {
		look()

		check := backup.NewSnapshot(io.Discard)
		_, err := io.WriteString(check, snapshot)
		require.NoError(t, errors.Join(err, check.Check()))
	}
	c.instantly = true

	require.NoError(t, r.wait(t.Context()))
	assert.Equal(t, 6, looked, "the snapshot twice, three survivors, and what is sent")
	look()
	assert.DirExists(t, folder)
}
