package engine_test

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pulumi/pulumi/sdk/v3/go/auto/optpreview"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v4"

	"talos-proxmox/internal/permissions"
	"talos-proxmox/internal/scripttest"
	"talos-proxmox/lab/datacentre"
	"talos-proxmox/lab/engine"
)

// reader follows the guide in a clone of the project. These replace what the lab does not have, and nothing else:
//
//   - The engine of Pulumi's up, preview and destroy is this test's, because the CLI's language host for Go is not
//     installed everywhere; it has the clone's stack file, with the lab's addresses, and the token that the reader
//     stored. Policies judge the preview, as they do for the reader; updates with policies have tests of their own,
//     without event streams ([engine.Options]).
//   - 10.0.0.2 is the lab's host, with its SSH port.
//   - The repository at git.example.org is one on loopback: pushes reach its folder, and Flux reads it over HTTPS.
//   - Charts are the lab's, packed from Go modules, the one with CRDs in the version of its module.
//   - Answers to prompts come on standard input.
//   - make prints what it would build, since everything is built.
type reader struct {
	*testing.T

	w      *world
	git    *gitServer
	clone  string
	home   string
	env    []string
	output strings.Builder
}

// guideShims are the programs of the reader's machine, by their paths.
func (r *reader) guideShims(engineURL string) map[string]string {
	connection, err := r.w.lab.Connection()
	require.NoError(r, err)

	bin, err := filepath.Abs(filepath.Join(project, ".bin"))
	require.NoError(r, err)

	host, ssh := connection.Hosts[0], filepath.Join(r.home, ".ssh")
	config := fmt.Sprintf("Host 10.0.0.2\n  HostName %s\n  Port %d\n  HostKeyAlias 10.0.0.2\n  IdentityFile %s/id_ed25519\n"+
		"  StrictHostKeyChecking yes\n", host.Address, host.Port, ssh)
	require.NoError(r, os.WriteFile(filepath.Join(ssh, "config"), []byte(config), 0o600))
	require.NoError(r, os.WriteFile(filepath.Join(ssh, "id_ed25519"), []byte(connection.PrivateKey), 0o600))

	ask := `curl --silent --show-error --fail-with-body "` + engineURL + `/$1"`
	shim := func(format string, args ...any) string {
		return "#!/bin/bash\nset -euo pipefail\n" + fmt.Sprintf(format, args...)
	}

	return map[string]string{
		filepath.Join(r.clone, ".bin", "pulumi"): shim(`case "$1 ${2-}" in up\ * | destroy\ *) exec %s;; `+
			`"stack output") set -- -C "%s/work" "$@" --stack gpu;; esac; exec "%s/pulumi" "$@"`, ask, r.w.dir, bin),
		filepath.Join(r.clone, ".bin", "talos-proxmox"): shim(`case "$1" in check) exec %s;; preview) `+
			`"%[2]s/talos-proxmox" gitops check gpu; exec %[1]s;; esac; exec "%[2]s/talos-proxmox" "$@"`, ask, bin),
		filepath.Join(r.home, "bin", "make"): shim(`exec "%s" -C "%s/.." --dry-run "$@"`, lookPath(r, "make"), bin),
		filepath.Join(r.home, "bin", "ssh"):  shim(`exec "%s" -F "%s/config" "$@"`, lookPath(r, "ssh"), ssh),
		filepath.Join(r.home, "bin", "ssh-keyscan"): shim(`"%s" -p %d -t ed25519 %s | sed "s/^[^ ]*/10.0.0.2/"`,
			lookPath(r, "ssh-keyscan"), host.Port, host.Address),
	}
}

func lookPath(t require.TestingT, program string) string {
	path, err := exec.LookPath(program)
	require.NoError(t, err)

	return path
}

func newReader(t *testing.T, w *world) *reader {
	t.Helper()

	for _, tool := range []string{"ssh", "ssh-keygen", "ssh-keyscan", "openssl", "jq", "kubectl", "curl"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("the guide needs %s, which is not installed here: its commands are not run", tool)
		}
	}

	folder := t.TempDir()
	r := &reader{
		T: t, w: w, git: newGitServer(t), clone: filepath.Join(folder, "clone"), home: filepath.Join(folder, "home"),
	}
	w.options.Stack = "gpu"

	engines := httptest.NewServer(http.HandlerFunc(func(answer http.ResponseWriter, request *http.Request) {
		text, err := r.runEngine(strings.TrimPrefix(request.URL.Path, "/"))
		if err != nil {
			answer.WriteHeader(http.StatusInternalServerError)

			text += err.Error()
		}

		_, _ = io.WriteString(answer, text)
	}))
	t.Cleanup(engines.Close)

	r.cloneProject()
	require.NoError(t, os.MkdirAll(filepath.Join(r.home, ".ssh"), 0o700))
	require.NoError(t, os.MkdirAll(filepath.Join(w.dir, "state"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(w.dir, "passphrase"), []byte("of the guide's reader"), 0o600))

	gitConfig := fmt.Sprintf("[user]\n name = you\n email = you@example.org\n[url %q]\n insteadOf = https://git.example.org/you/\n",
		filepath.Dir(r.git.work)+"/")
	require.NoError(t, os.WriteFile(filepath.Join(r.home, ".gitconfig"), []byte(gitConfig), 0o600))

	for path, content := range r.guideShims(engines.URL) {
		scripttest.Program(t, path, content)
	}

	modules, err := exec.Command("go", "env", "GOMODCACHE").Output() // the reader has another home
	require.NoError(t, err)

	r.env = []string{
		"GOMODCACHE=" + strings.TrimSpace(string(modules)),
		"HOME=" + r.home, "PATH=" + filepath.Join(r.home, "bin") + ":" + os.Getenv("PATH"),
		"STATE=" + filepath.Join(r.home, "variables"),
		"PULUMI_BACKEND_URL=file://" + filepath.Join(w.dir, "state"), "PULUMI_HOME=" + filepath.Join(r.home, ".pulumi"),
		"PULUMI_CONFIG_PASSPHRASE_FILE=" + filepath.Join(w.dir, "passphrase"), "PULUMI_SKIP_UPDATE_CHECK=true",
	}

	return r
}

