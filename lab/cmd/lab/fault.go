package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"talos-proxmox/internal/terminal"
	"talos-proxmox/lab/control"
	"talos-proxmox/lab/datacentre"
	"talos-proxmox/lab/schema"
)

func newFault(f *globalFlags) *cobra.Command {
	fault := &cobra.Command{
		Use: "fault", Args: cobra.NoArgs,
		Short: "Inject faults: calls, tasks, hosts, the quorum, storages, locks, sessions",
		Long: `Inject faults that occur in data centres, and see how the program handles them.

A fault is a state of the data centre (--offline, --no-quorum, --full, --lock, --hangs, --reverts, --no-network,
--no-package, --expire-tickets), or a rule for tasks (--task, --start-fails) or for requests to Proxmox' API
(--method, --path). A rule applies always, or --times times. Faults last until they are cleared, and survive a restart
of the lab.`,
	}
	fault.AddCommand(newFaultAdd(f), newFaultList(f), newFaultClear(f))

	return fault
}

// startFailure is PVE's error when a VM's process exits at once.
const startFailure = "start failed: QEMU exited with code 1"

func newFaultAdd(f *globalFlags) *cobra.Command {
	var (
		rule       datacentre.Fault
		startFails bool
	)

	cmd := &cobra.Command{
		Use:   "add",
		Short: "Set a fault",
		Example: `  lab fault add --offline --host pve2                              # 595 No route to host, and no SSH
  lab fault add --no-quorum                                        # reads work, writes are refused
  lab fault add --full local-lvm --host pve1                       # no free space on a storage
  lab fault add --lock backup --vmid 3000                          # VM is locked (backup)
  lab fault add --hangs --vmid 3000                                # the machine hangs in its boot
  lab fault add --expire-tickets                                   # tickets get 401, tokens remain valid
  lab fault add --start-fails --vmid 3000 --times 1                # start failed: QEMU exited with code 1
  lab fault add --task qmclone --delay 5m                          # slow tasks
  lab fault add --task qmcreate --warnings 1                       # tasks that end with WARNINGS: 1
  lab fault add --task qmclone --message "no space left on device" # tasks that fail
  lab fault add --path '/nodes/pve2/.*' --reset               # connections are reset before the request is executed
  lab fault add --method POST --path '/clone$' --reset --after     # … or afterwards
  lab fault add --path '/tasks/' --delay 30s                       # slow answers
  lab fault add --method PUT --path '/qemu/.*/config' --status 500 --message "got timeout"`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if startFails {
				rule.Task, rule.Message = "qmstart", startFailure
			}

			if err := checkFault(rule); err != nil {
				return err
			}

			id, err := control.NewClient(f.dir).AddFault(cmd.Context(), rule)
			if err != nil {
				return err
			}

			cmd.Printf("Fault %d is set. `lab fault clear %[1]d` clears it.\n", id)

			return nil
		},
	}

	faultFlags(cmd, &rule)
	cmd.Flags().BoolVar(&startFails, "start-fails", false, "VMs do not start")
	constrainFaultFlags(cmd)

	return cmd
}

func faultFlags(cmd *cobra.Command, rule *datacentre.Fault) {
	flags := cmd.Flags()
	flags.BoolVar(&rule.Offline, "offline", false, "the --host is unreachable")
	flags.BoolVar(&rule.NoPower, "no-power", false, "the --host has no power, and boots when the fault is cleared")
	flags.BoolVar(&rule.NoQuorum, "no-quorum", false, "the cluster has no quorum")
	flags.StringVar(&rule.Full, "full", "", "the storage of this name, of --host or of all hosts, is full")
	flags.StringVar(&rule.Lock, "lock", "", "--vmid is locked for this reason, such as backup")
	flags.BoolVar(&rule.Hangs, "hangs", false, "the machine of --vmid hangs in its boot")
	flags.BoolVar(&rule.Reverts, "reverts", false, "upgraded systems on --vmid fail to boot")
	flags.BoolVar(&rule.NoNetwork, "no-network", false, "--vmid has no network; on Talos, only its API is unreachable")
	flags.StringVar(&rule.NoPackage, "no-package", "", "package mirrors lack this package")
	flags.BoolVar(&rule.ExpireTickets, "expire-tickets", false, "tickets issued until now have expired")

	flags.StringVar(&rule.Task, "task", "", "tasks of this type, such as qmclone; * for all")
	flags.StringVar(&rule.Method, "method", "", "requests of this method")
	flags.StringVar(&rule.Path, "path", "", "requests whose path (without /api2/json) matches this regular expression")
	flags.StringVar(&rule.Host, "host", "", "only on this host")
	flags.IntVar(&rule.VMID, "vmid", 0, "the VM of --lock, --hangs, --reverts and --no-network; with --task: only tasks of this VM")

	flags.DurationVar(&rule.Delay, "delay", time.Duration(0), "delay in modelled time")
	flags.IntVar(&rule.Status, "status", 0, "HTTP status of the response (default 500)")
	flags.StringVar(&rule.Message, "message", "", "the response's reason, or the task's error")
	flags.IntVar(&rule.Warnings, "warnings", 0, "with --task: the task succeeds with this number of warnings")
	flags.BoolVar(&rule.Reset, "reset", false, "reset the connection instead of responding")
	flags.BoolVar(&rule.After, "after", false, "with --reset: after the request was executed")
	flags.IntVar(&rule.Times, "times", 0, "how often the fault applies; 0 = always")
}

