// Package cilium has the data of the CNI that the program installs: its charts with the Kubernetes versions that they
// support, the values that Cilium needs on Talos, and the objects for a stack file's settings.
package cilium

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Chart is a version of Cilium's chart.
type Chart struct {
	// Version is the chart's, without a v.
	Version string
	// Digest is sha256:… of the archive that Cilium publishes.
	Digest string
	// Oldest and Newest are the minor versions of Kubernetes that Cilium tests the version on, both included. Older ones
	// are not supported; newer ones rely on Kubernetes' own compatibility guarantees
	// (Documentation/network/kubernetes/requirements.rst in its repository).
	Oldest, Newest string
	// GatewayAPI is the implemented version of the Gateway API, Definitions its CustomResourceDefinitions.
	GatewayAPI  string
	Definitions []Definition
}

// Definition is a file of the Gateway API's repository: the CustomResourceDefinition of one kind.
type Definition struct {
	Kind   string // as in file names
	Digest string // sha256:… of the file
}

// Charts returns the versions with known digests, oldest first: of the chart's archive at Address, and of the files at
// the Gateway API's tag.
func Charts() []Chart {
	return []Chart{
		{
			Version: "1.18.12", Digest: "sha256:5923f9d9fcb11bc4692ad52353cc791b935d96e09ba0c535c5a8b88ea8a37572",
			Oldest: "v1.30", Newest: "v1.33", GatewayAPI: "v1.3.0", Definitions: gatewayAPI130(),
		},
		{
			Version: "1.19.6", Digest: "sha256:21c43cf53841f9ab0375047d95aa4c64051ea52bbd2c679416e6408f5f1c9179",
			Oldest: "v1.32", Newest: "v1.35", GatewayAPI: "v1.4.1", Definitions: gatewayAPI141(),
		},
		{
			Version: "1.20.2", Digest: "sha256:b2afd87b7f75f875f92a14559f14f59b7babbb479d968e3fd625a20bf30ec20e",
			Oldest: "v1.33", Newest: "v1.36", GatewayAPI: "v1.6.1", Definitions: gatewayAPI161(),
		},
	}
}

func gatewayAPI130() []Definition {
	return []Definition{
		{"gatewayclasses", "sha256:7c8ee2c1878d9dcc6ba106181e3d14d7eaa520ec070233d62f3aa0d674d19450"},
		{"gateways", "sha256:c949e7c3951227b92a582817a7a660558ce0fb94c081da264b4e2bbe4a1e5387"},
		{"grpcroutes", "sha256:5867279c3cfd77377fe7e9255b22751f17592242b9b5e7485c74b13b268d13c5"},
		{"httproutes", "sha256:a4ecf600c7e0bfd3cdb24e6411938d9b330117a26675f303cc6d9a407cb257d1"},
		{"referencegrants", "sha256:7587b2e7e5b1b9a26717b3ef8142f64e6600637eadf481a6bd0031740644b495"},
	}
}

func gatewayAPI141() []Definition {
	return []Definition{
		{"gatewayclasses", "sha256:7d958ad3965ea4a4996616846d9ecaf1fededbf9351b9752b8b85973936ae8c8"},
		{"gateways", "sha256:a02ea425fc901f197b668c9ddd56375e1f6896994914c6e6b9b4fdb85cf3ba6e"},
		{"grpcroutes", "sha256:b72068b42cb32051ca609e5a8dfefb16904d164abe2e71d9f3c776fae41c4dab"},
		{"httproutes", "sha256:98c6777c22309d319292e9c288ee632006c9ffdd4272383d6f9dffa3fbccaf14"},
		{"referencegrants", "sha256:d74fc2f8e90094f4c4d6dc13a2d720011a40e30e5640b3e2a2051fac820f6584"},
	}
}

