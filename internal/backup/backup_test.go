package backup_test

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"filippo.io/age"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/internal/backup"
)

var noon = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)

// newKeyPair generates a key pair.
func newKeyPair(t *testing.T) (public, identities string) {
	t.Helper()

	identity, err := age.GenerateX25519Identity()
	require.NoError(t, err)

	return identity.Recipient().String(), "# a comment\n" + identity.String() + "\n"
}

func writeText(text string) func(io.Writer) error {
	return func(w io.Writer) error {
		_, err := io.WriteString(w, text)

		return err
	}
}

func TestWriteEncrypts(t *testing.T) {
	t.Parallel()
	public, identities := newKeyPair(t)
	other, stranger := newKeyPair(t)
	folder := backup.Folder{Path: filepath.Join(t.TempDir(), "new", "folder"), Name: "home-prod"}

	file, err := folder.Write(backup.Etcd, noon, []string{public, other}, 0, writeText("the content"))
	require.NoError(t, err)
	assert.Equal(t, filepath.Join(folder.Path, "home-prod-etcd-20261122T120000Z.age"), file.Path)
	info, err := os.Stat(file.Path)
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	assert.Equal(t, info.Size(), file.Bytes)

	parent, err := os.Stat(folder.Path)
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o700), parent.Mode().Perm())

	raw, err := os.ReadFile(file.Path)
	require.NoError(t, err)
	assert.NotContains(t, string(raw), "the content")

	for _, keys := range []string{identities, stranger} {
		readCloser, err := backup.Open(file.Path, keys)
		require.NoError(t, err)
		plain, err := io.ReadAll(readCloser)
		require.NoError(t, err)
		assert.Equal(t, "the content", string(plain))
		require.NoError(t, readCloser.Close())
	}

	_, nobody := newKeyPair(t)
	_, err = backup.Open(file.Path, nobody)
	require.ErrorContains(t, err, "unable to decrypt "+file.Path)
	_, err = backup.Open(file.Path, "AGE-SECRET-KEY-1NOTONE")
	require.ErrorContains(t, err, "there is no secret key of age")
	assert.NotContains(t, err.Error(), "NOTONE")
}

func TestOpenReadsUnencryptedSnapshots(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "etcd.db")
	require.NoError(t, os.WriteFile(path, []byte("plain"), 0o600))

	readCloser, err := backup.Open(path, "")
	require.NoError(t, err)
	plain, err := io.ReadAll(readCloser)
	require.NoError(t, err)
	assert.Equal(t, "plain", string(plain))
	require.NoError(t, readCloser.Close())
}

func TestWriteIsAtomic(t *testing.T) {
	t.Parallel()
	public, _ := newKeyPair(t)
	folder := backup.Folder{Path: t.TempDir(), Name: "home-prod"}

	_, err := folder.Write(backup.Etcd, noon, []string{public}, 1, func(w io.Writer) error {
		_, _ = io.WriteString(w, "half")

		return errors.New("connection lost")
	})
	require.EqualError(t, err, "connection lost")
	assert.Empty(t, names(t, folder.Path))

	_, err = folder.Write(backup.Etcd, noon, []string{public}, 1, writeText("one"))
	require.NoError(t, err)
	_, err = folder.Write(backup.Etcd, noon, []string{public}, 1, writeText("two"))
	require.ErrorContains(t, err, "exists")
}

func TestWriteRemovesOldBackups(t *testing.T) {
	t.Parallel()
	public, _ := newKeyPair(t)

	folder := backup.Folder{Path: t.TempDir(), Name: "home-prod"}
	for _, foreign := range []string{
		"home-prod-2-etcd-20200101T000000Z.age", "home-prod-etcd-notes.age", "home-prod-etcd-20200101T000000Z.txt",
		"home-prod-secrets-20200101T000000Z.age", "home-prod-etcd-20261122T110000Z.age.partial",
	} {
		require.NoError(t, os.WriteFile(filepath.Join(folder.Path, foreign), nil, 0o600))
	}

	kept := names(t, folder.Path)
	leftover := filepath.Join(folder.Path, "home-prod-etcd-20261121T110000Z.age.partial")
	require.NoError(t, os.WriteFile(leftover, nil, 0o600)) // of a run that was killed the day before

	var last backup.File

	for i := range 4 {
		var err error

		last, err = folder.Write(backup.Etcd, noon.Add(time.Duration(i)*time.Hour), []string{public}, 2, writeText("x"))
		require.NoError(t, err)
	}

	assert.Equal(t, []string{filepath.Join(folder.Path, "home-prod-etcd-20261122T130000Z.age")}, last.Removed)
	assert.ElementsMatch(t, append(kept, "home-prod-etcd-20261122T140000Z.age", "home-prod-etcd-20261122T150000Z.age"),
		names(t, folder.Path))
}

