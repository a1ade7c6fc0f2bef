package verbs

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"

	bolt "go.etcd.io/bbolt"

	"talos-proxmox/internal/backup"
)

// revisionsAhead is added to the revision of a snapshot so that no revision is used twice: more than a busy cluster
// writes in a week (source: etcd's own example of --bump-revision).
const revisionsAhead = 1_000_000_000

// etcd stores a revision as two big-endian numbers, the main one and the one within a transaction, with _ between them;
// t follows if a key was deleted (source: server/storage/mvcc and schema of etcd 3.5 to 3.7).
const (
	keyBucket, metaBucket = "key", "meta"
	scheduledCompaction   = "scheduledCompactRev"
	revisionBytes         = 8 + 1 + 8
)

// raiseRevision rewrites a snapshot in plain text, or a database without a digest, like `etcdutl snapshot restore
// --bump-revision --mark-compacted`: it adds to the revision, and marks all earlier ones as compacted. Clients that
// remember revisions from after the snapshot, such as the caches of controllers and kubelets, then get an error and
// list again; otherwise they would wait for revisions that mean something else. It checks the database, and appends a
// digest to the file.
func raiseRevision(file *os.File) error {
	if err := removeDigest(file); err != nil {
		return fmt.Errorf("unable to rewrite the snapshot: %w", err)
	}

	if err := raiseDatabaseRevision(file); err != nil {
		return fmt.Errorf("the database in the snapshot cannot be rewritten: %w", err)
	}

	if err := appendDigest(file); err != nil {
		return fmt.Errorf("unable to rewrite the snapshot: %w", err)
	}

	return nil
}

// removeDigest removes the digest that follows the database in a snapshot.
func removeDigest(file *os.File) error {
	info, err := file.Stat()
	if err == nil && info.Size()%backup.Block == sha256.Size {
		err = file.Truncate(info.Size() - sha256.Size)
	}

	return err
}

func appendDigest(file *os.File) error {
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return err
	}

	sum := sha256.New()
	if _, err := io.Copy(sum, file); err != nil {
		return err
	}

	_, err := file.Write(sum.Sum(nil))

	return err
}

// withDatabase opens the database in a file, which may have no name, for a transaction.
func withDatabase(file *os.File, do func(*bolt.DB) error) (err error) {
	defer func() {
		if panicked := recover(); panicked != nil { // bbolt panics on damaged pages
			err = fmt.Errorf("it is damaged: %v", panicked)
		}
	}()

	db, err := bolt.Open(file.Name(), 0o600, &bolt.Options{
		NoFreelistSync: true,
		OpenFile: func(string, int, os.FileMode) (*os.File, error) { // bbolt closes it
			descriptor, err := syscall.Dup(int(file.Fd()))
			if err != nil {
				return nil, err
			}

			return os.NewFile(uintptr(descriptor), file.Name()), nil
		},
	})
	if err != nil {
		return err
	}

	defer func() { err = errors.Join(err, db.Close()) }()

	return do(db)
}

func raiseDatabaseRevision(file *os.File) error {
	return withDatabase(file, func(db *bolt.DB) error { return db.Update(raiseLastRevision) })
}

func raiseLastRevision(tx *bolt.Tx) error {
	var panicked []error
	for found := range tx.Check() {
		panicked = append(panicked, found)
	}

	if len(panicked) > 0 {
		return fmt.Errorf("it is damaged: %w", errors.Join(panicked...))
	}

	keys, meta := tx.Bucket([]byte(keyBucket)), tx.Bucket([]byte(metaBucket))
	if keys == nil || meta == nil {
		return errors.New("it is not a database of etcd")
	}

	last, _ := keys.Cursor().Last() // keys are sorted by revision
	if len(last) < revisionBytes {
		return errors.New("it has no revision")
	}

	next := make([]byte, 0, revisionBytes)
	next = binary.BigEndian.AppendUint64(next, binary.BigEndian.Uint64(last)+revisionsAhead)
	next = append(next, '_')
	next = binary.BigEndian.AppendUint64(next, 0)

	return errors.Join(keys.Put(next, []byte{}), meta.Put([]byte(scheduledCompaction), next))
}