// constrainFaultFlags restricts a fault to one kind, and to the flags that are meaningful with it.
func constrainFaultFlags(cmd *cobra.Command) {
	states := strings.Fields("offline no-power no-quorum full lock hangs reverts no-network no-package expire-tickets")
	tasks, requests := []string{"task", "start-fails"}, []string{"method", "path"}
	kinds := slices.Concat(states, tasks, requests)

	cmd.MarkFlagsOneRequired(kinds...)

	exclude := func(list []string, others string) {
		for _, flag := range list {
			for other := range strings.FieldsSeq(others) {
				cmd.MarkFlagsMutuallyExclusive(flag, other)
			}
		}
	}

	for _, request := range requests {
		cmd.MarkFlagsMutuallyExclusive(append(slices.Concat(states, tasks), request)...)
	}

	exclude(states, "delay message status reset after times warnings")
	exclude(tasks, "status reset after")
	exclude(requests, "vmid warnings")
	exclude([]string{"message"}, "start-fails warnings reset")
	exclude([]string{"reset"}, "status")
	exclude(strings.Fields("offline full no-quorum no-package expire-tickets"), "vmid")
	exclude(strings.Fields("no-quorum lock hangs reverts no-network no-package expire-tickets"), "host")
}

var (
	faultMethods = []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodDelete}
	// faultTasks are the types of the lab's workers.
	faultTasks = []string{
		"*", "download", "imgcopy", "imgdel", "importdisk", "qmclone", "qmconfig", "qmcreate", "qmdestroy", "qmigrate",
		"qmmove", "qmreboot", "qmreset", "qmshutdown",
		"qmstart", "qmstop", "qmtemplate", "resize", "startall",
	}
)

// checkFault validates a fault; the data centre itself refuses what it does not have.
func checkFault(f datacentre.Fault) error {
	locks, _ := schema.Config("lock")

	for _, v := range []struct {
		option, value string
		known         []string
	}{
		{"--lock", f.Lock, locks.Enum}, {"--task", f.Task, faultTasks}, {"--method", strings.ToUpper(f.Method), faultMethods},
	} {
		if v.value != "" && !slices.Contains(v.known, v.value) {
			return fmt.Errorf("%s %q is unknown: use one of %s", v.option, v.value, strings.Join(v.known, ", "))
		}
	}

	if _, err := regexp.Compile(f.Path); err != nil {
		return fmt.Errorf("--path %q: not a regular expression: %w", f.Path, err)
	}

	effect := f.Message != "" || f.Status != 0 || f.Reset || f.Warnings != 0 || f.Delay != 0

	switch {
	case (f.Offline || f.NoPower) && f.Host == "":
		return errors.New("--offline, --no-power: set --host")
	case (f.Lock != "" || f.Hangs || f.Reverts || f.NoNetwork) && f.VMID == 0:
		return errors.New("--lock, --hangs, --reverts, --no-network: set --vmid")
	case f.Task+f.Method+f.Path != "" && !effect:
		return errors.New("--task, --method, --path: set an effect: --message, --delay, --status, --reset or --warnings")
	case f.Warnings < 0:
		return fmt.Errorf("--warnings %d: set at least 1", f.Warnings)
	case f.After && !f.Reset:
		return errors.New("--after: requires --reset")
	case f.Status != 0 && (f.Status < 400 || f.Status > 599):
		return fmt.Errorf("--status %d: use one from 400 to 599", f.Status)
	case f.Delay < 0:
		return fmt.Errorf("--delay %s: set a positive duration such as 30s", f.Delay)
	case f.Times < 0:
		return fmt.Errorf("--times %d: set a positive number, or 0 for always", f.Times)
	default:
		return nil
	}
}

