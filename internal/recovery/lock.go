package recovery

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// UnknownLock names the lock of a backend that does not say who took it: all but folders.
const UnknownLock = "unknown"

// lock is a lock of the stack in a file backend.
type lock struct {
	PID       int       `json:"pid"`
	Username  string    `json:"username"`
	Hostname  string    `json:"hostname"`
	Timestamp time.Time `json:"timestamp"`
}

// name is how Options.Locks names it.
func (l lock) name() string { return l.Username + "@" + l.Hostname }

// String says who took it, where and when.
func (l lock) String() string {
	return fmt.Sprintf("%s on %s (process %d) since %s", l.Username, l.Hostname, l.PID, l.Timestamp.Format(time.DateTime))
}

// readLocks reads the stack's locks in a file backend.
func (r *recovery) readLocks() {
	files, _ := filepath.Glob( //nolint:errcheck // the pattern is valid
		filepath.Join(r.backend, metaFolder, "locks", "organization", r.name, r.stackName(), "*.json"),
	)

	for _, file := range files {
		var l lock
		if b, err := os.ReadFile(file); err == nil && json.Unmarshal(b, &l) == nil { //nolint:gosec // the backend's own
			r.locks = append(r.locks, l)
			r.printf("Stack %s is locked by %s.", r.Stack, l)
		}
	}
}

// refuseLiveLocks returns ErrUnderWay if a process of this computer that still runs holds the stack's lock. It asks
// about the locks of other computers that Options.Locks does not name, or refuses them without Options.Confirm: whether
// their runs have ended is not visible from here.
func (r *recovery) refuseLiveLocks(_ context.Context) error {
	host, _ := os.Hostname()

	var foreign []string

	for _, l := range r.locks {
		switch {
		case l.Hostname == host && isPulumi(l.PID):
			return fmt.Errorf("%w: process %d of this computer holds its lock; wait for its end, or end it", ErrUnderWay, l.PID)
		case l.Hostname != host:
			foreign = append(foreign, l.name())
		}
	}

	if r.backend == "" {
		foreign = []string{UnknownLock}
	}

	r.foreignLocks = slices.DeleteFunc(foreign, func(name string) bool { return slices.Contains(r.Locks, name) })

	switch {
	case len(r.foreignLocks) == 0 || r.Confirm != nil && r.backend == "": // confirm asks
		return nil
	case r.Confirm != nil:
		return r.ask(fmt.Sprintf("Has the run of %s ended, on that computer? recover deletes what it creates",
			strings.Join(r.foreignLocks, ", ")))
	}

	return fmt.Errorf("%s, so that nothing was unlocked, ended or removed: a run there may be under way, and recover would delete "+
		"what it creates. Make sure that it has ended, then name the lock: talos-proxmox recover %s --yes --lock %s",
		r.describeForeignLocks(), r.Stack, strings.Join(r.foreignLocks, ","))
}

// describeForeignLocks is the beginning of a sentence.
func (r *recovery) describeForeignLocks() string {
	if r.backend == "" {
		return "the backend of stack " + r.Stack + " does not tell recover whether another computer holds its lock"
	}

	return "stack " + r.Stack + " is locked by another computer (" + strings.Join(r.foreignLocks, ", ") + ")"
}

// isPulumi reports whether a process is the Pulumi CLI.
func isPulumi(pid int) bool {
	name, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "comm"))
	if err != nil { // it has ended, or there is no /proc
		return !fileExists("/proc/self") && syscall.Kill(pid, 0) == nil
	}

	return strings.TrimSpace(string(name)) == "pulumi" && process{pid: pid}.isRunning()
}

func fileExists(path string) bool {
	_, err := os.Stat(path)

	return err == nil
}

// refuseHeldClusters returns ErrUnderWay if a run holds the Lease of a cluster of the stack and renews it, on whichever
// computer. A cluster that does not answer is reported.
func (r *recovery) refuseHeldClusters(ctx context.Context) error {
	if r.Runs == nil {
		return nil
	}

	live, unknown, err := r.Runs(ctx)
	if err != nil {
		unknown = []string{err.Error()}
	}

	for _, reason := range unknown {
		r.printf("Whether a run works on it is not known: %s", reason)
	}

	if len(live) > 0 {
		return fmt.Errorf("%w, and renews its lease in Kubernetes: %s; wait for its end, or end it", ErrUnderWay, strings.Join(live, "; "))
	}

	return nil
}
