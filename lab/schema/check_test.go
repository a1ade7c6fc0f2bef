package schema

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestCheck covers messages that no call of the recording does.
func TestCheck(t *testing.T) {
	t.Parallel()

	for name, tc := range map[string]struct{ rule, value, complaint string }{
		"too long":            {`{"type":"string","maxLength":2}`, "abc", "value may only be 2 characters long"},
		"no address at all":   {`{"type":"string","format":"email-opt"}`, "", ""},
		"half an address":     {`{"type":"string","format":"email-opt"}`, "a@", "invalid format - value does not look like a valid email address"},
		"an empty list":       {`{"type":"string","format":"pve-vmid-list"}`, "", ""},
		"a boolean as a word": {"net0", "virtio=02:00:00:00:00:01,bridge=vmbr0,firewall=on", ""},
		"two models": {
			"net0", "virtio=02:00:00:00:00:01,e1000=02:00:00:00:00:02", "invalid format - key alias 'model' is already defined",
		},
		"a repeated key": {
			"net0", "virtio,tag=1,tag=2", "invalid format - duplicate key in comma-separated list property: tag",
		},
		"a key without value": {"net0", "virtio,tag=", "invalid format - missing key in comma-separated list property"},
		"a custom CPU model":  {"cpu", "custom-z80", "invalid format - Custom cputype 'z80' not found"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			assert.Equal(t, tc.complaint, strings.TrimRight(rule(t, tc.rule).Check("net0", []string{tc.value})["net0"], "\n"))
		})
	}
}

// rule parses a rule in the description's form, or returns that of a configuration key.
func rule(t *testing.T, text string) Rule {
	t.Helper()

	if r, ok := Config(text); ok {
		return r
	}

	var r Rule

	require.NoError(t, json.Unmarshal([]byte(text), &r))

	return r
}

func TestCheckLists(t *testing.T) {
	t.Parallel()

	list := rule(t, `{"type":"array","items":{"type":"string","format":"pve-vmid"}}`)

	assert.Equal(
		t, map[string]string{"x": "type check ('string') failed - got ARRAY"},
		rule(t, `{"type":"string"}`).Check("x", []string{"a", "b"}),
	)
	assert.Empty(t, rule(t, `{"type":"string","format":"pve-vmid-list"}`).Check("x", []string{"100", "101"}))
	assert.Empty(t, list.Check("x", []string{"100", "101"}))
	assert.Equal(
		t, map[string]string{"x[1]": "invalid format - value does not look like a valid VM ID\n"},
		list.Check("x", []string{"100", "y"}),
	)
}

func TestConfigKeys(t *testing.T) {
	t.Parallel()

	for key, known := range map[string]bool{
		"cores":    true,
		"scsi0":    true,
		"scsi30":   true,
		"scsi31":   false,
		"scsi01":   false,
		"scsi":     false,
		"scsi[n]":  false,
		"numa":     true,
		"numa7":    true,
		"numa8":    false,
		"efidisk0": true, "efidisk1": false, "colour": false, "meta": false, "ide3": true, "ide4": false,
	} {
		_, ok := Config(key)
		assert.Equal(t, known, ok, key)
	}
}
