package engine_test

import (
	"encoding/base64"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/pulumi/pulumi/sdk/v3/go/auto/optpreview"
	"github.com/pulumi/pulumi/sdk/v3/go/auto/optup"
	"github.com/pulumi/pulumi/sdk/v3/go/common/apitype"
	"github.com/siderolabs/crypto/x509"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	stdx509 "crypto/x509"

	"talos-proxmox/internal/permissions"
	"talos-proxmox/internal/recovery"
	"talos-proxmox/lab/datacentre"
	"talos-proxmox/lab/engine"
	"talos-proxmox/stacks"
)

// TestTheTokenIsRotated as docs/secrets.md says: a second token with the rules of the first, config set, up, the first
// one removed. No machine is touched, and what comes after does not miss it.
func TestTheTokenIsRotated(t *testing.T) {
	t.Parallel()

	w, s := upOne(t, 1, 1)

	// The token ends soon, which the status says.
	w.lab.Data.Put(datacentre.Groups, permissions.OwnGroup, datacentre.Config{"users": permissions.User})

	for kind, id := range map[string]string{"user": permissions.User, "token": permissions.Token} {
		require.NoError(t, w.lab.Data.SetACL(datacentre.ACL{
			Path: "/access/groups/" + permissions.OwnGroup, Kind: kind, ID: id, Role: "PVEAuditor",
		}))
	}

	first := w.lab.Data.Records(datacentre.Tokens)[permissions.Token]
	expires := time.Now().AddDate(0, 0, 20)
	first["expire"] = strconv.FormatInt(expires.Unix(), 10)
	w.lab.Data.Put(datacentre.Tokens, permissions.Token, first)

	standing, status := w.status()
	assert.Equal(t, stacks.StatusCare, status)
	assert.Contains(t, standing.Care.Error(), "proxmoxve:apiToken: "+permissions.Token+" expires on "+
		expires.UTC().Format(time.DateOnly)+", and Proxmox refuses it from then on")

	second := permissions.User + "!second"
	secret := "5f0a7d83-1c6d-4f0e-9a43-60f1f6c2a7b1"
	w.lab.Data.Put(datacentre.Tokens, second, datacentre.Config{"value": secret})

	rules := 0

	for _, rule := range w.lab.Data.ACLs() {
		if rule.Kind == "token" && rule.ID == permissions.Token {
			rule.ID = second
			require.NoError(t, w.lab.Data.SetACL(rule))

			rules++
		}
	}

	require.Positive(t, rules)

	w.configure = func(c *engine.Config) { c.Secrets["proxmoxve:apiToken"] = second + "=" + secret }
	done := w.up(s.yaml(t))
	assert.Empty(t, vms(slices.Concat(done.named("create"), done.named("update"), done.named("delete-replaced"))))

	w.lab.Data.Delete(datacentre.Tokens, permissions.Token)

	w.up(s.yaml(t), optup.Refresh(), optup.ExpectNoChanges())
	s.Clusters[0].Workers = 2
	w.up(s.yaml(t))
	w.requireRunning(3)

	standing, status = w.status()
	assert.Zero(t, status, "%v", standing.Care.Lines())
}

// TestClientCertificatesAreRenewed gives a stack's state certificates that end in three weeks, as time does: status
// warns of them, an up renews them in place, and touches no machine.
func TestClientCertificatesAreRenewed(t *testing.T) {
	t.Parallel()

	w, s := upOne(t, 1, 1)
	w.age(s.yaml(t), 21*24*time.Hour)

	standing, status := w.status()
	assert.Equal(t, stacks.StatusCare, status)
	require.Len(t, standing.Care, 2, "%v", standing.Care.Lines())

	for i, of := range []string{"kubeconfig", "talosconfig"} {
		assert.Equal(t, of, standing.Care[i].Path)
		assert.Contains(t, standing.Care[i].Message, "its certificate ends in 20 days (")
		assert.Contains(t, standing.Care[i].Message, "): pulumi up renews it")
	}

	_, err := w.preview(s.yaml(t), optpreview.ExpectNoChanges())
	require.Error(t, err, "a preview shows it")

	done := w.up(s.yaml(t))
	assert.Contains(t, done.named("update"), "Secrets one-secrets")
	assert.Contains(t, done.named("update"), "Kubeconfig one-kubeconfig")
	assert.Empty(t, vms(slices.Concat(done.named("create"), done.named("update"), done.named("delete-replaced"))))

	standing, status = w.status()
	assert.Zero(t, status, "%v", standing.Care.Lines())

	for _, c := range standing.Certificates {
		assert.Greater(t, time.Until(c.Ends), 300*24*time.Hour, c.Of)
	}

	w.up(s.yaml(t), optup.ExpectNoChanges())

	// Where no one came in time, neither lets anyone in. The status has a client of its own for Talos, and says so; an up
	// still renews them.
	w.age(s.yaml(t), -time.Hour)

	standing, status = w.status()
	assert.Equal(t, stacks.StatusCare, status)
	assert.Contains(t, standing.Care.Error(), "kubeconfig: its certificate has ended (")
	assert.Contains(t, standing.Care.Error(), "talosconfig: its certificate has ended (")

	w.up(s.yaml(t))

	standing, status = w.status()
	assert.Zero(t, status, "%v", standing.Care.Lines())
}

