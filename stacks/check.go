package stacks

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"talos-proxmox/internal/hostfacts"
	"talos-proxmox/internal/ownership"
	"talos-proxmox/internal/problem"
	"talos-proxmox/internal/recovery"
	"talos-proxmox/internal/request"
	"talos-proxmox/internal/talosopsexec"
	"talos-proxmox/internal/tlsprobe"
)

// ErrCheck is the error of [Check.Run] if a problem blocks a stack, or something could not be asked.
var ErrCheck = errors.New("not everything is as the stack needs it, see above")

// Check makes the checks of a preview without an engine. It takes no lock and changes nothing.
type Check struct {
	Stack    string
	Folder   string // of the stack file
	Pulumi   recovery.Pulumi
	TalosOps string // path of the program
	// PrivateKey is the key for the hosts' shells, a secret; empty = that of the configuration, or the SSH agent.
	PrivateKey string
	// Transport connects to Proxmox and the Image Factory; nil = HTTP's default.
	Transport http.RoundTripper
}

// Checked is what [Check.Run] found.
type Checked struct {
	Stack string `json:"stack"`
	// Endpoint is that of Proxmox' API.
	Endpoint string `json:"endpoint"`
	// Problems block the stack; the other lists do not.
	Problems problem.List `json:"problems"`
	Warnings problem.List `json:"warnings"`
	Notes    problem.List `json:"notes"`
	Passed   problem.List `json:"passed"`
	// Hosts has lines about each host that answered, by name.
	Hosts map[string][]string `json:"hosts"`
	// NotAsked is sorted: Proxmox, or hosts that did not answer, and what depends on them.
	NotAsked []string `json:"notAsked"`
}

// Run reads the stack's configuration and state with the Pulumi CLI, and makes all checks. The result is complete if
// the error is nil or [ErrCheck].
func (c Check) Run(ctx context.Context) (Checked, error) {
	d, found, err := c.deployment(ctx)
	if err != nil {
		return Checked{}, err
	}

	var unasked []evidence
	if slices.ContainsFunc(found, func(p problem.Problem) bool { return strings.HasPrefix(p.Path, "proxmoxve:") }) {
		unasked = append(unasked, fromProxmox)
	}

	for _, check := range d.checks() {
		if slices.Contains(unasked, check.evidence) {
			continue
		}

		more, err := check.run(ctx)
		if err != nil {
			more.Add("", nil, "%s", err)

			unasked = append(unasked, check.evidence)
		}

		if found = append(found, more...); check.decisive && len(more.Errors()) > 0 {
			unasked = append(unasked, fromFile, fromState, fromHosts)

			break
		}
	}

	about := map[string][]string{}

	for name, h := range d.hosts {
		switch {
		case h.answer.Facts != nil:
			about[name] = hostfacts.Describe(h.answer.Facts, h.Host, h.needs)
		case !slices.Contains(unasked, fromHosts):
			unasked = append(unasked, evidence(name))
		}
	}

	if !slices.Contains(unasked, fromProxmox) && !slices.Contains(unasked, fromFile) && d.site().Unreachable != nil {
		unasked = append(unasked, fromProxmox)
	}

	found = problemsOf(Located(found, d.stack, d.file))
	done := Checked{
		Stack: d.stack, Endpoint: d.proxmox("endpoint"), Hosts: about, NotAsked: []string{},
		Problems: listed(found.Errors()), Warnings: listed(found.Warnings()), Notes: listed(found.Notes()),
		Passed: listed(found.Passed()),
	}

	for _, what := range slices.Sorted(slices.Values(unasked)) {
		done.NotAsked = append(done.NotAsked, string(what))
	}

	if len(unasked) > 0 || len(done.Problems) > 0 {
		return done, ErrCheck
	}

	return done, nil
}

// listed returns a list that is [] in JSON without problems.
func listed(problems problem.List) problem.List { return append(problem.List{}, problems...) }

