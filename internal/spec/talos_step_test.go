package spec_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"talos-proxmox/internal/spec"
)

func TestTalosStep(t *testing.T) {
	t.Parallel()

	const older = "is older, and downgrades must be allowed; set the running version, or talos.allowDowngrade: true of the cluster"

	for name, test := range map[string]struct {
		from, to string
		down     bool
		want     string
	}{
		"the same":                      {from: "v1.12.6", to: "v1.12.6"},
		"a patch":                       {from: "v1.12.1", to: "v1.12.6"},
		"patches over a minor":          {from: "v1.11.3", to: "v1.12.6"},
		"a release after its candidate": {from: "v1.13.0-rc.1", to: "v1.13.0"},
		"a candidate after its release": {from: "v1.13.0", to: "v1.13.0-rc.1", want: older},
		"candidates":                    {from: "v1.13.0-rc.2", to: "v1.13.0-rc.1", want: older},
		"two minors": {
			from: "v1.11.3", to: "v1.13.0",
			want: "is 2 minor versions newer, and Talos is upgraded by one at a time; set the latest patch of v1.12 first",
		},
		"a patch back":                   {from: "v1.12.6", to: "v1.12.1", want: older},
		"a minor back":                   {from: "v1.12.6", to: "v1.11.6", want: older},
		"a minor back, allowed":          {from: "v1.12.6", to: "v1.11.6", down: true},
		"two minors back":                {from: "v1.13.0", to: "v1.11.6", want: older},
		"two minors back, allowed":       {from: "v1.13.0", to: "v1.11.6", down: true, want: "is 2 minor versions older, and Talos is downgraded by one at a time; set a version of v1.12 first"},
		"another major":                  {from: "v1.13.0", to: "v2.0.0", want: "is another major version, to which there is no upgrade; create a new cluster"},
		"what runs is not known":         {to: "v1.12.6"},
		"what runs is several versions":  {from: "v1.11.1, v1.12.6", to: "v1.12.6"},
		"numbers are not texts":          {from: "v1.9.12", to: "v1.10.2"},
		"a patch of two digits is newer": {from: "v1.12.9", to: "v1.12.10"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			assert.Equal(t, test.want, spec.CheckTalosUpgrade(test.from, test.to, test.down))
		})
	}
}
