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
		tags string
		want bool
	}{
		"its tag":              {tag, true},
		"its tag among others": {"cluster-prod;" + tag + ";worker", true},
		"another pool's":       {tag + "-2", false},
		"no tags":              {"", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			assert.Equal(t, test.want, ownership.HasTag(test.tags, tag))
		})
	}
}
