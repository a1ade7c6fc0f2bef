package offsite

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"
)

// maxObjectBytes is the limit of a single request (source: PutObject in the S3 API's reference). For multipart uploads,
// not all servers know the digest of the whole object.
const maxObjectBytes = 5 << 30

// Put stores a copy of a file that nobody can delete before its retention ends, and returns its address. The server
// checks the digest on receipt; then size, digest and retention of the copy are read back and verified.
func (b *Bucket) Put(ctx context.Context, file string, now time.Time) (string, error) {
	if b.configErr != nil {
		return "", b.configErr
	}

	if err := b.checkLock(ctx); err != nil {
		return "", err
	}

	in, err := os.Open(file) //nolint:gosec // a backup of this program
	if err != nil {
		return "", fmt.Errorf("unable to read the backup: %w", err)
	}
	defer in.Close() //nolint:errcheck // it is only read

	sum := sha256.New()

	size, err := io.Copy(sum, in)
	if err == nil {
		_, err = in.Seek(0, io.SeekStart)
	}

	if err != nil {
		return "", fmt.Errorf("unable to read the backup: %w", err)
	}

	if size > maxObjectBytes {
		return "", fmt.Errorf("%s has %d bytes, and S3 accepts %d at once: defragment etcd (talosctl etcd defrag) and repeat",
			file, size, int64(maxObjectBytes))
	}

	digest, key := base64.StdEncoding.EncodeToString(sum.Sum(nil)), b.key(filepath.Base(file))
	until := now.UTC().AddDate(0, 0, b.cfg.RetentionDays).Truncate(time.Second)

	sent, err := b.client.PutObject(ctx, b.cfg.Bucket, key, in, size, minio.PutObjectOptions{
		ContentType: "application/octet-stream", DisableMultipart: true, SendContentMd5: true,
		Mode: minio.RetentionMode(b.cfg.RetentionMode), RetainUntilDate: until,
		UserMetadata: map[string]string{"X-Amz-Checksum-Sha256": digest}, // S3's own names are sent as headers
	})
	if err != nil {
		return "", b.wrap("store a copy", "s3:PutObject and s3:PutObjectRetention", err)
	}

	address := b.address(key, sent.VersionID)

	if err := b.verify(ctx, key, sent.VersionID, size, digest, until); err != nil {
		return "", fmt.Errorf("the copy %s cannot be relied on: %w", address, err)
	}

	return address, nil
}

// verify compares size, digest and retention on the server. If the server has no digest, it downloads the copy.
func (b *Bucket) verify(ctx context.Context, key, version string, size int64, digest string, until time.Time) error {
	has, err := b.client.StatObject(ctx, b.cfg.Bucket, key, minio.StatObjectOptions{VersionID: version, Checksum: true})
	if err != nil {
		return b.wrap("read the metadata of a copy", "s3:GetObject and s3:GetObjectVersion", err)
	}

	if has.ChecksumSHA256 == "" {
		sum := sha256.New()
		if err := b.read(ctx, key, version, sum); err != nil {
			return err
		}

		has.ChecksumSHA256 = base64.StdEncoding.EncodeToString(sum.Sum(nil))
	}

	if has.Size != size || has.ChecksumSHA256 != digest {
		return fmt.Errorf("it has %d bytes and the digest %s, but %d and %s were sent: check the server, then take another",
			has.Size, has.ChecksumSHA256, size, digest)
	}

	mode := has.Metadata.Get("X-Amz-Object-Lock-Mode")

	kept, err := time.Parse(time.RFC3339, has.Metadata.Get("X-Amz-Object-Lock-Retain-Until-Date"))
	if err != nil || mode != b.cfg.RetentionMode || kept.Before(until) {
		return fmt.Errorf("the server does not say that it keeps it until %s in mode %s: give the credentials the right "+
			"s3:GetObjectRetention, or check the server's object lock, then take another", until.Format(time.RFC3339), b.cfg.RetentionMode)
	}

	return nil
}

func (b *Bucket) read(ctx context.Context, key, version string, to io.Writer) error {
	object, err := b.client.GetObject(ctx, b.cfg.Bucket, key, minio.GetObjectOptions{VersionID: version})
	if err == nil {
		_, err = io.Copy(to, object)
		err = errors.Join(err, object.Close())
	}

	if err != nil {
		return b.wrap("read a copy", "s3:GetObject and s3:GetObjectVersion", err)
	}

	return nil
}

// Fetch downloads a copy into a new file in a folder, and returns its path.
func (b *Bucket) Fetch(ctx context.Context, address, folder string) (string, error) {
	if b.configErr != nil {
		return "", b.configErr
	}

	u, err := url.Parse(address)
	if err != nil || !strings.HasPrefix(address, Scheme) || u.Host != b.cfg.Bucket || strings.HasSuffix(u.Path, "/") {
		return "", fmt.Errorf("%q is not a copy in bucket %s of backup.s3: write it as talos-proxmox backup etcd printed it, "+
			"s3://%s/…", address, b.cfg.Bucket, b.cfg.Bucket)
	}

	file := filepath.Join(folder, path.Base(u.Path))

	out, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600) //nolint:gosec // in the caller's folder
	if err != nil {
		return "", fmt.Errorf("unable to fetch %s: %w", address, err)
	}

	err = b.read(ctx, strings.TrimPrefix(u.Path, "/"), u.Query().Get("versionId"), out)
	if err = errors.Join(err, out.Close()); err != nil {
		return "", errors.Join(err, os.Remove(file))
	}

	return file, nil
}
