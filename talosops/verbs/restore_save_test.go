package verbs

import (
	"errors"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/internal/backup"
	"talos-proxmox/talosops/verbtest"
)

func TestARestoreSavesSurvivors(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct {
		change func(*lostCluster, *restorer)
		keeps  map[string]int // bytes by control plane
		wants  string         // the error
		says   string
	}{
		"members that see no leader": {
			keeps: map[string]int{"cp-1": 9248, "cp-2": 9248, "cp-3": 9248},
		},
		"one that is left, whose member does not answer": {
			change: func(c *lostCluster, _ *restorer) {
				c.data["127.0.9.1"], c.data["127.0.9.2"], c.unresponsive["127.0.9.3"] = false, false, true
			},
			keeps: map[string]int{"cp-3": 9216}, says: ".age, a copied database (--skip-hash-check restores it)",
		},
		"one that gives nothing, and nothing is wiped": {
			change: func(c *lostCluster, _ *restorer) { c.saveErrors["127.0.9.2"] = errors.New("input/output error") },
			keeps:  map[string]int{"cp-1": 9248, "cp-3": 9248},
			wants:  "nothing was wiped: these control planes have etcd data that cannot be saved, and may be newer than the snapshot:\n  cp-2: input/output error\n",
		},
		"one that gives nothing, and is wiped as it was told": {
			change: func(c *lostCluster, r *restorer) {
				c.saveErrors["127.0.9.2"], r.req.DiscardSurvivors = errors.New("input/output error"), true
			},
			keeps: map[string]int{"cp-1": 9248, "cp-3": 9248},
			says:  "cp-2: etcd: its data is not saved, as requested: input/output error",
		},
		"nowhere to keep it": {
			change: func(_ *lostCluster, r *restorer) { r.req.Backup = nil },
			wants:  "cp-3: backup.recipients: there is no public key to encrypt it to: set one in the stack file",
		},
	} {
		verbtest.InBubble(t, name, func(t *testing.T) {
			c := newLostCluster()
			r, progress := newTestRestorer(t, c)
			target := *r.req.Backup

			if test.change != nil {
				test.change(c, r)
			}

			err := r.wait(t.Context())
			if test.wants == "" {
				require.NoError(t, err)
				assert.Len(t, r.survivors, len(test.keeps))
			} else {
				require.ErrorContains(t, err, test.wants)
				require.ErrorContains(t, err, "--discard-survivors")
				assert.Empty(t, c.actions)
			}

			assert.Contains(t, progress.String(), test.says)

			for node, size := range test.keeps {
				saved, err := backup.Folder{Path: target.Directory, Name: target.Name}.Newest(backup.Survivor(node), time.Now())
				require.NoError(t, err)
				assert.Contains(t, progress.String(), node+": etcd: its data is saved in "+saved.Newest)

				file, err := backup.Open(saved.Newest, r.req.Identities)
				require.NoError(t, err)

				content, err := io.ReadAll(file)
				require.NoError(t, errors.Join(err, file.Close()))
				assert.Len(t, content, size)
				assert.Contains(t, string(content), "left on 127.0.9."+node[3:])
			}
		})
	}
}
