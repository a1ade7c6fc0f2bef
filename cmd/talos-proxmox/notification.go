package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"talos-proxmox/internal/cli"
	"talos-proxmox/internal/notification"
	"talos-proxmox/internal/operations"
	"talos-proxmox/internal/planguard"
	"talos-proxmox/internal/recovery"
	"talos-proxmox/internal/request"
	"talos-proxmox/internal/spec"
	"talos-proxmox/stacks"
)

// notificationVersion is the version of the document: another one has other meanings. New keys do not change it.
const notificationVersion = 1

// errorLines is how many lines of errors a notification has, and errorLength how long each is.
const (
	errorLines  = 5
	errorLength = 300
)

// notified is the document that a webhook gets: docs/pipelines.md, Notifications.
type notified struct {
	Version int `json:"version"`
	// Text says it in one line, in the form that receivers of chats read.
	Text      string             `json:"text"`
	Stack     string             `json:"stack"`
	Operation string             `json:"operation"` // deploy, replace, repair
	Outcome   request.RunOutcome `json:"outcome"`
	Started   time.Time          `json:"started"`
	Ended     time.Time          `json:"ended"`
	// Planned is what the guard's preview said of machines.
	Planned []string `json:"planned"`
	// Machines are those that the run changed, or failed to.
	Machines []planguard.MachineChange `json:"machines"`
	Repairs  []operations.Repair       `json:"repairs,omitempty"`
	Error    []string                  `json:"error"` // the first lines
	See      string                    `json:"see"`   // where the whole output is
}

// notifier collects what a command does, and tells the stack's webhook. Nil does nothing.
type notifier struct {
	cmd     *cobra.Command
	stack   cli.Stack
	file    string // the stack file
	webhook string // empty = that of the stack file
	done    notified
	errors  []planguard.Message // of the engine
}

// newNotifier returns the notifier of a command, which has begun; nil if nobody is to be told.
func (a *app) newNotifier(cmd *cobra.Command, stack string) (*notifier, error) {
	webhook := os.Getenv(spec.WebhookVariable)
	if webhook != "" {
		if err := spec.CheckWebhook(webhook); err != nil {
			return nil, fmt.Errorf("the variable %s %w", spec.WebhookVariable, err)
		}

		// Nothing that this command runs needs it.
		if err := os.Unsetenv(spec.WebhookVariable); err != nil {
			return nil, fmt.Errorf("unable to unset %s: %w", spec.WebhookVariable, err)
		}
	} else if plan, err := a.plan(stack, stacks.PlanUnconnected); err != nil || plan.Notifications.Webhook == "" {
		return nil, nil //nolint:nilerr // the preview reports a file that cannot be planned
	}

	s, err := a.Stack(stack)
	if err != nil {
		return nil, err
	}

	content, err := a.ReadFile(stack)

	return &notifier{cmd: cmd, stack: s, file: string(content), webhook: webhook, done: notified{
		Version: notificationVersion, Stack: stack, Operation: cmd.Name(), Started: time.Now().UTC().Truncate(time.Second),
		Planned: []string{}, Machines: []planguard.MachineChange{}, Error: []string{}, See: whereToSee(os.Getenv),
	}}, err
}

// planned adds what a preview said that will be done to machines.
func (n *notifier) planned(r review) {
	if n == nil || r.Preview == nil {
		return
	}

	lines, _ := r.effects()
	for _, line := range lines {
		if !slices.Contains(n.done.Planned, line) {
			n.done.Planned = append(n.done.Planned, line)
		}
	}
}

// ran adds what an up did, by the log of its events.
func (n *notifier) ran(log string) {
	if n == nil {
		return
	}

	if err := n.readEvents(log); err != nil {
		n.warn(fmt.Errorf("what the run changed is not known: %w", err))
	}
}

func (n *notifier) readEvents(path string) error {
	file, err := os.Open(path) //nolint:gosec // this process's own
	if err != nil {
		return err
	}
	defer file.Close()

	update, err := planguard.ParseUpdate(file)
	n.done.Machines = append(n.done.Machines, update.Machines...)
	n.errors = append(n.errors, update.Errors...)

	return err
}

// repaired adds what a repair did. It reports whether that is worth telling: a timer's runs mostly find nothing.
func (n *notifier) repaired(repairs []operations.Repair) bool {
	if n != nil {
		n.done.Repairs = repairs
	}

	return slices.ContainsFunc(repairs, func(r operations.Repair) bool { return r.Action != operations.RepairWait })
}

