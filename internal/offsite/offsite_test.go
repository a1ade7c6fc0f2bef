package offsite_test

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/xml"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/internal/backup"
	"talos-proxmox/internal/offsite"
	"talos-proxmox/internal/spec"
)

var noon = time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC)

// server fakes an S3 server with one bucket.
type server struct {
	unlocked       bool            // the bucket has no object lock
	noDigests      bool            // it stores no digests
	corrupts       bool            // it stores something else than it received
	dropsRetention bool            // it ignores the retention
	denied         map[string]bool // method, method and query, or retention
	deleteStatus   int             // status of deletions; 0 = denied

	mutex    sync.Mutex
	objects  map[string][]byte
	headers  map[string]http.Header
	requests []string
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mutex.Lock()
	defer s.mutex.Unlock()

	key := strings.TrimPrefix(r.URL.Path, "/prod-backups/")
	question, _, _ := strings.Cut(r.URL.RawQuery, "=")
	s.requests = append(s.requests, r.Method+" "+question)

	refuse := func(status int, code string) {
		w.WriteHeader(status)
		_, _ = fmt.Fprintf(w, "<Error><Code>%s</Code><Message>%s.</Message></Error>", code, code)
	}

	switch {
	case !strings.Contains(r.Header.Get("Authorization"), "Credential=AKIA/"):
		refuse(http.StatusForbidden, "InvalidAccessKeyId")
	case s.denied[strings.TrimSpace(r.Method+" "+question)]:
		refuse(http.StatusForbidden, "AccessDenied")
	case r.Method == http.MethodPut:
		s.put(w, r, key)
	case r.Method == http.MethodDelete:
		if s.deleteStatus == 0 {
			refuse(http.StatusForbidden, "AccessDenied")
		} else {
			w.WriteHeader(s.deleteStatus)
		}
	case question == "object-lock" && s.unlocked:
		refuse(http.StatusNotFound, "ObjectLockConfigurationNotFoundError")
	case question == "object-lock":
		_, _ = io.WriteString(w, `<ObjectLockConfiguration><ObjectLockEnabled>Enabled</ObjectLockEnabled></ObjectLockConfiguration>`)
	case r.URL.Query().Get("list-type") == "2":
		s.list(w, r.URL.Query().Get("prefix"))
	case s.headers[key] == nil:
		refuse(http.StatusNotFound, "NoSuchKey")
	default:
		s.get(w, r, key)
	}
}

func (s *server) put(w http.ResponseWriter, r *http.Request, key string) {
	content, _ := io.ReadAll(r.Body)

	sum := sha256.Sum256(content)
	if r.Header.Get("X-Amz-Checksum-Sha256") != base64.StdEncoding.EncodeToString(sum[:]) {
		w.WriteHeader(http.StatusBadRequest)

		return
	}

	if s.corrupts {
		content[0]++
	}

	if s.dropsRetention {
		r.Header.Del("X-Amz-Object-Lock-Mode")
	}

	s.objects[key], s.headers[key] = content, r.Header.Clone()
	w.Header().Set("Etag", `"1"`)
	w.Header().Set("X-Amz-Version-Id", "v1")
}

func (s *server) get(w http.ResponseWriter, r *http.Request, key string) {
	content := s.objects[key]

	if sum := sha256.Sum256(content); !s.noDigests {
		w.Header().Set("X-Amz-Checksum-Sha256", base64.StdEncoding.EncodeToString(sum[:]))
	}

	for _, name := range []string{"X-Amz-Object-Lock-Mode", "X-Amz-Object-Lock-Retain-Until-Date"} {
		if value := s.headers[key].Get(name); value != "" && !s.denied["retention"] {
			w.Header().Set(name, value)
		}
	}

	w.Header().Set("Etag", `"1"`)
	w.Header().Set("Last-Modified", noon.Format(http.TimeFormat))
	w.Header().Set("Content-Length", fmt.Sprint(len(content)))

	if r.Method == http.MethodGet {
		_, _ = w.Write(content)
	}
}

