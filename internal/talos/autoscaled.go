package talos

import "strings"

// Texts in place of what a machine that an autoscaler adds has of its own, which are valid where they stand.
const (
	autoscaledName     = "autoscaled-machine"
	autoscaledZone     = "autoscaled-zone"
	autoscaledProvider = "autoscaled-provider-id"
	unregisteredTaint  = "karpenter.sh/unregistered"
)

// Autoscaled returns what is specific to the machines that an autoscaler adds to a pool: like is one of the pool, its
// first interface without a MAC address. [AutoscaledTemplate] fills in the rest. Karpenter waits for its taint.
func Autoscaled(like NodeConfig) NodeConfig {
	taints := map[string]string{unregisteredTaint: "NoExecute"}
	for key, effect := range like.Taints {
		taints[key] = effect
	}

	like.Name, like.Zone, like.ProviderID, like.Taints = autoscaledName, autoscaledZone, autoscaledProvider, taints

	return like
}

// AutoscaledTemplate turns the machine configuration of [Autoscaled] into a template of Go's text/template, with the
// values of Karpenter's provider for Proxmox (v0.12.0, its page on node classes).
func AutoscaledTemplate(configuration string) string {
	return strings.NewReplacer(
		"{{", `{{"{{"}}`,
		autoscaledName, "{{.Metadata.Hostname}}",
		autoscaledZone, "{{.Metadata.Zone}}",
		autoscaledProvider, "{{.Metadata.ProviderID}}",
	).Replace(configuration)
}
