// Package offsite keeps second copies of backups in a bucket with object lock, on a server that speaks the S3 API. Its
// library is large: only cmd/talos-proxmox links it, never the program that Pulumi starts.
package offsite

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"path"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"talos-proxmox/internal/backup"
	"talos-proxmox/internal/spec"
)

// attempts are how often a request is made that the server, or the way to it, fails.
const attempts = 4

// Bucket is where copies are kept.
type Bucket struct {
	client  *minio.Client
	at      spec.S3
	problem error // why nobody can be asked
}

// Connect makes a client; nobody is asked yet, and what is wrong is the error of whatever is asked later. The
// credentials are those of the settings, else of the environment variables AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and
// AWS_SESSION_TOKEN. A nil transport is the library's own, which trusts the system's authorities, or those of
// SSL_CERT_FILE.
func Connect(at spec.S3, transport http.RoundTripper) *Bucket {
	b := &Bucket{at: at}

	keys := credentials.NewEnvAWS()
	if at.AccessKey != "" {
		keys = credentials.NewStaticV4(at.AccessKey, at.SecretKey, "")
	}

	if value, err := keys.GetWithContext(nil); err != nil || value.AccessKeyID == "" || value.SecretAccessKey == "" {
		b.problem = errors.New("backup.s3: there are no credentials: set backup.s3.accessKey and backup.s3.secretKey, or " +
			"AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the environment")

		return b
	}

	endpoint, err := url.Parse(at.Endpoint)
	if err == nil {
		b.client, err = minio.New(endpoint.Host, &minio.Options{
			Creds: keys, Secure: endpoint.Scheme == "https", Region: at.Region, Transport: transport, MaxRetries: attempts,
		})
	}

	if err != nil {
		b.problem = fmt.Errorf("backup.s3.endpoint: %w", err)
	}

	return b
}

// checkLock refuses a bucket without object lock, where whoever has stolen the credentials could delete every copy.
func (b *Bucket) checkLock(ctx context.Context) error {
	state, _, _, _, err := b.client.GetObjectLockConfig(ctx, b.at.Bucket)

	switch code := minio.ToErrorResponse(err).Code; {
	case code == "ObjectLockConfigurationNotFoundError" || err == nil && state != "Enabled":
		return fmt.Errorf("bucket %s has no object lock, so that its copies could be deleted: make another one with it (aws s3api "+
			"create-bucket --object-lock-enabled-for-bucket), or set it on this one where the server can (aws s3api "+
			"put-bucket-versioning, then put-object-lock-configuration)", b.at.Bucket)
	case err != nil:
		return b.failed("ask whether there is object lock", "s3:GetBucketObjectLockConfiguration", err)
	default:
		return nil
	}
}

// Deletion says whether the credentials may delete what is kept.
type Deletion string

// What a server says of it.
const (
	DeletionDenied  Deletion = "denied"
	DeletionAllowed Deletion = "allowed"
	DeletionUnknown Deletion = "unknown"
)

// probe is a name that no copy has.
const probe = "talos-proxmox-may-this-be-deleted"

// MayDelete asks to delete a version of an object that does not exist: S3 judges the right before it looks for the
// version, and deletes nothing (source: DeleteObject in the S3 API's reference; "null" is the version of what was
// written before a bucket had versions). Whether a delete marker may be put before a copy it does not ask, since that
// makes one; a marker hides a copy and deletes nothing.
func (b *Bucket) MayDelete(ctx context.Context) Deletion {
	if b.problem != nil {
		return DeletionUnknown
	}

	err := b.client.RemoveObject(ctx, b.at.Bucket, b.key(probe), minio.RemoveObjectOptions{VersionID: "null"})

	switch code := minio.ToErrorResponse(err).Code; {
	case err == nil, code == minio.NoSuchKey, code == minio.NoSuchVersion:
		return DeletionAllowed
	case code == minio.AccessDenied:
		return DeletionDenied
	default:
		return DeletionUnknown
	}
}

// Newest returns the address of the newest snapshot of etcd of a cluster, whose backups have this name, and when it was
// made; an empty address where there is none.
func (b *Bucket) Newest(ctx context.Context, name string) (address string, made time.Time, err error) {
	if b.problem != nil {
		return "", made, b.problem
	}

	folder := backup.Folder{Name: name}

	for object := range b.client.ListObjectsIter(ctx, b.at.Bucket, minio.ListObjectsOptions{
		Prefix: b.key(name + "-"), Recursive: true,
	}) {
		if object.Err != nil {
			return "", made, b.failed("list copies", "s3:ListBucket", object.Err)
		}

		if at, ours := folder.Made(backup.Etcd, strings.TrimPrefix(object.Key, b.key(""))); ours && !at.Before(made) {
			address, made = b.address(object.Key, ""), at
		}
	}

	return address, made, nil
}

// key is the name of the object of a file.
func (b *Bucket) key(file string) string {
	if b.at.Prefix == "" {
		return file
	}

	return b.at.Prefix + "/" + file
}

// Scheme begins the addresses of copies: s3://bucket/key, and ?versionId= of a version.
const Scheme = "s3://"

func (b *Bucket) address(key, version string) string {
	text := Scheme + path.Join(b.at.Bucket, key)
	if version != "" {
		text += "?versionId=" + url.QueryEscape(version)
	}

	return text
}

// failed says what could not be done; where it was denied, which right is missing.
func (b *Bucket) failed(what, right string, err error) error {
	if minio.ToErrorResponse(err).Code == minio.AccessDenied {
		return fmt.Errorf("unable to %s in bucket %s of %s: %w: give its credentials the right %s", what, b.at.Bucket, b.at.Endpoint,
			err, right)
	}

	return fmt.Errorf("unable to %s in bucket %s of %s: %w", what, b.at.Bucket, b.at.Endpoint, err)
}
