package verbs

import (
	"crypto/sha256"
	"encoding/binary"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	bolt "go.etcd.io/bbolt"

	"talos-proxmox/internal/backup"
)

// revision returns a key of etcd's database.
func revision(main uint64) []byte {
	return binary.BigEndian.AppendUint64(append(binary.BigEndian.AppendUint64(nil, main), '_'), 0)
}

// database creates an etcd database with these revisions.
func database(t *testing.T, revisions ...uint64) string {
	t.Helper()

	return databaseWith(t, func(_ *bolt.Tx, keys *bolt.Bucket) {
		for _, main := range revisions {
			require.NoError(t, keys.Put(revision(main), []byte("kept")))
		}
	})
}

// databaseWith creates an etcd database that a function fills.
func databaseWith(t *testing.T, fill func(tx *bolt.Tx, keys *bolt.Bucket)) string {
	t.Helper()

	path := filepath.Join(t.TempDir(), "db")
	db, err := bolt.Open(path, 0o600, nil)
	require.NoError(t, err)
	require.NoError(t, db.Update(func(tx *bolt.Tx) error {
		keys, err := tx.CreateBucket([]byte("key"))
		require.NoError(t, err)
		_, err = tx.CreateBucket([]byte("meta"))
		require.NoError(t, err)

		fill(tx, keys)

		return nil
	}))
	require.NoError(t, db.Close())

	return path
}

// openFile opens a file for reading and writing.
func openFile(t *testing.T, path string) *os.File {
	t.Helper()

	file, err := os.OpenFile(path, os.O_RDWR, 0)
	require.NoError(t, err)
	t.Cleanup(func() { _ = file.Close() })

	return file
}

func TestARevisionIsRaisedAndCompacted(t *testing.T) {
	t.Parallel()

	for name, sealed := range map[string]bool{"a snapshot": true, "a copied database": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			path := database(t, 2, 70)

			if sealed {
				content, err := os.ReadFile(path)
				require.NoError(t, err)

				digest := sha256.Sum256(content)
				require.NoError(t, os.WriteFile(path, append(content, digest[:]...), 0o600))
			}

			require.NoError(t, raiseRevision(openFile(t, path)))

			content, err := os.ReadFile(path)
			require.NoError(t, err)

			snapshot := backup.NewSnapshot(io.Discard)
			_, err = snapshot.Write(content)
			require.NoError(t, err)
			require.NoError(t, snapshot.Check())

			db, err := bolt.Open(path, 0o400, &bolt.Options{ReadOnly: true})
			require.NoError(t, err)
			require.NoError(t, db.View(func(tx *bolt.Tx) error {
				keys := tx.Bucket([]byte("key"))
				assert.Equal(t, "kept", string(keys.Get(revision(70))))

				last, value := keys.Cursor().Last()
				assert.Equal(t, revision(1_000_000_070), last)
				assert.Empty(t, value)
				assert.Equal(t, revision(1_000_000_070), tx.Bucket([]byte("meta")).Get([]byte("scheduledCompactRev")))

				return nil
			}))
			require.NoError(t, db.Close())
		})
	}
}

func TestADamagedDatabaseIsNotRaised(t *testing.T) {
	t.Parallel()

	damaged := database(t, 2)
	content, err := os.ReadFile(damaged)
	require.NoError(t, err)

	for i := 2 * os.Getpagesize(); i < len(content); i++ {
		content[i] = 0xff
	}

	require.NoError(t, os.WriteFile(damaged, content, 0o600))

	text := filepath.Join(t.TempDir(), "text")
	require.NoError(t, os.WriteFile(text, make([]byte, 8192), 0o600))

	for path, problem := range map[string]string{
		damaged: "cannot be rewritten: it is damaged", text: "cannot be rewritten: invalid database",
		database(t): "it has no revision",
	} {
		require.ErrorContains(t, raiseRevision(openFile(t, path)), problem)
	}
}
