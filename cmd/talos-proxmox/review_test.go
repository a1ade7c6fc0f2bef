package main

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/internal/cli"
	"talos-proxmox/internal/operations"
	"talos-proxmox/internal/planguard"
)

// recordedPreview returns the events of a preview by the real engine, written by lab/engine/guard_test.go.
func recordedPreview(t *testing.T, name string) string {
	t.Helper()

	packed, err := os.Open(filepath.Join("..", "..", "internal", "planguard", "testdata", name+".json.gz"))
	require.NoError(t, err)

	defer packed.Close()

	zip, err := gzip.NewReader(packed)
	require.NoError(t, err)

	content, err := io.ReadAll(zip)
	require.NoError(t, err)

	return string(content)
}

// projectWithPlans returns a project with stored plans, by stack.
func projectWithPlans(t *testing.T, plans map[string]string) (folder string) {
	t.Helper()

	folder = t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(folder, ".plan"), 0o700))

	for stack, events := range plans {
		require.NoError(t, os.WriteFile(filepath.Join(folder, ".plan", stack+".json"), []byte(events), 0o600))
	}

	return folder
}

// output runs a command and returns its standard output.
func output(args ...string) (string, error) {
	root := newRoot()
	root.SetIn(strings.NewReader("")) // counts as a terminal

	var out bytes.Buffer

	root.SetOut(&out)
	root.SetArgs(args)
	err := root.Execute()

	return out.String(), err
}

func TestGuard(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct {
		preview string
		approve string
		labels  string
		says    []string
		fails   string
	}{
		"control planes that go are named": {
			preview: "fewer-control-planes",
			fails:   "approve each resource by its name: talos-proxmox preview lab --approve one-cp-2-vm,one-cp-3-vm",
			says:    []string{"delete one-cp-2-vm: it is a control plane of cluster one"},
		},
		"an approval covers its own resource only": {
			preview: "fewer-control-planes",
			approve: "one-cp-2",
			fails:   "--approve one-cp-3-vm",
			says:    []string{"delete one-cp-3-vm"},
		},
		"what is approved by name passes": {
			preview: "fewer-control-planes",
			approve: "one-cp-2-vm, one-cp-3-vm",
			says:    []string{"The plan of stack lab (", "to delete) loses nothing"},
		},
		"labels approve": {
			preview: "fewer-control-planes",
			labels:  "bug,approve:one-cp-2-vm,approve: one-cp-3",
			says:    []string{"loses nothing"},
		},
		"other labels do not": {
			preview: "fewer-control-planes", labels: "one-cp-2-vm,one-cp-3-vm", fails: "--approve one-cp-2-vm,one-cp-3-vm",
		},
		"an approval without a match is reported": {
			preview: "fewer-control-planes",
			approve: "one-cp-2,one-cp-3,one-cp-9",
			says:    []string{"note: the plan does nothing to one-cp-9 that needs an approval"},
		},
		"control planes that restart one after the other": {
			preview: "more-cores",
			says:    []string{"note: one-cp-1 … one-cp-3 restart: cores 2 → 3"},
		},
		"a preview that failed does not pass": {
			preview: "broken", fails: "did not finish", says: []string{"clusters[0].workers[0].memoryMiB: 100"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			folder := projectWithPlans(t, map[string]string{"lab": recordedPreview(t, test.preview)})
			out, err := output("preview", "lab", "--stored", "--project", folder, "--approve", test.approve, "--labels", test.labels)

			for _, text := range test.says {
				assert.Contains(t, out, text)
			}

			if test.fails == "" {
				require.NoError(t, err)

				return
			}

			require.ErrorIs(t, err, errFindings)
			assert.ErrorContains(t, err, test.fails)
		})
	}
}

