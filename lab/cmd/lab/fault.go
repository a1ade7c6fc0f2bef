package main

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"talos-proxmox/lab/control"
	"talos-proxmox/lab/datacentre"
	"talos-proxmox/lab/schema"
)

func newFault(f *folders) *cobra.Command {
	fault := &cobra.Command{
		Use: "fault", Args: cobra.NoArgs,
		Short: "Inject faults: calls, tasks, hosts, the quorum, storages, locks, sessions",
		Long: `Make things go wrong, as they do in data centres, and see what the program does.

A fault is a state of the data centre (--offline, --no-quorum, --full, --lock, --hangs, --reverts, --no-network,
--no-package, --expire-tickets), or a rule: over tasks (--task, --start-fails) or over requests to Proxmox's API
(--method, --path). Rules hit forever, or --times often. All faults last until they are cleared, a restart of the lab
included.`,
	}
	fault.AddCommand(newFaultAdd(f), newFaultList(f), newFaultClear(f))

	return fault
}

// startFailure is what PVE says when the process of a VM ends at once.
const startFailure = "start failed: QEMU exited with code 1"

func newFaultAdd(f *folders) *cobra.Command {
	var (
		rule       datacentre.Fault
		startFails bool
	)

	cmd := &cobra.Command{
		Use:   "add",
		Short: "Set a fault",
		Example: `  lab fault add --offline --host pve2                              # 595 No route to host, and a dead shell
  lab fault add --no-quorum                                        # reads work, writes are refused
  lab fault add --full local-lvm --host pve1                       # nothing free on a storage
  lab fault add --lock backup --vmid 3000                          # VM is locked (backup)
  lab fault add --hangs --vmid 3000                                # the machine never gets to its network
  lab fault add --expire-tickets                                   # password sessions end with 401, tokens do not
  lab fault add --start-fails --vmid 3000 --times 1                # start failed: QEMU exited with code 1
  lab fault add --task qmclone --delay 5m                          # slow tasks
  lab fault add --task qmcreate --warnings 1                       # tasks that end with WARNINGS: 1
  lab fault add --task qmclone --message "no space left on device" # tasks that fail
  lab fault add --path '/nodes/pve2/.*' --reset               # connections are reset before the request is carried out
  lab fault add --method POST --path '/clone$' --reset --after     # … or when it has been
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

			cmd.Printf("Fault %d is set. `lab fault clear %d` takes it away.\n", id, id)

			return nil
		},
	}

	faultFlags(cmd, &rule)
	cmd.Flags().BoolVar(&startFails, "start-fails", false, "VMs do not start")
	combineFaultFlags(cmd)

	return cmd
}

func faultFlags(cmd *cobra.Command, rule *datacentre.Fault) {
	flags := cmd.Flags()
	flags.BoolVar(&rule.Offline, "offline", false, "the --host is unreachable")
	flags.BoolVar(&rule.NoQuorum, "no-quorum", false, "the cluster has no quorum")
	flags.StringVar(&rule.Full, "full", "", "the storage of this name, of --host or of all hosts, is full")
	flags.StringVar(&rule.Lock, "lock", "", "--vmid is locked for this reason, such as backup")
	flags.BoolVar(&rule.Hangs, "hangs", false, "the machine of --vmid hangs in its boot")
	flags.BoolVar(&rule.Reverts, "reverts", false, "no system that an upgrade installs on --vmid starts")
	flags.BoolVar(&rule.NoNetwork, "no-network", false, "nothing answers on the cards of --vmid; of Talos, nobody gets through to its API")
	flags.StringVar(&rule.NoPackage, "no-package", "", "the mirrors of systems do not have this package")
	flags.BoolVar(&rule.ExpireTickets, "expire-tickets", false, "sessions begun with a password before now have expired")

	flags.StringVar(&rule.Task, "task", "", "tasks of this type, such as qmclone; * for all")
	flags.StringVar(&rule.Method, "method", "", "requests of this method")
	flags.StringVar(&rule.Path, "path", "", "requests whose path (without /api2/json) matches this regular expression")
	flags.StringVar(&rule.Host, "host", "", "only on this host")
	flags.IntVar(&rule.VMID, "vmid", 0, "the VM of --lock, --hangs, --reverts and --no-network; with --task: only tasks of this VM")

	flags.DurationVar(&rule.Delay, "delay", time.Duration(0), "modelled time that passes first")
	flags.IntVar(&rule.Status, "status", 0, "HTTP status of the answer (default 500)")
	flags.StringVar(&rule.Message, "message", "", "the answer's reason, or what the task ends with")
	flags.IntVar(&rule.Warnings, "warnings", 0, "with --task: the work is done, and the task ends with so many warnings")
	flags.BoolVar(&rule.Reset, "reset", false, "break the connection instead of answering")
	flags.BoolVar(&rule.After, "after", false, "with --reset: only after the request was carried out")
	flags.IntVar(&rule.Times, "times", 0, "how often the fault hits; 0 = always")
}

// combineFaultFlags has a fault be one thing, and refuses what has no meaning with it.
func combineFaultFlags(cmd *cobra.Command) {
	states := strings.Fields("offline no-quorum full lock hangs reverts no-network no-package expire-tickets")
	tasks, requests := []string{"task", "start-fails"}, []string{"method", "path"}
	kinds := slices.Concat(states, tasks, requests)

	cmd.MarkFlagsOneRequired(kinds...)

	without := func(list []string, others string) {
		for _, flag := range list {
			for other := range strings.FieldsSeq(others) {
				cmd.MarkFlagsMutuallyExclusive(flag, other)
			}
		}
	}

	for _, request := range requests {
		cmd.MarkFlagsMutuallyExclusive(append(slices.Concat(states, tasks), request)...)
	}

	without(states, "delay message status reset after times warnings")
	without(tasks, "status reset after")
	without(requests, "vmid warnings")
	without([]string{"message"}, "start-fails warnings reset")
	without([]string{"reset"}, "status")
	without(strings.Fields("offline full no-quorum no-package expire-tickets"), "vmid")
	without(strings.Fields("no-quorum lock hangs reverts no-network no-package expire-tickets"), "host")
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

// checkFault finds what is wrong with a fault in itself; what the data centre does not have, it says itself.
func checkFault(f datacentre.Fault) error {
	locks, _ := schema.Config("lock")

	for _, v := range []struct {
		option, value string
		known         []string
	}{
		{"--lock", f.Lock, locks.Enum}, {"--task", f.Task, faultTasks}, {"--method", strings.ToUpper(f.Method), faultMethods},
	} {
		if v.value != "" && !slices.Contains(v.known, v.value) {
			return fmt.Errorf("%s %q: there is none: use one of %s", v.option, v.value, strings.Join(v.known, ", "))
		}
	}

	if _, err := regexp.Compile(f.Path); err != nil {
		return fmt.Errorf("--path %q: not a regular expression: %w", f.Path, err)
	}

	effect := f.Message != "" || f.Status != 0 || f.Reset || f.Warnings != 0 || f.Delay != 0

	switch {
	case f.Offline && f.Host == "":
		return errors.New("--offline: state which --host")
	case (f.Lock != "" || f.Hangs || f.Reverts || f.NoNetwork) && f.VMID == 0:
		return errors.New("--lock, --hangs, --reverts, --no-network: state which --vmid")
	case f.Task+f.Method+f.Path != "" && !effect:
		return errors.New("--task, --method, --path: state what happens: --message, --delay, --status, --reset or --warnings")
	case f.Warnings < 0:
		return fmt.Errorf("--warnings %d: set how many, from 1 on", f.Warnings)
	case f.After && !f.Reset:
		return errors.New("--after: goes with --reset")
	case f.Status != 0 && (f.Status < 400 || f.Status > 599):
		return fmt.Errorf("--status %d: use one from 400 to 599", f.Status)
	case f.Delay < 0:
		return fmt.Errorf("--delay %s: a time does not run backwards: use one like 30s", f.Delay)
	case f.Times < 0:
		return fmt.Errorf("--times %d: set how often, or 0 for always", f.Times)
	default:
		return nil
	}
}

func newFaultList(f *folders) *cobra.Command {
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

			table := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
			fmt.Fprintln(table, "FAULT\tWHAT\tEFFECT\tHITS LEFT")

			for _, fault := range list {
				fmt.Fprintf(table, "%d\t%s\t%s\t%s\n", fault.ID, faultTarget(fault), faultEffect(fault), faultTimes(fault))
			}

			return table.Flush()
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
	case fault.Offline:
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
		return "those begun before " + fault.Since.Format(time.TimeOnly) + " have expired"
	case fault.Hangs:
		return "hangs in its boot"
	case fault.Reverts:
		return "goes back to the system before an upgrade"
	case fault.NoNetwork:
		return "no network"
	case fault.NoPackage != "":
		return "no mirror has it"
	case fault.Lock != "":
		return "locked (" + fault.Lock + ")"
	case fault.Offline:
		return "offline"
	case fault.Full != "":
		return "full"
	}

	var effects []string
	if fault.Delay > 0 {
		effects = append(effects, "after "+fault.Delay.String())
	}

	switch {
	case fault.Reset && fault.After:
		effects = append(effects, "connection reset when it is carried out")
	case fault.Reset:
		effects = append(effects, "connection reset before it is carried out")
	case fault.Warnings > 0:
		effects = append(effects, fmt.Sprintf("ends with WARNINGS: %d", fault.Warnings))
	case fault.Task != "" && fault.Message != "":
		effects = append(effects, "fails: "+fault.Message)
	case fault.Status != 0 || fault.Message != "":
		effects = append(effects, strings.TrimSpace(fmt.Sprintf("answers %d %s", cmp.Or(fault.Status, 500), fault.Message)))
	default:
		effects = append(effects, "continues as usual")
	}

	return strings.Join(effects, ", ")
}

func faultTimes(fault datacentre.Fault) string {
	if fault.Times == 0 {
		return "always"
	}

	return strconv.Itoa(fault.Times)
}

func newFaultClear(f *folders) *cobra.Command {
	return &cobra.Command{
		Use:   "clear [FAULT…]",
		Short: "Remove the faults with these numbers, or all",
		RunE: func(cmd *cobra.Command, args []string) error {
			ids := make([]int, 0, len(args))

			for _, arg := range args {
				id, err := strconv.Atoi(arg)
				if err != nil {
					return fmt.Errorf("%q is not the number of a fault: `lab fault list` shows them", arg)
				}

				ids = append(ids, id)
			}

			if err := control.NewClient(f.dir).ClearFaults(cmd.Context(), ids...); err != nil {
				return err
			}

			if len(ids) == 0 {
				cmd.Println("All faults are gone.")
			} else {
				cmd.Printf("Gone: %s.\n", strings.Join(args, ", "))
			}

			return nil
		},
	}
}
