package workflowstest

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"
)

// workflow has the parts of a workflow file that the rules check.
type workflow struct {
	On          yaml.Node         `yaml:"on"`
	Permissions *permissions      `yaml:"permissions"`
	Concurrency *concurrency      `yaml:"concurrency"`
	Env         map[string]string `yaml:"env"`
	Jobs        map[string]job    `yaml:"jobs"`
}

type concurrency struct {
	Group  string `yaml:"group"`
	Cancel bool   `yaml:"cancel-in-progress"`
}

type job struct {
	If          string            `yaml:"if"`
	Needs       names             `yaml:"needs"`
	RunsOn      string            `yaml:"runs-on"`
	Environment string            `yaml:"environment"`
	Permissions *permissions      `yaml:"permissions"`
	Env         map[string]string `yaml:"env"`
	Steps       []step            `yaml:"steps"`
}

type step struct {
	Uses string               `yaml:"uses"`
	Run  string               `yaml:"run"`
	Env  map[string]string    `yaml:"env"`
	With map[string]yaml.Node `yaml:"with"`
}

// names is one name or a list of names.
type names []string

func (n *names) UnmarshalYAML(value *yaml.Node) error {
	if value.Kind == yaml.ScalarNode {
		*n = names{value.Value}

		return nil
	}

	return value.Decode((*[]string)(n))
}

// permissions maps scopes to access; a single word has the empty scope.
type permissions map[string]string

func (p *permissions) UnmarshalYAML(value *yaml.Node) error {
	if value.Kind == yaml.ScalarNode {
		*p = permissions{"": value.Value}

		return nil
	}

	return value.Decode((*map[string]string)(p))
}

var (
	pinned   = regexp.MustCompile(`^[\w.-]+/[\w./-]+@[0-9a-f]{40}$`)
	secret   = regexp.MustCompile(`\bsecrets\.(\w+)`)
	toolMake = regexp.MustCompile(`\bmake\b|\bgo (run|build|test)\b|\.bin/`)
	// untrusted matches values that the author of a pull request, or whoever starts a run, controls.
	untrusted = regexp.MustCompile(`\$\{\{[^}]*(inputs\.|github\.(ref|head_ref)|event\.(pull_request\.(title|body|head|labels)|inputs)|needs\.)[^}]*\}\}`)
)

// parse reads a workflow, and replaces steps that use the repository's own actions by the actions' steps.
func parse(text []byte, actions map[string][]step) (workflow, error) {
	var w workflow
	if err := yaml.Unmarshal(text, &w); err != nil {
		return w, err
	}

	for name, j := range w.Jobs {
		var steps []step

		for _, s := range j.Steps {
			if own, found := actions[s.Uses]; found {
				steps = append(steps, own...)
			} else {
				steps = append(steps, s)
			}
		}

		j.Steps = steps
		w.Jobs[name] = j
	}

	return w, nil
}

// triggers returns the events of a workflow.
func (w workflow) triggers() []string {
	switch w.On.Kind {
	case yaml.MappingNode:
		var events map[string]yaml.Node
		if err := w.On.Decode(&events); err != nil {
			return nil
		}

		return slices.Sorted(maps.Keys(events))
	case yaml.SequenceNode:
		var events []string
		if err := w.On.Decode(&events); err != nil {
			return nil
		}

		return events
	default:
		return []string{w.On.Value}
	}
}

// check returns the violations of a workflow.
func check(w workflow) []string {
	var found []string

	report := func(format string, values ...any) { found = append(found, fmt.Sprintf(format, values...)) }

	if w.Concurrency == nil || w.Concurrency.Group == "" {
		report("no concurrency group: two runs meet")
	}

	for scope, access := range effectivePermissions(w.Permissions) {
		if access == "write" || access == "write-all" || w.Permissions == nil {
			report("the workflow has the permission %s %s: set it for the job that needs it", scope, access)
		}
	}

	if slices.Contains(w.triggers(), "pull_request_target") {
		report("pull_request_target runs with the base's secrets beside a pull request's code")
	}

	for name, value := range w.Env {
		if secret.MatchString(value) {
			report("env.%s is a secret in the environment of every job", name)
		}
	}

	for _, name := range slices.Sorted(maps.Keys(w.Jobs)) {
		for _, problem := range w.checkJob(w.Jobs[name]) {
			report("%s: %s", name, problem)
		}
	}

	return found
}

