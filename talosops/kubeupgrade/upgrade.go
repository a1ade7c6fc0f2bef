// Package kubeupgrade upgrades the Kubernetes of a Talos cluster with Talos' own library.
package kubeupgrade

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	ssaerrors "github.com/fluxcd/pkg/ssa/errors"
	"github.com/fluxcd/pkg/ssa/utils"
	"github.com/siderolabs/go-kubernetes/kubernetes/ssa"
	"github.com/siderolabs/go-kubernetes/kubernetes/upgrade"
	"github.com/siderolabs/talos/pkg/cluster"
	"github.com/siderolabs/talos/pkg/cluster/kubernetes"
	"github.com/siderolabs/talos/pkg/machinery/api/common"
	"github.com/siderolabs/talos/pkg/machinery/client"
	clientconfig "github.com/siderolabs/talos/pkg/machinery/client/config"
	"github.com/siderolabs/talos/pkg/machinery/config/encoder"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	"google.golang.org/grpc"

	"talos-proxmox/internal/request"
)

// retryAdvice ends errors after which a run can be repeated.
const retryAdvice = "run the same again: what was done is skipped"

// Request is an upgrade of a healthy cluster.
type Request struct {
	Talosconfig string // secret
	// Endpoints are the control planes' addresses: any of them for Talos, the first one for Kubernetes.
	Endpoints []string
	// Nodes are all nodes, for progress. The library reads the nodes that it upgrades from Kubernetes.
	Nodes []request.Node
	From  string // the oldest running version
	To    string
	// Images are the image repositories by component; empty = Talos' own.
	Images Images
	// Kubelets says whether kubelets are upgraded as well. That waits until their nodes are Ready, which they never are
	// without a CNI.
	Kubelets bool
}

// Images are image repositories, without tags.
type Images struct {
	APIServer, ControllerManager, Scheduler, Proxy, Kubelet string
}

// Upgrade checks for removed flags and API resources, pulls images, and upgrades API servers, controller managers,
// schedulers, kubelets and Talos' own manifests, one node at a time. Components that run the image already are skipped.
// It unsets the proxies of the process, because the library would connect to nodes through them.
func Upgrade(ctx context.Context, req Request, progress io.Writer) error {
	for _, name := range []string{"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"} {
		_ = os.Unsetenv(name)
	}

	return upgradeUsing(ctx, req, progress, upgradeCluster)
}

func upgradeCluster(ctx context.Context, req Request, p *progress) error {
	path, err := upgradePath(req)
	if err != nil {
		return err
	}

	config, err := clientconfig.FromString(req.Talosconfig)
	if err != nil {
		return errors.New("talosconfig: it is not a Talos client configuration") // the parser quotes the text
	}

	if len(req.Endpoints) == 0 {
		return errors.New("endpoints: is missing: set the control planes' addresses")
	}

	talos, err := client.New(ctx, client.WithConfig(config), client.WithEndpoints(req.Endpoints...),
		client.WithGRPCDialOptions(grpc.WithNoProxy()))
	if err != nil {
		return fmt.Errorf("unable to connect to Talos on %s: %w", strings.Join(req.Endpoints, ", "), err)
	}

	defer func() { _ = talos.Close() }()

	clients := &cluster.ConfigClientProvider{DefaultClient: talos}
	provider := struct {
		cluster.ClientProvider
		cluster.K8sProvider
	}{clients, &cluster.KubernetesClient{ClientProvider: clients, ForceEndpoint: req.Endpoints[0]}}

	return callWithRetry(ctx, p, func(ctx context.Context, out io.Writer) error {
		if err := prePull(ctx, talos, req, out); err != nil {
			return err
		}

		p.restart()

		return kubernetes.Upgrade(ctx, &provider, options(req, path, out))
	})
}

// prePull pulls the images that the library does not pull before it changes anything, so that a missing image is an
// error before that, and no wait of a half upgraded cluster. It writes messages as the library does.
func prePull(ctx context.Context, talos *client.Client, req Request, out io.Writer) error {
	others := map[string]common.ContainerdNamespace{}

	if req.Images.Proxy != "" {
		others[req.Images.Proxy] = common.ContainerdNamespace_NS_CRI
	}

	if !req.Kubelets { // they follow with their configurations
		others[cmp.Or(req.Images.Kubelet, constants.KubeletImage)] = common.ContainerdNamespace_NS_SYSTEM
	}

	for _, repository := range slices.Sorted(maps.Keys(others)) {
		image := repository + ":" + req.To

		for _, n := range req.Nodes {
			_, _ = fmt.Fprintf(out, " > %q: pre-pulling %s", n.Address, image)

			//nolint:staticcheck // what replaces it is not there before Talos 1.13
			err := talos.ImagePull(client.WithNode(ctx, n.Address.String()), others[repository], image)
			if err != nil {
				return fmt.Errorf("error pre-pulling %s on %q: %w", image, n.Address, err)
			}
		}
	}

	return nil
}

