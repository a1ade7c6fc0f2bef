package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/wait"

	"talos-proxmox/internal/terminal"
	"talos-proxmox/lab/control"
	"talos-proxmox/lab/datacentre"
)

func newHost(f *globalFlags) *cobra.Command {
	host := &cobra.Command{
		Use: "host", Short: "Inspect Proxmox hosts, reboot them, change their hardware", Args: cobra.NoArgs,
	}
	host.AddCommand(newHostList(f), newHostReboot(f), newHostChange(f), newHostDisk(f))

	return host
}

func newHostList(f *globalFlags) *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "Show kernel, command line, IOMMU, GPUs and their drivers of hosts",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			status, err := control.NewClient(f.dir).Status(cmd.Context())
			if err != nil {
				return err
			}

			for _, h := range status.Hosts {
				printHost(cmd.OutOrStdout(), h)
			}

			return nil
		},
	}
}

func printHost(w io.Writer, h datacentre.Host) {
	firmware := "EFI"

	switch {
	case h.Firmware.BIOS:
		firmware = "BIOS"
	case h.Firmware.SecureBoot:
		firmware = "EFI with Secure Boot"
	}

	root := "ext4"
	if pool := h.ZFSRoot(); pool != "" {
		root = "ZFS pool " + pool
	}

	fmt.Fprintf(w, "%s (%s): %s\n  %s, %d cores, %d MiB, %s, %s, root on %s\n  %s: %s\n  IOMMU %s\n",
		h.Name, h.Address, hostState(h), h.CPUModel, h.Cores, h.MemoryMiB, firmware, h.Loader, root, h.Boot.Kernel,
		h.Boot.CommandLine, onOff(h.Boot.IOMMU))

	rows := [][]string{{"DEVICE", "IDS", "IOMMU GROUP", "DRIVER", "NAME"}}

	for _, p := range h.PCI {
		if strings.HasPrefix(p.Class, "0x06") || strings.HasPrefix(p.Class, "0x08") {
			continue
		}

		group := "no group"
		if p.IOMMUGroup >= 0 {
			group = fmt.Sprintf("group %d", p.IOMMUGroup)
		}

		rows = append(rows, []string{p.Address, p.IDs(), group, driver(h, p), p.Device})
	}

	fmt.Fprint(w, terminal.Table(rows, terminal.Of(w).Width()))
}

func hostState(h datacentre.Host) string {
	switch {
	case h.Problem != "":
		return "does not boot: " + h.Problem
	case h.Rebooting:
		return "rebooting"
	case !h.Online:
		return "offline"
	case h.Disk != "":
		return "up, disk " + h.Disk
	default:
		return "up"
	}
}

func onOff(on bool) string {
	if on {
		return "on"
	}

	return "off"
}

func driver(h datacentre.Host, p datacentre.PCIDevice) string {
	if d := h.Boot.Drivers[p.Address]; d != "" {
		return d
	}

	return "no driver"
}

// gpus returns a host's GPUs with their drivers for a table.
func gpus(h datacentre.Host) string {
	var list []string

	for _, p := range h.PCI {
		if p.GPU() {
			list = append(list, strings.TrimPrefix(p.Address, "0000:")+" "+driver(h, p))
		}
	}

	return strings.Join(list, ", ")
}

func newHostReboot(f *globalFlags) *cobra.Command {
	var waitUp bool

	cmd := &cobra.Command{
		Use:   "reboot NAME",
		Short: "Reboot a host: its VMs stop, and those with onboot start again",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			client := control.NewClient(f.dir)
			if err := client.RebootHost(cmd.Context(), args[0]); err != nil {
				return err
			}

			if !waitUp {
				cmd.Printf("%s is rebooting. `lab host list` shows when it is back.\n", args[0])

				return nil
			}

			return waitForHost(cmd.Context(), cmd, client, args[0])
		},
	}
	cmd.Flags().BoolVar(&waitUp, "wait", true, "wait until it is back")

	return cmd
}

