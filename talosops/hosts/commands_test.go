package hosts

import (
	"testing"

	"talos-proxmox/talosops/verbtest"
)

// runHost executes a verb about hosts.
func runHost(t *testing.T, verb string, req any, until string, args ...string) (stdout, stderr string, err error) {
	t.Helper()

	return verbtest.Run(t, Commands(), verb, req, until, args...)
}
