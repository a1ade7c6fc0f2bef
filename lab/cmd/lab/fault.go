package main

import (
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"proxmox-talos/lab/control"
	"proxmox-talos/lab/datacentre"
)

func newFault(f *folders) *cobra.Command {
	fault := &cobra.Command{Use: "fault", Short: "Make calls slow, refused or broken, tasks fail, hosts vanish", Args: cobra.NoArgs}
	fault.AddCommand(newFaultAdd(f), newFaultList(f), newFaultClear(f))

	return fault
}

func newFaultAdd(f *folders) *cobra.Command {
	var rule datacentre.Fault

	cmd := &cobra.Command{
		Use:   "add",
		Short: "Set a fault",
		Example: `  lab fault add --task qmclone --message "storage 'local-lvm' is full" --times 1
  lab fault add --method POST --path '/nodes/pve1/qemu/.*/clone' --status 500 --message "VM is locked (backup)"
  lab fault add --path '/nodes/.*/tasks/.*' --delay 30s
  lab fault add --path '/nodes/pve2/.*' --reset
  lab fault add --host pve2 --offline`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			id, err := control.NewClient(f.dir).AddFault(cmd.Context(), rule)
			if err != nil {
				return err
			}

			cmd.Printf("Fault %d is set. `lab fault clear` takes all away.\n", id)

			return nil
		},
	}

	flags := cmd.Flags()
	flags.StringVar(&rule.Method, "method", "", "requests of this method")
	flags.StringVar(&rule.Path, "path", "", "requests whose path (without /api2/json) matches this regular expression")
	flags.StringVar(&rule.Task, "task", "", "tasks of this type, such as qmclone; * for all")
	flags.StringVar(&rule.Host, "host", "", "only on this host")
	flags.IntVar(&rule.VMID, "vmid", 0, "only tasks of this VM")
	flags.DurationVar(&rule.Delay, "delay", time.Duration(0), "modelled time that passes first")
	flags.IntVar(&rule.Status, "status", 0, "HTTP status of the answer")
	flags.StringVar(&rule.Message, "message", "", "the answer's reason, or what the task ends with")
	flags.BoolVar(&rule.Reset, "reset", false, "break the connection instead of answering")
	flags.BoolVar(&rule.After, "after", false, "with --reset: only after the request was carried out")
	flags.BoolVar(&rule.Offline, "offline", false, "with --host: the whole host is unreachable")
	flags.IntVar(&rule.Times, "times", 0, "how often the fault hits; 0 = always")

	return cmd
}

func newFaultList(f *folders) *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List the faults that are set",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			list, err := control.NewClient(f.dir).Faults(cmd.Context())
			if err != nil {
				return err
			}

			if len(list) == 0 {
				cmd.Println("No faults are set.")

				return nil
			}

			table := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
			fmt.Fprintln(table, "FAULT\tHITS\tEFFECT\tTIMES LEFT")

			for _, fault := range list {
				fmt.Fprintf(table, "%d\t%s\t%s\t%s\n", fault.ID, faultTarget(fault), faultEffect(fault), faultTimes(fault))
			}

			return table.Flush()
		},
	}
}

func faultTarget(fault datacentre.Fault) string {
	switch {
	case fault.Offline:
		return "host " + fault.Host
	case fault.Task != "":
		target := "task " + fault.Task
		if fault.VMID != 0 {
			target += fmt.Sprintf(" of VM %d", fault.VMID)
		}

		return target
	default:
		return fmt.Sprintf("request %s %s", orAny(fault.Method), orAny(fault.Path))
	}
}

func orAny(s string) string {
	if s == "" {
		return "*"
	}

	return s
}

func faultEffect(fault datacentre.Fault) string {
	switch {
	case fault.Offline:
		return "offline"
	case fault.Reset:
		return "connection reset"
	case fault.Message != "":
		return fmt.Sprintf("%d %s", fault.Status, fault.Message)
	default:
		return "delay " + fault.Delay.String()
	}
}

func faultTimes(fault datacentre.Fault) string {
	if fault.Times == 0 {
		return "always"
	}

	return fmt.Sprint(fault.Times)
}

func newFaultClear(f *folders) *cobra.Command {
	return &cobra.Command{
		Use:   "clear",
		Short: "Take all faults away",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := control.NewClient(f.dir).ClearFaults(cmd.Context()); err != nil {
				return err
			}

			cmd.Println("All faults are gone.")

			return nil
		},
	}
}
