package recording

import (
	"cmp"
	"crypto/tls"
	"regexp"
	"strings"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/configpatcher"
	"github.com/siderolabs/talos/pkg/machinery/config/generate"
	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	machinetype "github.com/siderolabs/talos/pkg/machinery/config/machine"
	"github.com/siderolabs/talos/pkg/machinery/role"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"talos-proxmox/internal/talos"
)

// Machine is a machine in maintenance mode, with Talos' disk image on /dev/sda, the host name node-11, and 192.0.2.15
// or another address on eth0.
type Machine struct {
	// API is HOST:PORT of its API, Address its own address.
	API, Address string

	version  string
	release  talos.Release
	contract *config.VersionContract
	secrets  *secrets.Bundle
}

// New generates the secrets of a machine's cluster; version is the machine's Talos.
func New(api, address, version string) (*Machine, error) {
	release, err := talos.ReleaseOf(version)
	if err != nil {
		return nil, err
	}

	contract, err := config.ParseContractFromVersion(version)
	if err != nil {
		return nil, err
	}

	bundle, err := secrets.NewBundle(secrets.NewFixedClock(time.Now()), contract)
	if err != nil {
		return nil, err
	}

	return &Machine{
		API: api, Address: address, version: version, release: release, contract: contract, secrets: bundle,
	}, nil
}

// configuration returns the configuration to apply: that of a role with a patch, or else the text itself.
func (m *Machine) configuration(which, patch string) ([]byte, error) {
	kind, err := machinetype.ParseType(which)
	if err != nil {
		return []byte(which), nil
	}

	input, err := generate.NewInput("recording", "https://"+m.Address+":6443",
		strings.TrimPrefix(m.release.DefaultKubernetes, "v"),
		generate.WithSecretsBundle(m.secrets), generate.WithVersionContract(m.contract),
		generate.WithInstallDisk("/dev/sda"))
	if err != nil {
		return nil, err
	}

	cfg, err := input.Config(kind)
	if err != nil {
		return nil, err
	}

	// An emulated machine has no time servers to wait for.
	patches, err := configpatcher.LoadPatches([]string{"machine: {time: {disabled: true}}", cmp.Or(patch, "machine: {}")})
	if err != nil {
		return nil, err
	}

	out, err := configpatcher.Apply(configpatcher.WithConfig(cfg), patches)
	if err != nil {
		return nil, err
	}

	return out.Bytes()
}

// dial connects with a role, or as a stranger without a certificate.
func (m *Machine) dial(as string) (*grpc.ClientConn, error) {
	//nolint:gosec // the certificate of maintenance mode is self-signed
	conf := &tls.Config{InsecureSkipVerify: true}

	if as != "stranger" {
		set, _ := role.Parse([]string{as})

		pair, err := m.secrets.GenerateTalosAPIClientCertificate(set)
		if err != nil {
			return nil, err
		}

		certificate, err := tls.X509KeyPair(pair.Crt, pair.Key)
		if err != nil {
			return nil, err
		}

		conf.Certificates = []tls.Certificate{certificate}
	}

	return grpc.NewClient(m.API, grpc.WithTransportCredentials(credentials.NewTLS(conf)))
}

var (
	instants = regexp.MustCompile(`\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?( [+-]\d{4} UTC|Z)`)
	uuids    = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)
)

// normalize replaces what differs between machines.
func (m *Machine) normalize(text string) string {
	text = strings.NewReplacer(m.API, "{api}", m.Address, "{address}").Replace(text)

	return uuids.ReplaceAllString(instants.ReplaceAllString(text, "{time}"), "{uuid}")
}
