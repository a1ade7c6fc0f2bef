// Package scripttest helps tests that start scripts.
package scripttest

import (
	"os"
	"os/signal"
	"syscall"
	"testing"
)

// Main runs a package's tests with SIGHUP and SIGINT not ignored, as in a terminal. Under nohup and in the background
// both are ignored, and processes that tests start would inherit that; a signal that is handled here has the default
// action there.
func Main(m *testing.M) {
	for _, ignored := range []os.Signal{syscall.SIGHUP, syscall.SIGINT} {
		if signal.Ignored(ignored) {
			signal.Notify(make(chan os.Signal, 1), ignored)
		}
	}

	os.Exit(m.Run())
}
