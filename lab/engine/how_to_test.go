package engine_test

import (
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v4"

	"talos-proxmox/internal/scripttest"
	"talos-proxmox/lab/server"
)

// howTo follows docs/how-to.md on a lab: it edits the stack file and runs the commands, whose output must have the
// lines that the page shows. In place of the reader's:
//
//   - pulumi gets the program from this test, and answers its own question.
//   - 10.0.0.11 is the lab's host, which reboots instead of being upgraded.
//   - kubectl is not run: it is the lab's model of Kubernetes.
type howTo struct {
	w     *world
	stack map[string]any
	env   []string
}

// TestHowTo follows the page from top to bottom; its last command gives up the stack, whose machines run on.
func TestHowTo(t *testing.T) {
	t.Parallel()

	h := &howTo{w: openWorld(t, server.Options{Speed: testSpeed, Hosts: 3})}
	h.w.options.Stack = "prod"

	text, err := os.ReadFile(filepath.Join(project, "docs", "how-to.md"))
	require.NoError(t, err)

	sections := strings.Split(string(text), "\n## ")
	require.Greater(t, len(sections), 10)

	begin := codeBlock.FindStringSubmatch(sections[0])
	require.Equal(t, "Pulumi.prod.yaml", begin[2])
	h.edit(begin[3])
	h.w.up(h.file())

	h.env = h.environment()

	for _, section := range sections[1:] {
		h.w.t.Logf("## %s", section[:strings.Index(section, "\n")])

		for _, block := range codeBlock.FindAllStringSubmatch(section, -1) {
			if block[1] == "yaml" {
				h.edit("config:\n" + block[3])
			} else {
				h.follow(block[3])
			}
		}
	}

	h.w.requireRunning(6)
}

// edit merges keys into the stack file: lists of named values by name, all others as a whole.
func (h *howTo) edit(keys string) {
	var change map[string]any

	require.NoError(h.w.t, yaml.Unmarshal([]byte(strings.ReplaceAll(keys, "10.0.", h.w.network+".")), &change))
	h.stack, _ = withKeys(h.stack, change).(map[string]any)

	if h.env != nil {
		h.w.engine(h.file()).Close()
	}
}

func (h *howTo) file() string {
	text, err := yaml.Marshal(h.stack)
	require.NoError(h.w.t, err)

	return string(text)
}

// withKeys returns a value with a change of it.
func withKeys(value, change any) any {
	switch change := change.(type) {
	case map[string]any:
		old, _ := value.(map[string]any)
		result := map[string]any{}
		maps.Copy(result, old)

		for key, of := range change {
			result[key] = withKeys(old[key], of)
		}

		return result
	case []any:
		result, _ := value.([]any)

		for _, item := range change {
			if nameOf(item) == nil {
				return change
			}

			at := slices.IndexFunc(result, func(old any) bool { return nameOf(old) == nameOf(item) })
			if at < 0 {
				at, result = len(result), append(result, nil)
			}

			result[at] = withKeys(result[at], item)
		}

		return result
	default:
		return change
	}
}

func nameOf(item any) any {
	named, _ := item.(map[string]any)

	return named["name"]
}

// environment makes the reader's programs, and returns the environment for them.
func (h *howTo) environment() []string {
	t, w := h.w.t, h.w

	hosts := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, request *http.Request) {
		w.reboot(strings.TrimPrefix(request.URL.Path, "/"))
	}))
	t.Cleanup(hosts.Close)

	folder := t.TempDir()
	pulumi := filepath.Join(folder, "pulumi")

	for name, script := range map[string]string{
		"pulumi": fmt.Sprintf(`case "$1 $2" in up*) set -- "$@" --client=%[1]s --stack prod --yes --skip-preview;; `+
			`preview*) set -- "$@" --client=%[1]s;; "stack output") set -- "$@" --stack prod;; esac; exec %[2]s "$@"`,
			w.newLanguageHost().address, w.options.CLI.Path),
		"talos-proxmox": fmt.Sprintf(`case $1 in replace) set -- "$@" --yes --directory %s;; esac; `+
			`exec %s "$@" --project %s --pulumi %s --talosops %s`,
			t.TempDir(), toolPath("talos-proxmox"), filepath.Join(w.dir, "work"), pulumi, w.options.TalosOps),
		"ssh":     fmt.Sprintf(`case "$*" in "root@%s.0.11 "*reboot) curl --fail --silent %s/pve1;; *) exit 1;; esac`, w.network, hosts.URL),
		"kubectl": "exit 0",
	} {
		scripttest.Program(t, filepath.Join(folder, name), "#!/bin/sh\n"+script+"\n")
	}

	e := w.engine(h.file())
	defer e.Close()

	stack := e.Stack()
	env := w.userEnvironment()

	for name, value := range stack.Workspace().GetEnvVars() {
		env = append(env, name+"="+value)
	}

	return append(env, "PATH="+folder+string(filepath.ListSeparator)+os.Getenv("PATH"))
}

// follow runs the commands of a block. A line that follows a command is one of its output, in which … stands for any
// text.
func (h *howTo) follow(block string) {
	t := h.w.t
	output := ""

	for line := range strings.Lines(strings.ReplaceAll(block, "10.0.", h.w.network+".")) {
		line = strings.TrimSpace(line)

		command, isCommand := strings.CutPrefix(line, "$ ")
		if !isCommand {
			pattern := strings.ReplaceAll(regexp.QuoteMeta(line), "…", ".*")
			assert.Regexp(t, pattern, output)

			continue
		}

		if _, err := exec.LookPath("jq"); err != nil && strings.Contains(command, "| jq ") {
			t.Log("not run without jq: " + command)

			continue
		}

		t.Log("$ " + command)

		cmd := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", command)
		cmd.Dir, cmd.Env = filepath.Join(h.w.dir, "work"), h.env

		out, err := cmd.CombinedOutput()
		output = string(out)
		_, _ = h.w.Write(out)

		require.NoError(t, err, "%s", output)
	}
}
