package operations

import (
	"context"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v4"

	"talos-proxmox/internal/ownership"
	"talos-proxmox/internal/request"
	"talos-proxmox/internal/scripttest"
	"talos-proxmox/internal/spec"
	"talos-proxmox/internal/talos"
	"talos-proxmox/internal/tokens"
)

// rotationStack is a stack of cluster "lab" whose talosops exits with the status in a file, and whose imported state is
// kept in plain text.
type rotationStack struct {
	Deployed

	t      *testing.T
	folder string
	state  string // as the CLI exports it with its secrets shown
}

// encode encodes as the provider does.
func encode(pem []byte) string { return base64.StdEncoding.EncodeToString(pem) }

func newRotationStack(t *testing.T) *rotationStack {
	t.Helper()

	b, _ := newBackups(t, nil)
	r := &rotationStack{Deployed: b.Deployed, t: t, folder: t.TempDir()}
	config := r.Pulumi
	r.Pulumi = func(ctx context.Context, in io.Reader, args ...string) ([]byte, error) {
		switch line := strings.Join(args, " "); {
		case strings.HasPrefix(line, "stack export") && strings.Contains(line, "--show-secrets"):
			return []byte(r.state), nil
		case strings.HasPrefix(line, "stack export"):
			return []byte(strings.ReplaceAll(r.state, `"plaintext":"\"of another\""`, `"ciphertext":"sealed"`)), nil
		case strings.HasPrefix(line, "stack import"):
			text, err := io.ReadAll(in)
			r.state = string(text)

			return nil, err
		default:
			return config(ctx, in, args...)
		}
	}

	r.TalosOps = filepath.Join(r.folder, "talosops")
	script := "#!/bin/sh\ncat > " + r.folder + "/request.$(ls " + r.folder + " | wc -l)\n" +
		"read -r status < " + r.folder + "/status && exit \"$status\"\n"
	scripttest.Program(t, r.TalosOps, script)
	r.setExitStatus("0")

	ca, err := talos.TalosAuthority.New(time.Now())
	require.NoError(t, err)

	client, err := ca.Administrator(time.Now().AddDate(0, -11, -15)) // it has half a month left
	require.NoError(t, err)

	kubernetes, err := talos.KubernetesAuthority.New(time.Now())
	require.NoError(t, err)

	// Talos' authority issues its client certificate here: only the subject matters.
	kubeconfig := talos.Kubeconfig("clusters: [{cluster: {server: 'https://127.0.0.9:6443', certificate-authority-data: " +
		encode(kubernetes.Certificate) + "}, name: lab}]\nusers: [{user: {client-certificate-data: " +
		encode(client.Certificate) + ", client-key-data: " + encode(client.Key) + "}}]\n")

	addresses := object{}
	for _, n := range r.Plan.Clusters[0].Nodes() {
		addresses[n.Name] = n.Address.Addr().String()
	}

	r.state = r.json(object{"version": 3, "deployment": object{"resources": []any{
		object{
			"urn":  "urn:pulumi:lab::p::talos-proxmox:cluster:TalosCluster::lab",
			"type": "talos-proxmox:cluster:TalosCluster", "outputs": object{"addresses": addresses},
		},
		object{
			"urn":  "urn:pulumi:lab::p::talos-proxmox:cluster:TalosCluster$talos:machine/secrets:Secrets::lab-secrets",
			"type": tokens.Secrets, "outputs": object{
				"machineSecrets": r.secret(object{"cluster": object{"id": "kept"}, "certs": object{
					"k8s":  object{"cert": encode(kubernetes.Certificate), "key": encode(kubernetes.Key)},
					"etcd": object{"cert": "kept"}, "os": object{"cert": encode(ca.Certificate), "key": encode(ca.Key)},
				}}),
				"clientConfiguration": r.secret(client.ProviderOutput()),
			},
		},
		object{
			"urn":  "urn:pulumi:lab::p::talos-proxmox:cluster:TalosCluster$" + tokens.Kubeconfig + "::lab-kubeconfig",
			"type": tokens.Kubeconfig, "outputs": object{"kubeconfigRaw": r.secret(string(kubeconfig))},
		},
		object{"urn": "urn:pulumi:lab::p::a:b:C::other", "type": "a:b:C", "outputs": object{"of": r.secret("of another")}},
	}}})

	return r
}

func (r *rotationStack) json(value any) string {
	text, err := json.Marshal(value)
	require.NoError(r.t, err)

	return string(text)
}

func (r *rotationStack) secret(value any) object {
	return object{resource.SigKey: resource.SecretSig, "plaintext": r.json(value)}
}

func (r *rotationStack) setExitStatus(status string) {
	require.NoError(r.t, os.WriteFile(filepath.Join(r.folder, "status"), []byte(status+"\n"), 0o600))
}