// waitForHost waits until a host is up or failed to boot.
func waitForHost(ctx context.Context, cmd *cobra.Command, client *control.Client, name string) error {
	return wait.PollUntilContextCancel(ctx, 100*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		status, err := client.Status(ctx)
		if err != nil {
			return false, err
		}

		i := slices.IndexFunc(status.Hosts, func(h datacentre.Host) bool { return h.Name == name })
		if i < 0 {
			return false, fmt.Errorf("the lab has no host %q", name)
		}

		h := status.Hosts[i]
		if h.Problem != "" {
			return false, errors.New(name + " " + hostState(h))
		}

		if !h.Rebooting {
			cmd.Printf("%s is up with %s\n", name, h.Boot.CommandLine)
		}

		return !h.Rebooting, nil
	})
}

func newHostDisk(f *globalFlags) *cobra.Command {
	return &cobra.Command{
		Use:       "disk NAME full|read-only|ok",
		Short:     "Make a host's root file system full, read-only, or normal again, with immediate effect",
		Args:      cobra.ExactArgs(2),
		ValidArgs: []string{datacentre.DiskFull, datacentre.DiskReadOnly, "ok"},
		RunE: func(cmd *cobra.Command, args []string) error {
			state := args[1]
			if state == "ok" {
				state = ""
			}

			if err := control.NewClient(f.dir).SetHostDisk(cmd.Context(), args[0], state); err != nil {
				return err
			}

			cmd.Printf("The disk of %s is %s.\n", args[0], args[1])

			return nil
		},
	}
}

func newHostChange(f *globalFlags) *cobra.Command {
	var move, group, remove, iommu string

	cmd := &cobra.Command{
		Use:   "change NAME",
		Short: "Change a host's hardware or firmware from its next boot on",
		Example: `  lab host change pve1 --move 0000:01:00=0000:41:00       # move a GPU to another slot
  lab host change pve1 --group 0000:01:00=0000:02:00.0    # put it into the boot disk's IOMMU group
  lab host change pve1 --remove 0000:01:00
  lab host change pve1 --iommu=off                        # disable it in the firmware
  lab host reboot pve1                                    # apply the changes`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			change, err := parseChange(move, group, remove, iommu)
			if err != nil {
				return err
			}

			if err := control.NewClient(f.dir).ChangeHost(cmd.Context(), args[0], change); err != nil {
				return err
			}

			cmd.Printf("%s changes at its next boot: `lab host reboot %[1]s`\n", args[0])

			return nil
		},
	}

	flags := cmd.Flags()
	flags.StringVar(&move, "move", "", "move a PCI device to another slot: FROM=TO")
	flags.StringVar(&group, "group", "", "put a PCI device into the IOMMU group of another: SLOT=DEVICE")
	flags.StringVar(&remove, "remove", "", "remove the PCI device of this slot")
	flags.StringVar(&iommu, "iommu", "", "on or off, in the firmware")

	return cmd
}

func parseChange(move, group, remove, iommu string) (datacentre.HostChange, error) {
	change := datacentre.HostChange{RemovePCI: remove}

	for _, flag := range []struct {
		name, text string
		to         *[2]string
	}{{"move", move, &change.MovePCI}, {"group", group, &change.GroupWith}} {
		from, to, found := strings.Cut(flag.text, "=")
		if flag.text != "" && (!found || to == "") {
			return change, fmt.Errorf("--%s %q is not a pair such as 0000:01:00=0000:41:00", flag.name, flag.text)
		}

		*flag.to = [2]string{from, to}
	}

	switch iommu {
	case "":
	case "on", "off":
		on := iommu == "on"
		change.IOMMU = &on
	default:
		return change, fmt.Errorf("--iommu %q: set on or off", iommu)
	}

	if (change == datacentre.HostChange{}) {
		return change, errors.New("nothing to change: set --move, --group, --remove or --iommu")
	}

	return change, nil
}
