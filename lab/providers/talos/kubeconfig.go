package talos

import (
	"context"
	"fmt"
	"time"

	"github.com/pulumi/pulumi-go-provider/infer"
	"github.com/siderolabs/talos/pkg/machinery/client"
	"k8s.io/client-go/tools/clientcmd"
)

// kubeconfigResource is cluster/kubeconfig:Kubeconfig.
type kubeconfigResource struct{ now func() time.Time }

type kubeconfigArgs struct {
	CertificateRenewalDuration *string             `pulumi:"certificateRenewalDuration,optional"`
	ClientConfiguration        clientConfiguration `pulumi:"clientConfiguration"`
	Endpoint                   *string             `pulumi:"endpoint,optional"`
	Node                       string              `pulumi:"node"`
}

type kubeconfigState struct {
	CertificateRenewalDuration    string              `pulumi:"certificateRenewalDuration"`
	ClientConfiguration           clientConfiguration `pulumi:"clientConfiguration"`
	Endpoint                      string              `pulumi:"endpoint"`
	KubeconfigRaw                 string              `pulumi:"kubeconfigRaw"`
	KubernetesClientConfiguration kubernetesClient    `pulumi:"kubernetesClientConfiguration"`
	Node                          string              `pulumi:"node"`
}

// kubernetesClient has the parts of a kubeconfig: the host, and the rest as base64 of PEM.
type kubernetesClient struct {
	CACertificate     string `pulumi:"caCertificate"`
	ClientCertificate string `pulumi:"clientCertificate"`
	ClientKey         string `pulumi:"clientKey"`
	Host              string `pulumi:"host"`
}

// Annotate gives the resource its published token.
func (r *kubeconfigResource) Annotate(a infer.Annotator) {
	a.SetToken("cluster/kubeconfig", "Kubeconfig")
}

// WireDependencies marks secret outputs, and keeps outputs known that an update does not change.
func (*kubeconfigResource) WireDependencies(f infer.FieldSelector, _ *kubeconfigArgs, state *kubeconfigState) {
	f.OutputField(&state.KubeconfigRaw).AlwaysSecret()
	f.OutputField(&state.KubernetesClientConfiguration).AlwaysSecret()
	f.OutputField(&state.CertificateRenewalDuration).AlwaysKnown()

	if state.KubeconfigRaw != "" {
		f.OutputField(&state.KubeconfigRaw).AlwaysKnown()
		f.OutputField(&state.KubernetesClientConfiguration).AlwaysKnown()
	}

	if state.Endpoint != "" {
		f.OutputField(&state.Endpoint).AlwaysKnown()
	}
}

func (args kubeconfigArgs) state() kubeconfigState {
	return kubeconfigState{
		CertificateRenewalDuration: orDefault(args.CertificateRenewalDuration, defaultRenewal),
		ClientConfiguration:        args.ClientConfiguration,
		Endpoint:                   orDefault(args.Endpoint, args.Node),
		Node:                       args.Node,
	}
}

// Create fetches the kubeconfig as soon as the control plane has one.
func (r *kubeconfigResource) Create(
	ctx context.Context, request infer.CreateRequest[kubeconfigArgs],
) (infer.CreateResponse[kubeconfigState], error) {
	response := infer.CreateResponse[kubeconfigState]{Output: request.Inputs.state()}
	if request.DryRun {
		return response, nil
	}

	id, err := response.Output.fetch(ctx)
	response.ID = id

	return response, err
}

// Update keeps the kubeconfig unless its certificate expires within the renewal duration.
func (r *kubeconfigResource) Update(
	ctx context.Context, request infer.UpdateRequest[kubeconfigArgs, kubeconfigState],
) (infer.UpdateResponse[kubeconfigState], error) {
	state := request.Inputs.state()
	state.KubeconfigRaw = request.State.KubeconfigRaw
	state.KubernetesClientConfiguration = request.State.KubernetesClientConfiguration

	before, err := renewalDuration(state.CertificateRenewalDuration)
	if err != nil {
		return infer.UpdateResponse[kubeconfigState]{Output: state}, err
	}

	due, err := expiresBefore(state.KubernetesClientConfiguration.ClientCertificate, r.now().Add(before))
	if err == nil && due && !request.DryRun {
		_, err = state.fetch(ctx)
	}

	return infer.UpdateResponse[kubeconfigState]{Output: state}, err
}

// fetch downloads a new kubeconfig and returns the name of its cluster.
func (s *kubeconfigState) fetch(ctx context.Context) (string, error) {
	machineTarget := target{node: s.Node, endpoint: s.Endpoint, client: s.ClientConfiguration}

	err := machineTarget.retry(ctx, defaultTimeout, "fetching the kubeconfig", func(
		ctx context.Context, c *client.Client,
	) error {
		raw, err := c.Kubeconfig(ctx)
		s.KubeconfigRaw = string(raw)

		return err
	})
	if err != nil {
		return "", err
	}

	cluster, parsed, err := parseKubeconfig(s.KubeconfigRaw)
	s.KubernetesClientConfiguration = parsed

	return cluster, err
}

// parseKubeconfig returns the name of the current context's cluster, and its client configuration.
func parseKubeconfig(raw string) (string, kubernetesClient, error) {
	file, err := clientcmd.Load([]byte(raw))
	if err != nil {
		return "", kubernetesClient{}, fmt.Errorf("failed to parse kubeconfig: %w", err)
	}

	current := file.Contexts[file.CurrentContext]
	if current == nil || file.Clusters[current.Cluster] == nil || file.AuthInfos[current.AuthInfo] == nil {
		return "", kubernetesClient{}, fmt.Errorf(
			"failed to parse kubeconfig: its current context %q names no cluster and user", file.CurrentContext,
		)
	}

	cluster, user := file.Clusters[current.Cluster], file.AuthInfos[current.AuthInfo]

	return current.Cluster, kubernetesClient{
		CACertificate:     encode(cluster.CertificateAuthorityData),
		ClientCertificate: encode(user.ClientCertificateData),
		ClientKey:         encode(user.ClientKeyData),
		Host:              cluster.Server,
	}, nil
}
