// Package recovery makes a stack usable again after its run was killed. Such a run leaves a lock, pending operations in
// the state, running plugins, and machines that are not in the state and block the next run. Only what is provably the
// stack's own is removed.
package recovery

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"time"

	"talos-proxmox/internal/ownership"
	"talos-proxmox/internal/problem"
	"talos-proxmox/internal/proxmoxapi"
	"talos-proxmox/internal/spec"
)

// Pulumi runs the Pulumi CLI in the stack's project folder and returns its standard output. The error of a failed
// command contains the CLI's message.
type Pulumi func(ctx context.Context, stdin io.Reader, args ...string) ([]byte, error)

// Shell runs a command in a Proxmox host's shell, with a script on its standard input, and returns its output.
type Shell func(ctx context.Context, c Connection, command, script string) (string, error)

// Options say what to recover, and with what.
type Options struct {
	Project string // the folder of Pulumi.yaml
	Stack   string
	Pulumi  Pulumi
	Shell   Shell
	// Environment looks up environment variables for what the stack's configuration does not set, as the provider does.
	Environment func(name string) string
	// Transport is used for Proxmox; nil = HTTP's default.
	Transport http.RoundTripper
	// Confirm is called once, before the stack is unlocked and anything is ended or removed; nil = yes.
	Confirm func(question string) (bool, error)
	// Confirmed names machines that are removed although they may be in use. TypeName asks for the name of one; nil =
	// such machines are refused.
	Confirmed []string
	// Locks names locks of other computers that are removed without Confirm: USER@HOST, or [UnknownLock].
	Locks []string
	// Runs returns the runs that hold the stack's clusters in Kubernetes, and where that is unknown; nil = not asked.
	Runs     func(ctx context.Context) (live, unknown []string, err error)
	TypeName func(question string) (string, error)
	Out      io.Writer
	// VMIDs are machines to remove that no pending creation proves: a creation that failed half-way leaves none. Plan
	// returns the stack's plan for its configuration.
	VMIDs []int
	Plan  func(config map[string]string) (*spec.Plan, error)
	// Resume is the command to run next; empty = talos-proxmox deploy, or pulumi up --refresh.
	Resume string
	// Poll is the interval between checks for running tasks; 0 = three seconds, longer than the provider pauses between
	// two calls.
	Poll time.Duration
}

// Errors that callers tell apart.
var (
	// ErrDeclined means that Options.Confirm or Options.TypeName did not confirm.
	ErrDeclined = errors.New("nothing was unlocked, ended or removed")
	// ErrUnderWay means that a run of the stack is active.
	ErrUnderWay = errors.New("a run of this stack is under way")
)

const defaultPoll = 3 * time.Second

// recovery is the state of one Run.
type recovery struct {
	Options

	name                string // of the project
	config              map[string]string
	pending             []operation
	knownVMIDs          map[string]bool      // of the machines and templates in the state
	machines            []stateMachine       // in the state
	foreign             []proxmoxapi.Foreign // machines of the state whose VMIDs other machines have
	clustersWithSecrets map[string]bool      // clusters whose machine secrets are in the state
	owner               ownership.Owner      // the stack
	runStart            time.Time            // the interrupted run began after it; zero = unknown
	creations           []creation           // pending creations of machines and templates, and Options.VMIDs
	entries             []entry              // pending creations of Proxmox' configuration
	files               []download
	identity            string // of the credentials: a user, or a token with its user
	api                 *api
	stateRemoved        bool   // a half-written first state was deleted
	backend             string // the folder of a file backend, which says who holds the stack's lock
	locks               []lock
	foreignLocks        []string // of other computers, which Options.Locks does not name
}

// Run recovers the stack: it repairs a half-written state of a file backend, ends plugins that the killed run left on
// this machine, unlocks the stack, waits for Proxmox' tasks for the pending creations, removes what they created, and
// deletes the pending operations from the state. It can be repeated at any time.
func Run(ctx context.Context, o Options) error {
	if o.Poll == 0 {
		o.Poll = defaultPoll
	}

	project, err := filepath.Abs(o.Project)
	if err != nil {
		return fmt.Errorf("unable to find the project's folder: %w", err)
	}

	o.Project = project
	r := &recovery{Options: o}

	for _, step := range []func(context.Context) error{
		r.readProject, r.refuseLiveRuns, r.readBackend, r.refuseLiveLocks, r.refuseHeldClusters, r.repairBackend,
		r.readState, r.readConfig, r.addFromPlan, r.connect, r.findForeign, r.readLastRunStart, r.confirm, r.endPlugins,
		r.unlock, r.waitForTasks, r.removeMachines, r.removeEntries, r.removeTemplates, r.cleanState,
	} {
		if err := step(ctx); errors.Is(err, errNothingLeft) {
			return nil
		} else if err != nil || r.stateRemoved {
			return err
		}
	}

	return nil
}

// errNothingLeft ends a recovery that has nothing to do.
var errNothingLeft = errors.New("no killed run left anything")

