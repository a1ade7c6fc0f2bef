package datacentre_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/lab/datacentre"
)

// TestHostsThatGoTakeTheirVotesAlong reboots hosts of clusters of different sizes.
func TestHostsThatGoTakeTheirVotesAlong(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct {
		hosts, gone int
		quorate     bool
		cluster     string
	}{
		"one of three":                {3, 1, true, "lab"},
		"two of three":                {3, 2, false, "lab"},
		"one of two, with a QDevice":  {2, 1, true, "lab"},
		"two of two, with a QDevice":  {2, 2, false, "lab"},
		"two of four, with a QDevice": {4, 2, true, "lab"},
		"a host that stands alone":    {1, 1, true, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			o := fastOptions()
			o.Cluster, o.Hosts, o.Durations.BootHost = test.cluster, nil, 1000*time.Hour
			names := []string{"pve1", "pve2", "pve3", "pve4"}[:test.hosts]

			for _, host := range names {
				o.Hosts = append(o.Hosts, datacentre.HostOptions{Name: host})
			}

			d := open(t, o)
			for _, host := range names[:test.gone] {
				require.NoError(t, d.RebootHost(host))
			}

			assert.Equal(t, test.quorate, d.Quorate())

			_, err := d.CreateVM(root, names[test.hosts-1], 100, basic(nil))
			if !test.quorate {
				require.ErrorContains(t, err, "cluster not ready - no quorum?")
			}
		})
	}
}
