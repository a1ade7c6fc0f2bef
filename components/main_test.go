package components

import (
	"testing"

	"proxmox-talos/internal/scripttest"
)

func TestMain(m *testing.M) { scripttest.Main(m) }
