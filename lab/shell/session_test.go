package shell_test

import (
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/pkg/sftp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/ssh"
)

func TestCommandEndsWithClient(t *testing.T) {
	t.Parallel()

	// At this speed an import takes longer than any test.
	slow := hostOptions{speed: 0.001, noImage: true}
	creating := func(h *host) func() bool {
		return func() bool {
			for _, task := range h.dc.Tasks() {
				if task.Type == "qmcreate" && task.Running() {
					return true
				}
			}

			return false
		}
	}
	command := "qm create 100 --name one --scsi0 local-lvm:1; touch /etc/went-on"

	tests := map[string]struct {
		end    func(client *ssh.Client, session *ssh.Session) error
		status int
	}{
		"when the connection breaks": {func(client *ssh.Client, _ *ssh.Session) error { return client.Close() }, 0},
		"at a signal": {
			func(_ *ssh.Client, session *ssh.Session) error { return session.Signal(ssh.SIGTERM) }, 143,
		},
	}

	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			h := start(t, slow)
			client := h.dial(t, "root", h.key)

			session, err := client.NewSession()
			require.NoError(t, err)
			require.NoError(t, session.Start(command))
			require.Eventually(t, creating(h), time.Minute, time.Millisecond)

			require.NoError(t, test.end(client, session))

			var exit *ssh.ExitError
			if err := session.Wait(); test.status != 0 {
				require.ErrorAs(t, err, &exit)
				assert.Equal(t, test.status, exit.ExitStatus())
			}

			require.Eventually(t, func() bool { return !creating(h)() }, time.Minute, time.Millisecond)
			assert.NoFileExists(t, filepath.Join(h.root, "etc/went-on"))

			_, known := h.dc.VM(100)
			assert.False(t, known, "an interrupted create leaves no machine")
		})
	}
}

func TestOnlyRootKeyLogsIn(t *testing.T) {
	t.Parallel()

	h := fast(t)

	tests := map[string]*ssh.ClientConfig{
		"a stranger's key": h.config("root", signer(t)),
		"another user":     h.config("admin", h.key),
		//nolint:gosec // a test
		"a password": {
			User: "root", Auth: []ssh.AuthMethod{ssh.Password("secret")}, HostKeyCallback: ssh.InsecureIgnoreHostKey(),
		},
		"nothing": {User: "root", HostKeyCallback: ssh.InsecureIgnoreHostKey()}, //nolint:gosec // a test
	}

	for name, config := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			_, err := ssh.Dial("tcp", h.address, config)
			assert.ErrorContains(t, err, "unable to authenticate")
		})
	}
}

func TestSFTP(t *testing.T) {
	t.Parallel()

	h := fast(t)

	files, err := sftp.NewClient(h.client)
	require.NoError(t, err)

	defer files.Close() //nolint:errcheck

	h.run(t, "mkdir -p $HOST_ROOT/etc/a/b && printf content > /etc/a/b/c", "")

	file, err := files.Open("/etc/a/b/c")
	require.NoError(t, err)
	content, err := io.ReadAll(file)
	require.NoError(t, err)
	assert.Equal(t, "content", string(content))

	entries, err := files.ReadDir("/etc/a/b")
	require.NoError(t, err)
	require.Len(t, entries, 1)

	_, err = files.Create("/etc/a/b/d")
	require.Error(t, err)
	require.Error(t, files.Remove("/etc/a/b/c"))

	_, err = files.Stat("/../../../etc/passwd")
	assert.ErrorIs(t, err, os.ErrNotExist, "paths cannot leave the root")
}