// authorities returns the certificates of the authority in the state, of the one that it replaces, and of the one that
// its client trusts.
func (r *rotationStack) authorities(kind talos.AuthorityKind) (issuing, replaced, trusted string) {
	state, err := r.readState(r.t.Context())
	require.NoError(r.t, err)

	s := state.secretsOf(r.Plan.Clusters[0].Name)
	assert.Equal(r.t, object{"id": "kept"}, s.machine["cluster"])
	assert.Equal(r.t, object{"cert": "kept"}, s.machine["certs"].(object)["etcd"])

	authority, old := s.authority(kind)
	ca := talos.ProviderClient(s.client).Authority

	if kind == talos.KubernetesAuthority {
		ca, err = s.kubeconfig.Authorities()
		require.NoError(r.t, err)
	}

	return string(authority.Certificate), string(old), string(ca)
}

// clientExpiry returns when the client certificate in the state expires.
func (r *rotationStack) clientExpiry() time.Time {
	state, err := r.readState(r.t.Context())
	require.NoError(r.t, err)

	block, _ := pem.Decode(talos.ProviderClient(state.secretsOf(r.Plan.Clusters[0].Name).client).Certificate)
	require.NotNil(r.t, block)

	certificate, err := x509.ParseCertificate(block.Bytes)
	require.NoError(r.t, err)

	return certificate.NotAfter
}

// reader returns the roles of the client that status queries use, and the authority that it trusts.
func (r *rotationStack) reader() (roles []string, trusted string) {
	state, err := r.readState(r.t.Context())
	require.NoError(r.t, err)

	text, err := state.talosconfig(r.Plan.Clusters[0], talos.Authority.Reader)
	require.NoError(r.t, err)

	return clientRoles(r.t, text), trustedAuthority(r.t, talos.TalosAuthority, text)
}

// clientRoles returns the roles of a talosconfig's client.
func clientRoles(t *testing.T, talosconfig string) []string {
	t.Helper()

	var file struct {
		Contexts map[string]struct {
			Crt string `yaml:"crt"`
		} `yaml:"contexts"`
	}

	require.NoError(t, yaml.Unmarshal([]byte(talosconfig), &file))

	encoded, err := base64.StdEncoding.DecodeString(file.Contexts["lab"].Crt)
	require.NoError(t, err)

	block, _ := pem.Decode(encoded)
	require.NotNil(t, block)

	certificate, err := x509.ParseCertificate(block.Bytes)
	require.NoError(t, err)

	return certificate.Subject.Organization
}

// requests returns the requests to talosops.
func (r *rotationStack) requests() (list []request.Rotate) {
	files, err := filepath.Glob(filepath.Join(r.folder, "request.*"))
	require.NoError(r.t, err)

	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(r.t, err)

		var sent request.Rotate
		require.NoError(r.t, json.Unmarshal(text, &sent))

		list = append(list, sent)
	}

	return list
}

func TestRotateAuthority(t *testing.T) {
	t.Parallel()

	for kind, other := range map[talos.AuthorityKind]talos.AuthorityKind{
		talos.TalosAuthority: talos.KubernetesAuthority, talos.KubernetesAuthority: talos.TalosAuthority,
	} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			newRotationStack(t).testRotation(kind, other)
		})
	}
}

// TestAutoscaledMachinesPreventARotation: the stack does not know the machines that an autoscaler added.
func TestAutoscaledMachinesPreventARotation(t *testing.T) {
	t.Parallel()

	r := newRotationStack(t)

	state, err := r.readState(t.Context())
	require.NoError(t, err)

	tag := ownership.AutoscaledTag(state.id, "lab", "burst")
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprintf(w, `{"data": [{"type": "qemu", "vmid": 20000, "name": "burst-x7k2p", "node": "pve1", "tags": "a;%s"}]}`, tag)
	}))
	t.Cleanup(server.Close)

	plan := *r.Plan
	plan.Clusters = slices.Clone(plan.Clusters)
	plan.Clusters[0].Autoscaled = []spec.AutoscaledPool{{Name: "burst"}}
	r.Plan = &plan
	r.proxmoxSetting = func(key string) string {
		return map[string]string{"endpoint": server.URL, "apiToken": "a@pve!b=c", "insecure": "true"}[key]
	}

	before := r.state
	err = r.RotateAuthority(t.Context(), "lab", talos.TalosAuthority, time.Now())
	require.ErrorContains(t, err, "cluster lab has machines that an autoscaler added and that the stack does not know: burst-x7k2p")
	assert.Equal(t, before, r.state)
	assert.Empty(t, r.requests())
}

