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

// Snapshot checks a snapshot of etcd while it is written: a database of whole blocks of 512 bytes, followed by its
// SHA-256 digest (source: etcd's snapshot.save).
type Snapshot struct {
	to   io.Writer
	sum  hash.Hash
	tail []byte // the last bytes written, up to the length of the digest
	size int64
}

// Block is the block size: the size of a database of etcd is a multiple of it.
const Block = 512

// NewSnapshot returns a writer that forwards to another one.
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

// Check returns an error unless a whole snapshot was written.
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

// CheckCopy returns an error unless a copy of a database was written: whole blocks, without a digest.
func (s *Snapshot) CheckCopy() error {
	if s.size == 0 || s.size%Block != 0 {
		return fmt.Errorf("the database is not whole: it has %d bytes, which are not blocks of %d", s.size, Block)
	}

	return nil
}

// Size returns the size in bytes, with the digest.
func (s *Snapshot) Size() int64 { return s.size }

// Digest returns the SHA-256 of the database in hexadecimal, as etcd wrote it.
func (s *Snapshot) Digest() string { return hex.EncodeToString(s.tail) }