// TestADeadControlPlaneKeepsNoClientFromItsRenewal: the first control plane is off while the clients of its cluster are
// due. A run renews both through the others, and says which machine did not answer; what that one did not get, it gets
// once it is back, or made again.
func TestADeadControlPlaneKeepsNoClientFromItsRenewal(t *testing.T) {
	t.Parallel()

	w := newWorld(t, testSpeed)
	w.gateWithin("60s")

	s := stack{Network: w.network, Clusters: []cluster{one(3, 1)}}
	w.up(s.yaml(t))

	const missing = "control plane one-cp-1 does not answer as a member of its cluster: "

	var done steps

	renews := func(left time.Duration) {
		w.age(s.yaml(t), left)
		w.do(w.lab.Data.Stop(labRoot, w.hostOf(2000), 2000))

		said := w.since(func() { _, _ = w.preview(s.yaml(t)) })
		assert.Contains(t, said, missing)

		said = w.since(func() { done = w.up(s.yaml(t)) })
		assert.Contains(t, said, missing)
		assert.Contains(t, said, "one-cp-1 (VM 2000 on "+w.hostOf(2000)+") on "+w.network+".1.10:50000 did not answer")
		assert.Subset(t, done.named("update"), []string{
			"ConfigurationApply one-cp-2-configuration", "Kubeconfig one-kubeconfig", "Secrets one-secrets",
		})
		assert.NotContains(t, done, "ConfigurationApply one-cp-1-configuration")
		assert.NotContains(t, done, "Command one-healthy", "it would wait for the machine")

		standing, _ := w.status()
		for _, c := range standing.Certificates {
			if c.Of == "kubeconfig" || c.Of == "talosconfig" {
				assert.Greater(t, time.Until(c.Ends), 300*24*time.Hour, c.Of)
			}
		}

		w.up(s.yaml(t), optup.ExpectNoChanges())
	}

	renews(21 * 24 * time.Hour)

	boots := w.boots()
	w.do(w.lab.Data.Start(labRoot, w.hostOf(2000), 2000))

	done = w.up(s.yaml(t))
	assert.Subset(t, done.named("update"), []string{
		"Command one-healthy", "Command one-kubernetes", "Command one-talos", "ConfigurationApply one-cp-1-configuration",
	})
	assert.Equal(t, boots["one-general-1"], w.boots()["one-general-1"], "nothing restarts")
	w.up(s.yaml(t), optup.ExpectNoChanges())

	_, status := w.status()
	assert.Zero(t, status)

	// Where no one came in time, and the machine is dead for good, it is made again.
	renews(-time.Hour)

	done = w.up(s.yaml(t), optup.Replace([]string{w.urn(s.yaml(t), "one-cp-1-vm")}))
	assert.Contains(t, done, "Command one-healthy", "the gate asks for the machine that this run made")
	w.requireMembers(3)
	w.up(s.yaml(t))
	w.up(s.yaml(t), optup.Refresh(), optup.ExpectNoChanges())

	_, status = w.status()
	assert.Zero(t, status)
}

// age puts client certificates that end after this time in the place of those that the state has, wherever it has them.
func (w *world) age(stack string, left time.Duration) {
	w.t.Helper()

	text := w.state(stack)

	var state apitype.UntypedDeployment
	require.NoError(w.t, json.Unmarshal([]byte(text), &state))

	var deployment apitype.DeploymentV3
	require.NoError(w.t, json.Unmarshal(state.Deployment, &deployment))

	outputs := func(kind string) map[string]any {
		i := slices.IndexFunc(deployment.Resources, func(r apitype.ResourceV3) bool { return string(r.Type) == kind })
		require.GreaterOrEqual(w.t, i, 0, kind)

		return recovery.Reveal(deployment.Resources[i].Outputs)
	}
	secrets, kubeconfig := outputs("talos:machine/secrets:Secrets"), outputs("talos:cluster/kubeconfig:Kubeconfig")

	certs := secrets["machineSecrets"].(map[string]any)["certs"].(map[string]any)
	for _, client := range []struct{ of, authority, organization any }{
		{secrets["clientConfiguration"], certs["os"], "os:admin"},
		{kubeconfig["kubernetesClientConfiguration"], certs["k8s"], "system:masters"},
	} {
		was := client.of.(map[string]any)
		pair := w.issue(client.authority.(map[string]any), client.organization.(string), left)

		for field, now := range map[string][]byte{"clientCertificate": pair.Crt, "clientKey": pair.Key} {
			old := was[field].(string)
			require.Contains(w.t, text, old)
			text = strings.ReplaceAll(text, old, base64.StdEncoding.EncodeToString(now))
		}
	}

	require.NoError(w.t, json.Unmarshal([]byte(text), &state))
	w.setState(stack, state)
}

// issue makes a client's certificate of an authority in the state, which has it in base64.
func (w *world) issue(
	authority map[string]any, organization string, left time.Duration,
) *x509.PEMEncodedCertificateAndKey {
	w.t.Helper()

	decoded := map[string][]byte{}

	for field, text := range authority {
		content, err := base64.StdEncoding.DecodeString(text.(string))
		require.NoError(w.t, err)

		decoded[field] = content
	}

	ca, err := x509.NewCertificateAuthorityFromCertificateAndKey(
		&x509.PEMEncodedCertificateAndKey{Crt: decoded["cert"], Key: decoded["key"]},
	)
	require.NoError(w.t, err)

	pair, err := x509.NewKeyPair(
		ca, x509.CommonName("admin"), x509.Organization(organization),
		x509.NotBefore(time.Now().Add(left-365*24*time.Hour)), x509.NotAfter(time.Now().Add(left)),
		x509.KeyUsage(stdx509.KeyUsageDigitalSignature),
		x509.ExtKeyUsage([]stdx509.ExtKeyUsage{stdx509.ExtKeyUsageClientAuth}),
	)
	require.NoError(w.t, err)

	return x509.NewCertificateAndKeyFromKeyPair(pair)
}
