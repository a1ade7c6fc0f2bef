package components

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	"go.yaml.in/yaml/v4"

	"talos-proxmox/internal/cilium"
	"talos-proxmox/internal/problem"
	"talos-proxmox/internal/request"
	"talos-proxmox/internal/spec"
	"talos-proxmox/internal/talos"
	"talos-proxmox/internal/tokens"
)

type (
	// CNI is the CNI of a cluster.
	//
	// Its fields, from their own comments (make schema):
	//   - Version string: The version of the chart. Default: the newest one that supports the Kubernetes version.
	//   - Chart string: Where the chart's archive is: oci://…, https://….tgz, file:///….tgz, or a path. Default: where
	//     Cilium publishes it.
	//   - Digest string: The SHA-256 of the archive, as sha256:…; for a chart in a registry, that of its manifest works
	//     as well. Default: that of Cilium's archive, if it is known.
	//   - Values string: Values of the chart, in addition to those that Talos needs, as YAML text. Default: none.
	//   - LoadBalancer []cilium.AddressRange: Addresses for Services of type LoadBalancer, which the nodes announce.
	//     Default: none.
	//   - Interfaces []string: Regular expressions for the names of the network interfaces that announce them. Default:
	//     all.
	//   - BGP *cilium.BGP: Announce them to routers by BGP. Default: in the nodes' own network, by ARP.
	//   - GatewayAPI bool: Enable the Gateway API, and install its CRDs. Default: false.
	//   - GatewayAPISource string: The directory of the Gateway API's CRDs, as an https:// address or a path. Default:
	//     its repository.
	//   - Hubble bool: Run Hubble, its relay and its user interface. Default: false.
	//   - Secret bool: Store the values, and what is computed from them, as secrets in state and previews. Default:
	//     false.
	CNI = spec.CNI
	// AddressRange is a range of addresses for Services of type LoadBalancer.
	//
	// Its fields, from their own comments (make schema):
	//   - First netip.Addr: The first address.
	//   - Last netip.Addr: The last address.
	AddressRange = cilium.AddressRange
	// BGP is how the nodes announce the addresses of Services to routers.
	//
	// Its fields, from their own comments (make schema):
	//   - LocalASN int: The autonomous system number of the nodes.
	//   - Peers []cilium.BGPPeer: The routers that every node connects to.
	//   - Multihop int: The number of hops to routers outside the nodes' network that are external peers (eBGP).
	//     Default: 0, directly connected.
	//   - HoldTimeSeconds int: How long routers keep the routes of a silent node, in seconds; nodes announce themselves
	//     three times as often. Default: 90.
	//   - Password string: The password of the sessions (TCP MD5, RFC 2385). Default: none.
	BGP = cilium.BGP
	// BGPPeer is a router that the nodes connect to.
	//
	// Its fields, from their own comments (make schema):
	//   - Address netip.Addr: The router's address.
	//   - ASN int: The router's autonomous system number; the nodes' own for an internal peer (iBGP).
	BGPPeer = cilium.BGPPeer
)

const ciliumRelease, ciliumNamespace = "cilium", "kube-system"

// cniWithDefaults sets the defaults for a version of Kubernetes.
func cniWithDefaults(c *CNI, kubernetes string) *CNI {
	if c == nil {
		return nil
	}

	cni := *c
	setDefault(&cni.Version, cilium.DefaultVersion(kubernetes))
	setDefault(&cni.Chart, cilium.Address(cni.Version))

	if chart, known := cilium.Find(cni.Version); known {
		setDefault(&cni.Digest, chart.Digest)
	}

	cni.Secret = cni.Secret || cni.BGP != nil && cni.BGP.Password != ""

	return &cni
}

func validateCNI(c *CNI, a TalosClusterArgs, found *problem.List) {
	if c == nil {
		return
	}

	required(found, "cni.version", c.Version, "a version of the chart that runs on Kubernetes "+a.KubernetesVersion)
	required(found, "cni.digest", c.Digest, "the SHA-256 of the chart's archive, as sha256:…")

	if err := cilium.Check(c.Version, a.KubernetesVersion); err != nil {
		found.Add("cni.version", c.Version, "%v", err)
	}

	values, err := userValues(c)
	if err != nil {
		found.Add("cni.values", nil, "%v", err)
	}

	for path, problem := range cilium.CheckValues(values) {
		found.Add("cni.values."+path, nil, "%s", problem)
	}

	for i, r := range c.LoadBalancer {
		at := fmt.Sprintf("cni.loadBalancer[%d].", i)
		requiredAddress(found, at+"first", r.First, "the first address, such as 10.0.0.200")
		requiredAddress(found, at+"last", r.Last, "the last address, such as 10.0.0.220")
	}

	validateBGP(c, found)

	for path, patches := range patchesByPath(a) {
		for i, patch := range patches {
			if parts := talos.NetworkPaths(patch); len(parts) > 0 {
				found.Add(fmt.Sprintf("%s[%d]", path, i), nil,
					"it changes %s, which Cilium stands in for; remove it, or cni", strings.Join(parts, ", "))
			}
		}
	}
}

