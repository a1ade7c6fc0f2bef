// Package recovery makes a stack usable again whose last run was killed. Such a run leaves a lock, operations that the
// state lists as pending, plugins that work on, and machines that the state does not know and that block
// the next run. Only what is provably the stack's own is removed.
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

// Pulumi runs the Pulumi CLI in the stack's project folder and returns its standard output. The error of a command that
// failed holds what it said.
type Pulumi func(ctx context.Context, stdin io.Reader, args ...string) ([]byte, error)

// Shell runs a command with a script on its standard input in a Proxmox host's shell, and returns what it printed.
type Shell func(ctx context.Context, c Connection, command, script string) (string, error)

// Options say what to recover, and with what.
type Options struct {
	Project string // the folder of Pulumi.yaml
	Stack   string
	Pulumi  Pulumi
	Shell   Shell
	// Environment looks up what the stack's configuration leaves to the environment, as the provider does.
	Environment func(name string) string
	// Transport reaches Proxmox; nil = HTTP's default.
	Transport http.RoundTripper
	// Confirm is asked once, before the stack is unlocked and anything is ended or removed; nil = yes.
	Confirm func(question string) (bool, error)
	// Confirmed are names of machines that are removed although they may be in use. TypeName asks for one's; nil = such
	// machines are refused.
	Confirmed []string
	TypeName  func(question string) (string, error)
	Out       io.Writer
	// VMIDs are of machines that are removed although no creation of them is pending: one that failed half-way is not.
	// Plan says what the stack plans under them, by the values of its configuration.
	VMIDs []int
	Plan  func(config map[string]string) (*spec.Plan, error)
	// Resume is what brings the stack up next; empty = talos-proxmox deploy, or pulumi up --refresh.
	Resume string
	// Poll is how often Proxmox is asked what still runs; 0 = three seconds, longer than the provider needs from one call
	// to the next.
	Poll time.Duration
}

// Errors that callers tell apart.
var (
	// ErrDeclined is the answer no to Options.Confirm.
	ErrDeclined = errors.New("nothing was unlocked, ended or removed")
	// ErrUnderWay is a run that has not ended.
	ErrUnderWay = errors.New("a run of this stack is under way")
)

const defaultPoll = 3 * time.Second

// recovery is one run of it.
type recovery struct {
	Options

	name    string // the project's
	config  map[string]string
	pending []operation
	known   map[string]bool // VMIDs of the machines and templates in the state
	secrets map[string]bool // clusters whose machine secrets the state has
	owner   ownership.Owner // the stack
	since   time.Time       // nothing older is of an interrupted run; zero = not known
	ours    []creation      // what the pending creations make, or may have made
	// entries are those of Proxmox' configuration.
	entries  []entry
	files    []download
	identity string // of the credentials: a user, or a token with its user
	api      *api
	gone     bool // there is no state, since it was being written for the first time
}

// Run recovers the stack: it repairs a half-written state of a file backend, ends plugins that the dead run left on
// this machine, unlocks the stack, waits until Proxmox has ended what it does for the pending creations, removes what
// they made, and takes the pending operations off the state. It can be repeated at any time.
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
		r.readProject, r.refuseLiveRuns, r.repairBackend, r.readState, r.readConfig, r.addPlanned, r.connect, r.readBegin,
		r.confirm, r.endPlugins, r.unlock, r.awaitQuiet, r.removeMachines, r.removeEntries,
		r.removeTemplates, r.forgetPending,
	} {
		if err := step(ctx); err != nil || r.gone {
			return err
		}
	}

	return nil
}

func (r *recovery) printf(format string, values ...any) {
	fmt.Fprintf(r.Out, format+"\n", values...) //nolint:errcheck // to the terminal
}

// confirm shows what is pending and what would be removed, and asks whether to do it.
func (r *recovery) confirm(ctx context.Context) error {
	r.printf("Stack %s has %s.", r.Stack, problem.Count(len(r.pending), "pending operation"))

	machines, err := r.machines(ctx)
	if err != nil {
		return err
	}

	entries, err := r.foundEntries(ctx)
	if err != nil {
		return err
	}

	for _, p := range r.pending {
		if !p.made {
			r.printf("  %s %s", p.verb, p.resource)
		}
	}

	for _, made := range r.ours {
		r.printf("  creating %s: %s", made.resource, r.prospect(made, machines))
	}

	for _, made := range r.entries {
		r.printf("  creating %s: %s", made.resource, r.prospectOf(made, entries))
	}

	for _, p := range r.leftPlugins() {
		r.printf("  %s works on without its engine (process %d): is ended", p.name, p.pid)
	}

	if err := r.confirmByName(ctx, machines); err != nil || r.Confirm == nil {
		return err
	}

	yes, err := r.Confirm(
		fmt.Sprintf("Unlock stack %s and do this? Only while no run of it is under way anywhere", r.Stack),
	)
	if err != nil {
		return fmt.Errorf("unable to ask: %w", err)
	}

	if !yes {
		return ErrDeclined
	}

	return nil
}

// prospect says what becomes of what a creation made.
func (r *recovery) prospect(made creation, machines map[int]machine) string {
	m, there := machines[made.vmid]
	if !there {
		return fmt.Sprintf("VM %d %s is not there, or not yet", made.vmid, made.name)
	}

	if why := r.foreign(made, m); why != "" {
		return fmt.Sprintf("%s is left alone: %s", m, why)
	}

	return fmt.Sprintf("%s is removed%s", m, m.withDisks())
}

// unlock takes the dead run's lock off the stack.
func (r *recovery) unlock(ctx context.Context) error {
	_, err := r.Pulumi(ctx, nil, "cancel", "--yes", "--stack", r.Stack)
	// Pulumi Cloud refuses where no update is under way; your own backend has nothing to do then.
	if err != nil && !strings.Contains(err.Error(), "has never been updated") &&
		!strings.Contains(err.Error(), "already completed") {
		return fmt.Errorf("unable to unlock stack %q: %w", r.Stack, err)
	}

	return nil
}

// awaitQuiet waits until Proxmox does nothing more for the pending creations: left-over plugins of other machines end
// by themselves, and a task ends without its plugin. A plugin pauses between its calls, so that one quiet look is not
// enough.
func (r *recovery) awaitQuiet(ctx context.Context) error {
	said := ""

	for quiet := 0; len(r.ours)+len(r.files) > 0 && quiet < 2; {
		running, err := r.running(ctx)
		if err != nil {
			return err
		}

		if quiet++; len(running) > 0 {
			quiet = 0
		}

		if now := strings.Join(running, ", "); now != said && now != "" {
			r.printf("waiting for what Proxmox still does: %s", now)
			said = now
		}

		if err := proxmoxapi.Sleep(ctx, r.Poll); err != nil {
			return fmt.Errorf("interrupted while waiting for what Proxmox still does: %w", err)
		}
	}

	return nil
}
