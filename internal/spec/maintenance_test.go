package spec_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/internal/spec"
)

func TestMaintenanceWindows(t *testing.T) {
	t.Parallel()

	night := spec.MaintenanceWindow{Days: []string{"sat"}, StartTime: "22:00", EndTime: "04:00", TimeZone: "Europe/Berlin"}
	noon := spec.MaintenanceWindow{StartTime: "12:00", EndTime: "13:00"}
	always := spec.MaintenanceWindow{StartTime: "00:00", EndTime: "00:00"}

	for name, test := range map[string]struct {
		windows []spec.MaintenanceWindow
		now     string
		next    string // empty = allowed
	}{
		"without windows, any time":         {nil, "2026-11-29T14:00:00Z", ""},
		"before the first one":              {[]spec.MaintenanceWindow{night}, "2026-11-28T20:59:59Z", "2026-11-28T22:00:00+01:00"},
		"at its beginning":                  {[]spec.MaintenanceWindow{night}, "2026-11-28T21:00:00Z", ""},
		"after midnight":                    {[]spec.MaintenanceWindow{night}, "2026-11-29T02:59:59Z", ""},
		"at its end":                        {[]spec.MaintenanceWindow{night}, "2026-11-29T03:00:00Z", "2026-12-05T22:00:00+01:00"},
		"the same time on another day":      {[]spec.MaintenanceWindow{night}, "2026-11-30T01:00:00Z", "2026-12-05T22:00:00+01:00"},
		"in summer time":                    {[]spec.MaintenanceWindow{night}, "2026-07-11T19:59:59Z", "2026-07-11T22:00:00+02:00"},
		"the earliest of several":           {[]spec.MaintenanceWindow{night, noon}, "2026-11-28T20:00:00Z", "2026-11-28T22:00:00+01:00"},
		"one of several":                    {[]spec.MaintenanceWindow{night, noon}, "2026-11-30T12:30:00Z", ""},
		"equal times are a whole day":       {[]spec.MaintenanceWindow{always}, "2026-11-30T23:59:59Z", ""},
		"the next day, without a time zone": {[]spec.MaintenanceWindow{noon}, "2026-11-30T13:00:00Z", "2026-12-01T12:00:00Z"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			now, err := time.Parse(time.RFC3339, test.now)
			require.NoError(t, err)

			m := &spec.Maintenance{Windows: test.windows}
			allowed, next := m.Allows(now)
			assert.Equal(t, test.next == "", allowed)

			if !allowed {
				assert.Equal(t, test.next, next.Format(time.RFC3339))
			}
		})
	}
}

func TestMaintenanceRefusal(t *testing.T) {
	t.Parallel()

	now := time.Date(2026, 11, 28, 20, 0, 30, 0, time.UTC)
	m := &spec.Maintenance{Windows: []spec.MaintenanceWindow{
		{StartTime: "22:00", EndTime: "23:00", TimeZone: "Europe/Berlin"},
	}}

	assert.Equal(t, "it is outside of the maintenance windows of the cluster; the next one begins Sat 2026-11-28 22:00 CET "+
		"(in 59m): run the same then, or take maintenance.windows out of the stack file for now", m.Refusal(now))
	assert.Empty(t, m.Refusal(now.Add(time.Hour)))
	assert.Empty(t, (*spec.Maintenance)(nil).Refusal(now))
}
