package machine

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"

	"go.etcd.io/bbolt"
	"google.golang.org/protobuf/encoding/protowire"
)

// snapshotChunk is how much of a snapshot goes into one message.
const snapshotChunk = 1 << 16

// snapshot writes the data as an etcd database with its checksum behind it, so that talosctl and etcdutl accept it. The values are the lab's own JSON.
func (d *etcdData) snapshot() ([]byte, error) {
	folder, err := os.MkdirTemp("", "lab-etcd-")
	if err != nil {
		return nil, fmt.Errorf("unable to make room for the snapshot: %w", err)
	}

	defer func() { _ = os.RemoveAll(folder) }()

	path := filepath.Join(folder, "snapshot.db")

	db, err := bbolt.Open(path, 0o600, &bbolt.Options{NoSync: true})
	if err != nil {
		return nil, fmt.Errorf("unable to create the snapshot: %w", err)
	}

	var buffer bytes.Buffer

	err = db.Update(d.fill)
	if err == nil {
		err = db.View(func(tx *bbolt.Tx) error {
			_, err := tx.WriteTo(&buffer)

			return err
		})
	}

	if closing := db.Close(); err == nil {
		err = closing
	}

	if err != nil {
		return nil, fmt.Errorf("unable to write the snapshot: %w", err)
	}

	sum := sha256.Sum256(buffer.Bytes())

	return append(buffer.Bytes(), sum[:]...), nil
}

// fill writes the buckets that etcd has: the keys by revision, and what the database is up to.
func (d *etcdData) fill(tx *bbolt.Tx) error {
	meta, err := tx.CreateBucket([]byte("meta"))
	if err != nil {
		return err
	}

	if err := meta.Put([]byte("consistent_index"), binary.BigEndian.AppendUint64(nil, d.Revision)); err != nil {
		return err
	}

	if err := meta.Put([]byte("term"), binary.BigEndian.AppendUint64(nil, raftTerm)); err != nil {
		return err
	}

	keys, err := tx.CreateBucket([]byte("key"))
	if err != nil {
		return err
	}

	// The nodes are the last changes; the revisions before them belong to keys that the lab does not keep.
	revision := max(d.Revision, uint64(len(d.Nodes)+1)) - uint64(len(d.Nodes))

	for _, n := range d.Nodes {
		revision++

		at := append(append(binary.BigEndian.AppendUint64(nil, revision), '_'), binary.BigEndian.AppendUint64(nil, 0)...)
		if err := keys.Put(at, keyValue("/registry/minions/"+n.Name, mustJSON(n), revision)); err != nil {
			return err
		}
	}

	return nil
}

// keyValue encodes etcd's mvccpb.KeyValue.
func keyValue(key string, value []byte, revision uint64) []byte {
	b := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), key)
	b = protowire.AppendVarint(protowire.AppendTag(b, 2, protowire.VarintType), revision)
	b = protowire.AppendVarint(protowire.AppendTag(b, 3, protowire.VarintType), revision)
	b = protowire.AppendVarint(protowire.AppendTag(b, 4, protowire.VarintType), 1)

	return protowire.AppendBytes(protowire.AppendTag(b, 5, protowire.BytesType), value)
}
