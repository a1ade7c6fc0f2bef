package server_test

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/pkg/sftp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/ssh"

	"talos-proxmox/lab/server"
)

// TestOneAuthorityForAllHosts opens a lab twice: the CA of the first time still verifies all hosts by address and name.
func TestOneAuthorityForAllHosts(t *testing.T) {
	t.Parallel()

	dir := t.TempDir()
	roots := x509.NewCertPool()

	for start := range 2 {
		var (
			lab *server.Server
			err = server.ErrTaken
		)

		for n := 230; errors.Is(err, server.ErrTaken); n++ {
			lab, err = server.Open(server.Options{Dir: dir, Network: fmt.Sprintf("127.%d", n), Hosts: 2})
		}

		require.NoError(t, err)

		connection, err := lab.Connection()
		require.NoError(t, err)
		assert.Equal(t, filepath.Join(dir, "ca.pem"), connection.CA)

		ca, err := os.ReadFile(connection.CA)
		require.NoError(t, err)

		if start == 0 {
			require.True(t, roots.AppendCertsFromPEM(ca))
		}

		endpoint, err := url.Parse(connection.Endpoint)
		require.NoError(t, err)

		for _, host := range connection.Hosts {
			for _, name := range []string{host.Address, host.Name, "localhost"} {
				conn, err := tls.Dial(
					"tcp", host.Address+":"+endpoint.Port(),
					&tls.Config{RootCAs: roots, ServerName: name, MinVersion: tls.VersionTLS13},
				)
				require.NoError(t, err, "%s as %s", host.Name, name)
				assert.Len(t, conn.ConnectionState().PeerCertificates, 1, "a Proxmox host shows its own certificate only")
				require.NoError(t, conn.Close())
			}
		}

		// The README tells users to copy it from a host.
		for _, host := range connection.Hosts {
			assert.Equal(t, string(ca), onHost(t, connection, host, "/etc/pve/pve-root-ca.pem"))
		}

		_, err = tls.Dial("tcp", endpoint.Host, &tls.Config{MinVersion: tls.VersionTLS13})
		require.ErrorContains(t, err, "certificate signed by unknown authority")
		require.NoError(t, lab.Close())
	}
}

// onHost copies a file from a host over SSH, as scp does.
func onHost(t *testing.T, connection server.Connection, host server.HostConnection, path string) string {
	t.Helper()

	key, err := ssh.ParsePrivateKey([]byte(connection.PrivateKey))
	require.NoError(t, err)
	hostKey, _, _, _, err := ssh.ParseAuthorizedKey([]byte(host.HostKey))
	require.NoError(t, err)
	client, err := ssh.Dial("tcp", net.JoinHostPort(host.Address, strconv.Itoa(host.Port)), &ssh.ClientConfig{
		User: "root", Auth: []ssh.AuthMethod{ssh.PublicKeys(key)}, HostKeyCallback: ssh.FixedHostKey(hostKey),
	})
	require.NoError(t, err)

	defer client.Close() //nolint:errcheck

	files, err := sftp.NewClient(client)
	require.NoError(t, err)

	file, err := files.Open(path)
	require.NoError(t, err)

	content, err := io.ReadAll(file)
	require.NoError(t, err)

	return string(content)
}
