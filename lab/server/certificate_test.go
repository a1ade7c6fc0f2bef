package server_test

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"proxmox-talos/lab/server"
)

// TestOneAuthorityForAllHosts opens a lab twice: what trusted its hosts by address and name before still does.
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

		if start == 0 {
			ca, err := os.ReadFile(connection.CA)
			require.NoError(t, err)
			require.True(t, roots.AppendCertsFromPEM(ca))
		}

		endpoint, err := url.Parse(connection.Endpoint)
		require.NoError(t, err)

		for _, host := range connection.Hosts {
			for _, name := range []string{host.Address, host.Name, "localhost"} {
				conn, err := tls.Dial("tcp", host.Address+":"+endpoint.Port(), &tls.Config{RootCAs: roots, ServerName: name, MinVersion: tls.VersionTLS13})
				require.NoError(t, err, "%s as %s", host.Name, name)
				assert.Len(t, conn.ConnectionState().PeerCertificates, 1, "a Proxmox host shows its own certificate only")
				require.NoError(t, conn.Close())
			}
		}

		_, err = tls.Dial("tcp", endpoint.Host, &tls.Config{MinVersion: tls.VersionTLS13})
		require.ErrorContains(t, err, "certificate signed by unknown authority")
		require.NoError(t, lab.Close())
	}
}