// isNothingLeft reports whether no killed run left anything. Only a backend that is a folder tells of locks.
func (r *recovery) isNothingLeft() bool {
	return r.backend != "" && len(r.locks)+len(r.foreignLocks)+len(r.pending)+len(r.creations)+len(r.entries)+
		len(r.foreign)+len(r.orphanedPlugins()) == 0
}

// Needed reports whether a killed run left something in a stack's state: a lock, pending operations, or half a state.
// It changes nothing. Only a backend that is a folder tells of locks.
func Needed(ctx context.Context, o Options) (bool, error) {
	r := &recovery{Options: o}
	r.Out = io.Discard // Run tells

	for _, step := range []func(context.Context) error{r.readProject, r.readBackend} {
		if err := step(ctx); err != nil {
			return false, err
		}
	}

	_, deployment, err := r.export(ctx)

	return err != nil && r.backend != "" || len(r.locks)+len(deployment.PendingOperations) > 0, nil
}

func (r *recovery) printf(format string, values ...any) {
	fmt.Fprintf(r.Out, format+"\n", values...) //nolint:errcheck // to the terminal
}

// confirm shows what is pending and what would be removed, and asks whether to do it.
func (r *recovery) confirm(ctx context.Context) error {
	r.printf("Stack %s has %s.", r.Stack, problem.Count(len(r.pending), "pending operation"))

	machines, err := r.findMachines(ctx)
	if err != nil {
		return err
	}

	entries, err := r.existingEntries(ctx)
	if err != nil {
		return err
	}

	for _, p := range r.pending {
		if !p.reported {
			r.printf("  %s %s", p.verb, p.resource)
		}
	}

	for _, c := range r.creations {
		r.printf("  creating %s: %s", c.resource, r.describeOutcome(c, machines))
	}

	for _, c := range r.entries {
		r.printf("  creating %s: %s", c.resource, r.describeEntryOutcome(c, entries))
	}

	for _, f := range r.foreign {
		r.printf("  VM %d %s on %s is left alone, and not %s any more: %s. %[4]s is removed from the state, as if it had been deleted",
			f.VMID, f.Found.Name, f.Found.Host, f.Name, f.Reason)
	}

	for _, p := range r.orphanedPlugins() {
		r.printf("  %s still runs without its engine (process %d): is ended", p.name, p.pid)
	}

	if r.isNothingLeft() {
		r.printf("Nothing is left to recover.")

		return errNothingLeft
	}

	if err := r.confirmByName(ctx, machines); err != nil || r.Confirm == nil {
		return err
	}

	question := fmt.Sprintf("Unlock stack %s and do this? Only while no run of it is under way anywhere", r.Stack)
	if r.backend == "" && len(r.foreignLocks) > 0 {
		question += ": " + r.describeForeignLocks()
	}

	return r.ask(question)
}

// ask returns ErrDeclined unless the answer is yes.
func (r *recovery) ask(question string) error {
	yes, err := r.Confirm(question)
	if err != nil {
		return fmt.Errorf("unable to ask: %w", err)
	}

	if !yes {
		return ErrDeclined
	}

	return nil
}

// describeOutcome says what recovery does with the machine of a creation.
func (r *recovery) describeOutcome(c creation, machines map[int]machine) string {
	m, exists := machines[c.vmid]
	if !exists {
		return fmt.Sprintf("VM %d %s is not there, or not yet", c.vmid, c.name)
	}

	if why := r.foreignReason(c, m); why != "" {
		return fmt.Sprintf("%s is left alone: %s", m, why)
	}

	return fmt.Sprintf("%s is removed%s", m, m.diskList())
}

// unlock removes the killed run's lock from the stack.
func (r *recovery) unlock(ctx context.Context) error {
	_, err := r.Pulumi(ctx, nil, "cancel", "--yes", "--stack", r.Stack)
	// Pulumi Cloud returns an error if no update is active; other backends do nothing.
	if err != nil && !strings.Contains(err.Error(), "has never been updated") &&
		!strings.Contains(err.Error(), "already completed") {
		return fmt.Errorf("unable to unlock stack %q: %w", r.Stack, err)
	}

	return nil
}

// waitForTasks waits until Proxmox runs no task for the pending creations: plugins on other machines end by themselves,
// and tasks end without their plugin. A plugin pauses between its calls, so no task must run in two checks.
func (r *recovery) waitForTasks(ctx context.Context) error {
	reported := ""

	for quiet := 0; len(r.creations)+len(r.files) > 0 && quiet < 2; {
		running, err := r.runningTasks(ctx)
		if err != nil {
			return err
		}

		if quiet++; len(running) > 0 {
			quiet = 0
		}

		if now := strings.Join(running, ", "); now != reported && now != "" {
			r.printf("waiting for what Proxmox still does: %s", now)
			reported = now
		}

		if err := proxmoxapi.Sleep(ctx, r.Poll); err != nil {
			return fmt.Errorf("interrupted while waiting for what Proxmox still does: %w", err)
		}
	}

	return nil
}