// tell tells the webhook how the command ended. A failure to tell is a warning: it does not change how it ended.
func (n *notifier) tell(failure error) {
	if n == nil {
		return
	}

	// Also after an interrupt.
	ctx := context.WithoutCancel(n.cmd.Context())

	config, err := recovery.ReadConfig(ctx, pulumiOf(n.stack), n.stack.Name)
	if err == nil && n.webhook == "" {
		n.webhook, err = webhookOf(n.stack.Name, config)
	}

	if n.webhook == "" {
		n.warn(err)

		return
	}

	n.finish(failure, config.Secrets(n.file))

	if err := notification.Send(ctx, n.webhook, n.done); err != nil {
		n.warn(err)
	}
}

func webhookOf(stack string, config recovery.Config) (string, error) {
	plan, err := stacks.PlanOfConfig(cli.ShortName(stack), config.Values())
	if err != nil {
		return "", errors.New("the stack file has problems, see above")
	}

	return plan.Notifications.Webhook, nil
}

func (n *notifier) warn(err error) {
	_, _ = fmt.Fprintf(n.cmd.ErrOrStderr(), "warning: the webhook is not told everything: %v\n", err)
}

// finish completes the document.
func (n *notifier) finish(failure error, secrets []string) {
	d := &n.done
	d.Ended = time.Now().UTC().Truncate(time.Second)

	switch {
	case n.cmd.Context().Err() != nil:
		d.Outcome = request.Interrupted
	case failure != nil:
		d.Outcome = request.Failed
	default:
		d.Outcome = request.Succeeded
	}

	var lines []string
	if failure != nil {
		lines = append(engineErrors(n.errors), strings.Split(failure.Error(), "\n")...)
	}

	replaced := make([]string, 0, 2*len(secrets)+2)
	for _, secret := range append(secrets, n.webhook) {
		replaced = append(replaced, secret, spec.Blinded)
	}

	hide := strings.NewReplacer(replaced...)
	for line := range strings.Lines(hide.Replace(strings.Join(lines, "\n"))) {
		if line = strings.TrimSpace(line); line != "" && len(d.Error) < errorLines {
			d.Error = append(d.Error, shortened(line))
		}
	}

	d.Text = d.summary()
}

// errorFrame matches what providers and the engine put around an error.
var errorFrame = regexp.MustCompile(`(^|: )\d+ errors? occurred:$|^update failed$|^\s*$`)

// consequence is part of the errors of machines that wait for one that has failed.
const consequence = " is not changed, because the change of "

// engineErrors returns the lines of the engine's errors, causes first.
func engineErrors(messages []planguard.Message) (lines []string) {
	var consequences []string

	for _, m := range messages {
		of := m.Resource + ": "
		if m.Resource == "" {
			of = ""
		}

		for text := range strings.Lines(m.Text) {
			text = strings.TrimPrefix(strings.TrimSpace(text), "* ")

			switch {
			case errorFrame.MatchString(text):
			case strings.Contains(text, consequence):
				consequences = append(consequences, of+text)
			default:
				lines = append(lines, of+text)
			}
		}
	}

	return append(lines, consequences...)
}

// shortened returns the beginning of a long text.
func shortened(text string) string {
	if letters := []rune(text); len(letters) > errorLength {
		return string(letters[:errorLength]) + "…"
	}

	return text
}

// summary says in a line what was done, and what failed.
func (d notified) summary() string {
	text := fmt.Sprintf("talos-proxmox %s %s %s after %s", d.Operation, d.Stack, d.Outcome, d.Ended.Sub(d.Started))

	var changes []string

	for _, m := range d.Machines {
		change := m.Name + " " + m.Change
		if m.Failed {
			change = m.Name + " not " + m.Change
		}

		changes = append(changes, change)
	}

	for _, r := range d.Repairs {
		if r.Action == operations.RepairRefuse {
			changes = append(changes, r.String())
		}
	}

	text += ": " + cmp.Or(strings.Join(changes, ", "), "no machine changed")
	if len(d.Error) > 0 {
		text += ". " + d.Error[0]
	}

	return text + " (" + d.See + ")"
}

// whereToSee returns the page of the pipeline's run, or else who ran the command where.
func whereToSee(getenv func(string) string) string {
	server, repository, run := getenv("GITHUB_SERVER_URL"), getenv("GITHUB_REPOSITORY"), getenv("GITHUB_RUN_ID")

	switch page := getenv("CI_JOB_URL"); {
	case server != "" && repository != "" && run != "":
		return fmt.Sprintf("%s/%s/actions/runs/%s", server, repository, run)
	case page != "":
		return page
	}

	host, _ := os.Hostname()
	name := cmp.Or(getenv("USER"), "someone")

	if u, err := user.Current(); err == nil {
		name = u.Username
	}

	return "the output on " + name + "@" + host
}
