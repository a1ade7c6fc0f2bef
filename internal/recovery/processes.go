package recovery

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"talos-proxmox/internal/proxmoxapi"
)

// process is a process of this machine, read from /proc. Systems without /proc show none; there, what a killed run left
// has to end by itself.
type process struct {
	pid  int
	name string
	args []string
}

// processes returns the processes whose working directory is the project's folder.
func (r *recovery) processes() []process {
	folder, err := filepath.EvalSymlinks(r.Project)
	if err != nil {
		return nil
	}

	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}

	var list []process

	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}

		in, err := os.Readlink(filepath.Join("/proc", entry.Name(), "cwd"))
		if err != nil || in != folder {
			continue // ended, another user's, or of another project
		}

		line, err := os.ReadFile(filepath.Join("/proc", entry.Name(), "cmdline"))
		if err != nil || len(line) == 0 {
			continue
		}

		args := strings.Split(strings.TrimSuffix(string(line), "\x00"), "\x00")
		list = append(list, process{pid: pid, name: filepath.Base(args[0]), args: args[1:]})
	}

	return list
}

// operations returns the CLI's commands that change a stack.
func operations() []string {
	return []string{"up", "update", "destroy", "refresh", "import", "watch"}
}

// refuseLiveRuns returns ErrUnderWay if a run of the stack is active on this machine: unlocking the stack would allow a
// second one.
func (r *recovery) refuseLiveRuns(_ context.Context) error {
	for _, p := range r.processes() {
		if p.name != "pulumi" ||
			!slices.ContainsFunc(p.args, func(arg string) bool { return slices.Contains(operations(), arg) }) {
			continue
		}

		if stack := stackOf(p.args); stack == "" || stack[strings.LastIndex(stack, "/")+1:] == r.stackName() {
			return fmt.Errorf(
				"%w: process %d, pulumi %s; wait for its end, or end it", ErrUnderWay, p.pid, strings.Join(p.args, " "),
			)
		}
	}

	return nil
}

// stackOf returns the stack in a CLI command's arguments; empty means the selected one.
func stackOf(args []string) string {
	for i, arg := range args {
		for _, flag := range []string{"--stack", "-s"} {
			if arg == flag && i+1 < len(args) {
				return args[i+1]
			}

			if stack, found := strings.CutPrefix(arg, flag+"="); found {
				return stack
			}
		}
	}

	return ""
}

// orphanedPlugins returns the project's plugins whose engine has ended: an engine passes its address as an argument.
func (r *recovery) orphanedPlugins() []process {
	return slices.DeleteFunc(r.processes(), func(p process) bool {
		if !strings.HasPrefix(p.name, "pulumi-resource-") && !strings.HasPrefix(p.name, "pulumi-analyzer-") {
			return true
		}

		hasAddress := slices.ContainsFunc(p.args, func(arg string) bool {
			_, err := netip.ParseAddrPort(arg)

			return err == nil
		})

		return !hasAddress || p.hasEngine()
	})
}

// hasEngine reports whether the Pulumi CLI is above the process. Whether something listens at the engine's address says
// nothing: once an engine has ended, its port may be anyone's.
func (p process) hasEngine() bool {
	for pid := parent(p.pid); pid > 0; pid = parent(pid) {
		if isPulumi(pid) {
			return true
		}
	}

	return false
}

// parent returns the PID of a process' parent; 0 = none, or the process has ended.
func parent(pid int) int {
	pid, _ = strconv.Atoi(statFields(pid)[1])

	return pid
}

// statFields returns the state of a process and the PID of its parent, see proc_pid_stat(5); empty = it has ended.
func statFields(pid int) [2]string {
	stat, _ := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))

	// The name before them, in parentheses, may have spaces and parentheses.
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(fields) < 2 { //nolint:mnd // both
		return [2]string{}
	}

	return [2]string(fields)
}

// How long a plugin may take to end after each signal, and how often that is checked.
const (
	endGrace = 5 * time.Second
	endPoll  = 50 * time.Millisecond
)

// endPlugins ends orphaned plugins and the commands that they run: what they create would reach no state.
func (r *recovery) endPlugins(ctx context.Context) error {
	for _, p := range r.orphanedPlugins() {
		for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
			if err := p.signal(signal); err != nil {
				return fmt.Errorf("unable to end %s (process %d): %w", p.name, p.pid, err)
			}

			for end := time.Now().Add(endGrace); p.isRunning() && time.Now().Before(end); {
				if err := proxmoxapi.Sleep(ctx, endPoll); err != nil {
					return err
				}
			}
		}

		if p.isRunning() {
			return fmt.Errorf("%s (process %d) does not end: end it manually, then recover again", p.name, p.pid)
		}

		r.printf("%s (process %d) is ended", p.name, p.pid)
	}

	return nil
}

// signal signals the plugin and its children: an engine makes each plugin the leader of a process group.
func (p process) signal(signal syscall.Signal) error {
	to := p.pid
	if group, err := syscall.Getpgid(p.pid); err == nil && group == p.pid {
		to = -p.pid
	}

	if err := syscall.Kill(to, signal); err != nil && !errors.Is(err, syscall.ESRCH) {
		return err
	}

	return nil
}

// isRunning reports whether the process is running; a zombie is not.
func (p process) isRunning() bool {
	state := statFields(p.pid)[0]

	return state != "" && state != "Z"
}
