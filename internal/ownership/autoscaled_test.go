package ownership_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"talos-proxmox/internal/ownership"
)

func TestAutoscaledMachines(t *testing.T) {
	t.Parallel()

	tag := ownership.AutoscaledTag("9f86", "prod", "burst")
	assert.Equal(t, "autoscaled-9f86-prod-burst", tag)

	for name, test := range map[string]struct {
		tags, id string
		want     bool
	}{
		"its tag":              {tag, "9f86", true},
		"its tag among others": {"cluster-prod;" + tag + ";worker", "9f86", true},
		"another stack's":      {tag, "0000", false},
		"a stack without id":   {"autoscaled--prod-burst", "", false},
		"no tags":              {"", "9f86", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			assert.Equal(t, test.want, ownership.IsAutoscaled(test.tags, test.id))
		})
	}
}