func gatewayAPI161() []Definition {
	return []Definition{
		{"backendtlspolicies", "sha256:0d48c9e4b53dd9510cf615b9b1192d9d7afb07a1cc0498c9515627cb1c075419"},
		{"gatewayclasses", "sha256:53710048ba26f8620eed59d5e51b157ecf040daf5c6eef31a4b991e0808c4be5"},
		{"gateways", "sha256:25b885f5870b8fff1ae82efa2628b2761cef3745900c2aecf8fb76629a01255a"},
		{"grpcroutes", "sha256:53a8d029da8f07e55d3fa58a5cf6de5950dab19fbb8d6a8082fb5e51ca5ef6fc"},
		{"httproutes", "sha256:a424a0d6c953b162e71d1d97bb7e75012d8f1ac264e7274f2763d1b96ab39852"},
		{"referencegrants", "sha256:8c645e9333cfa67790cc2a53e0c00076f88b2bd4230d2b49688c78bc34f9b2c3"},
		{"tlsroutes", "sha256:bb8b67926e5d9652cbfd2e19063b7c1d9e78806c9dd671608f57baef2f2e3bbb"},
	}
}

// DefaultVersion returns the newest version for a full Kubernetes version; empty if there is none.
func DefaultVersion(kubernetes string) string {
	found := ""

	for _, chart := range Charts() {
		if chart.supports(kubernetes) {
			found = chart.Version
		}
	}

	return found
}

// Find returns the chart of a version with a known digest.
func Find(version string) (Chart, bool) {
	charts := Charts()
	if i := slices.IndexFunc(charts, func(c Chart) bool { return c.Version == version }); i >= 0 {
		return charts[i], true
	}

	return Chart{}, false
}

// Address returns the URL of a version's archive.
func Address(version string) string { return "https://helm.cilium.io/cilium-" + version + ".tgz" }

// Check returns an error if a known version does not support a full Kubernetes version; unknown versions pass. The
// error says what to do.
func Check(version, kubernetes string) error {
	chart, known := Find(version)
	if !known || chart.supports(kubernetes) {
		return nil
	}

	advice := "and none that this program knows runs there: choose a newer version of Kubernetes"
	if better := DefaultVersion(kubernetes); better != "" {
		advice = "set " + better
	}

	return fmt.Errorf("is tested by Cilium on Kubernetes %s to %s, not on %s; %s", chart.Oldest, chart.Newest, kubernetes,
		advice)
}

// supports reports whether Cilium tests the version on a Kubernetes version. The newest version also supports all newer
// Kubernetes versions, because there is no better one.
func (c Chart) supports(kubernetes string) bool {
	charts := Charts()
	isNewest := c.Version == charts[len(charts)-1].Version
	minor := minorVersion(kubernetes)

	return minor >= minorVersion(c.Oldest) && (minor <= minorVersion(c.Newest) || isNewest)
}

// Untested returns a warning if Cilium does not test a known version on a full Kubernetes version that it supports;
// empty otherwise.
func Untested(version, kubernetes string) string {
	chart, known := Find(version)
	if !known || !chart.supports(kubernetes) || minorVersion(kubernetes) <= minorVersion(chart.Newest) {
		return ""
	}

	return fmt.Sprintf("Cilium tests %s on Kubernetes %s to %s, and not yet on %s", version, chart.Oldest, chart.Newest,
		kubernetes)
}

// AnnouncesIPv6 reports whether a version announces IPv6 addresses of Services in the nodes' network, which Cilium does
// from 1.19 on (cilium/cilium#39648).
func AnnouncesIPv6(version string) bool {
	const first = 19

	major, _, _ := strings.Cut(version, ".")

	return major != "1" || minorVersion(version) >= first
}

// minorVersion returns 35 for v1.35 and v1.35.4.
func minorVersion(version string) int {
	parts := strings.Split(version, ".")
	if len(parts) < 2 {
		return 0
	}

	minor, _ := strconv.Atoi(parts[1])

	return minor
}