func TestGuardRejectsInvalidPreviews(t *testing.T) {
	t.Parallel()

	for name, content := range map[string]string{
		"nothing": "", "text": "Previewing update", "a half": `{"steps": [`, "another document": "[]",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := output("preview", "prod", "--stored", "--project", projectWithPlans(t, map[string]string{"prod": content}))
			assert.ErrorContains(t, err, "not a log of `pulumi preview --event-log`")
		})
	}

	_, err := output("preview", "prod", "--stored", "--project", projectWithPlans(t, map[string]string{
		"prod": `{"sequence": 0, "timestamp": 1, "preludeEvent": {"config": {}}}`,
	}))
	assert.ErrorContains(t, err, `the preview of stack "prod" did not finish`, "a truncated log")
}

// runDrift returns drift's output for a stored plan.
func runDrift(t *testing.T, folder string) (string, error) {
	t.Helper()

	r, err := readReview(filepath.Join(folder, ".plan", "prod.json"), nil)
	require.NoError(t, err)

	var out bytes.Buffer

	cmd := newRoot()
	cmd.SetOut(&out)
	err = r.report(cmd, cli.Text, true)

	return out.String(), err
}

// TestDrift reads a preview with refresh after `qm set 3000 --memory 12288` on a lab's host.
func TestDrift(t *testing.T) {
	t.Parallel()
	drift := projectWithPlans(t, map[string]string{"prod": recordedPreview(t, "drift")})
	out, err := output("preview", "prod", "--stored", "--project", drift)
	require.NoError(t, err, "drift of a worker's memory endangers nothing")
	assert.Contains(t, out, "(1 to update)")

	out, err = runDrift(t, drift)
	require.ErrorContains(t, err, `stack "prod" has drifted; differences: 1`)
	assert.Contains(t, out, "update prod-general-1-vm: memory")

	var text strings.Builder
	require.NoError(t, review{Preview: &planguard.Preview{
		Stack: "prod", Finished: true, Steps: []planguard.Step{{Operation: planguard.Same}, {Operation: planguard.Same}},
	}}.requireUnchanged(&text))
	assert.Equal(t, "No drift in 2 resources: machines, nodes and files of hosts match the state and the stack file.\n",
		text.String())
}

func TestExitStatusOfDrift(t *testing.T) {
	t.Parallel()

	failure := cli.WithStatus(1, errors.New("pulumi preview"))

	require.NoError(t, driftError(true, nil, nil))
	assert.Equal(t, operations.StatusAttention, cli.Status(nil, driftError(true, nil, errFindings)))
	assert.Equal(t, operations.StatusUnknown, cli.Status(nil, driftError(false, failure, errFindings)))
}

// TestVerdictOfAViolatedPolicy: the engine fails such a preview, and its reason is no diagnostic. Only what the engine
// has not printed is repeated.
func TestVerdictOfAViolatedPolicy(t *testing.T) {
	t.Parallel()

	violated := planguard.Policy{Name: "vm-tags", Message: planguard.Message{Resource: "prod-cp-1-vm", Text: "has no tags"}}
	mandatory, advisory := violated, violated
	mandatory.Level, advisory.Level, advisory.Name = "mandatory", "advisory", "vm-names"

	r := review{Preview: &planguard.Preview{Stack: "prod", Policies: []planguard.Policy{mandatory, advisory}}}
	cmd := &cobra.Command{Use: "drift"}

	const line = "error: prod-cp-1-vm violates the policy vm-tags: has no tags\n"

	for displayed, want := range map[bool]string{false: line, true: ""} {
		var out bytes.Buffer

		r.displayed = displayed
		require.ErrorIs(t, r.verdict(&out, cmd), errFindings)
		assert.Equal(t, want, out.String())
	}

	assert.Equal(t, []string{"prod-cp-1-vm violates the policy vm-tags: has no tags"}, r.reviewResult().Errors)

	r.Finished, r.findings = true, []planguard.Step{{URN: "urn:pulumi:prod::talos-proxmox::t:m:T::prod-cp-1-vm"}}
	assert.ErrorContains(t, r.verdict(io.Discard, cmd), "talos-proxmox preview prod --approve", "drift approves nothing")
}