// effectivePermissions returns the permissions; if unset, those of the repository's settings, which may be all.
func effectivePermissions(p *permissions) permissions {
	if p == nil {
		return permissions{"": "of the repository's settings"}
	}

	return *p
}

func (w workflow) checkJob(j job) []string {
	var found []string

	report := func(format string, values ...any) { found = append(found, fmt.Sprintf(format, values...)) }
	pull := slices.Contains(w.triggers(), "pull_request")

	for name, value := range j.Env {
		if secret.MatchString(value) || strings.Contains(value, "github.token") {
			report("env.%s is a secret in the environment of every step: set it in the step that needs it", name)
		}
	}

	for i, s := range j.Steps {
		if s.Uses != "" && !pinned.MatchString(s.Uses) {
			report("step %d uses %s, which is not pinned by a digest", i+1, s.Uses)
		}

		if untrusted.MatchString(s.Run) {
			report("step %d has a value from outside in its script: pass it in the step's environment", i+1)
		}

		for name, value := range s.Env {
			if s.Uses != "" && secret.MatchString(value) {
				report("step %d gives env.%s to an action", i+1, name)
			}

			for _, match := range secret.FindAllStringSubmatch(value, -1) {
				if pull && !strings.HasPrefix(match[1], "PREVIEW_") {
					report("step %d shows the secret %s to a pull request's code", i+1, match[1])
				}
			}
		}

		if strings.HasPrefix(s.Uses, "actions/checkout@") && s.with("persist-credentials") != "false" {
			report("step %d leaves the token in the work tree: persist-credentials: false", i+1)
		}
	}

	found = append(found, j.checkTrust(w.canWrite(j), pull)...)

	return found
}

// canWrite reports whether a job's token may write.
func (w workflow) canWrite(j job) bool {
	p := j.Permissions
	if p == nil {
		p = w.Permissions
	}

	for _, access := range effectivePermissions(p) {
		if access != "read" && access != "none" {
			return true
		}
	}

	return false
}

// checkTrust checks what a job with write access or secrets restores and runs.
func (j job) checkTrust(writes, pull bool) []string {
	var found []string

	trusted := writes || !pull && j.hasSecrets()
	for i, s := range j.Steps {
		if trusted && strings.HasPrefix(s.Uses, "actions/cache@") ||
			trusted && strings.HasPrefix(s.Uses, "actions/setup-go@") && s.with("cache") != "false" {
			found = append(found, fmt.Sprintf("step %d restores what a less trusted job may have written to the cache", i+1))
		}

		if writes && pull && strings.HasPrefix(s.Uses, "actions/checkout@") &&
			!strings.Contains(s.with("ref"), "pull_request.base.sha") {
			found = append(found, fmt.Sprintf("step %d checks the pull request out, and the token may write", i+1))
		}

		if writes && !pull && toolMake.MatchString(strings.ReplaceAll(s.Run, "make update", "")) {
			found = append(found, fmt.Sprintf("step %d runs the project's code, and the token may write", i+1))
		}
	}

	if !pull && j.hasSecrets() && j.Environment == "" {
		found = append(found, "has secrets and no environment, which could limit them to the default branch")
	}

	if pull && j.hasSecrets() && j.Environment == "" {
		found = append(found, "shows secrets to a pull request's code without an environment, which could ask for a reviewer")
	}

	if pull && strings.Contains(j.RunsOn, "PROXMOX_RUNNER") {
		found = append(found, "runs a pull request's code on the runner that reaches the hosts")
	}

	return found
}

func (j job) hasSecrets() bool {
	return slices.ContainsFunc(j.Steps, func(s step) bool {
		return slices.ContainsFunc(slices.Collect(maps.Values(s.Env)), secret.MatchString)
	})
}

func (s step) with(name string) string {
	value := s.With[name]

	return value.Value
}
