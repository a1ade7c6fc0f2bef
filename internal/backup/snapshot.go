package backup

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
)

// Snapshot judges a snapshot of etcd as it is written: a database of whole blocks of 512 bytes, followed by the SHA-256
// of all of it (source: etcd's snapshot.save).
type Snapshot struct {
	to   io.Writer
	sum  hash.Hash
	tail []byte // of what was written, up to the length of the digest
	size int64
}

// Block is how many bytes a database of etcd has, or a multiple of it.
const Block = 512

// NewSnapshot returns a writer that passes on to another one.
func NewSnapshot(to io.Writer) *Snapshot {
	return &Snapshot{to: to, sum: sha256.New()}
}

// Write implements io.Writer.
func (s *Snapshot) Write(b []byte) (int, error) {
	n, err := s.to.Write(b)
	s.size += int64(n)

	s.tail = append(s.tail, b[:n]...)
	if surplus := len(s.tail) - sha256.Size; surplus > 0 {
		_, _ = s.sum.Write(s.tail[:surplus]) // never fails
		s.tail = append(s.tail[:0], s.tail[surplus:]...)
	}

	return n, err
}

// Check says whether what was written is a whole snapshot.
func (s *Snapshot) Check() error {
	switch {
	case s.size == 0:
		return errors.New("the snapshot is empty")
	case s.size%Block != sha256.Size:
		return fmt.Errorf("the snapshot is not whole: it has %d bytes, which are not whole blocks and a digest", s.size)
	case !bytes.Equal(s.sum.Sum(nil), s.tail):
		return errors.New("the snapshot is damaged: its digest does not fit its content")
	default:
		return nil
	}
}

// CheckCopy says whether what was written is a database as a machine's disk has it, whole blocks without a digest.
func (s *Snapshot) CheckCopy() error {
	if s.size == 0 || s.size%Block != 0 {
		return fmt.Errorf("the database is not whole: it has %d bytes, which are not blocks of %d", s.size, Block)
	}

	return nil
}

// Size is in bytes, the digest included.
func (s *Snapshot) Size() int64 { return s.size }

// Digest is the SHA-256 of the database in hexadecimal, as etcd wrote it.
func (s *Snapshot) Digest() string { return hex.EncodeToString(s.tail) }
