package hosts

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"talos-proxmox/components/scripts"
	"talos-proxmox/internal/hostfacts"
	"talos-proxmox/internal/problem"
	"talos-proxmox/internal/request"
	"talos-proxmox/internal/spec"
	"talos-proxmox/talosops/checks"
	"talos-proxmox/talosops/verb"
)

const settleHelp = `Completes the preparation of a Proxmox host, or says why it is not complete.

With reboot the host is rebooted if that completes its preparation, and its return is waited for: only while no VM and
no container runs on it, the Proxmox cluster keeps its quorum without it, no task such as a migration or a backup runs
on it, and no machine of the stack is down on another host. While one of the latter is in the way, the command waits,
and fails after waitTimeout. With required it fails while machines that are given the host's GPUs would not start: a
reboot is pending, a GPU is bound to a driver of the host's, or shares its IOMMU group with a device that the host
needs.

dialTimeout (default 15s), stepTimeout (default 2m), waitTimeout and rebootTimeout (default 15m) can be omitted. Without
privateKey the SSH agent is used. The host's facts go to standard output, progress to standard error.`

const (
	defaultWaitTimeout   = 15 * time.Minute
	defaultRebootTimeout = 15 * time.Minute
	// rebootPoll is the interval of checks whether a host may reboot, and whether it is back.
	rebootPoll = 5 * time.Second
	// waitReminder is the interval of progress lines while the reason stays the same.
	waitReminder = time.Minute
)

// settleRequest names the host, and what must be true of it; the private key is a secret and must not appear in any
// message.
type settleRequest struct {
	request.Settle

	limits       hostLimits
	wait, reboot time.Duration
}

func (r *settleRequest) Problems() problem.List {
	problems := r.limits.parse(r.DialTimeout, r.StepTimeout)
	r.wait = verb.ParseDuration("waitTimeout", r.WaitTimeout, defaultWaitTimeout, &problems)
	r.reboot = verb.ParseDuration("rebootTimeout", r.RebootTimeout, defaultRebootTimeout, &problems)

	problems = append(problems, hostShell{r.Host.Shell}.problems("host")...)
	if r.Host.Parameters == "" {
		problems.Add("host.parameters", nil, "is missing: set those of the host script, at least host='name'")
	}

	return problems
}

func runSettle(cmd *cobra.Command, _ *json.Decoder, req *settleRequest) (any, error) {
	return withLogin(req.PrivateKey, func(login hostLogin) (any, error) {
		run := func(ctx context.Context, action string) (string, error) {
			return hostShell{req.Host.Shell}.run(ctx, login, req.limits, scripts.HostCommand(action),
				scripts.HostScript(req.Host.Parameters))
		}

		return (&settler{settleRequest: req, run: run, progress: cmd.ErrOrStderr()}).settle(cmd.Context())
	})
}

// settler executes a settleRequest.
type settler struct {
	*settleRequest

	run      func(ctx context.Context, action string) (string, error) // runs an action of the host script
	progress io.Writer
}

// settle returns the host's facts as it printed them.
func (s *settler) settle(ctx context.Context) (string, error) {
	report, err := s.readFacts(ctx)
	if err != nil {
		return "", err
	}

	if s.Reboot && report.Facts.RebootRequired() {
		after, err := s.tryReboot(ctx, report.Facts)
		if err != nil {
			return "", err
		}

		if after != nil {
			report = after
			s.printf("is back, and runs kernel %s", report.Facts.System.Kernel)
		}
	}

	if s.Required {
		return report.Document, s.checkDevices(report.Facts)
	}

	return report.Document, nil
}

func (s *settler) printf(format string, arguments ...any) {
	_, _ = fmt.Fprintf(s.progress, s.Host.Name+" "+format+"\n", arguments...)
}

// readFacts returns the host's facts. It fails if another host answers.
func (s *settler) readFacts(ctx context.Context) (*hostfacts.Answer, error) {
	document, err := s.run(ctx, scripts.ActionFacts)
	if err != nil {
		return nil, err
	}

	facts, err := hostfacts.Parse([]byte(document))
	if err != nil {
		return nil, err
	}

	if problems := hostfacts.CheckIdentity(
		facts, spec.Host{Name: s.Host.Name, Path: s.Host.Name, Address: s.Host.Address},
	); len(problems) > 0 {
		return nil, problems
	}

	return &hostfacts.Answer{Facts: facts, Document: document}, nil
}