// TestAClockThatWasSetBack: the file just written stays, however many files of the future there are; they are neither
// counted nor removed, and do not hide that the newest is old.
func TestAClockThatWasSetBack(t *testing.T) {
	t.Parallel()
	public, _ := newKeyPair(t)
	folder := backup.Folder{Path: t.TempDir(), Name: "home-prod", Origin: &backup.Origin{ID: "0123"}}

	var future []string

	for _, hours := range []int{1, 2, 3} {
		file, err := folder.Write(backup.Etcd, noon.Add(time.Duration(hours)*time.Hour), []string{public}, 0, writeText("x"))
		require.NoError(t, err)

		future = append(future, filepath.Base(file.Path))
	}

	var last backup.File

	for _, minutes := range []int{-2, -1, 0} {
		var err error

		at := noon.Add(time.Duration(minutes) * time.Minute)
		last, err = folder.Write(backup.Etcd, at, []string{public}, 2, writeText("x"))
		require.NoError(t, err)
		assert.FileExists(t, last.Path)
	}

	assert.Equal(t, []string{filepath.Join(folder.Path, "home-prod-etcd-20261122T115800Z-0123.age")}, last.Removed)
	assert.ElementsMatch(t, append(
		future, "home-prod-etcd-20261122T115900Z-0123.age", "home-prod-etcd-20261122T120000Z-0123.age",
	), names(t, folder.Path))

	found, err := folder.Newest(backup.Etcd, noon)
	require.NoError(t, err)
	assert.Equal(t, backup.Found{Newest: last.Path, Created: noon, Future: filepath.Join(folder.Path, future[2])}, found)

	// One file of the future is all that there is.
	found, err = backup.Folder{Path: folder.Path, Name: "home-prod"}.Newest(backup.Etcd, noon.Add(-time.Hour))
	require.NoError(t, err)
	assert.Empty(t, found.Newest)
	assert.NotEmpty(t, found.Future)
}

// TestClustersOfTheSameName: stack a with cluster b-c and stack a-b with cluster c have the same file names but for the
// id; files of earlier versions have it in their header alone.
func TestClustersOfTheSameName(t *testing.T) {
	t.Parallel()
	public, _ := newKeyPair(t)
	path := t.TempDir()
	folder := func(id string) backup.Folder {
		origin := backup.Origin{ID: id, Talos: "v1.14.4", Kubernetes: "v1.37.2"}

		return backup.Folder{Path: path, Name: "a-b-c", Origin: &origin}
	}
	write := func(id string, hours int) string {
		at := noon.Add(time.Duration(hours) * time.Hour)
		file, err := folder(id).Write(backup.Etcd, at, []string{public}, 2, writeText("x"))
		require.NoError(t, err)

		return file.Path
	}
	old := func(file string) string {
		name := file[:len(file)-len("-0123.age")] + ".age"
		require.NoError(t, os.Rename(file, name))

		return name
	}

	mine, others := old(write("0123", 1)), old(write("4567", 2))
	unsealed := filepath.Join(path, "a-b-c-etcd-20200101T000000Z.age")
	require.NoError(t, os.WriteFile(unsealed, nil, 0o600))

	now := noon.Add(20 * time.Hour)
	found, err := folder("0123").Newest(backup.Etcd, now)
	require.NoError(t, err)
	assert.Equal(t, mine, found.Newest)

	newest := write("4567", 3)
	found, err = folder("0123").Newest(backup.Etcd, now)
	require.NoError(t, err)
	assert.Equal(t, mine, found.Newest, "of the cluster itself")

	write("0123", 4)
	write("0123", 5)
	assert.NoFileExists(t, mine, "beyond keep, by its header")
	assert.FileExists(t, others)
	assert.FileExists(t, newest)
	assert.FileExists(t, unsealed, "nothing says whose it is")
}

