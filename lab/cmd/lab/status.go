package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

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
		&coverage, "coverage", false, "list the calls of Proxmox's API that the lab implements; needs no running lab",
	)
	cmd.Flags().BoolVar(&quiet, "quiet", false, "print nothing; the exit code says whether a lab runs")

	return cmd
}

func printCoverage(w io.Writer) error {
	methods := proxmox.Methods()
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)

	for _, m := range methods {
		fmt.Fprintln(table, strings.Replace(m, " ", "\t", 1))
	}

	fmt.Fprintf(table, "\n%d methods\n", len(methods))

	return table.Flush()
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
	fmt.Fprintf(w,
		"Lab: process %d, up %s, speed %g, Kubernetes %s, Proxmox at %s, Image Factory at %s, %d active tasks\n\n",
		status.PID, time.Since(status.Started).Round(time.Second), status.Speed, status.Kubernetes,
		status.Connection.Endpoint, status.Connection.FactoryURL, status.Tasks)

	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)

	fmt.Fprintln(table, "HOST\tADDRESS\tSTATE\tCORES USED\tMEMORY USED\tKERNEL PARAMETERS\tGPUS")

	for _, host := range status.Hosts {
		fmt.Fprintf(table, "%s\t%s\t%s\t%d of %d\t%d of %d MiB\t%s\t%s\n",
			host.Name, host.Address, hostState(host), host.CoresUsed, host.Cores, host.MemoryUsedMiB, host.MemoryMiB,
			kernelParameters(host.Boot.CommandLine), gpus(host))
	}

	if len(status.VMs) > 0 {
		fmt.Fprintln(table, "\nVMID\tNAME\tHOST\tSTATE\tADDRESS\tROLE\tTALOS\tMACHINE\tETCD MEMBER")
	}

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

		fmt.Fprintf(
			table, "%d\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", vm.ID, vm.Name, vm.Host, state, address, m.Role, m.Version, stage,
			m.EtcdMember,
		)

		if m.Problem != "" {
			problems = append(problems, fmt.Sprintf("%s (%d): %s", vm.Name, vm.ID, m.Problem))
		}
	}

	if err := table.Flush(); err != nil {
		return err
	}

	if len(problems) > 0 {
		fmt.Fprintf(w, "\nProblems:\n  %s\n", strings.Join(problems, "\n  "))
	}

	return nil
}