func (s *server) list(w io.Writer, prefix string) {
	type object struct{ Key, LastModified string }

	listed := struct {
		XMLName  xml.Name `xml:"ListBucketResult"`
		Contents []object
	}{}

	for key := range s.objects {
		if strings.HasPrefix(key, prefix) {
			listed.Contents = append(listed.Contents, object{key, noon.Format(time.RFC3339)})
		}
	}

	_ = xml.NewEncoder(w).Encode(listed)
}

// newBucket starts the server and returns its bucket.
func newBucket(t *testing.T, s *server) *offsite.Bucket {
	t.Helper()

	s.objects, s.headers = map[string][]byte{}, map[string]http.Header{}
	https := httptest.NewTLSServer(s)
	t.Cleanup(https.Close)

	return offsite.Connect(spec.S3{
		Endpoint: https.URL, Bucket: "prod-backups", Region: "eu-central-1", Prefix: "talos/prod", RetentionDays: 30,
		RetentionMode: "COMPLIANCE", AccessKey: "AKIA", SecretKey: "hunter2",
	}, https.Client().Transport)
}

func writeSnapshot(t *testing.T) string {
	t.Helper()

	file := filepath.Join(t.TempDir(), "prod-home-etcd-20261125T120000Z.age")
	require.NoError(t, os.WriteFile(file, []byte("the snapshot"), 0o600))

	return file
}

func TestPutAndFetch(t *testing.T) {
	t.Parallel()

	s := &server{}
	b := newBucket(t, s)

	none, err := b.Newest(t.Context(), "prod-home", "0123", noon)
	require.NoError(t, err)
	assert.Empty(t, none)

	address, err := b.Put(t.Context(), writeSnapshot(t), noon)
	require.NoError(t, err)
	assert.Equal(t, "s3://prod-backups/talos/prod/prod-home-etcd-20261125T120000Z.age?versionId=v1", address)

	sent := s.headers["talos/prod/prod-home-etcd-20261125T120000Z.age"]
	assert.Equal(t, "COMPLIANCE", sent.Get("X-Amz-Object-Lock-Mode"))
	assert.Equal(t, "2026-12-25T12:00:00Z", sent.Get("X-Amz-Object-Lock-Retain-Until-Date"))
	assert.NotEmpty(t, sent.Get("Content-Md5"))

	s.objects["talos/prod/prod-home-etcd-20261124T120000Z.age"] = nil
	s.objects["talos/prod/prod-home-2-etcd-20261126T120000Z.age"] = nil // of another cluster
	s.objects["talos/prod/prod-home-etcd-20261125T110000Z-0123.age"] = nil
	s.objects["talos/prod/prod-home-etcd-20261125T115000Z-4567.age"] = nil // of a cluster of the same name
	s.objects["talos/prod/prod-home-etcd-20270101T000000Z-0123.age"] = nil // by a wrong clock
	found, err := b.Newest(t.Context(), "prod-home", "0123", noon)
	require.NoError(t, err)
	assert.Equal(t, backup.Found{
		Newest: "s3://prod-backups/talos/prod/prod-home-etcd-20261125T120000Z.age", Created: noon,
		Future: "s3://prod-backups/talos/prod/prod-home-etcd-20270101T000000Z-0123.age",
	}, found)

	inCluster := "talos/prod/prod-home/prod-home-2026-11-25T12:03:00Z.snap.age" // as talos-backup names it
	s.objects[inCluster], s.headers[inCluster] = []byte("the snapshot"), http.Header{}
	s.objects["talos/prod/prod-home-2/prod-home-2-2026-11-25T12:04:00Z.snap.age"] = nil // of another cluster
	s.objects["talos/prod/prod-home/prod-home-2026-11-25T12:04:00Z.snap"] = nil         // not encrypted
	newer, err := b.Newest(t.Context(), "prod-home", "0123", noon.Add(5*time.Minute))
	require.NoError(t, err)
	assert.Equal(t, "s3://prod-backups/"+inCluster, newer.Newest)
	assert.Equal(t, noon.Add(3*time.Minute), newer.Created.UTC())

	for _, from := range []string{address, found.Newest, newer.Newest} {
		file, err := b.Fetch(t.Context(), from, t.TempDir())
		require.NoError(t, err)

		content, err := os.ReadFile(file)
		require.NoError(t, err)
		assert.Equal(t, "the snapshot", string(content))
	}

	for _, request := range s.requests {
		assert.NotContains(t, request, "DELETE")
	}
}

