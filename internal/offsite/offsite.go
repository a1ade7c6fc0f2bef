// Package offsite stores copies of backups in a bucket with object lock, on a server with the S3 API. Its library is
// large: only cmd/talos-proxmox links it, never the program that Pulumi starts.
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

// maxAttempts limits retries of requests that fail at the server or on the network.
const maxAttempts = 4

// Bucket stores copies.
type Bucket struct {
	client    *minio.Client
	cfg       spec.S3
	configErr error // why there is no client
}

// Connect creates a client without a request; an invalid configuration is the error of later calls. The credentials are
// those of cfg, or else of the environment variables AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and
// AWS_SESSION_TOKEN. A nil transport is the library's own, which trusts the system's authorities, or those of
// SSL_CERT_FILE.
func Connect(cfg spec.S3, transport http.RoundTripper) *Bucket {
	b := &Bucket{cfg: cfg}

	keys := credentials.NewEnvAWS()
	if cfg.AccessKey != "" {
		keys = credentials.NewStaticV4(cfg.AccessKey, cfg.SecretKey, "")
	}

	if value, err := keys.GetWithContext(nil); err != nil || value.AccessKeyID == "" || value.SecretAccessKey == "" {
		b.configErr = errors.New("backup.s3: there are no credentials: set backup.s3.accessKey and backup.s3.secretKey, or " +
			"AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the environment")

		return b
	}

	endpoint, err := url.Parse(cfg.Endpoint)
	if err == nil {
		b.client, err = minio.New(endpoint.Host, &minio.Options{
			Creds: keys, Secure: endpoint.Scheme == "https", Region: cfg.Region, Transport: transport, MaxRetries: maxAttempts,
		})
	}

	if err != nil {
		b.configErr = fmt.Errorf("backup.s3.endpoint: %w", err)
	}

	return b
}

// checkLock refuses a bucket without object lock, where stolen credentials could delete every copy.
func (b *Bucket) checkLock(ctx context.Context) error {
	state, _, _, _, err := b.client.GetObjectLockConfig(ctx, b.cfg.Bucket)

	switch code := minio.ToErrorResponse(err).Code; {
	case code == "ObjectLockConfigurationNotFoundError" || err == nil && state != "Enabled":
		return fmt.Errorf("bucket %s has no object lock, so that its copies could be deleted: create another one with it (aws s3api "+
			"create-bucket --object-lock-enabled-for-bucket), or set it on this one where the server can (aws s3api "+
			"put-bucket-versioning, then put-object-lock-configuration)", b.cfg.Bucket)
	case err != nil:
		return b.wrap("read the object lock configuration", "s3:GetBucketObjectLockConfiguration", err)
	default:
		return nil
	}
}

// Deletion is whether the credentials may delete copies.
type Deletion string

// The server's answers.
const (
	DeletionDenied  Deletion = "denied"
	DeletionAllowed Deletion = "allowed"
	DeletionUnknown Deletion = "unknown"
)

// probeName is the name of an object that does not exist.
const probeName = "talos-proxmox-may-this-be-deleted"

// MayDelete requests the deletion of a version of an object that does not exist: S3 checks the permission before it
// looks for the version, and deletes nothing (source: DeleteObject in the S3 API's reference; "null" is the version of
// objects from before versioning). It does not test delete markers, which would create one; a marker only hides a copy.
func (b *Bucket) MayDelete(ctx context.Context) Deletion {
	if b.configErr != nil {
		return DeletionUnknown
	}

	err := b.client.RemoveObject(ctx, b.cfg.Bucket, b.key(probeName), minio.RemoveObjectOptions{VersionID: "null"})

	switch code := minio.ToErrorResponse(err).Code; {
	case err == nil, code == minio.NoSuchKey, code == minio.NoSuchVersion:
		return DeletionAllowed
	case code == minio.AccessDenied:
		return DeletionDenied
	default:
		return DeletionUnknown
	}
}

// Newest returns the addresses of a cluster's snapshots of etcd, by the name and the id of its backups; those that the
// cluster itself took count too.
func (b *Bucket) Newest(ctx context.Context, name, id string, now time.Time) (found backup.Found, err error) {
	if b.configErr != nil {
		return found, b.configErr
	}

	folder := backup.Folder{Name: name, ID: id}

	for object := range b.client.ListObjectsIter(ctx, b.cfg.Bucket, minio.ListObjectsOptions{
		Prefix: b.key(name), Recursive: true,
	}) {
		if object.Err != nil {
			return backup.Found{}, b.wrap("list copies", "s3:ListBucket", object.Err)
		}

		key := strings.TrimPrefix(object.Key, b.key(""))

		at, isOwn := folder.TimeOf(backup.Etcd, key)
		if !isOwn {
			at, isOwn = timeInCluster(key, name)
		}

		if isOwn {
			found.Add(b.address(object.Key, ""), at, now)
		}
	}

	return found, nil
}

// timeInCluster parses the time in the key of a snapshot that the cluster itself took, with the component talos-backup
// of gitops/: <name>/<name>-<time>.snap.age. It names no id.
func timeInCluster(key, name string) (time.Time, bool) {
	text, isOwn := strings.CutPrefix(key, name+"/"+name+"-")
	text, hasExtension := strings.CutSuffix(text, ".snap.age")
	at, err := time.Parse(time.RFC3339, text)

	return at, isOwn && hasExtension && err == nil
}

// key returns the object key of a file.
func (b *Bucket) key(file string) string {
	if b.cfg.Prefix == "" {
		return file
	}

	return b.cfg.Prefix + "/" + file
}

// Scheme is the scheme of addresses of copies: s3://bucket/key, with ?versionId= for a version.
const Scheme = "s3://"

func (b *Bucket) address(key, version string) string {
	text := Scheme + path.Join(b.cfg.Bucket, key)
	if version != "" {
		text += "?versionId=" + url.QueryEscape(version)
	}

	return text
}

// wrap wraps an error with what failed; if it was denied, also with the missing permission.
func (b *Bucket) wrap(what, right string, err error) error {
	if minio.ToErrorResponse(err).Code == minio.AccessDenied {
		return fmt.Errorf("unable to %s in bucket %s of %s: %w: give its credentials the right %s", what, b.cfg.Bucket, b.cfg.Endpoint,
			err, right)
	}

	return fmt.Errorf("unable to %s in bucket %s of %s: %w", what, b.cfg.Bucket, b.cfg.Endpoint, err)
}
