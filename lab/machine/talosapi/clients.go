package talosapi

import (
	"context"
	"strings"
	"time"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	clientconfig "github.com/siderolabs/talos/pkg/machinery/client/config"
	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	"github.com/siderolabs/talos/pkg/machinery/role"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"talos-proxmox/lab/machine/configuration"
)

// Clients makes configurations for them.
type Clients struct {
	// Config is the machine's configuration; it fails when the machine is going down.
	Config func() (config.Provider, error)
}

// GenerateClientConfiguration implements the machine service: a talosconfig with a new certificate for the roles asked
// for.
func (c Clients) GenerateClientConfiguration(
	_ context.Context, in *machineapi.GenerateClientConfigurationRequest,
) (*machineapi.GenerateClientConfigurationResponse, error) {
	cfg, err := c.Config()
	if err != nil {
		return nil, err
	}

	if !cfg.Machine().Type().IsControlPlane() {
		return nil, status.Error(
			codes.FailedPrecondition, "client configuration (talosconfig) can't be generated on worker nodes",
		)
	}

	ttl := in.GetCrtTtl().AsDuration()
	if ttl <= 0 {
		return nil, status.Error(codes.InvalidArgument, "crt_ttl should be positive")
	}

	roles, _ := role.Parse(in.GetRoles())

	bundle, err := secrets.NewBundleFromConfig(secrets.NewFixedClock(time.Now()), cfg)
	if err != nil {
		return nil, err
	}

	certificate, err := bundle.GenerateTalosAPIClientCertificateWithTTL(roles, ttl)
	if err != nil {
		return nil, err
	}

	name := configuration.ClusterName(cfg)
	if only := roles.Strings(); len(only) == 1 {
		name = strings.TrimPrefix(only[0], role.Prefix) + "@" + name
	}

	talosconfig, err := clientconfig.NewConfig(name, nil, bundle.Certs.OS.Crt, certificate).Bytes()
	if err != nil {
		return nil, err
	}

	reply := &machineapi.GenerateClientConfiguration{
		Ca: bundle.Certs.OS.Crt, Crt: certificate.Crt, Key: certificate.Key, Talosconfig: talosconfig,
	}

	return &machineapi.GenerateClientConfigurationResponse{Messages: []*machineapi.GenerateClientConfiguration{reply}}, nil
}
