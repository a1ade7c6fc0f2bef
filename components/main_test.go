package components

import (
	"os"
	"testing"

	"talos-proxmox/internal/scripttest"
)

func TestMain(m *testing.M) {
	_ = os.Setenv("TALOSOPS", os.Args[0]) // nothing here runs it, but it has to be there

	scripttest.Main(m)
}
