package image

import (
	"encoding/binary"
	"slices"
)

// Header of a qcow2 file without data (docs/interop/qcow2.txt of QEMU).
const (
	qcow2Magic       = "QFI\xfb"
	qcow2Version     = 3
	qcow2ClusterBits = 16
	qcow2Header      = 104
	// qcow2Sector is the offset of the image's description, after the header.
	qcow2Sector = 512
	// Clusters of the tables, beyond the end of the file: nothing is allocated.
	qcow2L1, qcow2Refcounts = 2, 1
)

// EncodeQCOW2 returns the image as a qcow2 file of a disk of this size: a real header, from which qemu-img reads the
// format and the size, and the image's description after it.
func (i Image) EncodeQCOW2(size int64) []byte {
	const cluster = 1 << qcow2ClusterBits

	header := make([]byte, qcow2Sector)
	copy(header, qcow2Magic)

	big := binary.BigEndian
	big.PutUint32(header[4:], qcow2Version)
	big.PutUint32(header[20:], qcow2ClusterBits)
	big.PutUint64(header[24:], uint64(size)) //nolint:gosec // sizes are positive

	// A table of the second level covers an eighth of a cluster's bytes in clusters.
	const covered = cluster / 8 * cluster

	big.PutUint32(header[36:], uint32((size+covered-1)/covered)) //nolint:gosec // a few
	big.PutUint64(header[40:], qcow2L1*cluster)
	big.PutUint64(header[48:], qcow2Refcounts*cluster)
	big.PutUint32(header[56:], 1)
	big.PutUint32(header[96:], 4) // references are counted in 16 bits
	big.PutUint32(header[100:], qcow2Header)

	return slices.Concat(header, i.Encode())
}

// VirtualSize returns the size of the disk in a qcow2 file; false for any other file, and for one with a backing file.
func VirtualSize(b []byte) (int64, bool) {
	big := binary.BigEndian
	if len(b) < qcow2Sector || string(b[:4]) != qcow2Magic || big.Uint64(b[8:]) != 0 {
		return 0, false
	}

	return int64(big.Uint64(b[24:])), true //nolint:gosec // sizes are positive
}
