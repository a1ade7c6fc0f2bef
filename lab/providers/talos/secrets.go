package talos

import (
	"context"
	"encoding/base64"
	"fmt"
	"time"

	"github.com/pulumi/pulumi-go-provider/infer"
	"github.com/siderolabs/crypto/x509"
	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	"github.com/siderolabs/talos/pkg/machinery/role"
)

// secretsResource is machine/secrets:Secrets.
type secretsResource struct {
	now               func() time.Time
	serviceAccountKey []byte
}

type secretsArgs struct {
	TalosVersion *string `pulumi:"talosVersion,optional"`
}

type secretsState struct {
	TalosVersion        string              `pulumi:"talosVersion"`
	MachineSecrets      machineSecrets      `pulumi:"machineSecrets"`
	ClientConfiguration clientConfiguration `pulumi:"clientConfiguration"`
}

// Annotate gives the resource its published token.
func (r *secretsResource) Annotate(a infer.Annotator) { a.SetToken("machine/secrets", "Secrets") }

// WireDependencies keeps existing secrets known in previews: they never change with the inputs.
func (*secretsResource) WireDependencies(f infer.FieldSelector, _ *secretsArgs, state *secretsState) {
	f.OutputField(&state.MachineSecrets).AlwaysSecret()
	f.OutputField(&state.ClientConfiguration).AlwaysSecret()

	if state.MachineSecrets.Cluster.ID != "" {
		f.OutputField(&state.MachineSecrets).AlwaysKnown()
		f.OutputField(&state.ClientConfiguration).AlwaysKnown()
	}

	if state.TalosVersion != "" {
		f.OutputField(&state.TalosVersion).AlwaysKnown()
	}
}

// defaultContract is the newest version contract of the published provider's machinery.
const defaultContract = "v1.12"

// Create generates secrets offline.
func (r *secretsResource) Create(
	_ context.Context, request infer.CreateRequest[secretsArgs],
) (infer.CreateResponse[secretsState], error) {
	state := secretsState{TalosVersion: orDefault(request.Inputs.TalosVersion, defaultContract)}
	response := infer.CreateResponse[secretsState]{ID: "machine_secrets", Output: state}

	if request.DryRun {
		return response, nil
	}

	contract, err := config.ParseContractFromVersion(state.TalosVersion)
	if err != nil {
		return response, fmt.Errorf("failed to validate talos version: %w", err)
	}

	bundle, err := r.generate(contract)
	if err != nil {
		return response, fmt.Errorf("failed to generate secrets bundle: %w", err)
	}

	state.MachineSecrets = fromBundle(bundle)

	if state.ClientConfiguration, err = newClientConfiguration(bundle); err != nil {
		return response, err
	}

	response.Output = state

	return response, nil
}

// generate generates a new cluster's secrets. Contracts before RSA keys for service accounts differ in nothing else.
func (r *secretsResource) generate(contract *config.VersionContract) (*secrets.Bundle, error) {
	clock := secrets.NewFixedClock(r.now())
	if len(r.serviceAccountKey) == 0 || !contract.UseRSAServiceAccountKey() {
		return secrets.NewBundle(clock, contract)
	}

	bundle, err := secrets.NewBundle(clock, config.TalosVersion1_6)
	if err == nil {
		bundle.Certs.K8sServiceAccount = &x509.PEMEncodedKey{Key: r.serviceAccountKey}
	}

	return bundle, err
}

// Update keeps the secrets, and renews a client certificate that expires within a month.
func (r *secretsResource) Update(
	_ context.Context, request infer.UpdateRequest[secretsArgs, secretsState],
) (infer.UpdateResponse[secretsState], error) {
	state := request.State
	state.TalosVersion = orDefault(request.Inputs.TalosVersion, defaultContract)
	response := infer.UpdateResponse[secretsState]{Output: state}

	due, err := expiresBefore(state.ClientConfiguration.ClientCertificate, r.now().AddDate(0, secretsRenewalMonths, 0))
	if err != nil || !due || request.DryRun {
		return response, err
	}

	bundle, err := state.MachineSecrets.bundle(r.now())
	if err != nil {
		return response, err
	}

	response.Output.ClientConfiguration, err = newClientConfiguration(bundle)

	return response, err
}

// newClientConfiguration signs a client certificate with the cluster's OS certificate authority.
func newClientConfiguration(bundle *secrets.Bundle) (clientConfiguration, error) {
	pair, err := bundle.GenerateTalosAPIClientCertificate(role.MakeSet(role.Admin))
	if err != nil {
		return clientConfiguration{}, fmt.Errorf("sign client certificate: %w", err)
	}

	return clientConfiguration{
		CACertificate: encode(bundle.Certs.OS.Crt), ClientCertificate: encode(pair.Crt), ClientKey: encode(pair.Key),
	}, nil
}

func encode(b []byte) string { return base64.StdEncoding.EncodeToString(b) }
