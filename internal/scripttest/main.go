// Package scripttest is for tests that start scripts.
package scripttest

import (
	"os"
	"os/signal"
	"syscall"
	"testing"
)

// Main runs a package's tests with hang-ups and interrupts as a terminal's programs have them. Under nohup and in the
// background both are ignored, and what a test starts would inherit that; a signal that is handled here is the default
// there.
func Main(m *testing.M) {
	for _, ignored := range []os.Signal{syscall.SIGHUP, syscall.SIGINT} {
		if signal.Ignored(ignored) {
			signal.Notify(make(chan os.Signal, 1), ignored)
		}
	}

	os.Exit(m.Run())
}
