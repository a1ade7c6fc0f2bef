package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"proxmox-talos/components/scripts"
	"proxmox-talos/internal/host"
	"proxmox-talos/internal/spec"
)

const settleHelp = `Brings a prepared Proxmox host to run as it was prepared, or says why it does not.

With reboot the host is rebooted where that completes its preparation, only while no VM and no container runs on it, and its return is waited for. With required
the command fails while machines that are given the host's GPUs would not start: a reboot is pending, a GPU is bound to a driver of the host's, or shares its
IOMMU group with a device that the host needs.

The request comes as JSON on standard input; dialTimeout (default 15s), stepTimeout (default 2m) and rebootTimeout (default 15m) may be left out. Without
privateKey the SSH agent is asked. The host's facts go to standard output, what is done to standard error.`

const settleExample = `  talosops settle < request.json

  request.json:
  {
    "privateKey": "-----BEGIN OPENSSH PRIVATE KEY-----\n…",
    "host": {"name": "pve1", "address": "10.0.0.2", "hostKey": "ssh-ed25519 AAAA…", "script": "owner='talos-proxmox/prod'\n…"},
    "reboot": true,
    "required": true,
    "prepared": true,
    "machines": [["0000:01:00"]]
  }`

const (
	defaultRebootTimeout = 15 * time.Minute
	// rebootPoll is how often a host that reboots is asked whether it is back.
	rebootPoll = 5 * time.Second
)

// settleRequest says which host, and what has to be true of it; the private key is a secret and must not appear in any message.
type settleRequest struct {
	PrivateKey    string    `json:"privateKey"`
	DialTimeout   string    `json:"dialTimeout"`
	StepTimeout   string    `json:"stepTimeout"`
	RebootTimeout string    `json:"rebootTimeout"`
	Revision      string    `json:"revision"` // of the host's preparation; not read
	Host          factsHost `json:"host"`
	Reboot        bool      `json:"reboot"`
	Required      bool      `json:"required"`
	// Prepared says that the host's IOMMU is prepared by the stack.
	Prepared bool `json:"prepared"`
	// Machines are the PCI addresses of the GPUs of each machine.
	Machines [][]string `json:"machines"`

	limits hostLimits
	reboot time.Duration
	poll   time.Duration
}

func (r *settleRequest) check() error {
	var problems []string
	r.limits.dial = parseDuration("dialTimeout", r.DialTimeout, defaultDialTimeout, &problems)
	r.limits.step = parseDuration("stepTimeout", r.StepTimeout, defaultStepTimeout, &problems)
	r.reboot = parseDuration("rebootTimeout", r.RebootTimeout, defaultRebootTimeout, &problems)
	r.poll = rebootPoll
	problems = append(problems, r.Host.problems("host")...)
	if r.Host.Script == "" {
		problems = append(problems, "host.script: none is stated: state the script of the host's preparation")
	}

	return requestError(problems)
}

func newSettle() *cobra.Command {
	return &cobra.Command{
		Use: "settle", Short: "Have a prepared Proxmox host run as it was prepared", Long: settleHelp, Example: settleExample, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			req := &settleRequest{}
			if err := readChecked(cmd, req); err != nil {
				return err
			}
			login, err := newHostLogin(req.PrivateKey)
			if err != nil {
				return err
			}
			defer login.close()
			answer, err := (&settler{settleRequest: req, login: login, progress: cmd.ErrOrStderr()}).settle(cmd.Context())
			if err != nil {
				return err
			}
			_, err = fmt.Fprint(cmd.OutOrStdout(), answer)

			return err
		},
	}
}

// settler carries a request out.
type settler struct {
	*settleRequest

	login    hostLogin
	progress io.Writer
}

// settle returns the host's facts as it printed them.
func (s *settler) settle(ctx context.Context) (string, error) {
	document, facts, err := s.ask(ctx)
	if err != nil {
		return "", err
	}
	if s.Reboot && facts.RebootRequired() {
		rebooted, err := s.tryReboot(ctx, facts)
		if err != nil {
			return "", err
		}
		if rebooted {
			if document, facts, err = s.ask(ctx); err != nil {
				return "", err
			}
			s.say("is back, and runs kernel %s", facts.System.Kernel)
		}
	}
	if s.Required {
		return document, s.judge(facts)
	}

	return document, nil
}

func (s *settler) say(format string, arguments ...any) {
	_, _ = fmt.Fprintf(s.progress, s.Host.Name+" "+format+"\n", arguments...)
}

func (s *settler) ask(ctx context.Context) (string, *host.Facts, error) {
	document, err := s.Host.run(ctx, s.login, s.limits, scripts.HostCommand(scripts.ActionFacts), s.Host.Script)
	if err != nil {
		return "", nil, err
	}
	facts, err := host.Parse([]byte(document))

	return document, facts, err
}

// tryReboot reboots the host if nothing runs on it and a reboot can help, and waits until it is back.
func (s *settler) tryReboot(ctx context.Context, facts *host.Facts) (bool, error) {
	if !facts.RebootHelps() {
		s.say("was rebooted since its last change, which did not help: %s", strings.Join(facts.Prep.Pending, "; "))

		return false, nil
	}
	printed, err := s.Host.run(ctx, s.login, s.limits, scripts.HostCommand(scripts.ActionReboot), s.Host.Script)
	if busy, found := strings.CutPrefix(strings.TrimSpace(printed), "busy "); found {
		s.say("is not rebooted: %s run on it; shut them down and run this again, or reboot it yourself", strings.Join(strings.Fields(busy), ", "))

		return false, nil
	}
	// A host that goes down breaks the connection off; whether it does, the next questions tell.
	if err != nil && !errors.Is(err, errBrokenOff) {
		return false, err
	}
	s.say("reboots: %s", strings.Join(facts.Prep.Pending, "; "))

	return true, s.awaitReturn(ctx, facts.System.BootID)
}

// awaitReturn asks the host again and again until it was started anew.
func (s *settler) awaitReturn(ctx context.Context, before string) error {
	ctx, cancel := context.WithTimeout(ctx, s.reboot)
	defer cancel()
	last := "it still runs"
	for {
		if _, facts, err := s.ask(ctx); err != nil {
			last = err.Error()
		} else if facts.System.BootID != before {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s did not come back within %s of its reboot (%s): look at its console", s.Host.Name, s.reboot, last)
		case <-time.After(s.poll):
		}
	}
}

// judge says why machines with the host's GPUs would not start.
func (s *settler) judge(facts *host.Facts) error {
	planned := spec.Host{Name: s.Host.Name, Path: s.Host.Name, Prep: &spec.Prep{IOMMU: s.Prepared}}
	needs := host.Needs{}
	for _, machine := range s.Machines {
		node := spec.Node{}
		for _, pci := range machine {
			gpu := spec.GPU{Name: pci, Host: planned.Name, PCI: pci}
			node.GPUs = append(node.GPUs, gpu)
			planned.GPUs = append(planned.GPUs, gpu)
		}
		needs.Nodes = append(needs.Nodes, node)
	}
	reasons := host.Unready(facts, planned, needs)
	if len(reasons) == 0 {
		return nil
	}
	wayOut := "reboot it when it suits, then run this again"
	if !facts.RebootHelps() {
		wayOut = "mend that, then run this again"
	} else if running := facts.Running(); len(running) > 0 {
		wayOut = fmt.Sprintf("reboot it when it suits (%s run on it), then run this again", strings.Join(running, ", "))
	}

	return fmt.Errorf("%s cannot give its GPUs to machines yet:\n  %s\n%s", s.Host.Name, strings.Join(reasons, "\n  "), wayOut)
}