func TestPutVerifiesTheCopy(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct {
		server *server
		wants  string
	}{
		"a server without digests":     {&server{noDigests: true}, ""},
		"a bucket without object lock": {&server{unlocked: true}, "bucket prod-backups has no object lock"},
		"damaged":                      {&server{corrupts: true}, "v1 cannot be relied on: it has 12 bytes and the digest"},
		"damaged, without digests":     {&server{corrupts: true, noDigests: true}, "v1 cannot be relied on: it has 12 bytes and the digest"},
		"not kept from deletion": {
			&server{dropsRetention: true}, "the server does not say that it keeps it until 2026-12-25T12:00:00Z in mode COMPLIANCE: give",
		},
		"who may not add": {
			&server{denied: map[string]bool{"PUT": true}}, "give its credentials the right s3:PutObject and s3:PutObjectRetention",
		},
		"who may not ask for the lock": {
			&server{denied: map[string]bool{"GET object-lock": true}}, "give its credentials the right s3:GetBucketObjectLockConfiguration",
		},
		"who may not see the retention": {
			&server{denied: map[string]bool{"retention": true}}, "give the credentials the right s3:GetObjectRetention",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			b := newBucket(t, test.server)

			_, err := b.Put(t.Context(), writeSnapshot(t), noon)
			if test.wants == "" {
				require.NoError(t, err)

				return
			}

			require.ErrorContains(t, err, test.wants)
			assert.NotContains(t, err.Error(), "hunter2")
		})
	}
}

// TestMayDelete requests only the deletion of a version that no object has.
func TestMayDelete(t *testing.T) {
	t.Parallel()

	for answer, wants := range map[int]offsite.Deletion{
		0:                         offsite.DeletionDenied,
		http.StatusNoContent:      offsite.DeletionAllowed,
		http.StatusNotFound:       offsite.DeletionAllowed,
		http.StatusNotImplemented: offsite.DeletionUnknown,
	} {
		t.Run(string(wants), func(t *testing.T) {
			t.Parallel()

			s := &server{deleteStatus: answer}
			assert.Equal(t, wants, newBucket(t, s).MayDelete(t.Context()))
			assert.Contains(t, s.requests, "DELETE versionId")
		})
	}
}

func TestFetchErrors(t *testing.T) {
	t.Parallel()

	b := newBucket(t, &server{})
	for _, address := range []string{"s3://another/key.age", "https://prod-backups/key.age", "s3://prod-backups/talos/"} {
		_, err := b.Fetch(t.Context(), address, t.TempDir())
		require.ErrorContains(t, err, "is not a copy in bucket prod-backups of backup.s3: write it as")
	}

	folder := t.TempDir()
	_, err := b.Fetch(t.Context(), "s3://prod-backups/gone.age", folder)
	require.ErrorContains(t, err, "unable to read a copy in bucket prod-backups of https://127.0.0.1:")

	left, err := os.ReadDir(folder)
	require.NoError(t, err)
	assert.Empty(t, left)
}

// TestCredentialsMayComeFromTheEnvironment: without any, the error says where to set them.
func TestCredentialsMayComeFromTheEnvironment(t *testing.T) {
	s := &server{}
	https := httptest.NewTLSServer(s)
	t.Cleanup(https.Close)

	at := spec.S3{Endpoint: https.URL, Bucket: "prod-backups", Region: "eu-central-1"}

	for _, name := range []string{"AWS_ACCESS_KEY_ID", "AWS_ACCESS_KEY", "AWS_SECRET_ACCESS_KEY", "AWS_SECRET_KEY"} {
		t.Setenv(name, "")
	}

	_, err := offsite.Connect(at, https.Client().Transport).Newest(t.Context(), "prod-home", "", noon)
	require.ErrorContains(t, err, "there are no credentials: set backup.s3.accessKey and backup.s3.secretKey, or AWS_ACCESS_KEY_ID")

	t.Setenv("AWS_ACCESS_KEY_ID", "AKIA")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "hunter2")

	_, err = offsite.Connect(at, https.Client().Transport).Newest(t.Context(), "prod-home", "", noon)
	require.NoError(t, err)
}