func newFaultList(f *globalFlags) *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List the faults",
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

			rows := [][]string{{"FAULT", "TARGET", "EFFECT", "TIMES LEFT"}}
			for _, fault := range list {
				rows = append(rows, []string{strconv.Itoa(fault.ID), faultTarget(fault), faultEffect(fault), faultTimes(fault)})
			}

			w := cmd.OutOrStdout()
			_, err = io.WriteString(w, terminal.Table(rows, terminal.Of(w).Width()))

			return err
		},
	}
}

func faultTarget(fault datacentre.Fault) string {
	var target string

	switch {
	case fault.NoQuorum:
		return "cluster"
	case fault.ExpireTickets:
		return "sessions"
	case fault.NoPackage != "":
		return "package " + fault.NoPackage
	case fault.Lock != "" || fault.Hangs || fault.Reverts || fault.NoNetwork:
		return fmt.Sprintf("VM %d", fault.VMID)
	case fault.Offline || fault.NoPower:
		return "host " + fault.Host
	case fault.Full != "":
		target = "storage " + fault.Full
	case fault.Task != "":
		target = "task " + fault.Task
		if fault.VMID != 0 {
			target += fmt.Sprintf(" of VM %d", fault.VMID)
		}
	default:
		target = strings.Join(strings.Fields("request "+fault.Method+" "+fault.Path), " ")
	}

	if fault.Host != "" {
		target += " on " + fault.Host
	}

	return target
}

func faultEffect(fault datacentre.Fault) string {
	switch {
	case fault.NoQuorum:
		return "no quorum"
	case fault.ExpireTickets:
		return "tickets issued before " + fault.Since.Format(time.TimeOnly) + " have expired"
	case fault.Hangs:
		return "hangs in its boot"
	case fault.Reverts:
		return "rolls back upgrades"
	case fault.NoNetwork:
		return "no network"
	case fault.NoPackage != "":
		return "not on mirrors"
	case fault.Lock != "":
		return "locked (" + fault.Lock + ")"
	case fault.Offline:
		return "offline"
	case fault.NoPower:
		return "no power"
	case fault.Full != "":
		return "full"
	}

	var effects []string
	if fault.Delay > 0 {
		effects = append(effects, "after "+fault.Delay.String())
	}

	switch {
	case fault.Reset && fault.After:
		effects = append(effects, "connection reset after execution")
	case fault.Reset:
		effects = append(effects, "connection reset before execution")
	case fault.Warnings > 0:
		effects = append(effects, fmt.Sprintf("ends with WARNINGS: %d", fault.Warnings))
	case fault.Task != "" && fault.Message != "":
		effects = append(effects, "fails: "+fault.Message)
	case fault.Status != 0 || fault.Message != "":
		effects = append(effects, strings.TrimSpace(fmt.Sprintf("answers %d %s", cmp.Or(fault.Status, 500), fault.Message)))
	default:
		effects = append(effects, "continues normally")
	}

	return strings.Join(effects, ", ")
}

func faultTimes(fault datacentre.Fault) string {
	if fault.Times == 0 {
		return "always"
	}

	return strconv.Itoa(fault.Times)
}

func newFaultClear(f *globalFlags) *cobra.Command {
	return &cobra.Command{
		Use:   "clear [FAULT…]",
		Short: "Remove the faults with these numbers, or all",
		RunE: func(cmd *cobra.Command, args []string) error {
			ids := make([]int, 0, len(args))

			for _, arg := range args {
				id, err := strconv.Atoi(arg)
				if err != nil {
					return fmt.Errorf("%q is not the number of a fault: see `lab fault list`", arg)
				}

				ids = append(ids, id)
			}

			if err := control.NewClient(f.dir).ClearFaults(cmd.Context(), ids...); err != nil {
				return err
			}

			if len(ids) == 0 {
				cmd.Println("All faults are cleared.")
			} else {
				cmd.Printf("Cleared: %s.\n", strings.Join(args, ", "))
			}

			return nil
		},
	}
}