// String returns a report for a terminal: what each host is, what was found, and what could not be asked.
func (c Checked) String() string {
	found := slices.Concat(c.Problems, c.Warnings, c.Notes, c.Passed)

	return fmt.Sprintf("Stack %s, Proxmox at %s\n%s\n%s\n", c.Stack, c.Endpoint, problem.Report(found, c.Hosts),
		c.summary(len(found)))
}

// deployment returns the stack as a preview would begin with it, and what prevents the provider from logging in. The
// error has all problems of the configuration.
func (c Check) deployment(ctx context.Context) (*deployment, problem.List, error) {
	values, err := recovery.ReadConfig(ctx, c.Pulumi, c.Stack)
	if err != nil {
		return nil, nil, err
	}

	by := surroundings{
		project: Project, stack: c.Stack[strings.LastIndex(c.Stack, "/")+1:], preview: true, everyHost: true,
		transport: c.Transport, source: tlsprobe.Source,
		facts: func(ctx context.Context, request string) (string, error) {
			stdout, err := c.talosOps(ctx, "facts", []byte(request))

			return string(stdout), err
		},
		members: func(ctx context.Context, req request.Members) (found request.MembersResult, err error) {
			text, err := json.Marshal(req)
			if err != nil {
				return found, err
			}

			stdout, err := c.talosOps(ctx, "members", text)
			if err != nil {
				return found, err
			}

			return found, json.Unmarshal(stdout, &found)
		},
	}
	by.file, _ = os.ReadFile(filepath.Join(c.Folder, fileName(by.stack))) // only for the places of problems

	s, problems := readSettings(by.stack, configuration{
		keys: slices.Collect(maps.Keys(values)), file: by.file,
		get: func(key string) (string, bool) {
			value, exists := values[key]

			return value.Value, exists
		},
		secret: func(key string) bool { return values[key].Secret },
	})
	if s.plan == nil {
		return nil, nil, fmt.Errorf("the configuration of stack %q has problems:\n%w", c.Stack,
			Located(problems, by.stack, by.file))
	}

	if c.PrivateKey != "" {
		s.sshPrivateKeyText = c.PrivateKey
	}

	_, state, err := recovery.ReadState(ctx, c.Pulumi, c.Stack, "--show-secrets")
	if err != nil {
		return nil, nil, err
	}

	resources := map[string]stateResource{}

	for _, r := range state.Resources {
		if !r.Delete { // a replacement has its URN
			resources[string(r.URN)] = stateResource{string(r.Type), recovery.Reveal(r.Outputs)}
		}
	}

	stack := ownership.Of("", Project, by.stack, "") // whose organization is not compared

	last := newLastRun()
	err = last.addAll(resources, stack)

	d := newDeployment(ctx, s, by)
	d.useLastRun(last, stack, err)

	return d, problems, nil
}

// talosOps runs a verb of talosops. The error has what it printed.
func (c Check) talosOps(ctx context.Context, verb string, request []byte) ([]byte, error) {
	var stderr bytes.Buffer

	stdout, err := talosopsexec.Output(ctx, c.TalosOps, verb, request, &stderr)
	if err != nil {
		err = fmt.Errorf("%w: %s", err, strings.TrimSpace(stderr.String()))
	}

	return stdout, err
}

// summary returns the result in one or two sentences.
func (c Checked) summary(checks int) string {
	text := problem.Count(checks, "check") + ", all fine."

	switch problems, warnings := len(c.Problems), len(c.Warnings); {
	case problems > 0:
		text = fmt.Sprintf("%s: %s, %s. Previews refuse the stack.", problem.Count(checks, "check"),
			problem.Count(problems, "problem"), problem.Count(warnings, "warning"))
	case warnings > 0:
		text = fmt.Sprintf("%s: no problem, %s.", problem.Count(checks, "check"), problem.Count(warnings, "warning"))
	}

	if len(c.NotAsked) > 0 {
		text += " Not asked: " + strings.Join(c.NotAsked, ", ")
	}

	return text
}
