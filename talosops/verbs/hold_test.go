package verbs

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/talosops/clustertest"
	"talos-proxmox/talosops/verb"
)

// TestHoldEndsWithItsInput: the end of the input says that the run is over, however it ended.
func TestHoldEndsWithItsInput(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, f, progress := clustertest.NewLeased(t, nil)
		in, program := io.Pipe()

		var out bytes.Buffer

		ended := make(chan error, 1)

		go func() {
			s := &verb.Session{In: json.NewDecoder(in), Out: &out}
			ended <- c.WithLease(t.Context(), "brings stack acme/talos-proxmox/prod up", func(ctx context.Context) error {
				_, err := holdUntilEnd(t.Context(), s)(ctx)

				return err
			})
		}()

		time.Sleep(time.Hour)
		synctest.Wait()
		assert.Contains(t, f.Held.HolderIdentity, " brings stack acme/talos-proxmox/prod up")
		assert.JSONEq(t, `{"ready":true}`, out.String())
		assert.Empty(t, ended)

		require.NoError(t, program.Close())
		require.NoError(t, <-ended)
		assert.Empty(t, f.Held.HolderIdentity)
		assert.Empty(t, progress.String())
	})
}