// cloneProject copies what the guide's commands need, and removes the program's account from the lab: the reader
// creates one.
func (r *reader) cloneProject() {
	require.NoError(r, os.MkdirAll(filepath.Join(r.clone, ".bin"), 0o700))
	require.NoError(r, os.MkdirAll(filepath.Join(r.home, "bin"), 0o700))

	for name, content := range r.git.trackedFiles(project, "gitops", "Pulumi.yaml") {
		path := filepath.Join(r.clone, filepath.FromSlash(name))
		require.NoError(r, os.MkdirAll(filepath.Dir(path), 0o700))
		require.NoError(r, os.WriteFile(path, []byte(content), 0o600))
	}

	root, err := filepath.Abs(project)
	require.NoError(r, err)
	require.NoError(r, os.Symlink(filepath.Join(root, ".bin", "sops"), filepath.Join(r.home, "bin", "sops")))

	r.git.git(r.clone, "init", "--quiet", "--initial-branch=main")
	r.git.git(r.clone, "add", "gitops")
	r.git.git(r.clone, "commit", "--quiet", "--message", "the project")

	r.w.lab.Data.Delete(datacentre.Users, permissions.User)

	for _, role := range permissions.Roles() {
		r.w.lab.Data.Delete(datacentre.Roles, role.ID)
	}
}

// forLab returns the reader's stack file with the lab's charts and repository.
func (r *reader) forLab(file []byte) []byte {
	var content struct {
		Config map[string]any `yaml:"config"`
	}
	require.NoError(r, yaml.Unmarshal(file, &content))

	//nolint:forcetypeassert // the guide's
	cluster := content.Config["talos-proxmox:clusters"].([]any)[0].(map[string]any)
	require.Equal(r, map[string]any{"kind": "cilium"}, cluster["cni"])

	cluster["cni"] = r.w.labCNI()

	//nolint:forcetypeassert // the guide's, whose secrets stay
	gitops := cluster["gitops"].(map[string]any)
	//nolint:forcetypeassert // the guide's
	pull := gitops["pullSecret"].(map[string]any)

	maps.Copy(gitops, r.git.labGitOps(gitops["path"].(string))) //nolint:forcetypeassert // the guide's
	maps.Copy(pull, gitops["pullSecret"].(map[string]any))      //nolint:forcetypeassert // the lab's
	gitops["pullSecret"] = pull

	file, err := yaml.Marshal(content)
	require.NoError(r, err)

	return file
}

// labAdditions returns what the lab's charts need in a file of the guide's tree.
func (r *reader) labAdditions(name string) string {
	switch name {
	case "gitops/clusters/gpu/settings.yaml":
		return "  CHART_REPOSITORY: " + r.w.charts() + "\n"
	case "gitops/clusters/gpu/kustomization.yaml":
		lab, err := os.ReadFile(filepath.Join(project, "gitops/clusters/lab/kustomization.yaml"))
		require.NoError(r, err)

		_, patches, found := strings.Cut(string(lab), "\npatches:")
		require.True(r, found)

		return "patches:" + patches
	}

	return ""
}

// runEngine performs a command of the guide with the engine.
func (r *reader) runEngine(verb string) (output string, err error) {
	file, err := os.ReadFile(filepath.Join(r.clone, "Pulumi.gpu.yaml"))
	require.NoError(r, err)

	file = r.forLab(file)

	stored := map[string]string{}
	for _, key := range []string{"proxmoxve:apiToken", agePath, passwordPath} {
		stored[key] = r.storedValue(key)
	}

	r.w.configure = func(c *engine.Config) { maps.Copy(c.Secrets, stored) }

	switch verb {
	case "check":
		return r.w.runCheck(string(file))
	case "preview":
		r.w.options.Policy.Pack = policyPack(r.T)
		output = r.w.outputOf(func() { _, err = r.w.preview(string(file), optpreview.SuppressOutputs()) })
		r.w.options.Policy.Pack = ""
	case "up":
		output = r.w.outputOf(func() { _, err = r.w.tryUp(r.Context(), string(file)) })
	case "destroy":
		output = r.w.outputOf(func() { r.w.destroy(string(file)) })
	default:
		err = fmt.Errorf("the guide's reader has no engine for %q", verb)
	}

	return output, err
}

// storedValue returns a configuration value that the reader stored.
func (r *reader) storedValue(key string) string {
	//nolint:gosec // the clone's own program
	cmd := exec.Command(filepath.Join(r.clone, ".bin", "pulumi"), "config", "get", "--path", key, "--stack", "gpu")
	cmd.Dir, cmd.Env = r.clone, r.env

	out, err := cmd.Output()
	require.NoError(r, err, key)

	return strings.TrimSpace(string(out))
}