// tryReboot reboots the host if nothing runs on it and a reboot can help. It returns the facts after the reboot; nil =
// not rebooted.
func (s *settler) tryReboot(ctx context.Context, facts *hostfacts.Facts) (*hostfacts.Answer, error) {
	if !facts.RebootHelps() {
		s.printf("was rebooted since its last change, which did not help: %s", strings.Join(facts.Prep.Pending, "; "))

		return nil, nil
	}

	rebooting, err := s.requestReboot(ctx)
	if err != nil || !rebooting {
		return nil, err
	}

	s.printf("reboots: %s", strings.Join(facts.Prep.Pending, "; "))

	return s.awaitReturn(ctx, facts.System.BootID)
}

// requestReboot reboots the host once nothing is in the way. It leaves a host alone on which machines run.
func (s *settler) requestReboot(ctx context.Context) (bool, error) {
	started := time.Now()
	lastReasons, lastPrinted := "", started

	for {
		printed, err := s.run(ctx, scripts.ActionReboot)
		// A host that goes down drops the connection; its next answers show whether it did.
		if err != nil && !errors.Is(err, errConnectionLost) {
			return false, err
		}

		if busy, found := strings.CutPrefix(strings.TrimSpace(printed), "busy "); found {
			s.printf(
				"is not rebooted: %s run on it; shut them down and run this again, or reboot it yourself",
				strings.Join(strings.Fields(busy), ", "),
			)

			return false, nil
		}

		reasons := waitReasons(printed)
		if reasons == "" {
			return true, nil
		}

		if waited := time.Since(started); waited >= s.wait {
			return false, fmt.Errorf("%s was not rebooted, although its preparation needs it; for %s this was in the way: %s: run this again when it is over, or reboot the host yourself",
				s.Host.Name, s.wait, reasons)
		}

		if reasons != lastReasons || time.Since(lastPrinted) >= waitReminder {
			s.printf("waits to be rebooted: %s", reasons)
			lastReasons, lastPrinted = reasons, time.Now()
		}

		if err := checks.Pause(ctx, rebootPoll); err != nil {
			return false, fmt.Errorf("%s was not rebooted: interrupted while it waited: %s", s.Host.Name, reasons)
		}
	}
}

// waitReasons returns the host's reasons for not rebooting now, or "" if it reboots.
func waitReasons(printed string) string {
	var reasons []string

	for line := range strings.Lines(printed) {
		if reason, found := strings.CutPrefix(strings.TrimSpace(line), "wait "); found {
			reasons = append(reasons, reason)
		}
	}

	return strings.Join(reasons, "; ")
}

// awaitReturn waits until the host has rebooted.
func (s *settler) awaitReturn(ctx context.Context, before string) (*hostfacts.Answer, error) {
	ctx, cancel := context.WithTimeout(ctx, s.reboot)
	defer cancel()

	last := "it gave no answer"

	for {
		report, err := s.readFacts(ctx)
		switch {
		case err == nil && report.Facts.System.BootID == before:
			last = "it still runs"
		case err == nil && report.Facts.System.Quorate:
			return report, nil
		case err == nil:
			last = "it runs again, and its Proxmox cluster has no quorum"
		case ctx.Err() == nil: // an answer that the deadline interrupted says nothing about the host
			last = err.Error()
		}

		if err := checks.Pause(ctx, rebootPoll); err != nil {
			return nil, fmt.Errorf(
				"%s did not come back within %s of its reboot (%s): look at its console", s.Host.Name, s.reboot, last,
			)
		}
	}
}

// checkDevices returns an error if machines with the host's devices would not start.
func (s *settler) checkDevices(facts *hostfacts.Facts) error {
	planned := spec.Host{Name: s.Host.Name, Path: s.Host.Name, Prep: &spec.Prep{IOMMU: s.Prepared}}
	needs := hostfacts.Needs{}

	for _, machine := range s.Machines {
		node := hostfacts.NodeWithDevices(planned.Name, machine, s.Devices)
		planned.GPUs = append(planned.GPUs, node.GPUs...)
		planned.Devices = append(planned.Devices, node.Devices...)
		needs.Nodes = append(needs.Nodes, node)
	}

	reasons := hostfacts.NotReadyReasons(facts, planned, needs)
	if len(reasons) == 0 {
		return nil
	}

	remedy := "reboot it when it suits, then run this again"
	if !facts.RebootHelps() {
		remedy = "fix that, then run this again"
	} else if running := facts.Running(); len(running) > 0 {
		remedy = fmt.Sprintf("reboot it when it suits (%s run on it), then run this again", strings.Join(running, ", "))
	}

	return fmt.Errorf(
		"%s cannot give its devices to machines yet:\n  %s\n%s", s.Host.Name, strings.Join(reasons, "\n  "), remedy,
	)
}