// testRotation replaces an authority: a check fails, then the rotation is interrupted and resumed.
func (r *rotationStack) testRotation(kind, other talos.AuthorityKind) {
	t := r.t
	before := r.state
	old, none, _ := r.authorities(kind)
	assert.Empty(t, none)

	roles, readers := r.reader()
	assert.Equal(t, []string{"os:reader"}, roles)

	r.setExitStatus("1") // a machine does not answer
	require.ErrorContains(t, r.RotateAuthority(t.Context(), "lab", kind, time.Now()), "talosops rotate did not succeed")
	assert.Equal(t, before, r.state, "nothing has changed")
	require.Len(t, r.requests(), 1)
	assert.Empty(t, r.requests()[0].Next, "it only checks")
	assert.Equal(t, kind == talos.KubernetesAuthority, r.requests()[0].Kubeconfig != "")
	assert.Len(t, r.requests()[0].ControlPlanes, 3)
	assert.NotEmpty(t, r.requests()[0].Workers)

	r.setExitStatus("0")
	imports := r.Pulumi
	r.Pulumi = func(ctx context.Context, in io.Reader, args ...string) ([]byte, error) {
		if args[1] == "import" {
			r.setExitStatus("1") // the work that follows is interrupted
		}

		return imports(ctx, in, args...)
	}

	err := r.RotateAuthority(t.Context(), "lab", kind, time.Now())
	require.ErrorContains(t, err, "the rotation of cluster lab has begun: run the same again; pulumi up refuses until it is done")

	issuing, replaced, trusted := r.authorities(kind)
	assert.NotEqual(t, old, issuing)
	assert.Equal(t, old, replaced)
	assert.Equal(t, old, trusted, "machines let this client in until the end")
	assert.Greater(t, time.Until(r.clientExpiry()), 300*24*time.Hour, "an up in between does not renew it")
	assert.Contains(t, r.state, `"ciphertext":"sealed"`, "other secrets stay as they are")
	assert.NotContains(t, r.state, "of another")
	require.EqualError(t, r.RotateAuthority(t.Context(), "lab", other, time.Now()),
		"the authority of "+string(kind)+" is being replaced: finish that first, with --authority "+string(kind))

	if kind == talos.TalosAuthority {
		roles, trusted = r.reader()
		assert.Equal(t, []string{"os:admin"}, roles, "a machine may not know the new authority")
		assert.Equal(t, issuing+"\n"+readers, trusted, "machines of both")
	}

	sent := r.requests()[2]
	assert.Equal(t, issuing, trustedAuthority(t, kind, sent.Next))

	r.Pulumi = imports
	r.setExitStatus("0")
	require.NoError(t, r.RotateAuthority(t.Context(), "lab", kind, time.Now()))
	require.Len(t, r.requests(), 4, "a rotation is resumed without another check")
	assert.Equal(t, sent.Key, r.requests()[3].Key, "with the same authority")

	resumed, none, trusted := r.authorities(kind)
	assert.Equal(t, issuing, resumed)
	assert.Empty(t, none)
	assert.Equal(t, issuing, trusted)

	roles, readers = r.reader()
	assert.Equal(t, []string{"os:reader"}, roles)
	assert.Equal(t, kind == talos.TalosAuthority, readers == issuing)
}

// trustedAuthority returns the authority that a talosconfig or kubeconfig trusts.
func trustedAuthority(t *testing.T, kind talos.AuthorityKind, next string) string {
	t.Helper()

	trusted := func() ([]byte, error) { return talos.TalosconfigAuthority(next) }
	if kind == talos.KubernetesAuthority {
		trusted = talos.Kubeconfig(next).Authorities
	}

	ca, err := trusted()
	require.NoError(t, err)

	return string(ca)
}

func TestRotateAuthorityNeedsTheNodesOfTheState(t *testing.T) {
	t.Parallel()

	r := newRotationStack(t)
	r.Plan.Clusters[0].Workers = nil
	before := r.state

	err := r.RotateAuthority(t.Context(), "lab", talos.TalosAuthority, time.Now())
	require.ErrorContains(t, err, "and the stack file has lab-cp-1, lab-cp-2, lab-cp-3: bring the stack up first, then repeat")
	assert.Equal(t, before, r.state)
	assert.Empty(t, r.requests())

	r.Pulumi = func(context.Context, io.Reader, ...string) ([]byte, error) {
		return []byte(`{"version": 3, "deployment": {"resources": []}}`), nil
	}
	require.EqualError(t, r.RotateAuthority(t.Context(), "lab", talos.TalosAuthority, time.Now()),
		"stack lab has no machine secrets of cluster lab: bring it up once, then repeat")

	r.Pulumi = func(context.Context, io.Reader, ...string) ([]byte, error) { return nil, errors.New("locked") }
	require.ErrorContains(t, r.RotateAuthority(t.Context(), "lab", talos.TalosAuthority, time.Now()), "locked")
}
