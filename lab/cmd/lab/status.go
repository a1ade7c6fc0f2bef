package main

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"talos-proxmox/internal/terminal"
	"talos-proxmox/lab/control"
	"talos-proxmox/lab/machine"
	"talos-proxmox/lab/proxmox"
)

func newStatus(f *globalFlags) *cobra.Command {
	var quiet, coverage bool

	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show hosts, VMs and machines",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if coverage {
				return printCoverage(cmd.OutOrStdout())
			}

			status, err := control.NewClient(f.dir).Status(cmd.Context())
			if err != nil || quiet {
				return err
			}

			return printStatus(cmd.OutOrStdout(), status)
		},
	}
	cmd.Flags().BoolVar(
		&coverage, "coverage", false, "list the calls of Proxmox' API that the lab implements; needs no running lab",
	)
	cmd.Flags().BoolVar(&quiet, "quiet", false, "print nothing; the exit code says whether a lab runs")

	return cmd
}

func printCoverage(w io.Writer) error {
	methods := proxmox.Methods()
	rows := [][]string{{"METHOD", "PATH"}}

	for _, m := range methods {
		method, path, _ := strings.Cut(m, " ")
		rows = append(rows, []string{method, path})
	}

	_, err := fmt.Fprintf(w, "%s\n%d methods\n", terminal.Table(rows, terminal.Of(w).Width()), len(methods))

	return err
}

// kernelParameters returns a command line without the parameters of the boot loader and the installation.
func kernelParameters(line string) string {
	words := slices.DeleteFunc(strings.Fields(line), func(w string) bool {
		name, _, _ := strings.Cut(w, "=")

		return slices.Contains([]string{"BOOT_IMAGE", "initrd", "root", "boot", "ro"}, name)
	})

	return strings.Join(words, " ")
}

func printStatus(w io.Writer, status control.Status) error {
	width := terminal.Of(w).Width()

	var text strings.Builder

	text.WriteString(terminal.Wrap(fmt.Sprintf(
		"Lab: process %d, up %s, speed %g, Kubernetes %s, Proxmox at %s, Image Factory at %s, %d active tasks",
		status.PID, time.Since(status.Started).Round(time.Second), status.Speed, status.Kubernetes,
		status.Connection.Endpoint, status.Connection.FactoryURL, status.Tasks), "", width))

	rows := [][]string{{"HOST", "ADDRESS", "STATE", "CORES USED", "MEMORY USED", "KERNEL PARAMETERS", "GPUS"}}

	for _, host := range status.Hosts {
		rows = append(rows, []string{
			host.Name, host.Address.String(), hostState(host), fmt.Sprintf("%d of %d", host.CoresUsed, host.Cores),
			fmt.Sprintf("%d of %d MiB", host.MemoryUsedMiB, host.MemoryMiB), kernelParameters(host.Boot.CommandLine), gpus(host),
		})
	}

	text.WriteString("\n" + terminal.Table(rows, width, "KERNEL PARAMETERS"))

	rows = [][]string{{"VMID", "NAME", "HOST", "STATE", "ADDRESS", "ROLE", "TALOS", "MACHINE", "ETCD MEMBER"}}

	machines := map[int]machine.MachineStatus{}
	for _, m := range status.Machines {
		machines[m.VMID] = m
	}

	var problems []string

	for _, vm := range status.VMs {
		state := "stopped"

		switch {
		case vm.Lock != "":
			state = "locked (" + vm.Lock + ")"
		case vm.Template:
			state = "template"
		case vm.Running:
			state = "running"
		}

		m := machines[vm.ID]
		stage := m.Stage

		if m.Ready {
			stage += ", ready"
		}

		address := ""
		if m.Address.IsValid() {
			address = m.Address.String()
		}

		rows = append(rows, []string{
			strconv.Itoa(vm.ID), vm.Name, vm.Host, state, address, m.Role, m.Version, stage, m.EtcdMember,
		})

		if m.Problem != "" {
			problems = append(problems, fmt.Sprintf("%s (%d): %s", vm.Name, vm.ID, m.Problem))
		}
	}

	if len(status.VMs) > 0 {
		text.WriteString("\n" + terminal.Table(rows, width, "ETCD MEMBER", "ROLE"))
	}

	if len(problems) > 0 {
		text.WriteString("\nProblems:\n")

		for _, problem := range problems {
			text.WriteString(terminal.Wrap(problem, "  ", width))
		}
	}

	_, err := io.WriteString(w, text.String())

	return err
}
