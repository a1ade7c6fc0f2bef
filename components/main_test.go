package components

import (
	"os"
	"testing"

	"talos-proxmox/internal/scripttest"
)

func TestMain(m *testing.M) {
	_ = os.Setenv("TALOSOPS", os.Args[0]) // no test runs it, but components check that it exists

	scripttest.Main(m)
}
