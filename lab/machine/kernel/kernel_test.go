package kernel_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/siderolabs/talos/pkg/machinery/config/config"
	"github.com/siderolabs/talos/pkg/machinery/config/configloader"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/lab/datacentre"
	"talos-proxmox/lab/machine/kernel"
)

const (
	open      = "nvidia-open-gpu-kernel-modules-lts"
	nonfree   = "nonfree-kmod-nvidia-production"
	toolkit   = "nvidia-container-toolkit-lts"
	ada       = "0x27b8"
	pascal    = "0x1b80"
	blackwell = "0x2b85"
	current   = "580.126.20-v1.12.6"
)

func gpu(device string) datacentre.PCIDevice {
	return datacentre.PCIDevice{Address: "0000:81:00.0", VendorID: "0x10de", DeviceID: device, Class: "0x030000"}
}

func modules(t *testing.T, names ...string) config.Config {
	t.Helper()

	text := "machine:\n  type: worker\n  kernel:\n    modules:\n"
	for _, name := range names {
		text += "      - name: " + name + "\n"
	}

	text += "cluster:\n  controlPlane:\n    endpoint: https://127.9.0.11:6443\n"

	cfg, err := configloader.NewFromBytes([]byte(text))
	require.NoError(t, err)

	return cfg
}

func TestNVIDIADriver(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct {
		device, driver string
		version        string
		driven         int
		console        string
	}{
		"open modules drive Ada": {
			ada, open, current, 1, "NVIDIA UNIX Open Kernel Module for x86_64  580.126.20",
		},
		"open modules need a system processor": {pascal, open, current, 0, "System Processor (GSP)"},
		"proprietary modules drive Pascal": {
			pascal, nonfree, current, 1, "NVIDIA UNIX x86_64 Kernel Module  580.126.20",
		},
		"a driver that has dropped Pascal": {pascal, nonfree, "595.10-v1.12.6", 0, "supported through the"},
		"a driver older than Blackwell":    {blackwell, open, "560.35-v1.12.6", 0, "not supported by the"},
		"proprietary modules do not support Blackwell": {
			blackwell, nonfree, current, 0, "requires use of the NVIDIA open kernel modules",
		},
		"no driver": {ada, "", "", 0, "module not found"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			var (
				console    strings.Builder
				extensions []kernel.Extension
			)

			if test.driver != "" {
				extensions = append(extensions, kernel.Extension{Name: test.driver, Version: test.version})
			}

			k := kernel.New([]datacentre.PCIDevice{gpu(test.device)}, nil, extensions, func(format string, args ...any) {
				fmt.Fprintf(&console, format+"\n", args...)
			})
			assert.Empty(t, k.DrivenGPUs())

			k.Load(modules(t, "nvidia_uvm", "nvidia"))
			assert.Len(t, k.DrivenGPUs(), test.driven)
			assert.Equal(t, test.driven > 0, k.Loaded("nvidia_uvm"))
			assert.Contains(t, console.String(), test.console)
		})
	}
}

func TestGPUsOfOtherVendorsNeedTheirExtension(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct {
		vendor, class, extension, driver string
	}{
		"Intel":                      {"0x8086", "0x030000", "i915", "i915"},
		"AMD":                        {"0x1002", "0x038000", "amdgpu", "amdgpu"},
		"Intel without an extension": {"0x8086", "0x030000", "", ""},
		"Intel with that of AMD":     {"0x8086", "0x030000", "amdgpu", ""},
		"a network card of Intel":    {"0x8086", "0x020000", "i915", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			var console strings.Builder

			device := datacentre.PCIDevice{Address: "0000:00:02.0", VendorID: test.vendor, DeviceID: "0x4c90", Class: test.class}
			k := kernel.New([]datacentre.PCIDevice{device}, nil, []kernel.Extension{{Name: test.extension}},
				func(format string, args ...any) { fmt.Fprintf(&console, format+"\n", args...) })

			assert.Equal(t, test.driver != "", k.Loaded(test.driver))
			assert.Equal(t, test.driver != "", strings.Contains(console.String(), "Initialized "+test.driver))
		})
	}
}

func TestUSBDevicesHaveTheDriversOfTalos(t *testing.T) {
	t.Parallel()

	var console strings.Builder

	devices := []datacentre.USBDevice{{Port: "1-4", ID: "10c4:ea60"}, {Port: "1-7.1", ID: "0658:0200"}, {Port: "2-1", ID: "051d:0002"}}
	say := func(format string, args ...any) { fmt.Fprintf(&console, format+"\n", args...) }

	k := kernel.New(nil, devices, nil, say)
	assert.True(t, k.Loaded("cp210x"))
	assert.False(t, k.Loaded("cdc_acm"))
	assert.Equal(t, `usb 1-1: New USB device found, idVendor=10c4, idProduct=ea60
usb 1-1: cp210x converter now attached to ttyUSB0
usb 1-2: New USB device found, idVendor=0658, idProduct=0200
usb 1-3: New USB device found, idVendor=051d, idProduct=0002
`, console.String())

	k = kernel.New(nil, devices, []kernel.Extension{{Name: "usb-modem-drivers"}}, say)
	assert.True(t, k.Loaded("cdc_acm"))
	assert.Contains(t, console.String(), "cdc_acm 1-2:1.0: ttyACM0: USB ACM device")
}
