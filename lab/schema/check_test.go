package schema

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestComplaintsArePVEs(t *testing.T) {
	t.Parallel()

	for name, tc := range map[string]struct{ rule, value, complaint string }{
		"an integer":        {"int", "x", "type check ('integer') failed - got 'x'"},
		"a number":          {"number", "1,5", "type check ('number') failed - got '1,5'"},
		"a boolean":         {"bool", "true", "type check ('boolean') failed - got 'true'"},
		"a boolean that is": {"bool", "1", ""},
		"too little":        {"int 1..", "0", "value must have a minimum value of 1"},
		"too much":          {"int 1..4", "5", "value must have a maximum value of 4"},
		"an enumeration":    {"=a,b", "c", "value 'c' does not have a value in the enumeration 'a, b'"},
		"a pattern":         {"~[a-z]+", "a1", "value does not match the regex pattern"},
		"too long":          {"<=2", "abc", "value may only be 2 characters long"},
		"too short":         {">=2", "a", "value must be at least 2 characters long"},
		"no address at all": {"@email-opt", "", ""},
		"half an address":   {"@email-opt", "a@", "invalid format - value does not look like a valid email address"},
		"a VMID": {
			"int 100..999999999 @pve-vmid", "0", "invalid format - value does not look like a valid VM ID",
		},
		"a DNS name":          {"@dns-name", "a_b", "invalid format - value does not look like a valid DNS name"},
		"a list":              {"@pve-vmid-list", "100;x", "invalid format - value does not look like a valid VM ID"},
		"an empty list":       {"@pve-vmid-list", "", ""},
		"a storage":           {"@pve-storage-id", "a!", "invalid format - storage ID 'a!' contains illegal characters"},
		"a volume":            {"@pve-volume-id", "local", "invalid format - unable to parse volume ID 'local'"},
		"a card":              {"{net}", "virtio=02:00:00:00:00:01,bridge=vmbr0,firewall=on", ""},
		"a card's other form": {"{net}", "model=virtio,macaddr=02:00:00:00:00:01", ""},
		"a card with a typo": {
			"{net}", "virtio,brigde=vmbr0", "invalid format - format error\nnet0.brigde: " + Undefined,
		},
		"a card of no kind": {
			"{net}", "bridge=vmbr0", "invalid format - format error\nnet0.model: property is missing and it is not optional",
		},
		"a multicast MAC": {
			"{net}", "virtio=01:00:00:00:00:01",
			"invalid format - format error\nnet0.macaddr: invalid format - value does not look like a valid unicast MAC address",
		},
		"two models": {
			"{net}", "virtio=02:00:00:00:00:01,e1000=02:00:00:00:00:02", "invalid format - key alias 'model' is already defined",
		},
		"a key twice": {
			"{net}", "virtio,tag=1,tag=2", "invalid format - duplicate key in comma-separated list property: tag",
		},
		"a key without value": {"{net}", "virtio,tag=", "invalid format - missing key in comma-separated list property"},
		"no default key": {
			"@pve-qm-ipconfig", "dhcp", "invalid format - value without key, but schema does not define a default key",
		},
		"a processor":              {"@pve-vm-cpu-conf", "x86-64-v2-AES,flags=+aes", ""},
		"a processor of nobody's":  {"@pve-vm-cpu-conf", "z80", "invalid format - Built-in cputype 'z80' is not defined (missing 'custom-' prefix?)"},
		"a processor of one's own": {"@pve-vm-cpu-conf", "custom-z80", "invalid format - Custom cputype 'z80' not found"},
		"an address":               {"@pve-qm-ipconfig", "ip=10.0.0.1/24,gw=10.0.0.254", ""},
		"a gateway alone": {
			"@pve-qm-ipconfig", "gw=10.0.0.254",
			"invalid format - format error\nnet0.ip: missing property required by 'net0.gw'",
		},
		"an address of no kind": {"@pve-qm-ipconfig", "ip=10.0.0.1", "invalid format - format error\nnet0.ip: invalid format - value does not look like a valid ipv4 network configuration"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			rule, err := parse(tc.rule)
			require.NoError(t, err)
			assert.Equal(t, tc.complaint, strings.TrimRight(rule.Check("net0", []string{tc.value})["net0"], "\n"))
		})
	}
}

func TestMoreThanOneValue(t *testing.T) {
	t.Parallel()

	assert.Equal(
		t, map[string]string{"x": "type check ('string') failed - got ARRAY"},
		mustRule("x", "string").Check("x", []string{"a", "b"}),
	)
	assert.Empty(t, mustRule("x", "@pve-vmid-list").Check("x", []string{"100", "101"}))
	assert.Empty(t, mustRule("x", "list @pve-vmid").Check("x", []string{"100", "101"}))
	assert.Equal(
		t, map[string]string{"x[1]": "invalid format - value does not look like a valid VM ID\n"},
		mustRule("x", "list @pve-vmid").Check("x", []string{"100", "y"}),
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

func TestMistakesInTheNotation(t *testing.T) {
	t.Parallel()

	for _, text := range []string{"colour", "<=x", "~(", "a..b"} {
		_, err := parse(text)
		require.Error(t, err, text)
	}
}