// maxASN is the highest autonomous system number.
const maxASN = 1<<32 - 1

func validateBGP(c *CNI, found *problem.List) {
	b := c.BGP
	if b == nil {
		return
	}

	if len(c.LoadBalancer) == 0 {
		found.Add("cni.bgp", nil, "is set without addresses to announce; set cni.loadBalancer, or remove it")
	}

	checkASN := func(path string, number int) {
		if number < 1 || number > maxASN {
			found.Add(path, number, "is not an autonomous system number; use one between 1 and %d", maxASN)
		}
	}
	checkASN("cni.bgp.localAsn", b.LocalASN)

	if len(b.Peers) == 0 {
		found.Add("cni.bgp.peers", nil, "is missing; add a router that the nodes connect to")
	}

	for i, peer := range b.Peers {
		at := fmt.Sprintf("cni.bgp.peers[%d].", i)
		requiredAddress(found, at+"address", peer.Address, "the router's address, such as 10.0.0.1")
		checkASN(at+"asn", peer.ASN)
	}
}

// patchesByPath returns all patches of a cluster by the path of their argument.
func patchesByPath(a TalosClusterArgs) map[string][]string {
	all := map[string][]string{"patches": a.Patches}
	for i, n := range a.Nodes {
		all[fmt.Sprintf("nodes[%d].patches", i)] = n.Patches
	}

	return all
}

// userValues returns the user's values. The error does not quote them: they may be secret.
func userValues(c *CNI) (map[string]any, error) {
	var values map[string]any
	if err := yaml.Unmarshal([]byte(c.Values), &values); err != nil {
		return nil, errors.New("is not a map in YAML; correct it")
	}

	return values, nil
}

// ciliumSettings returns what determines Cilium in a cluster with a CNI.
func ciliumSettings(a TalosClusterArgs) (cilium.Settings, error) {
	c := a.CNI
	own, err := userValues(c)

	return cilium.Settings{
		Nodes: len(a.Nodes), Hubble: c.Hubble, GatewayAPI: c.GatewayAPI, Interfaces: c.Interfaces, Own: own,
		Pool: c.LoadBalancer, BGP: c.BGP, IPv6: a.Network.IPv6 != nil,
	}, err
}

// ciliumHelmRelease returns the Helm release for a cluster with a CNI.
func ciliumHelmRelease(a TalosClusterArgs) (request.HelmRelease, error) {
	c := a.CNI

	settings, err := ciliumSettings(a)
	if err != nil {
		return request.HelmRelease{}, err
	}

	release := request.HelmRelease{
		Name: ciliumRelease, Namespace: ciliumNamespace, Chart: c.Chart, Version: c.Version, Digest: c.Digest,
	}

	if release.Values, err = json.Marshal(settings.Values()); err != nil {
		return release, err
	}

	for _, object := range settings.Objects() {
		text, err := json.Marshal(object)
		if err != nil {
			return release, err
		}

		release.After = append(release.After, text)
	}

	release.Manifests, release.Absent = settings.Definitions(c.Version, c.GatewayAPISource), settings.Absent()

	return release, nil
}

// registerCNI installs the CNI as soon as the Kubernetes API is up: a node that waits ten minutes for one restarts. It
// runs again when the chart, its values or related objects change; the preview shows the chart and a digest of the
// rest.
func (c *TalosCluster) registerCNI(ctx *pulumi.Context, name string, args TalosClusterArgs) error {
	if args.CNI == nil {
		return nil
	}

	release, err := ciliumHelmRelease(args)
	if err != nil {
		return err
	}

	digest, err := contentHash(release)
	if err != nil {
		return err
	}

	req := request.CNI{
		Common: request.Common{ControlPlanes: requestNodes(args.controlPlanes())}, Release: release,
	}

	const digits = 12 // are enough to tell contents apart

	trigger := pulumi.StringInput(pulumi.Sprintf(
		"%s %s of %s with values %s", release.Name, release.Version, release.Chart, digest[:digits],
	))
	if args.CNI.Secret {
		trigger = pulumi.ToSecret(trigger).(pulumi.StringOutput) // short secrets could be guessed from their digest
	}

	c.cni, err = talosopsCall{
		verb: "cni",
		request: func(_, kubeconfig string) any {
			req.Kubeconfig = kubeconfig

			return req
		},
		trigger: trigger, kubeconfig: c.Kubeconfig,
	}.register(ctx, name+tokens.OfCNI, pulumi.Parent(c), pulumi.DependsOn([]pulumi.Resource{c.bootstrap}))

	return err
}