// TestGuardAsJSON contains what the text contains.
func TestGuardAsJSON(t *testing.T) {
	t.Parallel()

	folder := projectWithPlans(t, map[string]string{"lab": recordedPreview(t, "fewer-control-planes")})
	out, err := output("preview", "lab", "--stored", "--project", folder, "--output", "json", "--approve", "one-cp-2,nobody")
	require.ErrorIs(t, err, errFindings)

	var j reviewResult
	require.NoError(t, json.Unmarshal([]byte(out), &j), out)
	assert.Equal(t, "lab", j.Stack)
	assert.True(t, j.Finished)
	require.Len(t, j.Findings, 1)
	assert.Equal(t, "one-cp-3-vm", j.Findings[0].Resource)
	assert.Equal(t, []string{"nobody"}, j.Unused)
	assert.NotEmpty(t, j.Changes)

	_, err = output("preview", "lab", "--output", "yaml")
	require.ErrorContains(t, err, `invalid argument "yaml" for "-o, --output" flag: is none of json, text`)
}

// TestDriftOfNodes reads what drift appends to the plan.
func TestDriftOfNodes(t *testing.T) {
	t.Parallel()

	folder := projectWithPlans(t, map[string]string{"prod": recordedPreview(t, "drift") + `{"sequence": 99, "diagnosticEvent": {"severity": "info", "message": ` +
		`"hosts[0].prep: pve1 is not as wanted, up changes /etc/modprobe.d/zfs.conf"}}` + "\n" +
		`{"drift": [{"cluster": "home", "node": "home-cp-1", "versions": "runs Talos v1.12.5 (planned: v1.12.6)",` +
		` "configuration": ["machine.token"]}, {"cluster": "home", "node": "home-cp-2", "unknown": "no answer"}]}` + "\n"})

	lines := []string{
		"hosts[0].prep: pve1 is not as wanted, up changes /etc/modprobe.d/zfs.conf\n",
		"node home-cp-1: runs Talos v1.12.5 (planned: v1.12.6)\n",
		"node home-cp-1: its machine configuration is not the one that was applied last: machine.token; " +
			"`pulumi up --replace '**::home-cp-1-configuration'` applies that again\n",
		"node home-cp-2: cannot be compared: no answer\n",
	}

	out, err := runDrift(t, folder)
	require.ErrorContains(t, err, `stack "prod" has drifted; differences: 4`)

	for _, line := range lines {
		assert.Contains(t, out, line)
	}

	out, err = output("preview", "prod", "--stored", "--project", folder, "--markdown")
	require.NoError(t, err, "the guard ignores drift")
	assert.Contains(t, out, "### Drift\n\n- hosts[0].prep: pve1 is not as wanted, up changes /etc/modprobe.d/zfs.conf\n")
	assert.Contains(t, out, "- `home-cp-1`: runs Talos v1.12.5 (planned: v1.12.6)\n")
}

func TestComment(t *testing.T) {
	t.Parallel()
	folder := projectWithPlans(t, map[string]string{
		"lab": recordedPreview(t, "fewer-control-planes"), "other": recordedPreview(t, "broken"), "third": "",
	})
	out, err := output("preview", "--stored", "--project", folder, "--markdown")
	require.ErrorIs(t, err, errFindings)

	assert.True(t, strings.HasPrefix(out, commentMarker+"\n"))

	for _, text := range []string{
		"## Plan of stack `lab`", "to delete**", "- delete **`one-cp-2-vm`**: it is a control plane of cluster one",
		"| delete | one-cp-2-vm | proxmoxve:VirtualMachine |", "### Policies\n\nNo policy pack ran.",
		"### Capacity\n\n| host | machines | cores |", "| pve1 | 2 | 4 | 8 |",
		"❌ **The preview failed", "clusters[0].workers[0].memoryMiB: 100", "## third\n\n❌ unable to read",
	} {
		assert.Contains(t, out, text)
	}

	approved, err := output("preview", "lab", "--stored", "--project", folder, "--markdown", "--approve", "one-cp-2,one-cp-3")
	require.NoError(t, err)
	assert.Contains(t, approved, "✅ The guard accepts this plan.")
}

// fakeForge serves the comments of one pull request: in pages, as GitHub does, or all at once, as Gitea does.
type fakeForge struct {
	comments []comment
	pages    bool
	calls    []string
}

