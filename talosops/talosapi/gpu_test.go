package talosapi

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestParseDriverErrors(t *testing.T) {
	t.Parallel()

	log := "kern: info: [x]: NVRM: The NVIDIA GPU 0000:01:00.0 (PCI ID: 10de:1b80)\nkern: info: [x]: NVRM: installed in this system is not supported by open\n" +
		"kern: info: [x]: NVRM: nvidia.ko because it lacks the GSP.\nkern: info: [x]: nvidia 0000:01:00.0: probe with driver nvidia failed with error -1\n" +
		"kern: info: [x]: NVRM: The NVIDIA probe routine failed for 1 device(s).\n"
	assert.Equal(
		t, []string{"installed in this system is not supported by open", "nvidia.ko because it lacks the GSP."},
		parseDriverErrors(log),
	)
	assert.Empty(t, parseDriverErrors("kern: info: [x]: NVRM: loading NVIDIA UNIX Open Kernel Module\n"))
}
