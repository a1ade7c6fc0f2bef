package main

import "testing"

// runHost executes a verb about hosts.
func runHost(t *testing.T, verb string, req any, until string, args ...string) (stdout, stderr string, err error) {
	t.Helper()

	return runCommand(t, hostCommands(), verb, req, until, args...)
}