// upgradeUsing calls do, and adds advice to its error.
func upgradeUsing(
	ctx context.Context, req Request, out io.Writer,
	do func(context.Context, Request, *progress) error,
) error {
	p := newProgress(out, req.Nodes)

	err := do(ctx, req, p)
	if err == nil {
		return nil
	}

	var (
		removed upgrade.ComponentRemovedItemsError
		refused *ssaerrors.DryRunErr
		stalled *stalledError
	)

	switch {
	case errors.As(err, &removed):
		return errors.New(removedText(removed, req))
	case errors.As(err, &refused) && utils.IsSecret(refused.InvolvedObject()):
		// The API server's reason quotes the Secret.
		return fmt.Errorf("the API server refuses %s of Talos' manifests, and its reason is left out, because it may quote "+
			"the secret: repair that manifest in the stack's patches, then %s",
			utils.FmtUnstructured(refused.InvolvedObject()), retryAdvice)
	case errors.As(err, &stalled) && stalled.waitedForKubelet():
		return fmt.Errorf("%s: the node's kubelet hangs: `talosctl --nodes <its address> reboot` ends that, then %s",
			p.withNodeNames(stalled.Error()), retryAdvice)
	case ctx.Err() != nil:
		return fmt.Errorf("interrupted: %w: %s", cmp.Or(context.Cause(ctx), err), retryAdvice)
	default:
		return fmt.Errorf("%s: repair what it names, then %s", p.withNodeNames(err.Error()), retryAdvice)
	}
}

// upgradePath returns the library's path between the versions, or an error if it supports none.
func upgradePath(req Request) (*upgrade.Path, error) {
	path, err := upgrade.NewPath(req.From, req.To)
	if err != nil {
		return nil, fmt.Errorf("%s → %s: %w: write versions in full, such as v1.37.2", req.From, req.To, err)
	}

	if !path.IsSupported() {
		return nil, fmt.Errorf("the upgrade library of Talos does not support the step %s → %s: Kubernetes is upgraded by "+
			"one minor version at a time", req.From, req.To)
	}

	return path, nil
}

func options(req Request, path *upgrade.Path, out io.Writer) kubernetes.UpgradeOptions {
	return kubernetes.UpgradeOptions{
		Path:           path,
		LogOutput:      out,
		PrePullImages:  true,
		UpgradeKubelet: req.Kubelets,
		EncoderOpt:     encoder.WithComments(encoder.CommentsDisabled),

		// Talos before 1.13 kept no inventory of its manifests, so their objects belong to none.
		InventoryPolicy: ssa.InventoryPolicyAdoptIfNoInventory,
		// An object that the manifests of a control plane lack may be from a manifest that it could not download.
		NoPrune:          true,
		ReconcileTimeout: reconcileTimeout,
		// CoreDNS is not available without a CNI.
		SkipManifestWait: !req.Kubelets,

		KubeletImage:           cmp.Or(req.Images.Kubelet, constants.KubeletImage),
		APIServerImage:         cmp.Or(req.Images.APIServer, constants.KubernetesAPIServerImage),
		ControllerManagerImage: cmp.Or(req.Images.ControllerManager, constants.KubernetesControllerManagerImage),
		SchedulerImage:         cmp.Or(req.Images.Scheduler, constants.KubernetesSchedulerImage),
		ProxyImage:             cmp.Or(req.Images.Proxy, constants.KubeProxyImage),
	}
}

// removedText lists what the cluster uses and the version has removed.
func removedText(removed upgrade.ComponentRemovedItemsError, req Request) string {
	names := map[string]string{}
	for _, n := range req.Nodes {
		names[n.Address.String()] = n.Name
	}

	var lines []string

	for _, list := range []struct {
		what  string
		items []upgrade.ComponentItem
	}{
		{"admission plugin", removed.AdmissionFlags}, {"feature gate", removed.FeatureGates}, {"flag", removed.CLIFlags},
	} {
		for _, item := range list.items {
			lines = append(lines, fmt.Sprintf("  %s: %s: %s %s", cmp.Or(names[item.Node], item.Node), item.Component,
				list.what, item.Value))
		}
	}

	for resource, count := range removed.APIResources {
		lines = append(lines, fmt.Sprintf("  objects of %s: %d", resource, count))
	}

	slices.Sort(lines)

	return fmt.Sprintf("Kubernetes %s does not have what the cluster uses, and nothing was changed:\n%s\n"+
		"take flags, gates and plugins out of the stack's patches with an `up` of the version that runs, move objects to a "+
		"version that stays, then set %s again", req.To, strings.Join(lines, "\n"), req.To)
}