func TestCheckRecipient(t *testing.T) {
	t.Parallel()
	public, identities := newKeyPair(t)
	secret := identities[len("# a comment\n"):]

	require.NoError(t, backup.CheckRecipient(public))

	for text, problem := range map[string]string{
		"":                           "is not a public key of age",
		"age1short":                  "is not a public key of age",
		"ssh-rsa AA":                 "is not a public key of age",
		secret:                       "is a secret key, which must not stand here",
		public[:len(public)-1] + "b": "is not a public key of age",
		public + "\n" + public:       "is not a public key of age",
	} {
		err := backup.CheckRecipient(text)
		require.ErrorContains(t, err, problem, "%q", text)
		assert.NotContains(t, err.Error(), "AGE-SECRET")
	}

	_, err := backup.Recipients(nil)
	require.ErrorContains(t, err, "backup.recipients")
}

func TestSnapshotCheck(t *testing.T) {
	t.Parallel()

	database := bytes.Repeat([]byte("block of"), 512)
	digest := sha256.Sum256(database)
	whole := append(bytes.Clone(database), digest[:]...)
	damaged := bytes.Clone(whole)
	damaged[100]++

	for name, test := range map[string]struct {
		content []byte
		problem string
	}{
		"whole":           {content: whole},
		"damaged":         {content: damaged, problem: "its digest does not fit its content"},
		"cut off":         {content: whole[:len(whole)-33], problem: "it has 4095 bytes"},
		"cut at a block":  {content: whole[:1024+sha256.Size], problem: "its digest does not fit its content"},
		"without digest":  {content: database, problem: "it has 4096 bytes"},
		"nothing":         {problem: "is empty"},
		"a digest's size": {content: digest[:], problem: "its digest does not fit its content"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			for _, piece := range []int{1, 31, 32, 33, 5000} {
				var passed bytes.Buffer

				snapshot := backup.NewSnapshot(&passed)
				for rest := test.content; len(rest) > 0; rest = rest[min(piece, len(rest)):] {
					_, err := snapshot.Write(rest[:min(piece, len(rest))])
					require.NoError(t, err)
				}

				assert.True(t, bytes.Equal(test.content, passed.Bytes()))
				assert.EqualValues(t, len(test.content), snapshot.Size())

				if test.problem == "" {
					require.NoError(t, snapshot.Check())
				} else {
					require.ErrorContains(t, snapshot.Check(), test.problem)
				}
			}
		})
	}
}

func names(t *testing.T, folder string) []string {
	t.Helper()

	entries, err := os.ReadDir(folder)
	require.NoError(t, err)

	list := []string{}
	for _, e := range entries {
		list = append(list, e.Name())
	}

	return list
}

func TestOrigin(t *testing.T) {
	t.Parallel()

	classic, err := age.GenerateX25519Identity()
	require.NoError(t, err)
	quantum, err := age.GenerateHybridIdentity()
	require.NoError(t, err)

	own := backup.Origin{ID: "0123", Talos: "v1.14.4", Kubernetes: "v1.37.2"}.WithSealKey("the cluster's key")

	for name, key := range map[string]struct {
		identity  age.Identity
		recipient string
		secret    string
	}{
		"classic":      {classic, classic.Recipient().String(), classic.String()},
		"post-quantum": {quantum, quantum.Recipient().String(), quantum.String()},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			folder := backup.Folder{Path: t.TempDir(), Name: "home-prod", Origin: &own}
			file, err := folder.Write(backup.Etcd, noon, []string{key.recipient}, 0, writeText("the content"))
			require.NoError(t, err)

			origin, err := backup.ReadOrigin(file.Path, key.secret)
			require.NoError(t, err)
			require.NotNil(t, origin)
			assert.True(t, origin.Matches(own))
			assert.False(t, origin.Matches(own.WithSealKey("another cluster's key")))
			assert.Equal(t, "home-prod", origin.Cluster)
			assert.Equal(t, noon.UTC(), origin.Time)

			forged := *origin
			forged.Cluster = "home-other"
			assert.False(t, forged.Matches(own), "the seal covers all fields")

			// age's own commands can read it.
			raw, err := os.ReadFile(file.Path)
			require.NoError(t, err)
			plain, err := age.Decrypt(bytes.NewReader(raw), key.identity)
			require.NoError(t, err)
			text, err := io.ReadAll(plain)
			require.NoError(t, err)
			assert.Equal(t, "the content", string(text))

			unsealed, err := backup.Folder{Path: t.TempDir(), Name: "home-prod"}.Write(
				backup.Etcd, noon, []string{key.recipient}, 0, writeText("the content"),
			)
			require.NoError(t, err)

			origin, err = backup.ReadOrigin(unsealed.Path, key.secret)
			require.NoError(t, err)
			assert.Nil(t, origin)
		})
	}
}
