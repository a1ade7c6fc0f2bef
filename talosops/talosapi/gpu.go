package talosapi

import (
	"context"
	"errors"
	"io"
	"net/netip"
	"slices"
	"strings"

	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/siderolabs/talos/pkg/machinery/client"
	"github.com/siderolabs/talos/pkg/machinery/resources/hardware"
	"github.com/siderolabs/talos/pkg/machinery/resources/runtime"
)

// DriverModule is the kernel module of NVIDIA's driver.
const DriverModule = "nvidia"

const (
	nvidiaVendor      = "0x10de"
	displayController = "0x03" // PCI class
)

// GPUMachine returns what a machine has for its GPUs. It reads the kernel log only if the driver is not loaded.
func (t *Client) GPUMachine(ctx context.Context, address netip.Addr) (m GPUMachine, err error) {
	m.Extensions = map[string]string{}
	err = t.call(ctx, address, func(ctx context.Context, c *client.Client) error {
		devices, err := safe.StateListAll[*hardware.PCIDevice](ctx, c.COSI)
		if err != nil {
			return err
		}

		for d := range devices.All() {
			if s := d.TypedSpec(); s.VendorID == nvidiaVendor && s.ClassID == displayController {
				m.Devices = append(m.Devices, d.Metadata().ID())
			}
		}

		extensions, err := safe.StateListAll[*runtime.ExtensionStatus](ctx, c.COSI)
		if err != nil {
			return err
		}

		for e := range extensions.All() {
			if name := e.TypedSpec().Metadata.Name; strings.Contains(name, "nvidia") {
				m.Extensions[name] = e.TypedSpec().Metadata.Version
			}
		}

		modules, err := safe.StateListAll[*runtime.LoadedKernelModule](ctx, c.COSI)
		if err != nil {
			return err
		}

		for module := range modules.All() {
			if name := module.Metadata().ID(); strings.HasPrefix(name, "nvidia") {
				m.Modules = append(m.Modules, name)
			}
		}

		if !slices.Contains(m.Modules, DriverModule) {
			m.DriverErrors, err = driverErrors(ctx, c)
		}

		return err
	})

	return m, err
}

// driverErrors returns the driver's errors from the kernel log.
func driverErrors(ctx context.Context, c *client.Client) ([]string, error) {
	stream, err := c.Dmesg(ctx, false, false)
	if err != nil {
		return nil, err
	}

	var log strings.Builder

	for {
		data, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return parseDriverErrors(log.String()), nil
		}

		if err != nil {
			return nil, err
		}

		log.Write(data.GetBytes())
	}
}

// parseDriverErrors returns the lines of the last message in which the driver refuses a GPU: those after "The NVIDIA
// GPU …".
func parseDriverErrors(log string) []string {
	var messages []string

	inside := false

	for line := range strings.Lines(log) {
		_, text, found := strings.Cut(line, "NVRM: ")

		text = strings.TrimSpace(text)
		switch {
		case found && strings.HasPrefix(text, "The NVIDIA GPU "):
			inside, messages = true, nil
		case !found || strings.HasPrefix(text, "The NVIDIA probe routine"):
			inside = false
		case inside:
			messages = append(messages, text)
		}
	}

	return messages
}