func (f *fakeForge) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.calls = append(f.calls, r.Method+" "+r.URL.Path)
	if r.Header.Get("Authorization") != "token secret" {
		http.Error(w, `{"message":"Bad credentials"}`, http.StatusUnauthorized)

		return
	}

	var body comment

	_ = json.NewDecoder(r.Body).Decode(&body)
	switch r.Method {
	case http.MethodGet:
		list := f.comments
		if f.pages {
			var page int

			_, _ = fmt.Sscan(r.URL.Query().Get("page"), &page)
			list = list[min(len(list), (page-1)*commentsPerPage):min(len(list), page*commentsPerPage)]
		}

		_ = json.NewEncoder(w).Encode(list)
	case http.MethodPost:
		f.comments = append(f.comments, newComment(len(f.comments)+1, "github-actions[bot]", body.Body))

		w.WriteHeader(http.StatusCreated)
	case http.MethodPatch:
		for i := range f.comments {
			if strings.HasSuffix(r.URL.Path, fmt.Sprintf("/comments/%d", f.comments[i].ID)) {
				f.comments[i].Body = body.Body
			}
		}
	}
}

func newComment(id int, author, body string) comment {
	c := comment{ID: int64(id), Body: body}
	c.User.Login = author

	return c
}

func TestNamesAreEscaped(t *testing.T) {
	t.Parallel()

	assert.Equal(t, "`a' ![x] (https://example.org) b`", code("a` ![x](https://example.org)\nb"))
	assert.Equal(t, "see [x] (https://example.org) &lt;b&gt;", escape("see [x](https://example.org) <b>"))
	assert.Equal(t, "| a | b\\|c [x] (y) |\n|---|---|\n", table([][]string{{"a", "b|c [x](y)"}}))
}

func TestPublishReplacesItsComment(t *testing.T) {
	t.Parallel()

	for name, pages := range map[string]bool{"a server that pages": true, "a server that gives all at once": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			f := &fakeForge{pages: pages}
			for i := range 2 * commentsPerPage { // earlier comments
				f.comments = append(f.comments, newComment(i+1, "someone", "talk that quotes "+commentMarker))
			}

			// Someone copied the marker to fake the plan's comment.
			f.comments[1].Body = commentMarker + "\n✅ The guard accepts this plan."

			server := httptest.NewServer(f)
			t.Cleanup(server.Close)
			environment := map[string]string{
				"GITHUB_API_URL": server.URL + "/api/v1", "GITHUB_REPOSITORY": "me/it", "GITHUB_TOKEN": "secret",
			}
			commenter, err := newCommenter(func(key string) string { return environment[key] }, 7)
			require.NoError(t, err)

			require.NoError(t, commenter.publish(t.Context(), commentMarker+"\nfirst"))
			require.Len(t, f.comments, 2*commentsPerPage+1)
			assert.Equal(t, "POST /api/v1/repos/me/it/issues/7/comments", f.calls[len(f.calls)-1])
			require.NoError(t, commenter.publish(t.Context(), commentMarker+"\nsecond"))
			require.Len(t, f.comments, 2*commentsPerPage+1)
			assert.Equal(t, commentMarker+"\nsecond", f.comments[2*commentsPerPage].Body)
			assert.Equal(t, "talk that quotes "+commentMarker, f.comments[0].Body)
			assert.Equal(t, commentMarker+"\n✅ The guard accepts this plan.", f.comments[1].Body)

			commenter.token = "wrong"
			err = commenter.publish(t.Context(), commentMarker)
			require.ErrorContains(t, err, "401 Unauthorized")
			assert.NotContains(t, err.Error(), "wrong")
		})
	}
}

func TestNewCommenterRequiresEnvironment(t *testing.T) {
	t.Parallel()

	_, err := newCommenter(func(string) string { return "" }, 0)
	for _, text := range []string{"GITHUB_API_URL", "GITHUB_REPOSITORY", "GITHUB_TOKEN", "--post"} {
		assert.ErrorContains(t, err, text)
	}
}
