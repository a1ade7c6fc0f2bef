package talosapi

import (
	"context"
	"errors"
	"io"
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

// GPUMachine asks a machine for all that its GPUs need of it; the kernel log only where the driver is not loaded.
func (t *Client) GPUMachine(ctx context.Context, address string) (m GPUMachine, err error) {
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
			m.Driver, err = driverWords(ctx, c)
		}

		return err
	})

	return m, err
}

// driverWords picks the driver's refusals from the kernel log: the lines that begin where a GPU "installed in this
// system" is spoken of.
func driverWords(ctx context.Context, c *client.Client) ([]string, error) {
	stream, err := c.Dmesg(ctx, false, false)
	if err != nil {
		return nil, err
	}

	var log strings.Builder

	for {
		data, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return refusals(log.String()), nil
		}

		if err != nil {
			return nil, err
		}

		log.Write(data.GetBytes())
	}
}

// refusals are the sentences of the kernel log's last refusal.
func refusals(log string) []string {
	var words []string

	inside := false

	for line := range strings.Lines(log) {
		_, text, found := strings.Cut(line, "NVRM: ")

		text = strings.TrimSpace(text)
		switch {
		case found && strings.HasPrefix(text, "The NVIDIA GPU "):
			inside, words = true, nil
		case !found || strings.HasPrefix(text, "The NVIDIA probe routine"):
			inside = false
		case inside:
			words = append(words, text)
		}
	}

	return words
}
