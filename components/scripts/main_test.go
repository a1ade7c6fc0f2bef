package scripts

import (
	"testing"

	"talos-proxmox/internal/scripttest"
)

func TestMain(m *testing.M) { scripttest.Main(m) }
