package machine_test

import (
	stdx509 "crypto/x509"
	"testing"
	"time"

	"github.com/siderolabs/crypto/x509"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	machinetype "github.com/siderolabs/talos/pkg/machinery/config/machine"
	"github.com/stretchr/testify/require"
)

// kubernetesPair returns a client certificate of the cluster's authority, and its key.
func (l *lab) kubernetesPair(name string, groups ...string) (crt, key []byte) {
	l.Helper()

	ca, err := x509.NewCertificateAuthorityFromCertificateAndKey(l.secrets.Certs.K8s)
	require.NoError(l.T, err)

	pair, err := x509.NewKeyPair(ca, x509.CommonName(name), x509.Organization(groups...),
		x509.NotBefore(time.Now().Add(-time.Minute)), x509.NotAfter(time.Now().Add(time.Hour)),
		x509.KeyUsage(stdx509.KeyUsageDigitalSignature),
		x509.ExtKeyUsage([]stdx509.ExtKeyUsage{stdx509.ExtKeyUsageClientAuth}))
	require.NoError(l.T, err)

	encoded := x509.NewCertificateAndKeyFromKeyPair(pair)

	return encoded.Crt, encoded.Key
}

// applyRunning applies a configuration to a running machine.
func (l *lab) applyRunning(n int, role machinetype.Type, patches ...string) {
	l.Helper()

	_, err := l.client(n).ApplyConfiguration(l.context(), &machineapi.ApplyConfigurationRequest{
		Data: l.configuration(role, patches...), Mode: machineapi.ApplyConfigurationRequest_NO_REBOOT,
	})
	require.NoError(l.T, err)
}

const registered = "machine:\n  kubelet:\n    extraConfig:\n      registerWithTaints: [{key: dedicated, value: db, effect: NoSchedule}]\n"

func TestInvalidKubeletConfigurationRegistersNoNode(t *testing.T) {
	t.Parallel()

	l := newLab(t)
	l.patches = []string{noCNI}
	l.startBootstrapped()
	l.start(21, machinetype.TypeWorker,
		"machine:\n  kubelet:\n    extraConfig:\n      registerWithTaints: [{name: dedicated, effect: NoSchedule}]\n")
	l.waitForConsole(21, `unknown field "registerWithTaints[0].name"`)

	l.applyRunning(21, machinetype.TypeWorker, registered)
	l.until("the kubelet registers its node", func() bool {
		_, found := l.admin().getNode(21)

		return found
	})
}
