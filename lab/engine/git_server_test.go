package engine_test

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"log"
	"net"
	"net/http"
	"net/http/cgi" //nolint:gosec // Git's own server of HTTP is a CGI program
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"filippo.io/age"
	"filippo.io/age/armor"
	"github.com/stretchr/testify/require"
)

// gitServer is a Git server on loopback with one repository, over HTTPS with its own authority and for one user.
type gitServer struct {
	t                testing.TB
	work             string // a clone that commits
	url, ca          string
	username         string
	password         string
	refused, allowed atomic.Int32 // requests
}

func newGitServer(t testing.TB) *gitServer {
	t.Helper()

	root := t.TempDir()
	g := &gitServer{t: t, work: filepath.Join(root, "work"), username: "git", password: rand.Text()}

	g.git(root, "init", "--quiet", "--bare", "--initial-branch=main", "fleet.git")
	g.git(root, "clone", "--quiet", "fleet.git", "work")

	programs := strings.TrimSpace(g.git(root, "--exec-path"))
	backend := &cgi.Handler{
		Path: filepath.Join(programs, "git-http-backend"),
		Env:  []string{"GIT_PROJECT_ROOT=" + root, "GIT_HTTP_EXPORT_ALL=1"}, Logger: log.New(os.Stderr, "git ", 0),
	}

	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if user, password, _ := r.BasicAuth(); user != g.username || password != g.password {
			g.refused.Add(1)
			w.Header().Set("WWW-Authenticate", `Basic realm="git"`)
			http.Error(w, "who are you?", http.StatusUnauthorized)

			return
		}

		g.allowed.Add(1)
		backend.ServeHTTP(w, r)
	}))

	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)

	_ = server.Listener.Close()
	server.Listener = listener
	server.StartTLS()
	t.Cleanup(server.Close)

	g.url = server.URL + "/fleet.git"
	g.ca = string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))

	return g
}

func (g *gitServer) git(folder string, arguments ...string) string {
	g.t.Helper()

	cmd := exec.Command("git", arguments...)
	cmd.Dir = folder

	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null", "GIT_AUTHOR_NAME=test",
		"GIT_AUTHOR_EMAIL=test@example.org", "GIT_COMMITTER_NAME=test", "GIT_COMMITTER_EMAIL=test@example.org")

	out, err := cmd.CombinedOutput()
	require.NoError(g.t, err, "git %v: %s", arguments, out)

	return string(out)
}

// commit adds files to the repository, and returns the revision in Flux' format.
func (g *gitServer) commit(files map[string]string) string {
	g.t.Helper()

	for name, text := range files {
		path := filepath.Join(g.work, filepath.FromSlash(name))
		require.NoError(g.t, os.MkdirAll(filepath.Dir(path), 0o700))
		require.NoError(g.t, os.WriteFile(path, []byte(text), 0o600))
	}

	g.git(g.work, "add", "--all")
	g.git(g.work, "commit", "--quiet", "--message", "a change")
	g.git(g.work, "push", "--quiet", "origin", "HEAD:main")

	return "refs/heads/main@sha1:" + strings.TrimSpace(g.git(g.work, "rev-parse", "HEAD"))
}

// replace changes one place in a file of the repository.
func (g *gitServer) replace(name, old, with string) string {
	g.t.Helper()

	text, err := os.ReadFile(filepath.Join(g.work, filepath.FromSlash(name)))
	require.NoError(g.t, err)
	require.Contains(g.t, string(text), old)

	return g.commit(map[string]string{name: strings.Replace(string(text), old, with, 1)})
}

// trackedFiles returns the files of a repository in folders, by their paths.
func (g *gitServer) trackedFiles(repository string, folders ...string) map[string]string {
	g.t.Helper()

	found := map[string]string{}

	for _, name := range strings.Fields(g.git(repository, append([]string{"ls-files"}, folders...)...)) {
		text, err := os.ReadFile(filepath.Join(repository, filepath.FromSlash(name)))
		require.NoError(g.t, err)

		found[name] = string(text)
	}

	return found
}

// sopsSecret returns a Secret as a SOPS file, encrypted to an age key.
func sopsSecret(t testing.TB, to age.Recipient, name, key, value string) string {
	t.Helper()

	dataKey, nonce := make([]byte, 32), make([]byte, 32)
	_, _ = rand.Read(dataKey) // never fails
	_, _ = rand.Read(nonce)

	block, err := aes.NewCipher(dataKey)
	require.NoError(t, err)

	gcm, err := cipher.NewGCMWithNonceSize(block, len(nonce))
	require.NoError(t, err)

	encode := base64.StdEncoding.EncodeToString
	seal := func(text, about string) string {
		out := gcm.Seal(nil, nonce, []byte(text), []byte(about))
		data, tag := out[:len(out)-gcm.Overhead()], out[len(out)-gcm.Overhead():]

		return fmt.Sprintf("ENC[AES256_GCM,data:%s,iv:%s,tag:%s,type:str]", encode(data), encode(nonce), encode(tag))
	}

	var wrapped strings.Builder

	armored := armor.NewWriter(&wrapped)
	encrypted, err := age.Encrypt(armored, to)
	require.NoError(t, err)

	_, err = encrypted.Write(dataKey)
	require.NoError(t, err)
	require.NoError(t, encrypted.Close())
	require.NoError(t, armored.Close())

	const modified = "2026-01-01T00:00:00Z"

	return fmt.Sprintf(`apiVersion: v1
kind: Secret
metadata:
  name: %s
  namespace: default
stringData:
  %s: %s
sops:
  age:
    - recipient: %s
      enc: |
        %s
  lastmodified: %q
  mac: %s
  encrypted_regex: ^(data|stringData)$
  version: 3.11.0
`, name, key, seal(value, "stringData:"+key+":"), to, strings.ReplaceAll(strings.TrimSpace(wrapped.String()), "\n", "\n        "),
		modified, seal("0", modified))
}
