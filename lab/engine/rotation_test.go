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

	"talos-proxmox/internal/operations"
	"talos-proxmox/internal/permissions"
	"talos-proxmox/internal/recovery"
	"talos-proxmox/lab/datacentre"
	"talos-proxmox/lab/engine"
)

// TestTheTokenIsRotated follows docs/secrets.md: a second token with the ACLs of the first, config set, up, removal of
// the first. No machine changes, and later runs do not need the first token.
func TestTheTokenIsRotated(t *testing.T) {
	t.Parallel()

	w, s := upOne(t, 1, 1)

	// The token expires soon, which status reports.
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

	report, status := w.clusterStatus()
	assert.Equal(t, operations.StatusAttention, status)
	assert.Contains(t, report.Care.Error(), "proxmoxve:apiToken: "+permissions.Token+" expires on "+
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
	assert.Empty(t, vms(slices.Concat(done.withOp("create"), done.withOp("update"), done.withOp("delete-replaced"))))

	w.lab.Data.Delete(datacentre.Tokens, permissions.Token)

	w.up(s.yaml(t), optup.Refresh(), optup.ExpectNoChanges())
	s.Clusters[0].Workers = 2
	w.up(s.yaml(t))
	w.requireRunning(3)

	report, status = w.clusterStatus()
	assert.Zero(t, status, "%v", report.Care.Lines())
}

// TestClientCertificatesAreRenewed puts client certificates that expire in three weeks into a stack's state: status
// warns, and an up renews them in place without touching a machine.
func TestClientCertificatesAreRenewed(t *testing.T) {
	t.Parallel()

	w, s := upOne(t, 1, 1)
	w.ageCertificates(s.yaml(t), 21*24*time.Hour)

	report, status := w.clusterStatus()
	assert.Equal(t, operations.StatusAttention, status)
	require.Len(t, report.Care, 2, "%v", report.Care.Lines())

	for i, of := range []string{"kubeconfig", "talosconfig"} {
		assert.Equal(t, of, report.Care[i].Path)
		assert.Contains(t, report.Care[i].Message, "its certificate ends in 20 days (")
		assert.Contains(t, report.Care[i].Message, "): pulumi up renews it")
	}

	_, err := w.preview(s.yaml(t), optpreview.ExpectNoChanges())
	require.Error(t, err, "a preview shows it")

	done := w.up(s.yaml(t))
	assert.Contains(t, done.withOp("update"), "Secrets one-secrets")
	assert.Contains(t, done.withOp("update"), "Kubeconfig one-kubeconfig")
	assert.Empty(t, vms(slices.Concat(done.withOp("create"), done.withOp("update"), done.withOp("delete-replaced"))))

	report, status = w.clusterStatus()
	assert.Zero(t, status, "%v", report.Care.Lines())

	for _, c := range report.Certificates {
		assert.Greater(t, time.Until(c.Ends), 300*24*time.Hour, c.Of)
	}

	w.up(s.yaml(t), optup.ExpectNoChanges())

	// Expired certificates open neither API. status has a Talos client of its own, and reports them; an up still renews
	// them.
	w.ageCertificates(s.yaml(t), -time.Hour)

	report, status = w.clusterStatus()
	assert.Equal(t, operations.StatusAttention, status)
	assert.Contains(t, report.Care.Error(), "kubeconfig: its certificate has ended (")
	assert.Contains(t, report.Care.Error(), "talosconfig: its certificate has ended (")

	w.up(s.yaml(t))

	report, status = w.clusterStatus()
	assert.Zero(t, status, "%v", report.Care.Lines())
}

// TestClientCertificatesAreRenewedWithoutADeadControlPlane: the first control plane is off while the client
// certificates are due. A run renews both through the others, and names the machine that did not answer, which is
// configured once it is back or recreated.
func TestClientCertificatesAreRenewedWithoutADeadControlPlane(t *testing.T) {
	t.Parallel()

	w := newWorld(t, testSpeed)
	w.setGateTimeout("60s")

	s := w.stack(3, 1)
	w.up(s.yaml(t))

	const missing = "control plane one-cp-1 does not answer as a member of its cluster: "

	var done steps

	renews := func(left time.Duration) {
		w.ageCertificates(s.yaml(t), left)
		w.stopVM(2000)

		output := w.outputOf(func() { _, _ = w.preview(s.yaml(t)) })
		assert.Contains(t, output, missing)

		output = w.outputOf(func() { done = w.up(s.yaml(t)) })
		assert.Contains(t, output, missing)
		assert.Contains(t, output, "one-cp-1 (VM 2000 on "+w.hostOf(2000)+") on "+w.network+".1.10:50000 did not answer")
		assert.Subset(t, done.withOp("update"), []string{
			"Command one-cp-2-configuration", "Kubeconfig one-kubeconfig", "Secrets one-secrets",
		})
		assert.NotContains(t, done, "Command one-cp-1-configuration")
		assert.NotContains(t, done, "Command one-healthy", "it would wait for the machine")

		report, _ := w.clusterStatus()
		for _, c := range report.Certificates {
			if c.Of == "kubeconfig" || c.Of == "talosconfig" {
				assert.Greater(t, time.Until(c.Ends), 300*24*time.Hour, c.Of)
			}
		}

		w.up(s.yaml(t), optup.ExpectNoChanges())
	}

	renews(21 * 24 * time.Hour)

	boots := w.bootTimes()
	w.startVM(2000)

	done = w.up(s.yaml(t))
	assert.Subset(t, done.withOp("update"), []string{
		"Command one-cp-1-configuration", "Command one-healthy", "Command one-kubernetes", "Command one-talos",
	})
	assert.Equal(t, boots["one-general-1"], w.bootTimes()["one-general-1"], "nothing restarts")
	w.up(s.yaml(t), optup.ExpectNoChanges())

	_, status := w.clusterStatus()
	assert.Zero(t, status)

	// With expired certificates and a machine that is dead for good, the machine is recreated.
	renews(-time.Hour)

	done = w.up(s.yaml(t), optup.Replace([]string{w.urnOf(s.yaml(t), "one-cp-1-vm")}))
	assert.Contains(t, done, "Command one-healthy", "the gate checks the new machine")
	w.requireMembers(3)
	w.up(s.yaml(t))
	w.up(s.yaml(t), optup.Refresh(), optup.ExpectNoChanges())

	_, status = w.clusterStatus()
	assert.Zero(t, status)
}

// ageCertificates replaces the state's client certificates, wherever it has them, by others that expire after this
// time.
func (w *world) ageCertificates(stack string, validity time.Duration) {
	w.t.Helper()

	deployment := w.deployment(stack)
	content, err := json.Marshal(deployment)
	require.NoError(w.t, err)

	text := string(content)
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
		old := client.of.(map[string]any)
		pair := w.issueCertificate(client.authority.(map[string]any), client.organization.(string), validity)

		for field, content := range map[string][]byte{"clientCertificate": pair.Crt, "clientKey": pair.Key} {
			encoded := old[field].(string)
			require.Contains(w.t, text, encoded)
			text = strings.ReplaceAll(text, encoded, base64.StdEncoding.EncodeToString(content))
		}
	}

	var aged apitype.DeploymentV3
	require.NoError(w.t, json.Unmarshal([]byte(text), &aged))
	w.setDeployment(stack, aged)
}

// issueCertificate issues a client certificate from an authority in the state, which has it in base64.
func (w *world) issueCertificate(
	authority map[string]any, organization string, validity time.Duration,
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
		x509.NotBefore(time.Now().Add(validity-365*24*time.Hour)), x509.NotAfter(time.Now().Add(validity)),
		x509.KeyUsage(stdx509.KeyUsageDigitalSignature),
		x509.ExtKeyUsage([]stdx509.ExtKeyUsage{stdx509.ExtKeyUsageClientAuth}),
	)
	require.NoError(w.t, err)

	return x509.NewCertificateAndKeyFromKeyPair(pair)
}
